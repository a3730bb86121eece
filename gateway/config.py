"""A site's configuration: a TOML file, every knob with a default, every mistake with its place.

[site]
name = "london"                         # shown to whoever connects
listen = ["ipc:///run/user/1000/gridfed/gateway.sock", "tcp://0.0.0.0:7461"]
state = "/var/lib/gridfed"              # the database lives here
database = ""                           # an SQLAlchemy URL; empty: SQLite in `state`
secret_file = ""                        # who knows it may come in; needed beyond this host
token_required = false                  # who has no token does not come in, but by ipc://
tls_certificate_file = ""               # for tls+tcp://, certificate and key, PEM
tls_ca_file = ""                        # ask diallers for a certificate of this CA
others = ["tls+tcp://paris:7461"]       # where our clients can go when we are gone

[limits]
heartbeat_s = 2.0                       # a silent peer is given up after 4 heartbeats
grace_s = 10.0                          # a session outlives its pipe by this; workers' lease
client_tasks = 200000                   # unfinished tasks of one client
client_bytes = 268435456                # and their arguments
message_bytes = 67108864                # the largest argument or result
client_jobs = 50000                     # unfinished jobs of one client
client_function_bytes = 536870912       # functions of one client's that its jobs need
detached_bytes = 1073741824             # arguments of all detached jobs that have not run
function_wait_s = 60.0                  # a job is rejected if its function is not here by then
sessions = 4096
connections = 512                       # that have not come in yet; each has 10 s to do it
questions = 256                         # of one client that are not answered yet
unread_bytes = 67108864                 # results left unread before a client's work waits
results_s = 2592000                     # results of an ended detached job; 0: kept for ever

[federation]                            # see gateway.federation_config
listen = "tls+tcp://0.0.0.0:7462"

[contracts]                             # see gateway.dealing.DealRules
lease_s = 30.0

[placement]                             # see policies.asks.House
objective = "cheapest"
prefer_own_s = 0.0

[books]                                 # see gateway.books_rules
period = "month"
detail_days = 90                        # older records roll up, sums unchanged; 0: never

[groups]                                # users of each, for reports: see gateway.groups
"equity desk" = ["ann", "bob"]

[fair_share]                            # see gateway.fair_share_config
[reservations]                          # see gateway.reservation_config
half_life = "7d"

[[fair_share.share]]
name = "risk"
who = "project:risk"
shares = 3

[[entitlement]]                         # see gateway.entitlement_config
allow = "group:equity desk"
pools = ["local"]
slots_max = 40

[[show]]                                # see policies.disclosure; the first that matches decides
readers = ["paris"]                     # without it: all
coarse = true

[alerts]                                # see gateway.alerts.settings
interval_s = 60.0

[[alert]]
name = "desk"
kind = "budget"
amount = "1000 USD"
webhook = "https://alerts.example.com/gridfed"

[[budget]]                              # see gateway.budgets.settings
name = "risk"
who = "project:risk"
amount = "1000 USD"

[credit]                                # what sites may owe us, likewise
paris = "500 USD"

[[pool]]
name = "local"
kind = "local"                          # "local": processes here; "remote": workers dial in
slots = 0                               # local only; 0: one per core
memory_bytes = 0                        # local only; per slot, 0: no limit
cpus = 0                                # local only, as the next: cores of a slot; 0: no limit
pids_max = 0                            # processes and threads of a slot; 0: no limit
cgroups = "auto"                        # what holds these: "auto", "off", "required"
pin = false                             # each slot to cores of its own
gpus = []                               # names of what the tag gpu counts; else 0, 1, …
price = "0.04 USD"                      # per slot-hour
tags = { linux = true, gpu = 2 }

[pool.carbon]                           # see gateway.carbon.config
cloud = "aws"
grid = "aws:eu-west-2"

[pool.environments]                     # see gateway.worker.rules
images = ["localhost/quant:*"]

[pool.tariff]                           # see gateway.tariff_config
zone = "Europe/London"

[calendar.london]                       # business days, for windows: see gateway.window_config
holidays = "london.txt"

[[pool.window]]                         # below its pool
name = "risk run"
days = "business"
from = "17:00"
to = "23:00"
claims = [ { who = "others", borrows = 0 } ]
"""

