"""The table `[pool.slurm]`: the settings of a pool of Slurm's pilots, checked.

Words that become part of a command are restricted to narrow alphabets, and each is passed as one
word `--name=value`: a setting can change the request to Slurm, but can't run anything.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.base.values import SettingError, check_known, count, flag, length_s

APIS: Final = ("v0.0.38", "v0.0.42")
# Options of sbatch that only control where and how jobs run; True: it takes no value.
OPTIONS: Final[Mapping[str, bool]] = {
    "contiguous": True,
    "exclusive": True,
    "spread-job": True,
    "cluster-constraint": False,
    "core-spec": False,
    "cores-per-socket": False,
    "distribution": False,
    "exclude": False,
    "extra-node-info": False,
    "gres-flags": False,
    "hint": False,
    "licenses": False,
    "mcs-label": False,
    "mem-per-cpu": False,
    "network": False,
    "nice": False,
    "nodelist": False,
    "prefer": False,
    "priority": False,
    "sockets-per-node": False,
    "switches": False,
    "thread-spec": False,
    "threads-per-core": False,
    "tmp": False,
    "wckey": False,
}
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,99}", re.ASCII)
_VALUE: Final = re.compile(r"[A-Za-z0-9_.,:=@%&|*()\[\]+/!-]{1,300}", re.ASCII)
_PATH: Final = re.compile(r"/[^\0-\x1f\x7f]{0,500}")
_GPU_TYPE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}", re.ASCII)
_KEYS: Final = (
    *("partition", "account", "qos", "constraint", "reservation", "gpu_type", "cpus_per_slot"),
    *("walltime", "warn", "python", "folder", "logs", "requeue", "options", "conf", "prefix"),
    *("url", "api", "token_file", "user", "array_max", "orders_max", "timeout"),
)


@dataclass(frozen=True, slots=True)
class RestSettings:
    """The access to slurmrestd.

    Attributes:
        url: "http://host:port", "https://..." or "unix:/path".
        token_file: of a JSON web token, as `scontrol token` prints it; empty: none.
        user: the token's.
    """

    url: str
    api: str
    token_file: str = ""
    user: str = ""

    @property
    def socket(self) -> str:
        """The path of its unix socket; empty: it is reached over TCP."""
        return self.url.removeprefix("unix:") if self.url.startswith("unix:") else ""


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """The owner's settings of a pool. Empty texts leave a choice to Slurm.

    Attributes:
        partition: one or several, with commas between them.
        cpus_per_slot: that Slurm gives for each slot.
        walltime_s: that a pilot may run; None: as long as the partition allows.
        warn_s: a pilot is warned this long before its end.
        python: on the nodes, of an environment that has gridfed.
        folder: the working directory of a pilot, on the nodes.
        logs: a folder on the nodes for the pilots' output; empty: it is discarded.
        requeue: whether Slurm may start a pilot again.
        options: more of sbatch's.
        conf: the slurm.conf of the cluster.
        prefix: words before each command.
        rest: slurmrestd instead of commands.
        array_max: pilots of an order; None: as Slurm is configured.
        orders_max: in a minute.
        timeout_s: the time limit of each query to Slurm.
    """

    partition: str
    python: str
    account: str = ""
    qos: str = ""
    constraint: str = ""
    reservation: str = ""
    gpu_type: str = ""
    cpus_per_slot: int = 1
    walltime_s: float | None = None
    warn_s: float = 60.0
    folder: str = "/tmp"  # noqa: S108 - exists on every node
    logs: str = ""
    requeue: bool = False
    options: tuple[tuple[str, str], ...] = ()
    conf: str = ""
    prefix: tuple[str, ...] = ()
    rest: RestSettings | None = None
    array_max: int | None = None
    orders_max: int = 30
    timeout_s: float = 30.0

    @property
    def partitions(self) -> tuple[str, ...]:
        """The names of the partitions."""
        return tuple(self.partition.split(","))


def read_settings(table: Mapping[str, Any]) -> SlurmSettings:
    """Read `[pool.slurm]`. Raises SettingError."""
    check_known(table, _KEYS)
    rest = _read_rest(table)
    for key in ("conf", "prefix", "options"):
        if rest is not None and key in table:
            raise SettingError(f"{key} is for the Slurm commands: remove it, or remove url")
    return SlurmSettings(
        partition=_partitions(table.get("partition", "")),
        python=_path("python", table, required=True),
        account=_name("account", table),
        qos=_name("qos", table),
        constraint=_slurm_value("constraint", table.get("constraint", ""), _VALUE),
        reservation=_slurm_value("reservation", table.get("reservation", ""), _VALUE),
        gpu_type=_slurm_value("gpu_type", table.get("gpu_type", ""), _GPU_TYPE),
        cpus_per_slot=count("cpus_per_slot", table.get("cpus_per_slot", 1), 1, 1024),
        walltime_s=length_s("walltime", table["walltime"], "2m", "365d")
        if "walltime" in table
        else None,
        warn_s=length_s("warn", table.get("warn", "60s"), "0s", "18h"),
        folder=_path("folder", table) or "/tmp",  # noqa: S108
        logs=_path("logs", table),
        requeue=flag("requeue", table.get("requeue", False)),
        options=_options(table.get("options", {})),
        conf=_path("conf", table),
        prefix=_words("prefix", table.get("prefix", [])),
        rest=rest,
        array_max=count("array_max", table["array_max"], 1, 100_000)
        if "array_max" in table
        else None,
        orders_max=count("orders_max", table.get("orders_max", 30), 1, 6_000),
        timeout_s=length_s("timeout", table.get("timeout", "30s"), "1s", "5m"),
    )


def _read_rest(table: Mapping[str, Any]) -> RestSettings | None:
    if "url" not in table:
        for key in ("api", "token_file", "user"):
            if key in table:
                raise SettingError(f"{key} is for slurmrestd: it requires url")
        return None
    url, api = table["url"], table.get("api")
    if api not in APIS:
        raise SettingError(
            f"api is {api!r}: must be one of {', '.join(APIS)}, as configured in slurmrestd"
        )
    token_file = table.get("token_file", "")
    if not isinstance(token_file, str):
        raise SettingError("token_file must be a file name")
    user = _name("user", table)
    if not isinstance(url, str):
        raise SettingError("url must be http://HOST:PORT, https://HOST:PORT or unix:/PATH")
    if url.startswith("unix:"):
        if not _PATH.fullmatch(url.removeprefix("unix:")):
            raise SettingError(f"url is {url[:80]!r}: unix: must be followed by an absolute path")
    else:
        _check_url(url)
        if not (token_file and user):
            raise SettingError(
                "slurmrestd over http requires token_file and user: see `scontrol token`"
            )
    return RestSettings(url.rstrip("/"), api, token_file, user)


def _check_url(url: str) -> None:
    wrong = SettingError(
        f"url is {url[:80]!r}: must be http://HOST:PORT, https://HOST:PORT or unix:/PATH"
    )
    try:
        parts = urlsplit(url)
        has_place = bool(parts.hostname and parts.port != 0)
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not has_place or parts.query or parts.fragment:
        raise wrong
    if parts.username or parts.password:
        raise SettingError("url contains a password: slurmrestd uses tokens, see token_file")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise wrong


def _partitions(value: Any) -> str:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not 1 <= len(names) <= 50 or not all(names):
        raise SettingError(
            'partition must be a name or a list of names, for example ["fast", "long"]'
        )
    return ",".join(_slurm_value("partition", each, _NAME) for each in names)


def _name(key: str, table: Mapping[str, Any]) -> str:
    return _slurm_value(key, table.get(key, ""), _NAME)


def _slurm_value(key: str, value: Any, alphabet: "re.Pattern[str]") -> str:
    if value == "":
        return ""
    if not isinstance(value, str) or not alphabet.fullmatch(value):
        raise SettingError(f"{key} is {str(value)[:80]!r}: Slurm does not accept such a value")
    return value


def _path(key: str, table: Mapping[str, Any], *, required: bool = False) -> str:
    value = table.get(key, "")
    if value == "" and required:
        raise SettingError(
            f"{key} is missing: set it to the path of a Python interpreter on the nodes, with "
            "gridfed"
        )
    if value != "" and (not isinstance(value, str) or not _PATH.fullmatch(value)):
        raise SettingError(f"{key} must be an absolute path")
    return str(value)


def _words(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > 50:
        raise SettingError(f'{key} must be a list of words, for example ["nice", "-n", "5"]')
    for each in value:
        if not isinstance(each, str) or not each or len(each) > 1000 or "\0" in each:
            raise SettingError(f"{key} must be a list of strings")
    return tuple(value)


def _options(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise SettingError(
            'options must be a table, for example {exclude = "node7", exclusive = true}'
        )
    found = []
    for name, given in value.items():
        if name not in OPTIONS:
            raise SettingError(
                f"unknown option {str(name)[:40]!r} in options; known options: "
                f"{', '.join(sorted(OPTIONS))}"
            )
        if OPTIONS[name]:
            if flag(f"options {name}", given):
                found.append((name, ""))
            continue
        if isinstance(given, int) and not isinstance(given, bool):
            given = str(given)
        if not isinstance(given, str) or not _VALUE.fullmatch(given):
            raise SettingError(f"options {name} has a value that Slurm does not accept")
        found.append((name, given))
    return tuple(found)
