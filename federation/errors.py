"""Every error that a user of gridfed can meet, in one tree: docs/python.md.

    GridError
    ├── GatewayUnreachable      no gateway answers at that address, or it stopped answering
    ├── SessionRefused          the gateway refused the session (version, secret, limits)
    ├── JobRefused              no pool can ever run this job, or the gateway takes no work
    │   └── LimitsUnmet         it can't keep its `deadline_s` and `max_cost`; its `offers` could
    ├── JobNotFound             the gateway knows no job of that id
    ├── ObjectRefused           an object can't be put, or not be read by this client
    ├── ObjectLost              nobody holds an object any more
    │   └── NotThere            the object host of a gateway has none of it (federation.engine)
    ├── SerializationError      a function, argument or result could not be pickled
    ├── AddressError            an address that can't be dialled (federation.address)
    │   └── MissingResolver     a service name without dnspython (federation.engine.dialling)
    ├── ClientFileError         the client file has a mistake (federation.engine.dialling)
    ├── ForkedProcessError      a client was used in a forked child (federation.sessions.nng)
    ├── NameCollision           another package of our name (federation.package_conflicts)
    ├── TaskError               a task ended without a result
    │   ├── RemoteError         it raised, and its exception could not be rebuilt here, or not all
    │   ├── TaskTimeout         it ran over its `timeout_s` and was stopped
    │   ├── MemoryLimitExceeded it outgrew its slot's memory
    │   ├── TaskCrashed         it took its slot down twice (poison)
    │   ├── WorkerLost          its worker was lost too often
    │   ├── ResultRefused       its result was too large, could not be pickled, or costs too much to
    │   │                       fetch
    │   ├── ResultUntrusted     its result came from a site that is not trusted
    │   ├── EnvironmentFailed   its environment could not be made
    │   ├── CostLimitReached    the job reached its `max_cost` before the task could start, or a
    │   │                       `whole` job can't be done for that much
    │   ├── DeadlinePassed      the job's `deadline_s` passed before the task could start, or a
    │   │                       `whole` job can't be done by then
    │   ├── DependencyFailed    a task whose result it needs failed, or was cancelled
    │   ├── QueueLimitReached   its user has as many unfinished tasks as the rules allow
    │   ├── ResidencyRefused    the labels of the data that it would read leave no place for it
    │   └── TaskStopped         it was cancelled; a future raises CancelledError instead
    └── ProtocolError           the other side broke the protocol
        ├── UnknownMessage      a message of an unknown kind (federation.messages.wire)
        ├── Untrusted           well formed, but not to be believed (federation.signed.identity)
        └── WrongMoveError     a contract can't make that transition (federation.messages.contracts)

A task that raised an ordinary exception raises that very exception in the client, with the remote
traceback as its cause: TaskError is only for tasks without an exception of their own. An exception
whose `__init__` takes other arguments than its `args` is rebuilt without `__init__`, from its
class, its `args` and its attributes. Where a part can't be pickled it arrives without that part,
and is of its class and a RemoteError at once. Where its class can't be pickled it is a RemoteError
alone, with the text of the traceback (federation.raised).
"""

from collections.abc import Sequence
from typing import Final

from federation.offers import Offer
from federation.reasons import Reason
from federation.words import clean_lines


class GridError(Exception):
    """An error that gridfed reports, as opposed to an exception that a task raised.

    Its text may come from another site or a task: `str` makes all of it visible (federation.words).
    """

    def __str__(self) -> str:
        return clean_lines(super().__str__())


class GatewayUnreachable(GridError):
    """No gateway answers at the address."""


class SessionRefused(GridError):
    """The gateway refused the session; `code` is the reason in one word."""

    def __init__(self, reason: str, code: str = "refused") -> None:
        super().__init__(reason)
        self.code = code


class JobRefused(GridError):
    """The gateway refused the job; `code` is one of federation.reasons.Reason."""

    def __init__(self, reason: str, code: str = "refused") -> None:
        super().__init__(reason)
        self.code = code


