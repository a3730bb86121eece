"""Everything that can happen to a site's broker. Closed: the broker matches on every one.

Events speak of bundles, never of single tasks: a million tasks are a thousand events. `client`
and `worker` are session handles, numbers that are never used twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

from federation.ranges import Range
from federation.users import site_of
from gateway.budgets.purses import Debtor, Spent
from gateway.errands import Allowance
from policies.asks import Wishes
from policies.butler import Growth
from policies.carbon import Emissions, Footprint
from policies.entitlements import Entitlements, Work
from policies.environments import kind_of
from policies.parties import Whose
from policies.placement import FrozenTags, Need, Tags
from policies.pricelist import PriceNow
from policies.shares import FairShare
from policies.tariffs import PriceClass, Tariff
from policies.volumes import Buyer
from policies.windows import Rules

HOPS_MAX: Final = 3  # how often a job may be forwarded
MEMORY_BYTES_MAX: Final = 1 << 46  # of one host


@dataclass(frozen=True, slots=True)
class Warrant:
    """By what a job was opened, and its tasks' passes are good: a token, or the pass of a task.

    `stays`: jobs that its tasks open may run at this site alone.
    """

    issuer: str = ""
    token: str = ""  # its id; empty: there was none
    expires_s: float = inf  # UTC
    stays: bool = False


NO_WARRANT: Final = Warrant()


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a job is: one function and the terms it runs under."""

    name: str
    function: bytes
    detached: bool
    user: str
    project: str
    priority: float
    tags: Tags
    timeout_s: float | None
    retries: int
    max_cost_nanos: int | None
    currency: str | None
    python: str
    prints: bool
    wishes: Wishes = field(default_factory=Wishes)
    # Of a job that another site sent: what it pays, and the sites that it came through.
    price: Tariff | None = None
    path: tuple[str, ...] = ()
    given: Allowance | None = None  # and what its user allows
    hops_left: int = HOPS_MAX
    pool: str = ""  # the only one of ours that it may run in; any, when it is empty
    group: str = ""  # its user's, as configured here; none, when it is empty
    price_class: PriceClass = "guaranteed"
    tasks: int | None = None  # how many there will be, as its client says
    task_s: float | None = None  # and how long one takes, about
    slots_sold: int = 0  # of a job that another site sent to one of our pools
    warrant: Warrant = NO_WARRANT

    @property
    def need(self) -> Need:
        """What it asks of whoever runs it."""
        kind = kind_of(self.wishes.environment)
        return Need(FrozenTags(self.tags), self.python, self.currency, kind, bool(self.origin))

    @property
    def origin(self) -> str:
        """The site whose code it is, as far as we deal with it; empty: ours.

        Of a job that another site sent it is the neighbour that did. Of a guest, who came by the
        token of a site whose users are welcome, and of what such tasks submit, it is that site.
        """
        return self.path[-1] if self.path else site_of(self.user)

    @property
    def whose(self) -> Whose:
        """Whose work it is to rules and books: of a job that another site sent, the neighbour's.

        A guest's is ours here (docs/entitlements.md): nobody but the guest is asked to pay for it.
        """
        return Whose(self.user, self.group, self.project, self.path[-1] if self.path else "")

    @property
    def work(self) -> Work:
        """The same, as entitlements look at it."""
        return Work(self.whose, self.priority, self.price_class)

    @property
    def price_name(self) -> str:
        """What names its price, of a job that another site sent; empty: it is ours."""
        return "" if self.price is None else self.price.version


@dataclass(frozen=True, slots=True)
class ClientJoined:
    """A client's session opened. All of one `account` answer together for the bytes they hold.

    An operator may cancel the jobs of every user of this site.
    """

    client: int
    user: str
    account: str = ""
    is_operator: bool = False


@dataclass(frozen=True, slots=True)
class ClientGone:
    """A client said goodbye, or did not come back in time."""

    client: int


