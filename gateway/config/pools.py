"""Reads the [[pool]] tables of a site; every error names its line."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Protocol

from federation.words import size_text
from gateway.base.tags import check_tags
from gateway.base.toml_lines import Passage
from gateway.base.values import MEMORY_BYTES_MIN, WORKER_SLOTS_MAX, SettingError, number, size
from gateway.config.carbon import CarbonConfig, read_carbon, read_intensity
from gateway.config.environments import (
    ANY_USER,
    OWN_USER,
    Confines,
    EnvironmentRules,
    check_confines,
    check_user,
    gpus_tagged,
    read_gpus,
    read_rules,
)
from gateway.config.environments import AUTO as SHUT
from gateway.config.scale import ScaleConfig, read_scale
from gateway.config.tariffs import read_price_list
from gateway.config.windows import read_plan
from policies.access.windows import NO_WINDOWS, WindowPlan
from policies.calendar.calendars import Calendar
from policies.costs.carbon import SLOT_WATTS_MAX, Emissions
from policies.costs.pricelist import PriceList
from policies.placement.placement import Tags, TagValue

BUILT_IN: Final = ("local", "remote")  # pools whose workers no grid starts
USUAL_POOL: Final = "workers"
MEMORY_BYTES_MAX: Final = 1 << 50
DEFAULT_PRICE: Final = "0.04 USD"
# Keys that a worker that dials in reports itself.
OF_WORKERS: Final = (
    *(
        "slots",
        "memory_bytes",
        "cpus",
        "pids_max",
        "cgroups",
        "pin",
        "gpus",
        "environments",
        "user",
    ),
)


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """The facts about a pool that only its configuration has, not its workers."""

    tags: Tags = field(default_factory=dict)
    region: str = ""
    jurisdiction: str = ""


@dataclass(frozen=True, slots=True)
class Delegated:
    """The table of a pool whose grid has workers of its own, for that grid to read where it runs.

    `kind` is its gateway.grids.delegating.DelegatingKind.
    """

    kind: Any
    table: dict[str, Any]


class GridKinds(Protocol):
    """The kinds of grids that pools may name; gateway.grids.kinds.Installed are those there are."""

    def find(self, name: str) -> Any:
        """The kind of that name. Raises SettingError."""

    def read(self, kind: Any, table: dict[str, Any]) -> Any:
        """What a pool has of its table [pool.KIND]: settings, or Delegated. Raises SettingError."""


class NoGrids:
    """No grids at all: pools are local, or their workers are started by hand."""

    def find(self, name: str) -> Any:
        """Refuse any."""
        raise SettingError(f"kind is {name[:60]!r}: it must be one of {', '.join(BUILT_IN)}")

    def read(self, kind: Any, table: dict[str, Any]) -> Any:
        """There is none to read a table for."""
        raise AssertionError(f"no kind found: {kind!r}, {table!r}")


NO_GRIDS: Final = NoGrids()


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
    tariff: dict[str, Any] = field(default_factory=dict)  # the table as read
    cpus: float = 0.0
    pids_max: int = 0
    cgroups: str = "auto"
    pin: bool = False
    gpus: tuple[str, ...] = ()
    user: str = ANY_USER  # that its slots run as
    environments: EnvironmentRules | None = None  # the environments of jobs, beside bare slots
    plan: WindowPlan = NO_WINDOWS
    scale: ScaleConfig | None = None  # of a pool whose workers a grid starts for us
    grid: Any = None  # the table of its kind, as read by the kind

    @property
    def is_grown(self) -> bool:
        """Whether a grid starts and stops its workers."""
        return self.scale is not None

    @property
    def is_delegated(self) -> bool:
        """Whether a grid has workers of its own and is sent bundles."""
        return isinstance(self.grid, Delegated)

    @property
    def of_workers(self) -> str:
        """A key that is set but is reported by the workers themselves; empty if there is none."""
        usual = PoolConfig("")
        return next((key for key in OF_WORKERS if getattr(self, key) != getattr(usual, key)), "")

    @property
    def takes_others(self) -> bool:
        """Whether its workers accept work of other sites, as far as its owner is concerned."""
        rules = self.environments
        return self.is_delegated or (rules is not None and rules.takes_others)

    @property
    def facts(self) -> PoolFacts:
        """The pool's facts in our advert, beside those that its workers report."""
        return PoolFacts(self.promised, self.region, self.jurisdiction)

    @property
    def promised(self) -> dict[str, TagValue]:
        """Its tags; if a grid starts its workers, with the environments that these will support."""
        if not self.is_grown or self.environments is None:
            return self.tags
        return {**self.tags, **self.environments.promised}

    @property
    def agent_options(self) -> list[str]:
        """The options that tell a worker's agent the resources and environments of its slots."""
        confines = self.confines
        found = ["--cpus", str(confines.cpus), "--pids-max", str(confines.pids_max)]
        found += ["--cgroups", confines.cgroups] + (["--pin"] if confines.pin else [])
        if self.gpus_given:
            # A grid gives each pilot its own, and names them in the pilot's environment.
            given = ["inherited"] if self.is_grown and not self.gpus else self.gpus_given
            found += ["--gpus", ",".join(given)]
        if self.environments is not None:
            found += ["--environments", self.environments.to_json()]
        return found

    @property
    def emissions(self) -> Emissions:
        """Its known emissions, before any source is queried.

        `slot_watts` and `carbon_g_per_kwh` are shorthand for a [pool.carbon] of two figures.
        """
        watts, grams = self.slot_watts, self.carbon_g_per_kwh
        carbon = self.carbon
        if watts is not None:
            carbon = replace(carbon, idle_watts=watts, max_watts=watts)
        return (carbon if grams is None else replace(carbon, g_per_kwh=grams)).emissions

    @property
    def prices(self) -> PriceList:
        """The prices of its slot-hours by buyer and time; SettingError says what is wrong."""
        return read_price_list(self.name, self.price, self.tariff, self.plan)

    @property
    def confines(self) -> Confines:
        """The limits of its slots, beside their memory."""
        return Confines(self.cpus, self.pids_max, self.cgroups, self.pin)

    @property
    def gpus_given(self) -> tuple[str, ...]:
        """The GPUs that are assigned: as many as its tag says, by name or number."""
        return self.gpus or tuple(map(str, range(gpus_tagged(self.tags))))

    def settled(self, *, is_federated: bool) -> "PoolConfig":
        """Return the pool with defaults chosen: in a federation, other sites' work is sandboxed."""
        if self.kind == "remote" or self.is_delegated:
            return self
        rules = self.environments or (EnvironmentRules(sandbox=SHUT) if is_federated else None)
        if rules is not None and rules.sandbox == SHUT and not is_federated:
            rules = replace(rules, sandbox="none")
        is_free = self.user == ANY_USER and not is_federated
        return replace(self, environments=rules, user=OWN_USER if is_free else self.user)

    @property
    def slots_wanted(self) -> int:
        """Slots of a local pool: as configured, or one per core that we may use."""
        return self.slots or len(os.sched_getaffinity(0))


