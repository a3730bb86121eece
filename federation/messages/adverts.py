"""A site's advert of its pools: capacity, load, price, and how long the figures are valid.

A `SiteAdvert` is signed and gossiped as a unit: one version, one age, all pools of one site. It
arrives as a plain MessagePack map and is never trusted: `SiteAdvert.from_plain` bounds and checks
every field, and raises ProtocolError with the place of the error. Fields at their default are left
out on the wire; unknown fields are ignored. Signing, gossip and the clock are handled elsewhere;
policies.disclosure decides how much a site shows.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from federation.address import check_others
from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.money import NANOS_LIMIT, check_currency

ADVERT_BYTES_MAX: Final = 64 << 10  # of a whole site, packed; checked by the code that unpacks it
POOLS_MAX: Final = 64
TAGS_MAX: Final = 64
PYTHONS_MAX: Final = 16
WINDOWS_MAX: Final = 32
MEMBERS_MAX: Final = 256  # of a set of projects or sites
NAME_CHARS_MAX: Final = 60
TAG_CHARS_MAX: Final = 200
OBJECTS_TAG: Final = "objects"  # of workers that hand objects of their site to their slots
PULLS_TAG: Final = "objects:pull"  # … whose site fetches the objects of other sites' calls
TAG_MARKS: Final = frozenset(",=")  # as in `linux,gpu=2`, the notation for tags
SLOTS_MAX: Final = 10**8
NUMBER_MAX: Final = 1e12
MILLION: Final = 10**6
FACTOR_MAX: Final = 1_000 * MILLION
STEP_NS_MAX: Final = 3_600 * 10**9
COUNT_MAX: Final = 2**63 - 1
VALID_MIN_S: Final = 0.1
START_MAX_S: Final = 30 * 86_400.0  # long enough for the queue of a batch system
VALID_MAX_S: Final = 86_400.0
RTT_MAX_S: Final = 3_600.0
DOORS_MAX: Final = 4
OUTLOOK_STEPS_MAX: Final = 96  # two days by the half hour: three bytes each
OUTLOOK_STEP_MIN_S: Final = 1.0
OUTLOOK_STEP_MAX_S: Final = 86_400.0
DG_PER_KWH_MAX: Final = 50_000  # more than any power station emits


@dataclass(frozen=True, slots=True)
class AdvertisedWindow:
    """A span of time in which a pool takes work: [from_s, until_s), UTC."""

    from_s: UtcS
    until_s: UtcS
    slots: int
    price_nanos: int


@dataclass(frozen=True, slots=True)
class PriceChange:
    """The next price of a slot-hour, and the time (UTC) from which it applies."""

    price_nanos: int
    at_s: UtcS


@dataclass(frozen=True, slots=True)
class Outlook:
    """A forecast of emissions per kilowatt-hour: equal steps, the first from `from_s` on (UTC).

    In tenths of a gram, so that a step takes three bytes: adverts are sent all the time. Until
    `from_s` the current intensity holds; after the last step nothing is known.
    """

    from_s: UtcS
    step_s: float
    dg_per_kwh: tuple[int, ...]

    @property
    def until_s(self) -> UtcS:
        """The end of the last step."""
        return self.from_s + self.step_s * len(self.dg_per_kwh)


@dataclass(frozen=True, slots=True)
class TagPrice:
    """The surcharge on a slot-hour for each unit of a tag, and the factor applied before it."""

    add_nanos: int
    factor: int  # millionths


@dataclass(frozen=True, slots=True)
class PoolAdvert:
    """The advert of one pool.

    Rates are in slot-seconds per second: a pool that keeps ten slots busy has a `work_rate` of 10.
    A figure is None if the site does not know it or does not disclose it.
    """

    pool: str
    slots_total: int  # available to the reader, now or once they are started
    price_nanos: int  # of a slot-hour, now
    currency: str
    slots_free: int = 0
    tasks_queued: int = 0
    # Slot-seconds of work accepted and not done: of queued tasks, and the rest of running ones.
    load_slot_s: float = 0.0
    work_rate: float | None = None  # measured: work done per second
    arrival_rate: float | None = None  # measured: work that comes in per second
    next_price: PriceChange | None = None
    # Names to True, or to the largest amount that one worker has: never a sum over workers, which
    # would promise amounts that fit on no worker.
    tags: Mapping[str, bool | int | float] = dataclasses.field(default_factory=dict)
    free_tags: Mapping[str, int | float] = dataclasses.field(default_factory=dict)  # free now
    pythons: tuple[str, ...] = ()  # minor versions, "3.11"
    region: str = ""
    jurisdiction: str = ""
    carbon_g_per_kwh: float | None = None  # CO2 equivalent of the electricity, location-based
    slot_watts: float | None = None  # of a busy slot, with its share of cooling
    # When not empty, work runs only inside these: in order, disjoint, the current one included.
    windows: tuple[AdvertisedWindow, ...] = ()
    projects: frozenset[str] | None = None  # that may use it; None: all
    sites: frozenset[str] | None = None
    rtt_s: float | None = None  # hints, for a reader that has not measured its link to here
    link_bytes_s: float | None = None
    # The parts of a job's price (policies.tariffs): tags, the class, and, for short tasks, a
    # minimum for each task and time steps.
    tag_prices: Mapping[str, TagPrice] = dataclasses.field(default_factory=dict)
    preemptible: int = MILLION  # the factor of that class, in millionths
    minimum_nanos: int = 0
    step_ns: int = 0
    carbon_ahead: Outlook | None = None  # the forecast, if the site has one
    # The slots of the total that are not running and would be started: how many, the time to start
    # one, and the slot-seconds of work that justify one.
    slots_cold: int = 0
    start_s: float = 0.0
    slot_work_s: float = 0.0
    draining: bool = False  # it takes nothing new until its owner ends the drain
    inputs: bool = False  # its workers open calls with results of others among their arguments
    labels: bool = False  # its site knows the labels of data, and keeps to them
    receive_nanos: int = 0  # of a GB of objects that comes to the site under a contract
    send_nanos: int = 0  # … and that goes from it

    @property
    def terms(self) -> tuple[Any, ...]:
        """What decides which work it takes, and at which price: all but its load and its speed."""
        return (
            *(self.pool, self.price_nanos, self.currency, self.next_price, self.tags),
            *(self.pythons, self.jurisdiction, self.windows, self.projects, self.sites),
            *(self.tag_prices, self.preemptible, self.minimum_nanos, self.step_ns),
            *(self.draining, self.inputs, self.labels, self.receive_nanos, self.send_nanos),
        )

    @property
    def slots_warm(self) -> int:
        """The slots of the total that are running already."""
        return self.slots_total - self.slots_cold

    def to_plain(self) -> dict[str, Any]:
        """Convert to a map of plain values, without the fields that have their default."""
        plain: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value in (field.default, {}):
                continue
            plain[field.name] = _plain(value)
        return plain

    @classmethod
    def from_plain(cls, body: object) -> Self:
        """Read a map; ProtocolError names the field that is missing or wrong, and the reason."""
        try:
            return cls(**_read_pool(body))
        except ValueError as error:
            raise ProtocolError(f"pool advert: {error}") from None


@dataclass(frozen=True, slots=True)
class SiteAdvert:
    """The advert of a site at one time. The highest version wins.

    Versions only grow, over restarts too: they are the time of issue in milliseconds.
    """

    site: str
    version: int
    issued_s: UtcS  # UTC, by the site's clock
    valid_s: float  # how long after that it may be believed
    pools: tuple[PoolAdvert, ...]
    audience: str = ""  # the only site that may read it, and does not pass it on; empty: all
    doors: tuple[str, ...] = ()  # addresses for users of other sites that lose their own gateway
    # Changes when the site learns of another seller: work without a place may have one now.
    sellers: int = 0
    bulk: str = ""  # the address of its bulk port; empty: none, or it is of an older version
    jurisdiction: str = ""  # of its gateway's host, where results and objects lie; empty: unknown

    @property
    def draining(self) -> bool:
        """Whether each pool that the reader sees takes nothing new until a drain ends."""
        return bool(self.pools) and all(pool.draining for pool in self.pools)

    def supersedes(self, other: "SiteAdvert") -> bool:
        """Whether this advert replaces another of the same site.

        Of the same version, an advert for the reader alone says more than one for all.
        """
        return (self.version, self.audience != "") > (other.version, other.audience != "")

    def to_plain(self) -> dict[str, Any]:
        """Convert to a map of plain values."""
        plain: dict[str, Any] = {
            "site": self.site,
            "version": self.version,
            "issued_s": self.issued_s,
            "valid_s": self.valid_s,
            "pools": [pool.to_plain() for pool in self.pools],
        }
        if self.audience:
            plain["audience"] = self.audience
        if self.doors:
            plain["doors"] = list(self.doors)
        if self.sellers:
            plain["sellers"] = self.sellers
        if self.bulk:
            plain["bulk"] = self.bulk
        if self.jurisdiction:
            plain["jurisdiction"] = self.jurisdiction
        return plain

    @classmethod
    def from_plain(cls, body: object) -> Self:
        """Read a map; ProtocolError names the field that is missing or wrong, and the reason."""
        try:
            return cls(**_read(body, _SITE))
        except ValueError as error:
            raise ProtocolError(f"advert: {error}") from None


# --- readers: each takes a decoded value and returns it as a field's, or raises ValueError --------


def _name(value: object, *, chars_max: int = NAME_CHARS_MAX) -> str:
    if type(value) is not str or not value or len(value) > chars_max or not value.isprintable():
        raise ValueError(f"must be 1 to {chars_max} printable characters")
    return value


def _count(value: object, *, most: int = COUNT_MAX) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"must be a whole number from 0 to {most}")
    return value


def _number(value: object, *, least: float = 0.0, most: float = NUMBER_MAX) -> float:
    # Written so that NaN fails too.
    if type(value) not in (int, float) or not least <= value <= most:  # type: ignore[operator]
        raise ValueError(f"must be a finite number from {least:g} to {most:g}")
    return float(value)  # type: ignore[arg-type]


def _optional(read: Callable[[object], Any], value: object) -> Any:
    return None if value is None else read(value)


def _list(value: object, most: int) -> list[Any]:
    if type(value) is not list or len(value) > most:
        raise ValueError(f"must be a list of at most {most} items")
    return value


def _row(value: object, *reads: Callable[[object], Any]) -> list[Any]:
    if type(value) is not list or len(value) != len(reads):
        raise ValueError(f"must be a list of {len(reads)} items")
    return [read(item) for read, item in zip(reads, value, strict=True)]


def _currency(value: object) -> str:
    currency = _name(value)
    check_currency(currency)
    return currency


def _members(value: object) -> frozenset[str]:
    return frozenset(_name(item) for item in _list(value, MEMBERS_MAX))


def _pythons(value: object) -> tuple[str, ...]:
    return tuple(_name(item, chars_max=16) for item in _list(value, PYTHONS_MAX))


def _tag_name(value: object) -> str:
    name = _name(value, chars_max=TAG_CHARS_MAX)
    if TAG_MARKS & set(name):
        raise ValueError("must have names without commas and equals signs")
    return name


def _tag_value(value: object) -> bool | int | float:
    if value is True:
        return True
    if type(value) not in (int, float) or not 0 <= value <= NUMBER_MAX:  # type: ignore[operator]
        raise ValueError(f"tag values must be true or a number from 0 to {NUMBER_MAX:g}")
    return value  # type: ignore[return-value]


def _tags(value: object) -> dict[str, bool | int | float]:
    if type(value) is not dict or len(value) > TAGS_MAX:
        raise ValueError(f"must be a map of at most {TAGS_MAX} entries")
    return {_tag_name(key): _tag_value(each) for key, each in value.items()}


def _amounts(value: object) -> dict[str, int | float]:
    amounts = _tags(value)
    if any(amount is True for amount in amounts.values()):
        raise ValueError("must be numbers")
    return amounts


def _flag(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError("must be true or false")
    return value


def _next_price(value: object) -> PriceChange:
    return PriceChange(*_row(value, _price, _number))


def _steps(value: object) -> tuple[int, ...]:
    steps = _list(value, OUTLOOK_STEPS_MAX)
    if not steps:
        raise ValueError("must have at least one step")
    return tuple(_count(each, most=DG_PER_KWH_MAX) for each in steps)


def _outlook(value: object) -> Outlook:
    length = partial(_number, least=OUTLOOK_STEP_MIN_S, most=OUTLOOK_STEP_MAX_S)
    return Outlook(*_row(value, _number, length, _steps))


def _tag_prices(value: object) -> dict[str, TagPrice]:
    if type(value) is not dict or len(value) > TAGS_MAX:
        raise ValueError(f"must be a map of at most {TAGS_MAX} entries")
    return {_tag_name(key): TagPrice(*_row(each, _price, _factor)) for key, each in value.items()}


def _windows(value: object) -> tuple[AdvertisedWindow, ...]:
    rows = _list(value, WINDOWS_MAX)
    found = tuple(AdvertisedWindow(*_row(row, _number, _number, _slots, _price)) for row in rows)
    edges = [edge for window in found for edge in (window.from_s, window.until_s)]
    opens = all(window.from_s < window.until_s for window in found)
    if not opens or edges != sorted(edges):
        raise ValueError("must be spans in order, without overlaps")
    return found


def _pools(value: object) -> tuple[PoolAdvert, ...]:
    found = tuple(PoolAdvert(**_read_pool(item)) for item in _list(value, POOLS_MAX))
    if len({pool.pool for pool in found}) != len(found):
        raise ValueError("must not name a pool twice")
    return found


def _name_or_empty(value: object) -> str:
    return "" if value == "" else _name(value)


_slots = partial(_count, most=SLOTS_MAX)
_price = partial(_count, most=NANOS_LIMIT)
_factor = partial(_count, most=FACTOR_MAX)

_POOL: Final[dict[str, Callable[[object], Any]]] = {
    "pool": _name,
    "slots_total": _slots,
    "price_nanos": _price,
    "currency": _currency,
    "slots_free": _slots,
    "tasks_queued": _count,
    "load_slot_s": _number,
    "work_rate": partial(_optional, _number),
    "arrival_rate": partial(_optional, _number),
    "next_price": partial(_optional, _next_price),
    "tags": _tags,
    "free_tags": _amounts,
    "pythons": _pythons,
    "region": _name_or_empty,
    "jurisdiction": _name_or_empty,
    "carbon_g_per_kwh": partial(_optional, _number),
    "slot_watts": partial(_optional, _number),
    "windows": _windows,
    "projects": partial(_optional, _members),
    "sites": partial(_optional, _members),
    "rtt_s": partial(_optional, partial(_number, most=RTT_MAX_S)),
    "link_bytes_s": partial(_optional, partial(_number, least=1.0)),
    "tag_prices": _tag_prices,
    "preemptible": _factor,
    "minimum_nanos": _price,
    "step_ns": partial(_count, most=STEP_NS_MAX),
    "carbon_ahead": partial(_optional, _outlook),
    "slots_cold": _slots,
    "start_s": partial(_number, most=START_MAX_S),
    "slot_work_s": _number,
    "draining": _flag,
    "inputs": _flag,
    "labels": _flag,
    "receive_nanos": _price,
    "send_nanos": _price,
}


def check_doors(value: object) -> tuple[str, ...]:
    """Check the addresses that a site names for users of other sites; ValueError.

    Only TLS addresses are allowed: a user sent to a gateway by another site must verify it.
    """
    if type(value) is not list or len(value) > DOORS_MAX:
        raise ValueError(f"must be a list of at most {DOORS_MAX} addresses")
    if not all(type(each) is str and each.startswith("tls+tcp://") for each in value):
        raise ValueError("must be addresses such as tls+tcp://gw.example:7461")
    return tuple(check_others(value))


def _bulk(value: object) -> str:
    if value == "":
        return ""
    if type(value) is not str or not value.startswith("tls+tcp://"):
        raise ValueError("must be an address such as tls+tcp://gw.example:7464")
    return check_others([value])[0]


_SITE: Final[dict[str, Callable[[object], Any]]] = {
    "site": _name,
    "version": _count,
    "issued_s": _number,
    "valid_s": partial(_number, least=VALID_MIN_S, most=VALID_MAX_S),
    "pools": _pools,
    "audience": _name_or_empty,
    "doors": check_doors,
    "sellers": _count,
    "bulk": _bulk,
    "jurisdiction": _name_or_empty,
}
_NEEDED: Final = frozenset(
    {"pool", "slots_total", "price_nanos", "currency"}
    | set(_SITE) - {"audience", "doors", "sellers", "bulk", "jurisdiction"}
)


def _read_pool(body: object) -> dict[str, Any]:
    values = _read(body, _POOL)
    if values.get("slots_free", 0) > values["slots_total"]:
        raise ValueError("slots_free is more than slots_total")
    if values.get("slots_free", 0) + values.get("slots_cold", 0) > values["slots_total"]:
        raise ValueError("slots_free and slots_cold are more than slots_total")
    return values


def _read(body: object, readers: Mapping[str, Callable[[object], Any]]) -> dict[str, Any]:
    if type(body) is not dict:
        raise ValueError("must be a map")
    values: dict[str, Any] = {}
    for name, read in readers.items():
        if name not in body:
            if name in _NEEDED:
                raise ValueError(f"{name} is missing")
            continue
        try:
            values[name] = read(body[name])
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
    return values


def _plain(value: Any) -> Any:
    match value:
        case frozenset():
            return sorted(value)
        case tuple():
            return [_plain(item) for item in value]
        case AdvertisedWindow() | PriceChange() | TagPrice() | Outlook():
            return [_plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
        case _:
            return value