import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from federation.address import check_address, check_others, default_address, expand, is_local
from federation.errors import GridError
from gateway.alerts.settings import AlertsConfig, check_pools, read_alerts
from gateway.books_rules import BookRules, read_books
from gateway.budgets.settings import NO_CREDIT, Credit, check_budgets, read_budgets, read_credit
from gateway.carbon.config import CarbonConfig, read_carbon, read_intensity
from gateway.dealing import DealRules
from gateway.entitlement_config import check_entitlements, read_entitlements
from gateway.fair_share_config import read_fair_share
from gateway.federation_config import FederationConfig, check_federation, read_federation
from gateway.grids.delegating import Delegated, DelegatingKind
from gateway.grids.kinds import BUILT_IN, find_kind
from gateway.groups import read_groups
from gateway.intake import NO_GROUPS, USUAL_POOL, check_tags
from gateway.knobs import MEMORY_BYTES_MIN, ConfigError, KnobError, count, number
from gateway.lobby import HouseRules
from gateway.market_config import read_contracts, read_placement, read_shows
from gateway.reservation_config import read_reservations
from gateway.scale_config import Scale, read_scale
from gateway.secret_files import read_secret
from gateway.showing import PoolFacts
from gateway.tariff_config import read_price_list
from gateway.toml_places import Path as Place
from gateway.toml_places import find_places
from gateway.window_config import at_line, check_plan, read_calendars, read_plan
from gateway.worker.rules import (
    Confines,
    Rules,
    check_confines,
    gpus_tagged,
    read_gpus,
    read_rules,
)
from policies.asks import House
from policies.budgets import Budget
from policies.carbon import SLOT_WATTS_MAX, Emissions
from policies.disclosure import SHOW_ALL, Disclosure
from policies.entitlements import NO_ENTITLEMENTS, Entitlements
from policies.placement import TagValue
from policies.pricelist import PriceList
from policies.reservations import ReservationRules
from policies.shares import FairShare
from policies.windows import NO_WINDOWS, Plan

FILE_BYTES_MAX: Final = 4 << 20
DEFAULT_PRICE: Final = "0.04 USD"


