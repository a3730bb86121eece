"""Every error a user of gridfed can meet, in one tree.

    GridError
    ├── GatewayUnreachable      nobody answers at that address, or it stopped answering
    ├── SessionRefused          the gateway answered, and said no (version, secret, limits)
    ├── JobRefused              no pool can ever run this job, or the gateway takes no work
    │   └── LimitsUnmet         it can't keep its `deadline_s` and `max_cost`; its `offers` could
    ├── JobNotFound             the gateway knows no job of that id
    ├── SerializationError      a function, argument or result could not be pickled
    ├── AddressError            an address that can't be dialled (federation.nng)
    ├── ForkedProcessError      a client was used in a forked child (federation.nng)
    ├── NameCollision           another distribution owns a package of ours (federation.houses)
    ├── TaskError               a task ended without a result
    │   ├── RemoteError         it raised, and its exception could not be rebuilt here
    │   ├── TaskTimeout         it ran over its `timeout_s` and was stopped
    │   ├── MemoryLimitExceeded it outgrew its slot's memory
    │   ├── TaskCrashed         it took its slot down twice (poison)
    │   ├── WorkerLost          its worker was lost too often
    │   ├── ResultRefused       its result was too large, or could not be pickled
    │   ├── ResultUntrusted     its result came from a site that is not trusted
    │   ├── EnvironmentFailed   what it was to run in could not be made
    │   ├── CostLimitReached    the job reached its `max_cost` before the task could start; or one
    │   │                       that is of use only as a `whole` can't be done for so much
    │   ├── DeadlinePassed      the job's `deadline_s` passed before the task could start; or a
    │   │                       `whole` can't be done by then
    │   ├── QueueLimitReached   its user has as many unfinished as the rules allow
    │   └── TaskStopped         somebody cancelled it
    └── ProtocolError           the other side broke the protocol
        ├── UnknownMessage      a message of no kind that we know (federation.wire)
        ├── Untrusted           well formed, but not to be believed (federation.identity)
        └── WrongMoveError      a contract can't go that way (federation.contracts)

A task that raised an ordinary exception raises that very exception in the client, with the
remote traceback as its cause: TaskError is only for tasks that have none of their own. An
exception that can't be pickled and made again (its class takes other arguments than its `args`,
say) comes as a RemoteError with the traceback's text: give such a class a __reduce__.
"""

from collections.abc import Sequence
from typing import Final

from federation.offers import Offer
from federation.reasons import Reason
from federation.words import clean_lines


class GridError(Exception):
    """Something that gridfed reports, as opposed to what a task itself raised.

    Its text may come from another site or a task: as `str` all of it is seen (federation.words).
    """

    def __str__(self) -> str:
        return clean_lines(super().__str__())


class GatewayUnreachable(GridError):
    """Nobody answers at the gateway's address."""


class SessionRefused(GridError):
    """The gateway refused the session; `code` says why in one word."""

    def __init__(self, reason: str, code: str = "refused") -> None:
        super().__init__(reason)
        self.code = code


class JobRefused(GridError):
    """The gateway refused the job; `code` is one of federation.reasons.Reason."""

    def __init__(self, reason: str, code: str = "refused") -> None:
        super().__init__(reason)
        self.code = code


class LimitsUnmet(JobRefused):
    """The job can't be done within its deadline and its cost limit; nothing of it has run.

    `offers` has limits by which it would be taken: each is an Offer, whose `options` take it.
    """

    def __init__(self, reason: str, offers: Sequence[Offer] = ()) -> None:
        super().__init__(reason, Reason.LIMITS_UNMET)
        self.offers = tuple(offers)

    def __reduce__(self) -> tuple[type["LimitsUnmet"], tuple[str, tuple[Offer, ...]]]:
        """As it was made: it may be raised in one process and seen in another."""
        return LimitsUnmet, (str(self), self.offers)

    @property
    def later(self) -> Offer | None:
        """The earliest end for the same money; None when there is none."""
        return self._offer("later")

    @property
    def dearer(self) -> Offer | None:
        """The least money in the same time; None when no money buys that."""
        return self._offer("dearer")

    def _offer(self, kind: str) -> Offer | None:
        return next((offer for offer in self.offers if offer.kind == kind), None)


class JobNotFound(GridError):
    """The gateway knows no job of that id."""


class SerializationError(GridError):
    """A function, an argument or a result could not be pickled or unpickled."""


class ProtocolError(GridError):
    """The other side sent something that the protocol does not allow."""


class TaskError(GridError):
    """A task ended without a result."""


class RemoteError(TaskError):
    """A task raised an exception that could not be rebuilt here; its text is all there is."""


class TaskTimeout(TaskError, TimeoutError):
    """A task ran over its time limit and was stopped."""


class MemoryLimitExceeded(TaskError, MemoryError):
    """A task outgrew the memory of its slot and was stopped."""


class TaskCrashed(TaskError):
    """A task took its slot process down, twice."""


class WorkerLost(TaskError):
    """The workers that ran a task were lost too often: the text lists them, when, and why."""


class ResultRefused(TaskError):
    """A task's result was too large to send, or could not be pickled."""


class ResultUntrusted(TaskError):
    """A task's result came from a site, or through one, that is not trusted: nobody opened it."""


class EnvironmentFailed(TaskError):
    """What a task was to run in could not be made, or it can't run in that: the text says why."""


class CostLimitReached(TaskError):
    """The job reached its cost limit before the task could start, or can't be done for it whole."""


class DeadlinePassed(TaskError):
    """The job's deadline passed before the task could start, or it can't be done by then whole."""


class QueueLimitReached(TaskError):
    """Its user had as many unfinished tasks at the gateway as he may: it was not taken."""


class TaskStopped(TaskError):
    """A task was cancelled by somebody else than this client."""


class RemoteTraceback(Exception):
    """The traceback of a task, as text; shown as the cause of the exception raised here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = clean_lines(text)

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'


# How a failure's kind (docs/protocol.md has them all) is raised in the client.
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
    "cancelled": TaskStopped,
}