class LimitsUnmet(JobRefused):
    """The job can't be done within its deadline and its cost limit; none of it has run.

    `offers` lists limits under which it would be accepted: each is an Offer, to be accepted by its
    `options`.
    """

    def __init__(self, reason: str, offers: Sequence[Offer] = ()) -> None:
        super().__init__(reason, Reason.LIMITS_UNMET)
        self.offers = tuple(offers)

    def __reduce__(self) -> tuple[type["LimitsUnmet"], tuple[str, tuple[Offer, ...]]]:
        """Keep the offers when pickled: the error may be seen in another process."""
        return LimitsUnmet, (str(self), self.offers)

    @property
    def later(self) -> Offer | None:
        """The offer with the earliest end for the same money; None if there is none."""
        return self._offer("later")

    @property
    def dearer(self) -> Offer | None:
        """The offer with the lowest cost in the same time; None if no money buys that."""
        return self._offer("dearer")

    def _offer(self, kind: str) -> Offer | None:
        return next((offer for offer in self.offers if offer.kind == kind), None)


class JobNotFound(GridError):
    """The gateway knows no job of that id."""


class ObjectRefused(GridError):
    """An object was not taken, or may not be read, here; the text says why."""


class ObjectLost(GridError):
    """Nobody holds an object any more; the text names the object, and where it was held."""


class SerializationError(GridError):
    """A function, an argument or a result could not be pickled or unpickled."""


class ProtocolError(GridError):
    """The other side sent something that the protocol does not allow."""


class TaskError(GridError):
    """A task ended without a result."""


class RemoteError(TaskError):
    """A task raised an exception that could not be rebuilt here, or not all of it."""


class TaskTimeout(TaskError, TimeoutError):
    """A task ran over its time limit and was stopped."""


class MemoryLimitExceeded(TaskError, MemoryError):
    """A task outgrew the memory of its slot and was stopped."""


class TaskCrashed(TaskError):
    """A task took its slot process down, twice."""


class WorkerLost(TaskError):
    """The workers that ran a task were lost too often; the text lists them, when, and why."""


class ResultRefused(TaskError):
    """A task's result was too large to send, could not be pickled, or costs too much to fetch."""


class ResultUntrusted(TaskError):
    """A task's result came from, or through, a site that is not trusted; it was not unpickled."""


class EnvironmentFailed(TaskError):
    """A task's environment could not be made, or the task can't run in it; the text says why."""


class CostLimitReached(TaskError):
    """The job reached its cost limit before the task could start, or can't be done whole for it."""


class DeadlinePassed(TaskError):
    """The job's deadline passed before the task could start, or it can't be done whole by then."""


class DependencyFailed(TaskError):
    """A task whose result the task needs has failed or was cancelled; it did not run.

    The text names that task, the first that failed; its exception is the `__cause__`.
    """


class ResidencyRefused(TaskError):
    """The labels of the data that a task would read leave no place for it; it did not run.

    The text names the data, and where it may lie.
    """


class QueueLimitReached(TaskError):
    """Its user had as many unfinished tasks at the gateway as allowed: the task was refused."""


class TaskStopped(TaskError):
    """The task was cancelled, by this client or another party.

    A map and the results of a job raise it; a future raises `concurrent.futures.CancelledError`
    with the same text.
    """


class RemoteTraceback(Exception):
    """The traceback of a task, as text; shown as the cause of the exception raised here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = clean_lines(text)

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'


# The exception that the client raises for each kind of failure (docs/protocol.md lists them all).
FAILURES: Final[dict[str, type[TaskError]]] = {
    "error": RemoteError,
    "timeout": TaskTimeout,
    "memory": MemoryLimitExceeded,
    "crash": TaskCrashed,
    "lost": WorkerLost,
    "result": ResultRefused,
    "untrusted": ResultUntrusted,
    "environment": EnvironmentFailed,
    "budget": CostLimitReached,
    "deadline": DeadlinePassed,
    "queue": QueueLimitReached,
    "residency": ResidencyRefused,
    "dependency": DependencyFailed,
    "cancelled": TaskStopped,
}