# What a worker that dials in says of itself.
OF_WORKERS: Final = (
    *("slots", "memory_bytes", "cpus", "pids_max", "cgroups", "pin", "gpus", "environments"),
)


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """One pool of the site."""

    name: str
    kind: str = "remote"
    slots: int = 0
    memory_bytes: int = 0
    price: str = DEFAULT_PRICE
    tags: dict[str, TagValue] = field(default_factory=dict)
    region: str = ""
    jurisdiction: str = ""
    carbon_g_per_kwh: float | None = None
    slot_watts: float | None = None
    carbon: CarbonConfig = field(default_factory=CarbonConfig)
    tariff: dict[str, Any] = field(default_factory=dict)  # the table, as it was read
    cpus: float = 0.0
    pids_max: int = 0
    cgroups: str = "auto"
    pin: bool = False
    gpus: tuple[str, ...] = ()
    environments: Rules | None = None  # what jobs may run in, beside bare slots
    plan: Plan = NO_WINDOWS
    scale: Scale | None = None  # of a pool whose workers a grid starts for us
    grid: Any = None  # the table of its kind, as that has read it

    @property
    def is_grown(self) -> bool:
        """Whether a grid starts and stops its workers."""
        return self.scale is not None

    @property
    def is_delegated(self) -> bool:
        """Whether a grid has workers of its own, and is handed bundles."""
        return isinstance(self.grid, Delegated)

    @property
    def facts(self) -> PoolFacts:
        """What our advert says of it, beside what its workers tell."""
        return PoolFacts(self.promised, self.region, self.jurisdiction)

    @property
    def promised(self) -> dict[str, TagValue]:
        """Its tags; of one that a grid starts workers for also what these will be able to do."""
        if not self.is_grown or self.environments is None:
            return self.tags
        return {**self.tags, **self.environments.promised}

    @property
    def agent_options(self) -> list[str]:
        """What a worker's agent is told of what slots may use, and run in."""
        confines = self.confines
        found = ["--cpus", str(confines.cpus), "--pids-max", str(confines.pids_max)]
        found += ["--cgroups", confines.cgroups] + (["--pin"] if confines.pin else [])
        if self.gpus_given:
            # A grid gives each pilot its own, and says which in the pilot's environment.
            given = ["inherited"] if self.is_grown and not self.gpus else self.gpus_given
            found += ["--gpus", ",".join(given)]
        if self.environments is not None:
            found += ["--environments", self.environments.to_json()]
        return found

    @property
    def emissions(self) -> Emissions:
        """What is known of what it emits, before any source was asked.

        `slot_watts` and `carbon_g_per_kwh` are short for a [pool.carbon] of two figures.
        """
        watts, grams = self.slot_watts, self.carbon_g_per_kwh
        carbon = self.carbon
        if watts is not None:
            carbon = replace(carbon, idle_watts=watts, max_watts=watts)
        return (carbon if grams is None else replace(carbon, g_per_kwh=grams)).emissions

    @property
    def prices(self) -> PriceList:
        """What a slot-hour of it costs whom, and when; KnobError says what is wrong."""
        return read_price_list(self.name, self.price, self.tariff, self.plan)

    @property
    def confines(self) -> Confines:
        """What holds its slots, beside their memory."""
        return Confines(self.cpus, self.pids_max, self.cgroups, self.pin)

    @property
    def gpus_given(self) -> tuple[str, ...]:
        """The GPUs that are given out: as many as its tag says, by name or number."""
        return self.gpus or tuple(map(str, range(gpus_tagged(self.tags))))

    @property
    def slots_wanted(self) -> int:
        """Slots of a local pool: as configured, or one per core that we may use."""
        return self.slots or len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """Everything a gateway is told at its start."""

    name: str = "local"
    listen: tuple[str, ...] = ()
    state: str = ""
    database: str = ""
    secret_file: str = ""
    token_required: bool = False
    tls_certificate_file: str = ""
    tls_ca_file: str = ""
    others: tuple[str, ...] = ()
    unread_bytes: int = 64 << 20
    results_s: float = 30 * 86400.0
    rules: HouseRules = field(default_factory=HouseRules)
    pools: tuple[PoolConfig, ...] = ()
    federation: FederationConfig | None = None
    deals: DealRules = field(default_factory=DealRules)
    house: House = field(default_factory=House)
    shows: tuple[Disclosure, ...] = SHOW_ALL
    books: BookRules = field(default_factory=BookRules)
    alerts: AlertsConfig = field(default_factory=AlertsConfig)
    budgets: tuple[Budget, ...] = ()
    credit: Credit = field(default_factory=lambda: NO_CREDIT)
    groups: Mapping[str, str] = field(default_factory=lambda: NO_GROUPS)  # by user
    fair_share: FairShare | None = None  # None: slots are not shared out
    entitlements: Entitlements = NO_ENTITLEMENTS
    reservations: ReservationRules | None = None  # None: nothing can be reserved
    source: str = ""  # the file that it was read from; empty without one
    # What the command line said of the local pool, which wins over the file.
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where to listen."""
        return tuple(map(expand, self.listen)) or (default_address(),)

    @property
    def state_path(self) -> Path:
        """The folder of the database."""
        if self.state:
            return Path(self.state).expanduser()
        base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        return Path(base).expanduser() / "gridfed" / self.name

    @property
    def trust_path(self) -> Path:
        """The folder of keys and trust book, when there is a [federation]."""
        named = self.federation.folder if self.federation else ""
        return Path(named).expanduser() if named else self.state_path / "federation"

    @property
    def database_url(self) -> str:
        """Where the store is."""
        return self.database or f"sqlite:///{self.state_path / 'gridfed.db'}"

    @property
    def secret(self) -> str:
        """The shared secret, from its file or $GRIDFED_SECRET; empty when there is none."""
        if not self.secret_file:
            return os.environ.get("GRIDFED_SECRET", "")
        return read_secret(self.secret_file)


# key in [limits] → (field of HouseRules or SiteConfig, smallest, largest)
_LIMITS: Final[dict[str, tuple[str, float, float]]] = {
    "heartbeat_s": ("heartbeat_s", 0.05, 3600),
    "grace_s": ("grace_s", 0.1, 86400),
    "client_tasks": ("tasks_max", 1, 10**9),
    "client_bytes": ("bytes_max", 1 << 16, 1 << 40),
    "message_bytes": ("message_bytes_max", 1 << 16, 1 << 31),
    "client_jobs": ("jobs_max", 1, 10**7),
    "client_function_bytes": ("function_bytes_max", 1 << 16, 1 << 40),
    "detached_bytes": ("kept_bytes_max", 1 << 16, 1 << 44),
    "function_wait_s": ("function_wait_s", 1, 86400),
    "sessions": ("guests_max", 1, 10**6),
    "connections": ("strangers_max", 1, 10**6),
    "questions": ("questions_max", 1, 10**6),
    "unread_bytes": ("unread_bytes", 1 << 16, 1 << 40),
    "results_s": ("results_s", 0, 10**10),
}
_OF_THE_SITE: Final = ("unread_bytes", "results_s")  # the limits that SiteConfig has itself


_DEFAULTS: Final[dict[str, Any]] = {
    field.name: field.default for kind in (HouseRules, SiteConfig) for field in fields(kind)
}


def load(path: str | None) -> SiteConfig:
    """Read a configuration file; the defaults when there is none.

    Raises:
        ConfigError: the file can't be read or something in it is wrong.
    """
    if path is None:
        return SiteConfig()
    try:
        with open(path, "rb") as file:
            body = file.read(FILE_BYTES_MAX + 1)
        if len(body) > FILE_BYTES_MAX:
            raise ConfigError(f"{path}: it has more than {FILE_BYTES_MAX:,} bytes")
        text = body.decode("utf-8-sig")  # some editors begin with a mark that nobody sees
        document = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise ConfigError(f"{path}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: lists or tables are nested too deeply in it") from None
    try:
        config = _read(document, find_places(text), Path(path).parent)
        entitlements = replace(config.entitlements, file=Path(path).name)
        return replace(config, source=str(Path(path).absolute()), entitlements=entitlements)
    except (ConfigError, KnobError) as error:
        raise ConfigError(f"{path}: {error}") from None


@contextmanager
def _about(where: str) -> Iterator[None]:
    """Name the table in which a key can't be used."""
    try:
        yield
    except KnobError as error:
        raise ConfigError(f"{where} {error}") from None


