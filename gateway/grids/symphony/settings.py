"""The table `[pool.symphony]` of a pool: the access to an IBM Spectrum Symphony application.

[pool.symphony]
way = "soamapi"                 # its library, in a side process; or "rest": SYMREST over HTTPS
application = "gridfed"         # as registered with soamreg
login_file = "symphony.login"   # one line: USER:PASSWORD
slots = 64                      # 0: as EGO says
python = "3.12"                 # the minor version of Python that runs calls on the hosts
session_type = "gridfed"        # of the application's profile
priority = 0                    # of our sessions, 1 to 10000; 0: the session type's
resource_group = ""             # a filter; empty: the session type's
service = ""                    # empty: the session type's
tag = ""                        # on our sessions

take_up_s = 120.0               # wait of parcels found at a restart for their tasks; 0: ended
on_stop = "close"               # or "detach": a stopped gateway leaves its parcels at work

interpreter = "/opt/ibm/python" # soamapi: a Python that can import it, or a script that runs one

url = "https://sym:8050"        # rest: where SYMREST listens
cluster = ""                    # rest: where SYMREST fronts several
ca_file = ""                    # rest, ego: trusted authorities; empty: the system's

ego_url = ""                    # https://sym:8543; queried for our number of slots
consumer = ""                   # the owner of the slots, as in "/Risk/Gridfed"
capacity_s = 10.0               # the interval of these queries
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.base.values import SettingError, check_known, choice, count, number
from gateway.grids.contract import FailureClass, GridFault

WAYS: Final = ("soamapi", "rest")
ON_STOP: Final = ("close", "detach")
TAKE_UP_MAX_S: Final = 86_400.0
SLOTS_MAX: Final = 50_000
PRIORITY_MAX: Final = 10_000
TEXT_MAX: Final = 256
OURS: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class SymphonySettings:
    """The settings of `[pool.symphony]`; see the module."""

    way: str
    application: str
    login_file: str = ""
    slots: int = 0
    python: str = OURS
    session_type: str = "gridfed"
    priority: int = 0
    resource_group: str = ""
    service: str = ""
    tag: str = ""
    take_up_s: float = 120.0
    on_stop: str = "close"
    interpreter: str = ""
    url: str = ""
    cluster: str = ""
    ca_file: str = ""
    ego_url: str = ""
    consumer: str = ""
    capacity_s: float = 10.0

    def login(self) -> tuple[str, str]:
        """Return user and password. Raises GridFault, which reveals neither."""
        path = Path(self.login_file).expanduser()
        try:
            text = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise GridFault(FailureClass.NEVER, f"login_file {path}: {why}") from None
        user, colon, password = text.partition(":")
        if not colon or not user or "\n" in text:
            raise GridFault(
                FailureClass.NEVER, f"login_file {path} must be one line, USER:PASSWORD"
            )
        return user, password


def read(table: Mapping[str, Any]) -> SymphonySettings:
    """Read `[pool.symphony]`. Raises SettingError."""
    check_known(table, [field.name for field in fields(SymphonySettings)])
    for key in ("way", "application"):
        if key not in table:
            raise SettingError(f"{key} is missing")
    bounds = {"capacity_s": (1.0, 3600.0), "take_up_s": (0.0, TAKE_UP_MAX_S)}
    lengths = {key: number(key, table[key], *bounds[key]) for key in bounds if key in table}
    made = SymphonySettings(**{**table, **lengths})
    choice("way", made.way, WAYS)
    for field in fields(made):
        if field.type is str:
            _check_text(field.name, getattr(made, field.name))
    if not made.application:
        raise SettingError("application is empty")
    count("slots", made.slots, 0, SLOTS_MAX)
    count("priority", made.priority, 0, PRIORITY_MAX)
    choice("on_stop", made.on_stop, ON_STOP)
    if made.on_stop == "detach" and not made.take_up_s:
        raise SettingError(
            'on_stop = "detach" requires take_up_s, or the work would never be resumed'
        )
    _check_whole(made)
    return made


def _check_text(key: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) > TEXT_MAX or not value.isprintable():
        raise SettingError(f"{key} must be at most {TEXT_MAX} printable characters")


def _check_whole(made: SymphonySettings) -> None:
    if re.fullmatch(r"3\.[0-9]{1,2}", made.python) is None:
        raise SettingError(
            f'python is {made.python!r:.40}: must be a minor version, for example "3.12"'
        )
    if not made.login_file:
        raise SettingError("login_file is missing: it must be a file of one line, USER:PASSWORD")
    if made.way == "soamapi" and not made.interpreter:
        raise SettingError("interpreter is missing: it must be a Python that can `import soamapi`")
    if made.way == "rest":
        _check_url("url", made.url)
    if made.ego_url:
        _check_url("ego_url", made.ego_url)
        if not made.consumer.startswith("/"):
            raise SettingError('ego_url requires consumer, a path such as "/Risk/Gridfed"')
    elif not made.slots:
        raise SettingError(
            "slots is 0: set it to the slots of this site, or set ego_url and consumer"
        )


def _check_url(key: str, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.query or "@" in parts.netloc:
        raise SettingError(f"{key} is {url!r:.80}: must be https://HOST:PORT")
