"""A site's configuration: a TOML file. Every setting has a default, every error its place.

[site]
name = "london"                         # shown to every peer that connects
listen = ["ipc:///run/user/1000/gridfed/gateway.sock", "tcp://0.0.0.0:7461"]
state = "/var/lib/gridfed"              # the folder of the database
database = ""                           # an SQLAlchemy URL; empty: SQLite in `state`
database_wait_s = 300.0                 # how long a start waits for PostgreSQL
secret_file = ""                        # peers that know it may connect; needed beyond this host
token_required = false                  # refuse peers without a token, except over ipc://
tls_certificate_file = ""               # for tls+tcp://, certificate and key, PEM
tls_ca_file = ""                        # ask diallers for a certificate of this CA
others = ["tls+tcp://paris:7461"]       # where our clients can go when this gateway is down

[log]                                   # see gateway.config.log
file = ""                               # empty: stderr

[limits]
heartbeat_s = 2.0                       # a silent peer times out after 4 heartbeats
grace_s = 10.0                          # how long a session outlives its pipe; workers' lease
client_tasks = 200000                   # unfinished tasks of one client
client_bytes = 268435456                # bytes of their arguments
message_bytes = 67108864                # the largest argument or result
client_jobs = 50000                     # unfinished jobs of one client
client_function_bytes = 536870912       # functions of one client that its jobs need
detached_bytes = 1073741824             # arguments of all detached jobs that have not run
function_wait_s = 60.0                  # a job whose function takes longer is rejected
task_losses = 5                         # workers lost under a task before it fails
store_wait_s = 30.0                     # how long jobs are accepted while the store is down
sessions = 4096
connections = 512                       # that are not authenticated yet; each has 10 s
questions = 256                         # unanswered questions of one client
unread_bytes = 67108864                 # results left unread before a client's work waits
results_s = 2592000                     # results of an ended detached job; 0: kept for ever
task_log_bytes = 65536                  # the output that is kept of a task, …
job_log_bytes = 16777216                # … of a job, …
site_log_bytes = 1073741824             # … and of all jobs; 0: none is kept

[federation]                            # see gateway.config.federation
listen = "tls+tcp://0.0.0.0:7462"

[contracts]                             # see gateway.config.contracts.DealRules
lease_s = 30.0

[placement]                             # see policies.placement.asks.Preferences
objective = "cheapest"
prefer_own_s = 0.0

[books]                                 # see gateway.config.books
period = "month"
detail_days = 90                        # older records roll up, sums unchanged; 0: never

[groups]                                # the users of each, for reports: see gateway.config.groups
"equity desk" = ["ann", "bob"]

[reservations]                          # see gateway.config.reservations

[fair_share]                            # see gateway.config.fair_share
half_life = "7d"

[[fair_share.share]]
name = "risk"
who = "project:risk"
shares = 3

[[entitlement]]                         # see gateway.config.entitlements
allow = "group:equity desk"
pools = ["local"]
slots_max = 40

[[residency]]                           # see gateway.config.residency
who = "project:risk"
jurisdictions = ["EU"]

[[show]]                                # see policies.disclosure; the first match decides
readers = ["paris"]                     # without it: all
coarse = true

[alerts]                                # see gateway.config.alerts
interval_s = 60.0

[[alert]]
name = "desk"
kind = "budget"
amount = "1000 USD"
webhook = "https://alerts.example.com/gridfed"

[[budget]]                              # see gateway.config.budgets
name = "risk"
who = "project:risk"
amount = "1000 USD"

[credit]                                # limits of the debts of sites, likewise
paris = "500 USD"

[[pool]]
name = "local"
kind = "local"                          # "local": processes here; "remote": workers dial in
slots = 0                               # local only; 0: one per core
memory_bytes = 0                        # not of remote pools; per slot, 0: no limit
cpus = 0                                # local only, as the next: cores of a slot; 0: no limit
pids_max = 0                            # processes and threads of a slot; 0: no limit
cgroups = "auto"                        # enforces these: "auto", "off", "required"
pin = false                             # each slot to cores of its own
gpus = []                               # names of the devices that the tag gpu counts; else 0, 1, …
price = "0.04 USD"                      # per slot-hour
tags = { linux = true, gpu = 2 }

[pool.carbon]                           # see gateway.config.carbon
cloud = "aws"
grid = "aws:eu-west-2"

[pool.environments]                     # see gateway.config.environments
images = ["localhost/quant:*"]

[pool.tariff]                           # see gateway.config.tariffs
zone = "Europe/London"

[calendar.london]                       # business days, for windows: see gateway.config.windows
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from federation.address import check_address, check_others, default_address, expand, is_local
from federation.clocks import UtcS
from federation.errors import GridError
from federation.words import size_text
from gateway.base.secret_files import read_secret, secret_of_environment
from gateway.base.toml_lines import Passage, check_depth, find_places, line_about, toml_fault
from gateway.base.toml_lines import Path as Place
from gateway.base.values import ConfigError, SettingError, flag, guarded, number
from gateway.config.alerts import AlertsConfig, check_pools, read_alerts
from gateway.config.books import BookRules, read_books
from gateway.config.budgets import NO_CREDIT, Credit, check_budgets, read_budgets, read_credit
from gateway.config.contracts import DealRules, read_contracts, read_placement, read_shows
from gateway.config.entitlements import check_entitlements, read_entitlements
from gateway.config.fair_share import read_fair_share
from gateway.config.federation import FederationConfig, check_federation, read_federation
from gateway.config.groups import NO_GROUPS, Groups, names_of, read_groups
from gateway.config.limits import (
    OF_THE_SITE,
    ListenerLimits,
    ObjectLimits,
    read_limits,
    read_objects,
)
from gateway.config.log import LogConfig, read_log
from gateway.config.pools import NO_GRIDS, USUAL_POOL, GridKinds, PoolConfig, read_pools
from gateway.config.reservations import read_reservations
from gateway.config.residency import read_residency
from gateway.config.windows import check_plan, read_calendars
from policies.access.entitlements import NO_ENTITLEMENTS, Entitlements
from policies.access.residency import ResidencyRule
from policies.access.shares import FairShare
from policies.calendar.periods import read_zone
from policies.costs.budgets import Budget
from policies.disclosure import SHOW_ALL, Disclosure
from policies.placement.asks import Preferences
from policies.reservations.reservations import ReservationRules

__all__ = ["ConfigError", "PoolConfig", "SiteConfig", "check", "load", "make_folder"]
__all__ += ["python_minor", "with_local"]

FILE_BYTES_MAX: Final = 4 << 20
SITE_NAME: Final = "local"


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """The whole configuration of a gateway."""

    name: str = SITE_NAME
    zone: str = "UTC"  # in which people write times without an offset; stored times are UTC
    listen: tuple[str, ...] = ()
    state: str = ""
    database: str = ""
    database_wait_s: float = 300.0
    secret_file: str = ""
    token_required: bool = False
    tls_certificate_file: str = ""
    tls_ca_file: str = ""
    others: tuple[str, ...] = ()
    unread_bytes: int = 64 << 20
    results_s: float = 30 * 86400.0
    task_log_bytes: int = 64 << 10
    job_log_bytes: int = 16 << 20
    site_log_bytes: int = 1 << 30
    log: LogConfig = field(default_factory=LogConfig)
    rules: ListenerLimits = field(default_factory=ListenerLimits)
    objects: ObjectLimits = field(default_factory=ObjectLimits)
    pools: tuple[PoolConfig, ...] = ()
    federation: FederationConfig | None = None
    deals: DealRules = field(default_factory=DealRules)
    preferences: Preferences = field(default_factory=Preferences)
    shows: tuple[Disclosure, ...] = SHOW_ALL
    books: BookRules = field(default_factory=BookRules)
    alerts: AlertsConfig = field(default_factory=AlertsConfig)
    budgets: tuple[Budget, ...] = ()
    credit: Credit = field(default_factory=lambda: NO_CREDIT)
    groups: Groups = field(default_factory=lambda: NO_GROUPS)
    fair_share: FairShare | None = None  # None: slots are not shared out
    entitlements: Entitlements = NO_ENTITLEMENTS
    residency: tuple[ResidencyRule, ...] = ()
    reservations: ReservationRules | None = None  # None: nothing can be reserved
    rules_version: int = 0  # of the rules in the database; 0: those of the file alone
    source: str = ""  # the path of its file; empty without one
    places: Mapping[Place, int] = field(default_factory=dict, compare=False, repr=False)  # lines
    # The command line's settings of the local pool, which override the file.
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def host_jurisdiction(self) -> str:
        """The jurisdiction of the gateway's host, where objects and messages are.

        It is that of its local pools, or else of all; empty where they differ or name none.
        """
        local = [pool for pool in self.pools if pool.kind == "local"] or self.pools
        named = {pool.jurisdiction for pool in local}
        return named.pop() if len(named) == 1 else ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses to listen on."""
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
        """The URL of the store."""
        return self.database or f"sqlite:///{self.state_path / 'gridfed.db'}"

    @property
    def secret(self) -> str:
        """The shared secret, from its file or $GRIDFED_SECRET; empty when there is none."""
        if not self.secret_file:
            return secret_of_environment()
        return read_secret(self.secret_file)