def with_local(pools: tuple[PoolConfig, ...], given: Mapping[str, Any]) -> tuple[PoolConfig, ...]:
    """The pools with a local one, `local`, first: the one there is, changed as given, or a new."""
    known = {pool.name: pool for pool in pools}
    local = replace(known.pop("local", PoolConfig("local")), **given)
    return (local, *known.values())


def _check_pools(pools: tuple[PoolConfig, ...]) -> None:
    names = [pool.name for pool in pools]
    if len(set(names)) != len(names):
        raise ConfigError(f"two pools have the same name: {', '.join(sorted(names))}")
    for pool in pools:
        # Only here: `gridfed up` makes the file's pool `local` a local one.
        for name in OF_WORKERS if pool.kind == "remote" else ():
            if getattr(pool, name) != PoolConfig.__dataclass_fields__[name].default:
                raise ConfigError(
                    f"[[pool]] {pool.name}: {name} is for local pools; to a remote one each worker "
                    "brings its own"
                )
        for name in OF_WORKERS if pool.is_delegated else ():
            if getattr(pool, name) != PoolConfig.__dataclass_fields__[name].default:
                raise ConfigError(
                    f"[[pool]] {pool.name}: {name} is its grid's: see [pool.{pool.kind}]"
                )
        if pool.is_grown and pool.slots:
            raise ConfigError(f"[[pool]] {pool.name}: a pool that grows has max in [pool.scale]")
        limit = pool.scale.currency if pool.scale is not None else ""
        if limit and limit != pool.prices.currency:
            raise ConfigError(
                f"[[pool]] {pool.name}: hourly_cost is in {limit}, and its price in "
                f"{pool.prices.currency}: write both in one currency"
            )


