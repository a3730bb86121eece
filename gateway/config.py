"""A site's configuration: a TOML file, every knob with a default, every mistake with its place.

[site]
name = "london"                         # shown to whoever connects
listen = ["ipc:///run/user/1000/gridfed/gateway.sock", "tcp://0.0.0.0:7461"]
state = "/var/lib/gridfed"              # the database lives here
database = ""                           # an SQLAlchemy URL; empty: SQLite in `state`
secret_file = ""                        # who knows it may come in; needed beyond this host
tls_certificate_file = ""               # for tls+tcp://, certificate and key, PEM
tls_ca_file = ""                        # ask diallers for a certificate of this CA

[limits]
heartbeat_s = 2.0                       # a silent peer is given up after 4 heartbeats
grace_s = 10.0                          # a session outlives its pipe by this; workers' lease
client_tasks = 200000                   # unfinished tasks of one client
client_bytes = 268435456                # and their arguments
message_bytes = 67108864                # the largest argument or result
sessions = 4096
unread_bytes = 67108864                 # results left unread before a client's work waits

[[pool]]
name = "local"
kind = "local"                          # "local": processes here; "remote": workers dial in
slots = 0                               # local only; 0: one per core
memory_bytes = 0                        # local only; per slot, 0: no limit
price = "0.04 USD"                      # per slot-hour
tags = { linux = true, gpu = 2 }
"""

import os
import sys
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from federation.address import default_address, expand
from federation.errors import GridError
from federation.money import parse_money
from federation.nng import check_address
from gateway.intake import USUAL_POOL, check_tags
from gateway.lobby import HouseRules
from policies.placement import TagValue
from policies.tariffs import Tariff

LOCAL_HOSTS: Final = ("127.", "localhost", "[::1]")
DEFAULT_PRICE: Final = "0.04 USD"
MEMORY_BYTES_MIN: Final = 64 << 20  # Python and our slot alone take half of that


class ConfigError(Exception):
    """A configuration that can't be used; the text names the file and the key."""


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """One pool of the site."""

    name: str
    kind: str = "remote"
    slots: int = 0
    memory_bytes: int = 0
    price: str = DEFAULT_PRICE
    tags: dict[str, TagValue] = field(default_factory=dict)

    @property
    def tariff(self) -> Tariff:
        """What a slot-hour of it costs. Its version names the price itself."""
        nanos, currency = parse_money(self.price)
        return Tariff(nanos, currency, f"{self.name}@{self.price}")

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
    tls_certificate_file: str = ""
    tls_ca_file: str = ""
    unread_bytes: int = 64 << 20
    rules: HouseRules = field(default_factory=HouseRules)
    pools: tuple[PoolConfig, ...] = ()

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
    def database_url(self) -> str:
        """Where the store is."""
        return self.database or f"sqlite:///{self.state_path / 'gridfed.db'}"

    @property
    def secret(self) -> str:
        """The shared secret, from its file or $GRIDFED_SECRET; empty when there is none."""
        if not self.secret_file:
            return os.environ.get("GRIDFED_SECRET", "")
        return read_secret(self.secret_file)


def read_secret(name: str) -> str:
    """The secret in a file. Raises ConfigError: an empty one would let everybody in."""
    path = Path(name).expanduser()
    try:
        secret = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"secret_file {path}: {getattr(error, 'strerror', error)}") from None
    if not secret:
        raise ConfigError(f"secret_file {path}: it is empty; `openssl rand -hex 32` makes a secret")
    return secret


def exposure(name: str) -> str:
    """A warning where others on this host can read a file that holds a secret; else nothing."""
    path = Path(name).expanduser()
    if not path.stat().st_mode & 0o077:
        return ""
    return f"{path} holds a secret and others on this host can read it: chmod 600 {path}"