@dataclass(frozen=True, slots=True)
class ClientReading:
    """A client's results pile up unread (`ready` false), or it has caught up again."""

    client: int
    ready: bool


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """A worker's session opened, with what it offers.

    A contract with another site is a worker as well: for one job, at a price of its own, a round
    trip away, as the slots of a delegating grid are. `is_funded`: all that it may cost is held for
    it already.
    """

    worker: int
    name: str
    pool: str
    slots: int
    tags: Tags
    python: str
    job: str = ""
    tariff: Tariff | None = None
    round_trip_s: float = 0.0
    is_funded: bool = False
    memory_bytes: int = MEMORY_BYTES_MAX  # of its host, as far as it says
    tells_begun: bool = False  # whether it says which tasks have begun
    takes_others: bool = True  # may have work of other sites: policies.placement.Offer
    token: str = ""  # the id of the token by which it came, if it came by one


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """A worker left (`is_orderly`: it said goodbye), or its lease ran out.

    It was certainly there until `silent_s` seconds ago, when it was last heard.
    """

    worker: int
    reason: str
    is_orderly: bool = False
    silent_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TasksBegun:
    """A worker says which tasks have begun: (assignment, task, seconds that it has run)."""

    worker: int
    tasks: tuple[tuple[int, int, float], ...]


@dataclass(frozen=True, slots=True)
class JobOpened:
    """A client opened a job, or opens it again after a reconnection."""

    client: int
    job: str
    spec: JobSpec
    has_function: bool = True
    again: bool = False  # its client has opened it before


@dataclass(frozen=True, slots=True)
class FunctionArrived:
    """A function is here, which jobs may have been opened without."""

    function: bytes


@dataclass(frozen=True, slots=True)
class JobRecovered:
    """A job that the gateway's store remembers from before a restart.

    For a detached job its tasks follow as TasksArrived with client 0. For an attached one only
    what it was charged for is known; it goes on when its client opens it again.
    """

    job: str
    spec: JobSpec | None
    total: int | None
    ended: tuple[Range, ...]
    failed: int
    cancelled: int
    charged: tuple[Range, ...]
    costs_nanos: dict[str, int]  # by currency, and so are the prices per slot-hour
    wall_ns: int
    cpu_ns: int
    prices_nanos: dict[str, int] = field(default_factory=dict)
    attempt_max: int = 0  # on any usage record of it
    repeat_ns: int = 0  # of its wall time, of what ran again for nothing
    credits: tuple[tuple[int, int], ...] = ()  # (task, nanoseconds): see gateway.credits
    function: bytes = b""
    submitted_at_s: float = 0.0  # UTC; 0: now


@dataclass(frozen=True, slots=True)
class TasksArrived:
    """Arguments of calls `first`, `first` + 1, … of a job. Client 0 is the store."""

    client: int
    job: str
    first: int
    arguments: list[bytes]


@dataclass(frozen=True, slots=True)
class JobClosed:
    """No more tasks will come; those of `elsewhere` have ended already, and never will."""

    client: int
    job: str
    total: int
    elsewhere: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """Take back these ranges (all when empty); with `kill`, stop what runs as well."""

    client: int
    request: int
    job: str
    ranges: tuple[Range, ...]
    kill: bool


@dataclass(frozen=True, slots=True)
class Reported:
    """A worker's results of a contiguous part of an assignment."""

    worker: int
    assignment: int
    first: int
    values: list[bytes]
    failures: list[list[object]] = field(default_factory=list)
    prints: list[list[object]] = field(default_factory=list)
    wall_ns: int = 0
    cpu_ns: int = 0
    peak_memory_bytes: int = 0
    cost_nanos: int | None = None  # what another site asks for it; None: by the pool's tariff
    sites: tuple[str, ...] = ()  # that it came through, the one where it ran last
    footprint: Footprint | None = None  # as another site says; None: by what is known of the pool


@dataclass(frozen=True, slots=True)
class PlacesChosen:
    """Where a job's tasks may go from now on: pools, and how many of its tasks each may take.

    None: wherever they can run.
    """

    job: str
    places: dict[str, float] | None


@dataclass(frozen=True, slots=True)
class PlacesLeft:
    """What has not begun of a job in these pools is to be taken back: others are better for it."""

    job: str
    pools: frozenset[str]


@dataclass(frozen=True, slots=True)
class MoneySpent:
    """What is left of a job's cost limit pays for no task anywhere: what waits of it ends."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class LimitsUnmet:
    """Not all of a job can be done within its limits any more; or, without a text, it can again.

    With a `failure`, as it is of use only as a whole, what has not begun of it ends with that.
    """

    job: str
    text: str
    failure: str = ""


@dataclass(frozen=True, slots=True)
class JobHeld:
    """Nothing of a job may be placed (`on`) as long as tasks may be out under this contract."""

    job: str
    contract: str
    on: bool


@dataclass(frozen=True, slots=True)
class Resumed:
    """A worker has these tasks, since before a restart, under this assignment's number."""

    worker: int
    assignment: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class EnvironmentsPrepared:
    """Until it is said again, a worker makes what tasks of these functions are to run in."""

    worker: int
    functions: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class HandedBack:
    """A worker's answer to a recall: these tasks never started.

    `of_all`: no recall that it was sent before will be answered any more.
    """

    worker: int
    assignment: int
    ranges: tuple[Range, ...]
    of_all: bool = False