_OF_A_POOL: Final = frozenset({"window", "windows", "claims", "claim"})
# Fields of SiteConfig that are tables of their own, or not keys.
_TABLES: Final = frozenset(
    {
        "log",
        "rules",
        "pools",
        "federation",
        "deals",
        "preferences",
        "shows",
        "books",
        "groups",
        "alerts",
        "objects",
    }
    | {
        "rules_version",
        "source",
        "places",
        "given",
        "fair_share",
        "budgets",
        "credit",
        "entitlements",
        "reservations",
        "residency",
    }
)
_OF_FEDERATION: Final = tuple(each.name for each in fields(FederationConfig))
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file as TOML, before its values are read.

    Attributes:
        places: the lines of everything.
    """

    path: str
    table: dict[str, Any]
    places: Mapping[Place, int]


def load(path: str | None, kinds: GridKinds = NO_GRIDS) -> SiteConfig:
    """Read a configuration file; the defaults when there is none.

    `kinds` are the grids that pools may name.

    Raises:
        ConfigError: the file can't be read or something in it is wrong.
    """
    return SiteConfig() if path is None else parse(read_file(path), kinds)


def read_file(path: str) -> ConfigFile:
    """Read a configuration file as TOML. Raises ConfigError."""
    text = ""
    try:
        with open(path, "rb") as file:
            body = file.read(FILE_BYTES_MAX + 1)
        if len(body) > FILE_BYTES_MAX:
            raise ConfigError(f"{path}: the file has more than {size_text(FILE_BYTES_MAX)}")
        text = body.decode("utf-8-sig")  # some editors begin with a byte order mark
        check_depth(text)
        document = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: byte {error.start + 1} is not UTF-8: it must be a text of TOML"
        ) from None
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise ConfigError(f"{path}: {toml_fault(error, text)}") from None
    except RecursionError:
        raise ConfigError(f"{path}: arrays or tables are nested too deeply") from None
    return ConfigFile(path, document, find_places(text))


def parse(file: ConfigFile, kinds: GridKinds = NO_GRIDS) -> SiteConfig:
    """Read the values of a configuration file. Raises ConfigError."""
    path = file.path
    try:
        whole = Passage(file.table, "the top level:", (), file.places)
        config = _read(whole, Path(path).parent, kinds)
        entitlements = replace(config.entitlements, file=Path(path).name)
        return replace(
            config,
            source=str(Path(path).absolute()),
            places=file.places,
            entitlements=entitlements,
        )
    except (ConfigError, SettingError) as error:
        raise ConfigError(f"{path}: {error}") from None


def with_local(pools: tuple[PoolConfig, ...], given: Mapping[str, Any]) -> tuple[PoolConfig, ...]:
    """The pools with `local` first: the existing one changed as given, or a new one."""
    known = {pool.name: pool for pool in pools}
    local = replace(known.pop("local", PoolConfig("local")), **given)
    return (local, *known.values())


def wrong(config: SiteConfig, place: Place, text: str) -> ConfigError:
    """Return an error of a configuration: with its file, and the line of a place in it."""
    file = f"{config.source}: " if config.source else ""
    return ConfigError(f"{file}{line_about(config.places, place, ())}{text}")


def _check_pools(config: SiteConfig, pools: tuple[PoolConfig, ...]) -> None:
    names = [pool.name for pool in pools]
    for at, pool in enumerate(pools):
        if pool.name in names[:at]:
            text = f"[[pool]] {pool.name}: another pool has the same name"
            raise wrong(config, _pool_place(config, pool.name, "name"), text)
        # Only here: `gridfed up` turns the file's pool `local` into a local one.
        if pool.kind == "remote" and (name := pool.of_workers):
            raise wrong(
                config,
                _pool_place(config, pool.name, name),
                f'[[pool]] {pool.name}: {name} is only for local pools (kind = "local"); each '
                "worker of a remote pool sets its own",
            )


def _pool_place(config: SiteConfig, name: str, key: str) -> Place:
    """Return the place of a key of a pool of the file: of the last one of that name.

    `gridfed up` changes the order of the pools: then none is known.
    """
    if config.given:
        return ()
    found = [at for at, pool in enumerate(config.pools) if pool.name == name]
    return ("pool", found[-1], key) if found else ()


def check(config: SiteConfig, utc_s: UtcS) -> SiteConfig:
    """Check the rules that span tables; return the configuration, with a pool if it had none.

    `utc_s` is now: windows are examined for some time from then on.
    """
    pools = config.pools or (PoolConfig(USUAL_POOL),)
    _check_pools(config, pools)
    pools = tuple(each.settled(is_federated=config.federation is not None) for each in pools)
    try:
        for pool in pools:
            check_plan(pool.name, pool.plan, utc_s)
        places, plans = config.places, {pool.name: pool.plan for pool in pools}
        check_pools(config.alerts, config.name, list(plans), places)
        check_entitlements(config.entitlements, plans, places)
        is_federated = config.federation is not None
        check_budgets(config.budgets, config.name, places, is_federated=is_federated)
    except SettingError as error:  # all of these are in the file: none can be set by an option
        raise wrong(config, (), str(error)) from None
    listen: Place = ("site", "listen")
    for address in config.addresses:
        try:
            check_address(address)
        except ValueError as error:
            raise wrong(config, listen, f"[site] listen: {error}") from None
        if not _secret(config) and not config.token_required and not is_local(address):
            raise wrong(
                config,
                listen,
                f"[site] listen: {address} is reachable from other hosts, and any client can "
                "run code here: set secret_file (or $GRIDFED_SECRET) or token_required first",
            )
        if address.startswith("tls+tcp://") and not config.tls_certificate_file:
            raise wrong(config, listen, f"[site] listen: {address} needs tls_certificate_file")
    if config.token_required:
        _check_tokens(config)
    if config.federation is not None:
        try:
            check_federation(config.federation)
        except SettingError as error:
            text = str(error)
            key = next((each for each in _OF_FEDERATION if text.startswith(each)), "")
            raise wrong(config, ("federation", key), f"[federation] {text}") from None
    try:
        check_others(list(config.others))
    except ValueError as error:
        raise wrong(config, ("site", "others"), f"[site] others: {error}") from None
    rules = replace(config.rules, site=config.name, secret=_secret(config))
    return replace(config, pools=pools, rules=rules)


def _secret(config: SiteConfig) -> str:
    try:
        return config.secret
    except ConfigError as error:
        raise wrong(config, ("site", "secret_file"), f"[site] {error}") from None


def _check_tokens(config: SiteConfig) -> None:
    if config.federation is None or not (config.trust_path / "current.pem").exists():
        raise wrong(
            config,
            ("site", "token_required"),
            "[site] token_required: tokens are signed, but there are no keys in "
            f"{config.trust_path}: create a site with keys with `gridfed init`",
        )


def make_folder(path: Path) -> None:
    """Make a folder for its owner alone, unless it is there. Raises GridError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise GridError(
            f"folder {path} could not be created: {error.strerror}; name another, or let this "
            "user write to the folder above it"
        ) from None