def read_pools(
    whole: Passage, calendars: Mapping[str, Calendar], kinds: GridKinds
) -> tuple[PoolConfig, ...]:
    """Read all [[pool]] tables. Raises ConfigError, or SettingError for windows; with the line."""
    return tuple(_pool(_named(each), calendars, kinds) for each in whole.rows("pool", "a [[pool]]"))


def _named(row: Passage) -> Passage:
    name = row.table.get("name")
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > 60:
        raise row.error("needs a name of 1 to 60 printable characters")
    found = replace(row, named=f"[[pool]] {name}:")
    if "/" in name:
        raise found.error("a name with a slash is that of another site's pool")
    return found


def _pool(given: Passage, calendars: Mapping[str, Calendar], kinds: GridKinds) -> PoolConfig:
    table, plan = given.table, read_plan(given, calendars)
    known = {field.name for field in fields(PoolConfig)} - {"plan", "grid"}
    kind = table.get("kind", "remote")
    if not isinstance(kind, str):
        raise given.error("kind must be a string")
    with given.about():
        grid = None if kind in BUILT_IN else kinds.find(kind)
    given.expect(known | {"window", "claims"} | ({kind} - set(BUILT_IN)))
    own = {key: value for key, value in table.items() if key in known}
    if "memory_bytes" in own:
        with given.about():
            own["memory_bytes"] = size("memory_bytes", own["memory_bytes"], 0, MEMORY_BYTES_MAX)
    own |= _grown(given, kind, grid, kinds)
    read = {"carbon": _carbon(given), "environments": _environments(given)}
    pool = PoolConfig(**{**own, **read, "plan": plan})
    if type(pool.slots) is not int or pool.slots < 0:
        raise given.error("slots must be a whole number of zero or more")
    if pool.kind == "local" and pool.slots > WORKER_SLOTS_MAX:
        raise given.error(f"slots: a local pool has one worker, of at most {WORKER_SLOTS_MAX:,}")
    _check_facts(pool, given)
    with given.about():
        check_confines(pool.confines)
        check_user(pool.user)
        pool = replace(pool, gpus=read_gpus(pool.gpus, pool.tags))
    if 0 < pool.memory_bytes < MEMORY_BYTES_MIN:
        raise given.error(
            "memory_bytes must be 0, which is no limit, or at least "
            f'{size_text(MEMORY_BYTES_MIN)}, as in "4 GiB"'
        )
    if not isinstance(pool.tags, dict):
        raise given.error("tags must be a table")
    try:
        check_tags(pool.tags)
        _ = pool.prices
    except (ValueError, SettingError) as error:
        raise given.error(str(error)) from None
    _check_grown(pool, given)
    return pool


