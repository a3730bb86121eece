"""The tables [limits] and [objects]: the room of clients, workers, sessions and objects."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from gateway.base.toml_lines import Passage
from gateway.base.values import SettingError, count, number, size
from policies.costs.holding import HoldPrice, parse_hold_price
from policies.costs.moving import GbPrice, MovePrices, parse_gb_price

OBJECT_BYTES_MIN: Final = 1 << 20
OBJECT_BYTES_MAX: Final = 1 << 50
SHARE_MAX: Final = 0.9  # of a host's memory: the rest is for the gateway and its slots


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """The listener's parameters and limits for its peers.

    `grace_s` is how long a session outlives its pipe. For a worker it is the lease, after which it
    has stopped its tasks itself; these are placed elsewhere a little later, by the formula of
    leases between sites (contracts.grantor_until_s). federation.sessions.hearing defines when a
    hung peer is noticed. A peer that sends more frames than `frames_per_s` is answered, and so can
    continue, only at that rate: no frame is lost. `handshakes_per_s` applies to each host
    separately. A rate of 0 is no limit.
    """

    site: str = "local"
    boot: int = 0
    secret: str = ""
    heartbeat_s: float = 2.0
    grace_s: float = 10.0
    tasks_max: int = 200_000
    bytes_max: int = 256 << 20
    message_bytes_max: int = 64 << 20
    function_wait_s: float = 60.0
    jobs_max: int = 50_000
    function_bytes_max: int = 512 << 20
    kept_bytes_max: int = 1 << 30
    losses_max: int = 5
    store_wait_s: float = 30.0
    sessions_max: int = 4096
    questions_max: int = 256  # unanswered ones of one peer
    strangers_max: int = 512  # pipes that have not been admitted yet, …
    host_strangers_max: int = 256  # … and of one host: see gateway.sessions.half_open
    handshakes_per_s: float = 0.0  # of one host
    frames_per_s: float = 0.0  # of one peer


@dataclass(frozen=True, slots=True)
class ObjectLimits:
    """The room for objects on the gateway's host, in bytes or as a share of its memory.

    Attributes:
        memory: for all together.
        user, project: for those of one user, and of one project; None: no other limit.
        spill_dir: the folder for objects that have no room in memory; empty: they are refused.
        spill: the room there; None: no other limit than that of the disk.
        hold: the price of a GB-month of them, for each user that holds them.
        receive, send: the price of a GB of them that comes here, or goes from here, for a buyer.
    """

    memory: int | float = 0.3
    user: int | float | None = None
    project: int | float | None = None
    hold: HoldPrice | None = None
    spill: int | float | None = None
    spill_dir: str = ""
    receive: GbPrice | None = None
    send: GbPrice | None = None

    def move_prices(self) -> MovePrices:
        """Return the prices of moved bytes, both in one currency."""
        given = [each for each in (self.receive, self.send) if each is not None]
        return MovePrices(
            0 if self.receive is None else self.receive.nanos,
            0 if self.send is None else self.send.nanos,
            given[0].currency if given else "",
        )

    def price(self, currency: str) -> HoldPrice:
        """Return the price; without one objects are free, in this currency."""
        return HoldPrice(0, currency) if self.hold is None else self.hold

    def room(self, host_bytes: int) -> "ObjectRoom":
        """Return the limits in bytes, on a host with so much memory."""
        names = ("memory", "user", "project", "spill")
        found = {name: _room(getattr(self, name), host_bytes) for name in names}
        if self.spill_dir and found["spill"] is None:
            found["spill"] = OBJECT_BYTES_MAX
        given = {name: each for name, each in found.items() if each is not None}
        return ObjectRoom(**given, spill_dir=self.spill_dir)


@dataclass(frozen=True, slots=True)
class ObjectRoom:
    """The room for objects in bytes: of all, of one user, of one project."""

    memory: int
    user: int = OBJECT_BYTES_MAX
    project: int = OBJECT_BYTES_MAX
    spill: int = 0  # on disk
    spill_dir: str = ""

    @property
    def whole(self) -> int:
        """The room in memory and on disk."""
        return self.memory + self.spill


def _room(given: int | float | None, host_bytes: int) -> int | None:
    return int(given * host_bytes) if isinstance(given, float) else given


# key in [limits] → (field of ListenerLimits or SiteConfig, smallest, largest)
LIMITS: Final[dict[str, tuple[str, float, float]]] = {
    "heartbeat_s": ("heartbeat_s", 0.05, 3600),
    "grace_s": ("grace_s", 0.1, 86400),
    "client_tasks": ("tasks_max", 1, 10**9),
    "client_bytes": ("bytes_max", 1 << 16, 1 << 40),
    "message_bytes": ("message_bytes_max", 1 << 16, 1 << 31),
    "client_jobs": ("jobs_max", 1, 10**7),
    "client_function_bytes": ("function_bytes_max", 1 << 16, 1 << 40),
    "detached_bytes": ("kept_bytes_max", 1 << 16, 1 << 44),
    "function_wait_s": ("function_wait_s", 1, 86400),
    "task_losses": ("losses_max", 1, 1000),
    "store_wait_s": ("store_wait_s", 0, 86400),
    "sessions": ("sessions_max", 1, 10**6),
    "connections": ("strangers_max", 1, 10**6),
    "host_connections": ("host_strangers_max", 1, 10**6),
    "questions": ("questions_max", 1, 10**6),
    "unread_bytes": ("unread_bytes", 1 << 16, 1 << 40),
    "results_s": ("results_s", 0, 10**10),
    "task_log_bytes": ("task_log_bytes", 1 << 10, 1 << 30),
    "job_log_bytes": ("job_log_bytes", 1 << 10, 1 << 40),
    "site_log_bytes": ("site_log_bytes", 0, 1 << 44),
}
LOG_BYTES: Final = ("task_log_bytes", "job_log_bytes", "site_log_bytes")
OF_THE_SITE: Final = ("unread_bytes", "results_s", *LOG_BYTES)  # fields of SiteConfig


def read_limits(limits: Passage) -> tuple[ListenerLimits, dict[str, Any]]:
    """Read [limits]: limits of the listener, and fields of SiteConfig; ConfigError."""
    limits.expect(LIMITS)
    whole = {field.name for field in fields(ListenerLimits) if field.type is int}
    whole |= {"unread_bytes", *LOG_BYTES}
    values: dict[str, Any] = {}
    for key, value in limits.table.items():
        name, low, high = LIMITS[key]
        with limits.about():
            if key.endswith("bytes"):
                values[name] = size(key, value, int(low), int(high))
            else:
                values[name] = (count if name in whole else number)(key, value, low, high)
    own: dict[str, Any] = {name: values.pop(name) for name in OF_THE_SITE if name in values}
    return ListenerLimits(**values), own


def read_objects(objects: Passage) -> ObjectLimits:
    """Read [objects]; ConfigError."""
    objects.expect({field.name for field in fields(ObjectLimits)})
    values: dict[str, Any] = {}
    for key, value in objects.table.items():
        with objects.about():
            values[key] = _value_of(key, value)
    with objects.about():
        if "spill" in values and "spill_dir" not in values:
            raise SettingError("spill is the room in a folder: name that with spill_dir, too")
        charged = {values[key].currency for key in ("receive", "send") if key in values}
        if len(charged) > 1:
            raise SettingError(
                f"receive and send are in {' and '.join(sorted(charged))}: a contract has one "
                "currency, so give both in that of the pools"
            )
    return ObjectLimits(**values)


def _value_of(key: str, value: Any) -> Any:
    match key:
        case "hold":
            return _price(value)
        case "receive" | "send":
            return _gb_price(key, value)
        case "spill_dir":
            return _folder(key, value)
        case "spill":
            return size(key, value, OBJECT_BYTES_MIN, OBJECT_BYTES_MAX)
        case _:
            return _share_or_size(key, value)


def _folder(key: str, value: Any) -> str:
    """Return the path of a folder. Raises SettingError."""
    path = Path(value).expanduser() if isinstance(value, str) and value else None
    if path is None or not path.is_absolute():
        raise SettingError(
            f'{key} is {value!r:.60}: it must be the path of a folder, as in "/var/tmp/gridfed"'
        )
    return str(path)


def _price(value: Any) -> HoldPrice:
    if not isinstance(value, str):
        raise SettingError('hold must be a price in quotes, as in "0.03 USD/GB-month"')
    try:
        return parse_hold_price(value)
    except ValueError as error:
        raise SettingError(f"hold: {error}") from None


def _gb_price(key: str, value: Any) -> GbPrice:
    if not isinstance(value, str):
        raise SettingError(f'{key} must be a price in quotes, as in "0.02 USD/GB"')
    try:
        return parse_gb_price(value)
    except ValueError as error:
        raise SettingError(f"{key}: {error}") from None


def _share_or_size(key: str, value: Any) -> int | float:
    """Return a share of memory, as in "30%", or a size in bytes. Raises SettingError."""
    if not isinstance(value, str) or not value.rstrip().endswith("%"):
        return size(key, value, OBJECT_BYTES_MIN, OBJECT_BYTES_MAX)
    try:
        share = float(value.rstrip()[:-1]) / 100
    except ValueError:
        share = -1.0
    if not 0 < share <= SHARE_MAX:  # also for nan
        raise SettingError(
            f"{key} is {value!r:.40}: it must be a share of this host's memory up to "
            f'{SHARE_MAX:.0%}, as in "30%", or a size, as in "8 GiB"'
        )
    return share