# key in [limits] → (field of HouseRules or SiteConfig, smallest, largest)
_LIMITS: Final[dict[str, tuple[str, float, float]]] = {
    "heartbeat_s": ("heartbeat_s", 0.05, 3600),
    "grace_s": ("grace_s", 0.1, 86400),
    "client_tasks": ("tasks_max", 1, 10**9),
    "client_bytes": ("bytes_max", 1 << 16, 1 << 40),
    "message_bytes": ("message_bytes_max", 1 << 16, 1 << 31),
    "sessions": ("guests_max", 1, 10**6),
    "unread_bytes": ("unread_bytes", 1 << 16, 1 << 40),
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
            document = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    try:
        return _read(document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def check(config: SiteConfig) -> SiteConfig:
    """Check what only the whole can tell; return it, with a pool if it had none."""
    pools = config.pools or (PoolConfig(USUAL_POOL),)
    names = [pool.name for pool in pools]
    if len(set(names)) != len(names):
        raise ConfigError(f"two pools have the same name: {', '.join(sorted(names))}")
    for pool in pools:
        # Only here: `gridfed up` makes the file's pool `local` a local one.
        if pool.kind != "local" and (pool.slots or pool.memory_bytes):
            raise ConfigError(
                f"[[pool]] {pool.name}: slots and memory_bytes are for local pools; to a remote "
                "one each worker brings its own"
            )
    for address in config.addresses:
        try:
            check_address(address)
        except ValueError as error:
            raise ConfigError(f"[site] listen: {error}") from None
        if not config.secret and _is_open(address):
            raise ConfigError(
                f"[site] listen: {address} can be reached from other hosts, and whoever reaches "
                "it can run code here: set secret_file (or $GRIDFED_SECRET) first"
            )
        if address.startswith("tls+tcp://") and not config.tls_certificate_file:
            raise ConfigError(f"[site] {address} needs tls_certificate_file")
    rules = replace(config.rules, site=config.name, secret=config.secret)
    return replace(config, pools=pools, rules=rules)


def make_folder(path: Path) -> None:
    """Make a folder for its owner alone, unless it is there. Raises GridError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise GridError(f"can't make the folder {path}: {error.strerror}") from None


def python_minor() -> str:
    """The Python that this process runs, as jobs and workers name it."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _is_open(address: str) -> bool:
    if address.startswith("ipc://"):
        return False
    return not address.partition("://")[2].startswith(LOCAL_HOSTS)


def _read(document: dict[str, Any]) -> SiteConfig:
    _expect(document, {"site", "limits", "pool"}, "the top level")
    site = _table(document, "site")
    kinds = {f.name: f.type for f in fields(SiteConfig)}
    allowed = set(kinds) - {"rules", "pools", "unread_bytes"}
    _expect(site, allowed, "[site]")
    values: dict[str, Any] = {}
    for key, value in site.items():
        if key == "listen":
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise ConfigError("[site] listen must be a list of addresses")
            values[key] = tuple(value)
        elif not isinstance(value, str):
            raise ConfigError(f"[site] {key} must be text")
        else:
            values[key] = value
    rules, unread_bytes = _limits(_table(document, "limits"))
    if unread_bytes is not None:
        values["unread_bytes"] = unread_bytes
    pools = document.get("pool", [])
    if not isinstance(pools, list):
        raise ConfigError("pools are written as [[pool]]")
    return SiteConfig(**values, rules=rules, pools=tuple(_pool(pool) for pool in pools))


def _limits(table: dict[str, Any]) -> tuple[HouseRules, int | None]:
    _expect(table, set(_LIMITS), "[limits]")
    values: dict[str, Any] = {}
    for key, value in table.items():
        name, low, high = _LIMITS[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"[limits] {key} must be a number")
        if not low <= value <= high:
            raise ConfigError(f"[limits] {key} is {value}: it must be {low:g} to {high:g}")
        values[name] = value
    unread_bytes = values.pop("unread_bytes", None)
    return HouseRules(**values), unread_bytes


def _pool(table: Any) -> PoolConfig:
    if not isinstance(table, dict):
        raise ConfigError("a [[pool]] must be a table")
    name = table.get("name")
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > 60:
        raise ConfigError("a [[pool]] needs a name of 1 to 60 printable characters")
    where = f"[[pool]] {name}"
    _expect(table, {f.name for f in fields(PoolConfig)}, where)
    pool = PoolConfig(**table)
    if pool.kind not in ("local", "remote"):
        raise ConfigError(f'{where}: kind is {pool.kind!r}: it must be "local" or "remote"')
    for key in ("slots", "memory_bytes"):
        value = getattr(pool, key)
        if type(value) is not int or value < 0:
            raise ConfigError(f"{where}: {key} must be a whole number of zero or more")
    if 0 < pool.memory_bytes < MEMORY_BYTES_MIN:
        raise ConfigError(f"{where}: memory_bytes must be 0 or at least {MEMORY_BYTES_MIN}")
    if not isinstance(pool.tags, dict):
        raise ConfigError(f"{where}: tags must be a table")
    try:
        check_tags(pool.tags)
        _ = pool.tariff
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{where}: {error}") from None
    return pool


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
