"""All events of a site's broker. Closed: the broker matches on every one.

Events are about bundles, never single tasks: a million tasks are a thousand events. `client` and
`worker` are handles, of sessions or of contracts: numbers of one source that are never reused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from federation.clocks import UtcS
from federation.objects.labels import UNLABELLED, DataLabel
from federation.ranges import Range
from gateway.ledger.db.usage.records import UsageRecord
from gateway.scheduler.model.budget_accounts import BudgetSpent, Debtor
from gateway.scheduler.model.paid_time import PaidTime
from gateway.scheduler.model.ports import PortKind
from gateway.scheduler.model.terms import CarriedHold, GivenPriority, JobHold, JobSpec
from policies.access.entitlements import Entitlements
from policies.access.residency import ResidencyRule
from policies.access.shares import FairShare
from policies.access.windows import PoolRules
from policies.costs.carbon import Emissions, Footprint
from policies.costs.pricelist import PriceNow
from policies.costs.volumes import Buyer
from policies.parties import Owner
from policies.placement.asks import Wishes
from policies.placement.autoscaling import PoolGrowth
from policies.placement.placement import Tags
from policies.tariffs import Tariff

MEMORY_BYTES_MAX: Final = 1 << 46  # of one host


@dataclass(frozen=True, slots=True)
class ClientJoined:
    """A client's session opened. The clients of one `account` share its limit on held bytes.

    An operator may cancel the jobs of every user of this site. A contract with another site is a
    client as well, with one job.
    """

    client: int
    user: str
    account: str = ""
    is_operator: bool = False
    port: PortKind = PortKind.CLIENT


@dataclass(frozen=True, slots=True)
class ClientGone:
    """A client said goodbye, or did not come back in time."""

    client: int


@dataclass(frozen=True, slots=True)
class ClientReading:
    """A client's unread results pile up (`ready` false), or it has caught up again."""

    client: int
    ready: bool


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """A worker's session opened, with its offer.

    A contract with another site is a worker as well: for one job, with its own tariff and
    round-trip time, as are the slots of a delegating grid. `is_funded`: its full possible cost is
    held already.
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
    memory_bytes: int = MEMORY_BYTES_MAX  # of its host, if stated
    tells_begun: bool = False  # whether it reports which tasks have begun
    tells_output: bool = False  # whether it sends the output of tasks while they run
    takes_others: bool = (
        True  # may have work of other sites: policies.placement.placement.CapacityOffer
    )
    takes_inputs: bool = False  # whether it opens calls with inputs
    label: DataLabel | None = None  # of a contract: that of the job's data when it was asked for
    runs_chains: bool = False  # whether calls may read results of tasks of their assignment
    token: str = ""  # the id of the token that it used, if any
    host: str = ""  # as the worker states it; empty: it does not
    port: PortKind = PortKind.WORKER


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """A worker left (`is_orderly`: it said goodbye), or its lease ran out.

    It was certainly there until `silent_s` seconds ago, when its last frame arrived. `was_late` is
    whether its lease may have ended because this gateway did not answer it in time.
    """

    worker: int
    reason: str
    is_orderly: bool = False
    silent_s: float = 0.0
    was_late: bool = False


@dataclass(frozen=True, slots=True)
class TasksBegun:
    """A worker reports tasks that have begun: (assignment, task, seconds of run time)."""

    worker: int
    tasks: tuple[tuple[int, int, float], ...]


@dataclass(frozen=True, slots=True)
class OutputArrived:
    """A worker sends output of running tasks: (task, stream, text) of each piece."""

    worker: int
    assignment: int
    pieces: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class JobOpened:
    """A client opened a job, or reopened it after a reconnection."""

    client: int
    job: str
    spec: JobSpec
    has_function: bool = True
    again: bool = False  # its client has opened it before
    hold: CarriedHold | None = None  # the last order about it that its client knows


@dataclass(frozen=True, slots=True)
class FunctionArrived:
    """A function arrived; jobs may have been opened without it."""

    function: bytes


@dataclass(frozen=True, slots=True)
class JobRecovered:
    """A job from before a restart, restored from the gateway's store.

    The tasks of a detached job follow as TasksArrived with client 0, unless it is ending. Of an
    attached job only the charges are known; it goes on when its client reopens it.
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
    attempt_max: int = 0  # of all its usage records
    repeat_ns: int = 0  # the part of its wall time that was repeated for free
    free_ns: int = 0  # another part: of runs that wasted runs had paid before
    unpaid_ns: int = 0  # another part: of preempted runs, and of those that were not delivered
    paid_times: tuple[tuple[int, PaidTime], ...] = ()  # by task: see model.paid_time
    function: bytes = b""
    submitted_at_s: UtcS = UtcS(0.0)  # UTC; 0: now
    first_error: str = ""  # of the first of its tasks that failed, in one line
    # If its end was ordered: its state at the end, why, and its tasks that had arrived.
    leaving: str = ""
    reason: str = ""
    known: tuple[Range, ...] = ()
    # Orders about it: a client that opens it again does not know them.
    hold: JobHold | None = None
    priority: float | None = None  # None: unknown, as its client says
    given_priority: GivenPriority | None = None


