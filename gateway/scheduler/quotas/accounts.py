"""The clients of a site, and the unfinished work of each, checked against its limits. Pure.

A task of an attached job counts against its client from arrival until it ends, and its arguments
until they are released. The tasks of a detached job belong to the gateway once they are
acknowledged. Until then their bytes count against the client. While all detached jobs together hold
more bytes than allowed, nothing is acknowledged.
"""

from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from federation.reasons import Reason
from federation.words import size_text
from gateway.scheduler.model.events import ClientJoined, JobOpened
from gateway.scheduler.model.jobs import AttachedLoad, Job
from gateway.scheduler.model.ports import PortKind


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits on the unfinished work of one client; its Welcome states the same.

    `function_wait_s` is how long a job may wait for the function that it names; `jobs_max` is per
    client. `kept_bytes_max` limits the arguments of all detached jobs together, which stay in
    memory until they have run: above it no detached job begins and no more tasks are acknowledged.
    `losses_max` is how many workers may be lost under a task that had begun there. While the store
    is out of order, jobs are accepted for `store_wait_s`; they go on when it works again.
    `lease_s` is how long the session of a worker outlives its pipe.
    """

    tasks_max: int = 200_000
    bytes_max: int = 256 << 20
    function_wait_s: float = 60.0
    jobs_max: int = 50_000
    kept_bytes_max: int = 1 << 30
    losses_max: int = 5
    store_wait_s: float = 30.0
    lease_s: float = 10.0


@dataclass(slots=True)
class BrokerClient:
    """A client as the broker sees it."""

    handle: int
    user: str
    ready: bool = True
    jobs: dict[str, None] = field(default_factory=dict)  # in order of arrival
    tasks: int = 0  # unfinished, of attached jobs
    account: AttachedLoad = field(default_factory=AttachedLoad)  # of attached jobs
    owed_bytes: int = 0  # of detached jobs, not acknowledged
    is_operator: bool = False
    port: PortKind = PortKind.CLIENT  # PEER: another site, for one job; see Sales for its limits


class Accounts:
    """The connected clients, and the jobs, tasks and bytes that count against each.

    It only counts and judges: the broker expels clients and sends messages.
    """

    def __init__(self) -> None:
        self.clients: dict[int, BrokerClient] = {}
        self.owing: dict[str, Job] = {}  # detached jobs with unacknowledged tasks
        self.kept = AttachedLoad()  # of detached jobs
        self._shared: WeakValueDictionary[str, AttachedLoad] = (
            WeakValueDictionary()
        )  # of other sites

    def join(self, event: ClientJoined) -> None:
        """Add a client whose session opened."""
        client = self.clients[event.client] = BrokerClient(
            event.client, event.user, port=event.port
        )
        client.is_operator = event.is_operator
        if event.account:
            client.account = self._shared.setdefault(event.account, client.account)

    def leave(self, handle: int) -> BrokerClient | None:
        """Remove a client that left; return it, with the jobs that it leaves behind."""
        client = self.clients.pop(handle, None)
        if client is not None:
            client.account.tasks -= client.tasks
        return client

    def over_limit(self, event: JobOpened, limits: ClientLimits) -> tuple[str, str] | None:
        """Why one more job can't be accepted now, as code and sentence."""
        held_bytes = self.kept.held_bytes
        if len(self.clients[event.client].jobs) >= limits.jobs_max:
            return Reason.BUSY, f"the client has {limits.jobs_max:,} unfinished jobs, the maximum"
        if event.spec.detached and held_bytes > limits.kept_bytes_max:
            reason = (
                f"detached jobs hold {size_text(held_bytes)} of arguments here, the limit is "
                f"{size_text(limits.kept_bytes_max)}: try again when some have run"
            )
            return Reason.BUSY, reason
        return None

    def excess(self, client: BrokerClient, limits: ClientLimits) -> str:
        """How a client has exceeded the limits of its Welcome; empty when it has not."""
        held_bytes = client.account.held_bytes + client.owed_bytes
        if client.tasks > limits.tasks_max and client.port is not PortKind.PEER:
            return f"the client exceeds its limit of {limits.tasks_max:,} unfinished tasks"
        if held_bytes > limits.bytes_max and client.port is not PortKind.PEER:
            return (
                f"the client exceeds its limit of {size_text(limits.bytes_max)} of unfinished work"
            )
        return ""

    # --- job ownership -------------------------------------------------------------------------

    def begin(self, job: Job) -> None:
        """Make the client of a new job, or the gateway, its owner."""
        client = self.clients.get(job.client)
        if client is not None:
            client.jobs[job.id] = None
        if job.spec.detached:
            job.account = self.kept
        elif client is not None:
            job.account = client.account

    def hand_over(self, job: Job, handle: int) -> None:
        """Make another client, or the same client in a new session, the owner of a job."""
        previous = self.clients.get(job.client)
        if previous is not None:
            previous.jobs.pop(job.id, None)
            self.forgive(job)
        job.client = handle
        client = self.clients[handle]
        client.jobs[job.id] = None
        if not job.spec.detached:
            job.move_to(client.account)

    def disown(self, job: Job) -> None:
        """Remove the owner of a job that has ended, or was submitted whole and is the gateway's."""
        self.forgive(job)
        client = self.clients.get(job.client)
        if client is not None:
            client.jobs.pop(job.id, None)
        job.client = 0

    # --- counting ------------------------------------------------------------------------------

    def count(self, job: Job, tasks: int) -> None:
        """Count `tasks` newly arrived tasks of a job against its client until they end."""
        client = self.clients.get(job.client)
        if client is not None and not job.spec.detached:
            client.tasks += tasks
            client.account.tasks += tasks

    def credit(self, job: Job, tasks: int) -> None:
        """Stop counting `tasks` ended tasks of a job against its client."""
        client = self.clients.get(job.client)
        if client is not None and not job.spec.detached:
            tasks = min(tasks, client.tasks)
            client.tasks -= tasks
            client.account.tasks -= tasks

    def owe(self, job: Job, client: BrokerClient, stop: int, size: int) -> None:
        """Defer the acknowledgement of a detached job's tasks up to `stop`, of `size` bytes."""
        self.owing[job.id] = job
        job.owed_tasks = max(job.owed_tasks, stop)
        job.owed_bytes += size
        client.owed_bytes += size

    def forgive(self, job: Job) -> None:
        """Stop counting a job's unacknowledged bytes against its client."""
        client = self.clients.get(job.client)
        if client is not None:
            client.owed_bytes -= job.owed_bytes
        job.owed_tasks = job.owed_bytes = 0
        self.owing.pop(job.id, None)