def python_minor() -> str:
    """The Python version of this process, in the form that jobs and workers use."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _read(whole: Passage, folder: Path, kinds: GridKinds) -> SiteConfig:
    document, places = whole.table, whole.places
    for key in _OF_A_POOL & set(whole.table):
        raise whole.error(
            f"unknown key {key!r}: windows and claims belong to a pool: write [[pool.window]], or "
            "claims, below its [[pool]] (docs/windows.md)"
        )
    whole.expect(
        {
            *("site", "log", "limits", "federation", "contracts", "placement", "show", "pool"),
            *("books", "groups", "alerts", "alert", "calendar", "fair_share", "budget", "credit"),
            *("entitlement", "residency", "reservations", "objects"),
        }
    )
    values = _site_values(whole.part("site", "[site]"))
    values["log"] = _part(whole, "log", lambda table: read_log(table, folder))
    rules, own = read_limits(whole.part("limits", "[limits]"))
    values |= own
    values["objects"] = read_objects(whole.part("objects", "[objects]"))
    if "federation" in document:
        values["federation"] = _part(whole, "federation", read_federation)
    values["deals"] = _part(whole, "contracts", partial(read_contracts, grace_s=rules.grace_s))
    values["preferences"] = _part(whole, "placement", read_placement)
    values["books"] = _part(whole, "books", read_books)
    values["groups"] = _part(whole, "groups", read_groups)
    if "fair_share" in document:
        values["fair_share"] = read_fair_share(_table(whole, "fair_share"), places)
    if "reservations" in document:
        values["reservations"] = read_reservations(_table(whole, "reservations"), places)
    groups = names_of(values["groups"])
    values["entitlements"] = read_entitlements(document.get("entitlement", []), places, groups)
    values["residency"] = read_residency(
        document.get("residency", []), places, groups, values.get("name", SITE_NAME)
    )
    if "show" in document:
        values["shows"] = read_shows(whole.rows("show", "[[show]]"))
    values["alerts"] = read_alerts(
        whole.part("alerts", "[alerts]"), whole.rows("alert", "[[alert]]")
    )
    values["budgets"] = read_budgets(document.get("budget", []), places)
    values["credit"] = read_credit(_table(whole, "credit"), places)
    calendars = read_calendars(_table(whole, "calendar"), folder, places)
    pools = read_pools(whole, calendars, kinds)
    _check_move_prices(whole, values["objects"], pools)
    return SiteConfig(**values, rules=rules, pools=pools)


def _check_move_prices(whole: Passage, objects: ObjectLimits, pools: Sequence[PoolConfig]) -> None:
    """Refuse prices of moved bytes in another currency than a pool's; ConfigError.

    They are on the bill of contracts, and a contract has the currency of its pool.
    """
    prices = objects.move_prices()
    for pool in pools if prices else ():
        if pool.prices.currency != prices.currency:
            raise whole.part("objects", "[objects]").error(
                f"moved bytes are charged in {prices.currency}, but pool {pool.name} in "
                f"{pool.prices.currency}: a contract has one currency, so give receive and send "
                "in that of the pools"
            )


def _table(whole: Passage, key: str) -> dict[str, Any]:
    return whole.part(key, f"[{key}]").table


def _part(whole: Passage, key: str, read: Callable[[dict[str, Any]], T]) -> T:
    """Apply a reader to a table; add the line of the key to its errors."""
    part = whole.part(key, f"[{key}]")
    with part.about():
        return read(part.table)


def _site_values(site: Passage) -> dict[str, Any]:
    site.expect({field.name for field in fields(SiteConfig)} - _TABLES - set(OF_THE_SITE))
    values: dict[str, Any] = {}
    for key, value in site.table.items():
        if key in ("listen", "others"):
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise site.error(f"{key} must be a list of addresses")
            values[key] = tuple(value)
        elif key == "token_required":
            with site.about():
                values[key] = flag(key, value)
        elif key == "zone" and isinstance(value, str):
            with site.about():
                values[key] = guarded("zone", partial(read_zone, value)).key
        elif key == "database_wait_s":
            with site.about():
                values[key] = number(key, value, 0, 86400)
        elif not isinstance(value, str):
            raise site.error(f"{key} must be a string")
        else:
            values[key] = value
    return values