def _grown(given: Passage, kind: str, grid: Any, kinds: GridKinds) -> dict[str, Any]:
    """Read the tables of a pool whose workers a grid starts; `grid` is None for other pools."""
    if grid is None:
        if "scale" in given.table:
            raise given.error("[pool.scale] is only for pools whose kind is a grid")
        return {}
    settings = _below(given, kind)
    with settings.about():
        read = kinds.read(grid, settings.table)
    if isinstance(read, Delegated):
        if "scale" in given.table:
            raise given.error(
                f"[pool.scale]: the workers of kind {kind!r} are not started by gridfed: omit "
                "the table"
            )
        return {"grid": read}
    scale = _below(given, "scale")
    with scale.about():
        return {"scale": read_scale(scale.table), "grid": read}


def _check_grown(pool: PoolConfig, given: Passage) -> None:
    """Check a grid's pool for keys that it must not have, and for tables that must agree."""
    if pool.is_delegated and (key := pool.of_workers):
        raise given.error(f"{key} is set by the grid: see [pool.{pool.kind}]")
    if pool.scale is None:
        return
    if pool.slots:
        raise given.error("slots: a pool with [pool.scale] sets max there instead")
    limit, currency = pool.scale.currency, pool.prices.currency
    if limit and limit != currency:
        raise _below(given, "scale").error(
            f"hourly_cost is in {limit}, but the price in {currency}: use one currency"
        )


def _below(given: Passage, key: str) -> Passage:
    return given.part(key, f"{given.named.removesuffix(':')}, [pool.{key}]:")


def _check_facts(pool: PoolConfig, given: Passage) -> None:
    for key in ("region", "jurisdiction"):
        text = getattr(pool, key)
        if not isinstance(text, str) or len(text) > 60 or not text.isprintable():
            raise given.error(f"{key} must be a string of up to 60 characters")
    with given.about():
        if pool.slot_watts is not None:
            number("slot_watts", pool.slot_watts, 0.0, SLOT_WATTS_MAX)
        if pool.carbon_g_per_kwh is not None:
            read_intensity("carbon_g_per_kwh", pool.carbon_g_per_kwh)


def _carbon(given: Passage) -> CarbonConfig:
    table = _below(given, "carbon")
    with table.about():
        carbon = read_carbon(table.table)
    if "slot_watts" in given.table and carbon.machine is not None:
        raise given.error(
            "[pool.carbon] sets the power of a slot, and so does slot_watts: remove one of them"
        )
    if "carbon_g_per_kwh" in given.table and carbon.static is not None:
        raise given.error(
            "[pool.carbon] sets the intensity, and so does carbon_g_per_kwh: remove one of them"
        )
    return carbon


def _environments(given: Passage) -> EnvironmentRules | None:
    if "environments" not in given.table:
        return None
    table = _below(given, "environments")
    with table.about():
        return read_rules(table.table)