def check(config: SiteConfig, utc_s: float) -> SiteConfig:
    """Check what only the whole can tell; return it, with a pool if it had none.

    `utc_s` is now: windows are looked at for some time from then on.
    """
    pools = config.pools or (PoolConfig(USUAL_POOL),)
    _check_pools(pools)
    try:
        for pool in pools:
            check_plan(pool.name, pool.plan, utc_s)
        check_pools(config.alerts, config.name, [pool.name for pool in pools])
        check_entitlements(config.entitlements, {pool.name: pool.plan for pool in pools})
        check_budgets(config.budgets, config.name, is_federated=config.federation is not None)
    except KnobError as error:  # of the file, all of these: none has an option in its place
        raise ConfigError(f"{config.source}: {error}" if config.source else str(error)) from None
    for address in config.addresses:
        try:
            check_address(address)
        except ValueError as error:
            raise ConfigError(f"[site] listen: {error}") from None
        if not config.secret and not config.token_required and not is_local(address):
            raise ConfigError(
                f"[site] listen: {address} can be reached from other hosts, and whoever reaches "
                "it can run code here: set secret_file (or $GRIDFED_SECRET) or token_required first"
            )
        if address.startswith("tls+tcp://") and not config.tls_certificate_file:
            raise ConfigError(f"[site] {address} needs tls_certificate_file")
    if config.token_required:
        _check_tokens(config)
    if config.federation is not None:
        with _about("[federation]"):
            check_federation(config.federation)
    try:
        check_others(list(config.others))
    except ValueError as error:
        raise ConfigError(f"[site] others: {error}") from None
    rules = replace(config.rules, site=config.name, secret=config.secret)
    return replace(config, pools=pools, rules=rules)


def _check_tokens(config: SiteConfig) -> None:
    if config.federation is None or not (config.trust_path / "current.pem").exists():
        raise ConfigError(
            f"[site] token_required: tokens are signed, and there are no keys in "
            f"{config.trust_path} (`gridfed init` makes a site with keys)"
        )


