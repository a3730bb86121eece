"""Jobs: what is written of them, and what is read back."""

from dataclasses import dataclass
from typing import Final

from federation.clocks import UtcS
from gateway.base.job_states import MAY_RETURN
from gateway.ledger.db.checks import check_numbers, check_texts, check_times

STORED_BYTES_MAX: Final = 1 << 31  # of one packed value: terms, arguments, outcome


@dataclass(frozen=True, slots=True)
class FunctionKept:
    """A function that a detached job needs, by the digest of its body.

    Write it in the same call as the JobOpenedRecord that names it.
    """

    digest: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class JobOpenedRecord:
    """A job was accepted; `spec` is opaque here.

    `function` is the digest of a stored function, or None for an attached job. Opening a job that
    exists stores its terms again, as its client may have come back with another token; a lost or
    abandoned job is open again. A job that has ended otherwise stays as it is.
    """

    job: str
    name: str
    user: str
    project: str
    detached: bool
    spec: bytes
    submitted_at_s: UtcS
    function: bytes | None = None

    def __post_init__(self) -> None:
        check_texts(self.job, self.name, self.user, self.project)
        check_times(self.submitted_at_s)


@dataclass(frozen=True, slots=True)
class BundleKept:
    """The arguments of tasks [first, first + count) of a detached job."""

    job: str
    first: int
    count: int
    body: bytes

    def __post_init__(self) -> None:
        check_texts(self.job)
        check_numbers(self.first, self.count)


@dataclass(frozen=True, slots=True)
class JobClosedRecord:
    """A job is closed for submission: it has `total` tasks."""

    job: str
    total: int

    def __post_init__(self) -> None:
        check_texts(self.job)
        check_numbers(self.total)


@dataclass(frozen=True, slots=True)
class OutcomeKept:
    """The results of tasks [first, first + count) of a detached job.

    The ranges of one job must not overlap.
    """

    job: str
    first: int
    count: int
    body: bytes

    def __post_init__(self) -> None:
        check_texts(self.job)
        check_numbers(self.first, self.count)


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job ended; the stored arguments of its tasks are dropped. The first end counts."""

    job: str
    state: str
    reason: str
    ended_at_s: UtcS
    done: int
    failed: int
    cancelled: int

    def __post_init__(self) -> None:
        check_texts(self.job, self.state, self.reason)
        check_numbers(self.done, self.failed, self.cancelled)
        check_times(self.ended_at_s)


@dataclass(frozen=True, slots=True)
class EndOrdered:
    """A job is to end: no task of it begins any more, also after a restart.

    Its stored arguments are replaced by `arguments`, an empty list in MessagePack, so that
    a version that does not know the order has nothing to run either. The ranges of its tasks stay.
    A job that has ended stays as it is.

    Attributes:
        state: until it has ended: a key of gateway.base.job_states.ENDS_ORDERED.
        reason: of its end, in one sentence.
    """

    job: str
    state: str
    reason: str
    arguments: bytes = b"\x90"

    def __post_init__(self) -> None:
        check_texts(self.job, self.state, self.reason)


@dataclass(frozen=True, slots=True)
class LeftJobCancelled:
    """An attached job that was lost or abandoned is cancelled: its client no longer opens it again.

    Any other job stays as it is, also one that its client has opened again meanwhile.
    """

    job: str
    reason: str

    def __post_init__(self) -> None:
        check_texts(self.job, self.reason)


@dataclass(frozen=True, slots=True)
class LeftTermsKept:
    """The terms of an attached job that was lost or abandoned, for the return of its client.

    `spec` is opaque here, as in JobOpenedRecord. Any other job stays as it is.
    """

    job: str
    spec: bytes

    def __post_init__(self) -> None:
        check_texts(self.job)


@dataclass(frozen=True, slots=True)
class AttachedLost:
    """Every open attached job died with its gateway: end each with the state "lost".

    One whose end was ordered ends as ordered.
    """

    ended_at_s: UtcS

    def __post_init__(self) -> None:
        check_times(self.ended_at_s)


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """Drop the results of an ended job, and its function unless another job needs it.

    The job's row and its usage remain. For a job that has not ended, nothing is dropped.
    """

    job: str

    def __post_init__(self) -> None:
        check_texts(self.job)


def sender_of(job: str) -> str:
    """Return the site that sent a job; empty: none. Only such a job has a colon in its name."""
    site, colon, _ = job.partition(":")
    return site if colon else ""


KeptRange = tuple[int, int, bytes]  # first, count, body


@dataclass(frozen=True, slots=True)
class JobsWanted:
    """Which jobs are looked for; an empty field: any.

    Attributes:
        name: of exactly this name.
        prefix: whose id begins with this: digits and lower-case letters, as ids have.
        state: in this state, as people are shown it (gateway.base.job_states); a job that has not
            ended is "open" here.
        after: those that follow the job of this moment of submission (UTC) and id in the list: the
            last submitted are first, and of equal moments the least id.
    """

    name: str = ""
    prefix: str = ""
    state: str = ""
    after: tuple[UtcS, str] | None = None


ALL_JOBS: Final = JobsWanted()


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in the store, with the sums of its usage records.

    `state` is "open" until the job has ended, or a key of gateway.base.job_states.ENDS_ORDERED once
    its end is ordered; `ended_at_s` is None until then. `total` is None until the job is closed for
    submission; `costs_nanos` is by currency, and so is `prices_nanos`, the highest price per
    slot-hour; `attempt_max` is the highest attempt on its usage records.
    """

    job: str
    name: str
    user: str
    project: str
    detached: bool
    spec: bytes
    submitted_at_s: UtcS
    total: int | None
    state: str
    reason: str
    ended_at_s: UtcS | None
    done: int
    failed: int
    cancelled: int
    forgotten: bool
    wall_ns: int
    cpu_ns: int
    costs_nanos: dict[str, int]
    prices_nanos: dict[str, int]
    attempt_max: int = 0
    repeat_ns: int = 0  # of `wall_ns`, for tasks that had to run again
    unpaid_ns: int = 0  # of `wall_ns`, preempted for free or not delivered


def may_return(row: JobRow) -> bool:
    """Whether a job has ended, and is open again if its client returns for it."""
    return not row.detached and row.state in MAY_RETURN and not sender_of(row.job)