@dataclass(frozen=True, slots=True)
class TasksArrived:
    """Arguments of calls `first`, `first` + 1, … of a job. Client 0 is the store.

    `objects` are the digests of the objects that the calls refer to; `inputs` is whether some of
    the calls have inputs (federation.objects.inputs); `label` is that of results that they have as
    values, by the word of their client.
    """

    client: int
    job: str
    first: int
    arguments: list[bytes]
    objects: tuple[bytes, ...] = ()
    inputs: bool = False
    label: DataLabel = UNLABELLED


class JobFate(StrEnum):
    """The fate of a job that is not among the unfinished ones."""

    UNKNOWN = "unknown"  # it was never opened, as far as is known
    ATTACHED = "attached"  # it has ended, and its results went to its client
    DETACHED = "detached"  # its results are in the books


@dataclass(frozen=True, slots=True)
class OutcomesRead:
    """Outcomes of tasks [first, stop) of a job in the books: the answer to ReadOutcomes, in parts.

    Attributes:
        whose: the user and the project of the job.
        wishes: those of the job.
        outcomes: (first, values, failures) of each range with outcomes, in order; failures are rows
            [offset, kind, text, pickled exception].
        trouble: why they can't be read.
    """

    job: str
    first: int
    stop: int
    fate: JobFate
    whose: tuple[str, str] = ("", "")
    wishes: Wishes | None = None
    outcomes: tuple[tuple[int, list[bytes], list[list[object]]], ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class JobClosed:
    """No more tasks will come; the tasks in `elsewhere` have ended already, and never arrive."""

    client: int
    job: str
    total: int
    elsewhere: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftJob:
    """An attached job that ended with the loss of its client or gateway: its client may return."""

    user: str
    project: str

    def title(self, job: str) -> str:
        """Its id, user and project, for people, as of a job that goes on."""
        return f"job {job} of {self.user}, project {self.project}"


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A request to cancel these ranges (all when empty); with `kill`, running tasks as well.

    `left`: the job by the books, if its client may return.
    """

    client: int
    request: int
    job: str
    ranges: tuple[Range, ...]
    kill: bool
    left: LeftJob | None = None


@dataclass(frozen=True, slots=True)
class LeftJobChanged:
    """Another hold or priority for an attached job that has ended, for its client's return.

    The desk has checked the order. `spec` has all terms of the job in the books, with the new ones.
    """

    job: str
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class JobHoldAsked:
    """Hold a job, so that none of its tasks begins; without a hold, let it go on.

    The desk has checked who orders it.
    """

    job: str
    hold: JobHold | None


@dataclass(frozen=True, slots=True)
class PriorityAsked:
    """Give a job another priority; `given_by`: the operator who orders it; empty: its user does."""

    job: str
    priority: float
    given_by: str = ""


@dataclass(frozen=True, slots=True)
class ReportUsage:
    """The usage that a report states, without the outputs: see Reported for the fields."""

    first: int
    tasks: int
    failures: tuple[tuple[int, str], ...] = ()  # offset and kind of each failure
    wall_ns: int = 0
    cpu_ns: int = 0
    peak_memory_bytes: int = 0
    cost_nanos: int | None = None
    footprint: Footprint | None = None


@dataclass(frozen=True, slots=True)
class Reported:
    """A worker's results of a contiguous part of an assignment.

    `prints` are [offset, text, stream], or [offset, text] for stdout (federation.messages.printed).
    """

    worker: int
    assignment: int
    first: int
    values: list[bytes]
    failures: list[list[object]] = field(default_factory=list)
    prints: list[list[object]] = field(default_factory=list)
    wall_ns: int = 0
    cpu_ns: int = 0
    peak_memory_bytes: int = 0
    cost_nanos: int | None = None  # the price of another site; None: by the pool's tariff
    sites: tuple[str, ...] = ()  # that it came through, the one where it ran last
    footprint: Footprint | None = None  # as another site states; None: by the pool's emissions
    left: bool = False  # whether some values stand for objects: federation.objects.left

    @property
    def usage(self) -> ReportUsage:
        """The usage alone."""
        return ReportUsage(
            self.first,
            len(self.values),
            tuple((int(at), str(kind)) for at, kind, *_ in self.failures),  # type: ignore[call-overload]
            self.wall_ns,
            self.cpu_ns,
            self.peak_memory_bytes,
            self.cost_nanos,
            self.footprint,
        )


@dataclass(frozen=True, slots=True)
class PlacesChosen:
    """The new places of a job's tasks: pools, with the number of tasks that each may take.

    None: wherever they can run.
    """

    job: str
    places: dict[str, float] | None


@dataclass(frozen=True, slots=True)
class PlacesLeft:
    """A job's tasks in these pools that have not begun are to be recalled: others are better."""

    job: str
    pools: frozenset[str]


@dataclass(frozen=True, slots=True)
class MoneySpent:
    """The rest of a job's cost limit pays for no task anywhere: its queued tasks end."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobLimitsUnmet:
    """A job can't be completed within its limits any more; or, without a text, it can again.

    With a `failure`, the job is useful only as a whole: its tasks that have not begun end with it.
    """

    job: str
    text: str
    failure: str = ""


@dataclass(frozen=True, slots=True)
class JobHeld:
    """While `on`, no task may be placed.

    Tasks may be in flight under this contract, or, of a job that another site sent, objects on
    their way, to which its calls refer.
    """

    job: str
    contract: str
    on: bool


@dataclass(frozen=True, slots=True)
class Resumed:
    """A worker holds these tasks since before a restart, under this assignment's number."""

    worker: int
    assignment: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class EnvironmentsPrepared:
    """The functions whose environments a worker is making, until the next such event."""

    worker: int
    functions: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class HandedBack:
    """A worker's answer to a recall: these tasks never started.

    `of_all`: earlier recalls will not be answered any more.
    """

    worker: int
    assignment: int
    ranges: tuple[Range, ...]
    of_all: bool = False


class Drainer(StrEnum):
    """The party that drains a worker."""

    OPERATOR = "operator"
    CONTROLLER = "keeper"  # of its pool, which releases it; clients know it by this value
    ITSELF = "itself"  # it stops, and hands its tasks back itself
    LOSSES = "losses"  # it was lost with tasks, and waits (gateway.scheduler.tasks.probation)


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """Give a worker (or, with 0, the whole site) no new work; or let it work again.

    A worker works again when no drainer is left: a drainer can undo only its own request.
    """

    worker: int
    on: bool
    by: Drainer = Drainer.OPERATOR


class DrainKind(StrEnum):
    """What an operator drains."""

    HOST = "host"  # all workers of a host, of all pools
    WORKER = "worker"  # all workers of a name


@dataclass(frozen=True, slots=True)
class DrainOrdered:
    """An operator drains a host or the workers of a name, or ends that.

    It holds for those that come later too, and is restored after a restart of the gateway.
    `name`: of a host in small letters, with or without its domain.
    """

    target: DrainKind
    name: str
    on: bool


@dataclass(frozen=True, slots=True)
class PoolGrows:
    """The capacity that a pool of ours could add from now on.

    `tags`: those that its new workers carry, where not all promised tags hold.
    """

    pool: str
    growth: PoolGrowth
    tags: Tags | None = None


@dataclass(frozen=True, slots=True)
class PilotSeen:
    """The facts about a worker that its grid reports.

    Attributes:
        grid_id: the grid's own name for it.
        ends_at_s: UTC, when the grid will stop it; None: it won't.
    """

    worker: int
    grid_id: str
    ends_at_s: UtcS | None


@dataclass(frozen=True, slots=True)
class PilotsAwaited:
    """All workers of a pool that its grid expects.

    Known in advance, they are booked under the grid's name from the first task on.

    Attributes:
        pilots: grid_id and ends_at_s, as in PilotSeen, by the worker's name.
    """

    pool: str
    pilots: Mapping[str, tuple[str, UtcS | None]]


@dataclass(frozen=True, slots=True)
class EmissionsKnown:
    """The new power draw of a pool of ours, and the emissions of its electricity."""

    pool: str
    emissions: Emissions


@dataclass(frozen=True, slots=True)
class PricesChanged:
    """New prices of these pools; tasks that are handed out already keep theirs.

    Attributes:
        rules: the version of the site's rules that is in force.
    """

    prices: Mapping[str, PriceNow]
    rules: int = 0


@dataclass(frozen=True, slots=True)
class RulesTurned:
    """New windows and claims of these pools of ours; None: a pool has none."""

    rules: Mapping[str, PoolRules | None]


@dataclass(frozen=True, slots=True)
class JobNoted:
    """A note about a job, for its owner."""

    job: str
    text: str


@dataclass(frozen=True, slots=True)
class MoveCharged:
    """Objects of a job have moved between sites, at a cost: its usage record."""

    job: str
    record: UsageRecord


@dataclass(frozen=True, slots=True)
class VolumesKnown:
    """The slot time that each buyer has had this month, from the books at the start."""

    had_ns: Mapping[Buyer, int]


@dataclass(frozen=True, slots=True)
class SpendingKnown:
    """The amounts spent of each budget of ours, and the debts of sites, from the books."""

    spent: Mapping[str, BudgetSpent]
    owed: Mapping[Debtor, int]


@dataclass(frozen=True, slots=True)
class SharesKnown:
    """The new fair shares of slots; None: there are none.

    Attributes:
        used_ns: the slot time used by each principal, decayed to now, from the books.
    """

    rules: FairShare | None
    used_ns: Mapping[Owner, int]


@dataclass(frozen=True, slots=True)
class EntitlementsKnown:
    """The new rules of access to our pools.

    Attributes:
        windows: of each pool of ours, the names of its windows.
        residency: the rules about the places where work may run.
    """

    rules: Entitlements
    windows: Mapping[str, frozenset[str]]
    residency: tuple[ResidencyRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; `is_behind`: reports of workers wait unread, until the store catches up."""

    is_behind: bool = False


# Events about the state of our site, independent of jobs.
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
    | DrainOrdered
)

Event = (
    ClientJoined
    | ClientGone
    | ClientReading
    | WorkerJoined
    | WorkerGone
    | TasksBegun
    | OutputArrived
    | JobOpened
    | FunctionArrived
    | JobRecovered
    | TasksArrived
    | OutcomesRead
    | JobClosed
    | CancelAsked
    | LeftJobChanged
    | JobHoldAsked
    | PriorityAsked
    | PlacesChosen
    | PlacesLeft
    | MoneySpent
    | JobLimitsUnmet
    | JobNoted
    | MoveCharged
    | JobHeld
    | Resumed
    | Reported
    | HandedBack
    | EnvironmentsPrepared
    | DrainAsked
    | Ticked
    | AboutSite
)