def make_folder(path: Path) -> None:
    """Make a folder for its owner alone, unless it is there. Raises GridError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise GridError(f"can't make the folder {path}: {error.strerror}") from None


def python_minor() -> str:
    """The Python that this process runs, as jobs and workers name it."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _read(document: dict[str, Any], places: Mapping[Place, int], folder: Path) -> SiteConfig:
    _expect(
        document,
        {
            *("site", "limits", "federation", "contracts", "placement", "show", "pool"),
            *("books", "groups", "alerts", "alert", "calendar", "fair_share", "budget", "credit"),
            *("entitlement", "reservations"),
        },
        "the top level",
    )
    site = _table(document, "site")
    kinds = {f.name: f.type for f in fields(SiteConfig)}
    tables = {"rules", "pools", "federation", "deals", "house", "shows"}
    tables |= {"books", "groups", "alerts", "source", "given", "fair_share", "budgets", "credit"}
    tables |= {"entitlements", "reservations"}
    allowed = set(kinds) - tables - set(_OF_THE_SITE)
    _expect(site, allowed, "[site]")
    values = _site_values(site)
    rules, own = _limits(_table(document, "limits"))
    values |= own
    if "federation" in document:
        with _about("[federation]"):
            values["federation"] = read_federation(_table(document, "federation"))
    with _about("[contracts]"):
        values["deals"] = read_contracts(_table(document, "contracts"), rules.grace_s)
    with _about("[placement]"):
        values["house"] = read_placement(_table(document, "placement"))
    with _about("[books]"):
        values["books"] = read_books(_table(document, "books"))
    with _about("[groups]"):
        values["groups"] = read_groups(_table(document, "groups"))
    if "fair_share" in document:
        values["fair_share"] = read_fair_share(_table(document, "fair_share"), places)
    if "reservations" in document:
        values["reservations"] = read_reservations(_table(document, "reservations"), places)
    groups = values["groups"].values()
    values["entitlements"] = read_entitlements(document.get("entitlement", []), places, groups)
    pools = document.get("pool", [])
    if not isinstance(pools, list):
        raise ConfigError("pools are written as [[pool]]")
    if "show" in document:
        with _about("[[show]]"):
            values["shows"] = read_shows(document["show"])
    values["alerts"] = read_alerts(_table(document, "alerts"), document.get("alert", []))
    values["budgets"] = read_budgets(document.get("budget", []), places)
    values["credit"] = read_credit(_table(document, "credit"), places)
    calendars = read_calendars(_table(document, "calendar"), folder, places)
    plans = [
        read_plan(_pool_name(pool), pool, calendars, places, ("pool", at))
        for at, pool in enumerate(pools)
    ]
    found = tuple(
        _pool(pool, plan, partial(_line_in_pool, places, at))
        for at, (pool, plan) in enumerate(zip(pools, plans, strict=True))
    )
    return SiteConfig(**values, rules=rules, pools=found)


