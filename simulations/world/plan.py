"""The parts of a world, and its events: plain data, drawn or written by hand.

A host's name is its address. Times are seconds from the world's beginning.
"""

from dataclasses import dataclass, field

from gateway.config.books import BookRules
from gateway.config.contracts import DealRules
from gateway.config.limits import ListenerLimits
from policies.access.entitlements import NO_ENTITLEMENTS, Entitlements
from policies.access.shares import FairShare
from policies.access.windows import NO_WINDOWS, WindowPlan
from policies.costs.budgets import Budget
from policies.placement.asks import Preferences
from policies.placement.placement import TagValue
from policies.reservations.reservations import ReservationRules
from simulations.world.network import Weather

PYTHON = "3.11"


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """A kind of slot at a site, and the price of a slot-hour."""

    name: str = "farm"
    price: str = "36 USD"
    tags: dict[str, TagValue] = field(default_factory=dict)
    windows: WindowPlan = NO_WINDOWS


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """The operator of a site's books, active every `every_s`, as long as there is work.

    The operator disputes each purchased delivery with a chance of `disputes`. Each dispute of
    others is answered with a chance of `answers`, and accepted with one of `accepts`, until the end
    of the world. With a chance of `pays`, the operator pays a site its due, at each look.
    """

    every_s: float = 3.0
    disputes: float = 0.0
    answers: float = 1.0
    accepts: float = 0.5
    pays: float = 0.0


@dataclass(frozen=True, slots=True)
class ReservePlan:
    """A user's reservation of slots at other sites, the user's own among them or not.

    `slots` at each of `sites`, from `in_s` after `at_s` on for `lasts_s`.
    """

    at_s: float
    sites: tuple[str, ...]
    slots: int
    in_s: float
    lasts_s: float


@dataclass(frozen=True, slots=True)
class SitePlan:
    """A site: its gateway's host has the same name.

    `commit_s` and `sync_s` are the durations of a commit, and of one that syncs. `others` are the
    sites that it deals with, and which deal with it; with none it is single. Sites in `runs_not`
    may not run its users' work, nor see it through others; those in `takes_not` may not send it
    any. With sites `beyond` it does not deal, but accepts their results when others forward them.
    """

    name: str = "london"
    pools: tuple[PoolPlan, ...] = (PoolPlan(),)
    rules: ListenerLimits = field(default_factory=ListenerLimits)
    commit_s: float = 0.0
    sync_s: float = 0.004
    skew_s: float = 0.0
    drift: float = 0.0
    others: tuple[str, ...] = ()
    runs_not: tuple[str, ...] = ()
    takes_not: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    deals: DealRules = field(default_factory=DealRules)
    preferences: Preferences = field(default_factory=Preferences)
    books: BookRules = field(default_factory=BookRules)
    operator: OperatorPlan = field(default_factory=OperatorPlan)
    fair_share: FairShare | None = None
    reservations: ReservationRules | None = None
    reserves: tuple[ReservePlan, ...] = ()
    budgets: tuple[Budget, ...] = ()
    entitlements: Entitlements = NO_ENTITLEMENTS


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """A worker, which starts at `from_s`."""

    name: str
    site: str = "london"
    pool: str = "farm"
    slots: int = 2
    tags: dict[str, TagValue] = field(default_factory=dict)
    from_s: float = 0.0
    slower: float = 1.0  # the factor on the duration of tasks there
    graphs: bool = False  # it opens calls with inputs, and runs chains
    skew_s: float = 0.0
    drift: float = 0.0


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job: `tasks` calls from `at_s` on, `batch` at a time every `every_s`.

    A task takes `task_s`, times up to `spread` (exponentially, so that few are long). Of each
    thousand, `errors` raise, `flaky` raise the first time, `poison` kill their slot, and `stuck`
    never end by themselves. At `cancel_at_s` the whole job is cancelled. It may run at the sites of
    `only`, or everywhere when there are none, and never at those of `never`. Results of an
    impatient job are requested at once, before the gateway has promised to keep it. With `chain`,
    calls wait for others, in chains of so many: simulations.world.graphs.
    """

    at_s: float = 0.1
    tasks: int = 50
    batch: int = 50
    every_s: float = 0.1
    task_s: float = 0.05
    spread: float = 1.0
    tags: dict[str, TagValue] = field(default_factory=dict)
    detached: bool = False
    is_impatient: bool = False
    retries: int = 0
    timeout_s: float | None = None
    priority: float = 0.0
    errors: int = 0
    flaky: int = 0
    poison: int = 0
    stuck: int = 0
    cancel_at_s: float | None = None
    kill: bool = False
    max_cost_nanos: int | None = None
    objective: str = ""
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    deadline_s: float | None = None  # from when it is opened
    chain: int = 0
    fan_in: int = 0
    label: tuple[str, ...] = ()  # the words of the label of its data


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """A user's process."""

    name: str
    site: str = "london"
    jobs: tuple[JobPlan, ...] = (JobPlan(),)
    skew_s: float = 0.0
    drift: float = 0.0


# --- faults ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crash:
    """A host's process dies (with `power` the machine), and restarts after a time."""

    at_s: float
    host: str
    back_after_s: float = 3.0
    power: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """A host's process is stopped, and resumes after a time."""

    at_s: float
    host: str
    for_s: float = 3.0


@dataclass(frozen=True, slots=True)
class NetworkCut:
    """Frames from one host to another are held back for a time; also back, unless `one_way`."""

    at_s: float
    source: str
    target: str
    for_s: float = 3.0
    one_way: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """The connections between two hosts break a number of times, at an interval."""

    at_s: float
    one: str
    other: str
    times: int = 1
    every_s: float = 0.5


@dataclass(frozen=True, slots=True)
class SlowStore:
    """A site's commits take longer for a time."""

    at_s: float
    site: str
    commit_s: float = 0.5
    for_s: float = 5.0


@dataclass(frozen=True, slots=True)
class DrainWorkers:
    """A site's workers are drained, and go back to work after a time."""

    at_s: float
    site: str
    for_s: float = 3.0


Fault = Crash | Pause | NetworkCut | Reset | SlowStore | DrainWorkers


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """A whole world.

    Faults may happen until `calm_s`; from then on there are none, and everything must be finished
    within `settle_s`.
    """

    sites: tuple[SitePlan, ...] = (SitePlan(),)
    workers: tuple[WorkerPlan, ...] = ()
    clients: tuple[ClientPlan, ...] = ()
    faults: tuple[Fault, ...] = ()
    weather: Weather = field(default_factory=Weather)
    calm_s: float = 20.0
    settle_s: float = 300.0