class Drainer(StrEnum):
    """Who asks that a worker gets no new work."""

    OPERATOR = "operator"
    KEEPER = "keeper"  # of its pool, which lets it go
    ITSELF = "itself"  # it stops, and hands back of its own accord
    LOSSES = "losses"  # it was lost with tasks, and waits (gateway.probation)


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """Give a worker (or, with 0, the whole site) no new work; or let it work again.

    It works again when nobody asks for it any more: who takes back his word takes back no other's.
    """

    worker: int
    on: bool
    by: Drainer = Drainer.OPERATOR


@dataclass(frozen=True, slots=True)
class PoolGrows:
    """What a pool of ours could have that it has not, from now on.

    `tags`: what new workers of it carry, where not all is true that was promised.
    """

    pool: str
    growth: Growth
    tags: Tags | None = None


@dataclass(frozen=True, slots=True)
class PilotSeen:
    """What its grid says of a worker.

    Attributes:
        grid_id: the grid's own name for it.
        ends_s: UTC, when the grid will stop it; None: it won't.
    """

    worker: int
    grid_id: str
    ends_s: float | None


@dataclass(frozen=True, slots=True)
class PilotsAwaited:
    """What its grid says of the workers of a pool that are yet to come, all of them.

    Known before they do anything, they are booked by the grid's name from the first task on.

    Attributes:
        pilots: grid_id and ends_s, as in PilotSeen, by the worker's name.
    """

    pool: str
    pilots: Mapping[str, tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class EmissionsKnown:
    """What a pool of ours draws, and what its electricity emits, from now on."""

    pool: str
    emissions: Emissions


@dataclass(frozen=True, slots=True)
class PricesChanged:
    """From now on these pools charge by these prices; what is handed out already keeps its own."""

    prices: Mapping[str, PriceNow]


@dataclass(frozen=True, slots=True)
class RulesTurned:
    """From now on these windows and claims hold for these pools of ours; None: none do."""

    rules: Mapping[str, Rules | None]


@dataclass(frozen=True, slots=True)
class JobNoted:
    """Something befell a job, that its owner may ask about."""

    job: str
    text: str


@dataclass(frozen=True, slots=True)
class VolumesKnown:
    """The slot time that each buyer has had this month, as the books have it at the start."""

    had_ns: Mapping[Buyer, int]


@dataclass(frozen=True, slots=True)
class SpendingKnown:
    """What was spent of each budget of ours, and what sites owe us, as the books have it."""

    spent: Mapping[str, Spent]
    owed: Mapping[Debtor, int]


@dataclass(frozen=True, slots=True)
class SharesKnown:
    """How slots are shared out from now on; None: they are not.

    Attributes:
        used_ns: the slot time that everybody has used, decayed to now, as the books have it.
    """

    rules: FairShare | None
    used_ns: Mapping[Whose, int]


@dataclass(frozen=True, slots=True)
class EntitlementsKnown:
    """From now on these rules say who may use our pools.

    Attributes:
        windows: of each pool of ours, the names of its windows.
    """

    rules: Entitlements
    windows: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


# What holds at our site from now on, whatever work there is.
AboutSite = (
    PoolGrows
    | PilotSeen
    | PilotsAwaited
    | EmissionsKnown
    | PricesChanged
    | RulesTurned
    | VolumesKnown
    | SpendingKnown
    | SharesKnown
    | EntitlementsKnown
)

Event = (
    ClientJoined
    | ClientGone
    | ClientReading
    | WorkerJoined
    | WorkerGone
    | TasksBegun
    | JobOpened
    | FunctionArrived
    | JobRecovered
    | TasksArrived
    | JobClosed
    | CancelAsked
    | PlacesChosen
    | PlacesLeft
    | MoneySpent
    | LimitsUnmet
    | JobNoted
    | JobHeld
    | Resumed
    | Reported
    | HandedBack
    | EnvironmentsPrepared
    | DrainAsked
    | Ticked
    | AboutSite
)