def _site_values(site: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in site.items():
        if key in ("listen", "others"):
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise ConfigError(f"[site] {key} must be a list of addresses")
            values[key] = tuple(value)
        elif key == "token_required":
            if not isinstance(value, bool):
                raise ConfigError("[site] token_required must be true or false")
            values[key] = value
        elif not isinstance(value, str):
            raise ConfigError(f"[site] {key} must be text")
        else:
            values[key] = value
    return values


def _limits(table: dict[str, Any]) -> tuple[HouseRules, dict[str, Any]]:
    _expect(table, set(_LIMITS), "[limits]")
    values: dict[str, Any] = {}
    for key, value in table.items():
        name, low, high = _LIMITS[key]
        read = count if type(_DEFAULTS[name]) is int else number
        with _about("[limits]"):
            values[name] = read(key, value, low, high)
    own: dict[str, Any] = {name: values.pop(name) for name in _OF_THE_SITE if name in values}
    return HouseRules(**values), own


def _check_facts(pool: PoolConfig, where: str) -> None:
    for key in ("region", "jurisdiction"):
        text = getattr(pool, key)
        if not isinstance(text, str) or len(text) > 60 or not (text == "" or text.isprintable()):
            raise ConfigError(f"{where}: {key} must be text of up to 60 characters")
    with _about(f"{where}:"):
        if pool.slot_watts is not None:
            number("slot_watts", pool.slot_watts, 0.0, SLOT_WATTS_MAX)
        if pool.carbon_g_per_kwh is not None:
            read_intensity("carbon_g_per_kwh", pool.carbon_g_per_kwh)


def _carbon(table: dict[str, Any], where: str) -> CarbonConfig:
    with _about(f"{where}, [pool.carbon]:"):
        carbon = read_carbon(table.get("carbon", {}))
    if "slot_watts" in table and carbon.machine is not None:
        raise ConfigError(f"{where}: [pool.carbon] says what a slot draws, and so does slot_watts")
    if "carbon_g_per_kwh" in table and carbon.static is not None:
        raise ConfigError(f"{where}: [pool.carbon] has a factor, and there is carbon_g_per_kwh")
    return carbon


def _environments(table: dict[str, Any], where: str) -> Rules | None:
    if "environments" not in table:
        return None
    try:
        return read_rules(table["environments"])
    except KnobError as error:
        raise ConfigError(f"{where}, [pool.environments]: {error}") from None


def _pool_name(table: Any) -> str:
    if not isinstance(table, dict):
        raise ConfigError("a [[pool]] must be a table")
    name = table.get("name")
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > 60:
        raise ConfigError("a [[pool]] needs a name of 1 to 60 printable characters")
    if "/" in name:
        raise ConfigError(f"[[pool]] {name}: a name with a slash is one of another site's pool")
    return name


def _pool(table: dict[str, Any], plan: Plan, line_of: Callable[[str], str]) -> PoolConfig:
    where = f"[[pool]] {table['name']}"
    known = {field.name for field in fields(PoolConfig)} - {"plan", "grid"}
    kind = table.get("kind", "remote")
    _expect(table, known | {"window", "claims"} | _of_kind(kind), where)
    own = {key: value for key, value in table.items() if key in known}
    own |= _grown(table, kind, where, line_of)
    read = {"carbon": _carbon(table, where), "environments": _environments(table, where)}
    pool = PoolConfig(**{**own, **read, "plan": plan})
    for key in ("slots", "memory_bytes"):
        value = getattr(pool, key)
        if type(value) is not int or value < 0:
            raise ConfigError(f"{where}: {key} must be a whole number of zero or more")
    _check_facts(pool, where)
    try:
        check_confines(pool.confines)
        pool = replace(pool, gpus=read_gpus(pool.gpus, pool.tags))
    except KnobError as error:
        raise ConfigError(f"{where}: {error}") from None
    if 0 < pool.memory_bytes < MEMORY_BYTES_MIN:
        raise ConfigError(f"{where}: memory_bytes must be 0 or at least {MEMORY_BYTES_MIN}")
    if not isinstance(pool.tags, dict):
        raise ConfigError(f"{where}: tags must be a table")
    try:
        check_tags(pool.tags)
        _ = pool.prices
    except (ValueError, AttributeError, KnobError) as error:
        raise ConfigError(f"{where}: {error}") from None
    return pool


def _line_in_pool(places: Mapping[Place, int], at: int, key: str) -> str:
    return at_line(places, ("pool", at, key))


def _of_kind(kind: Any) -> set[str]:
    """The tables that a pool of a kind may have beside all others'."""
    return {kind} if isinstance(kind, str) and kind not in BUILT_IN else set()


def _grown(
    table: dict[str, Any], kind: Any, where: str, line_of: Callable[[str], str]
) -> dict[str, Any]:
    """What is said of a pool whose workers a grid starts."""
    if not isinstance(kind, str):
        raise ConfigError(f"{where}: kind must be text")
    if kind in BUILT_IN:
        if "scale" in table:
            raise ConfigError(f"{where}: [pool.scale] is for pools whose kind is a grid's")
        return {}
    place = where
    try:
        found = find_kind(kind)
        place = f"{line_of(kind)}{where}, [pool.{kind}]"
        settings = found.read(_table(table, kind))
        if isinstance(found, DelegatingKind):
            if "scale" in table:
                raise KnobError(f"kind {kind!r} has its own workers: leave out [pool.scale]")
            return {"grid": Delegated(found, _table(table, kind))}
        place = f"{line_of('scale')}{where}, [pool.scale]"
        return {"scale": read_scale(_table(table, "scale")), "grid": settings}
    except KnobError as error:
        raise ConfigError(f"{place}: {error}") from None


def _table(document: dict[str, Any], key: str) -> dict[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"[{key}] must be a table")
    return table


def _expect(table: dict[str, Any], allowed: set[str], where: str) -> None:
    for key in table:
        if key not in allowed:
            known = ", ".join(sorted(allowed))
            raise ConfigError(f"{where}: unknown key {key!r}; there are {known}")
