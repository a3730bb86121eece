"""Every message to and from a gateway, with its direction, its occasion and its consequences.

docs/protocol.md describes the wire form of each; a test compares its tables with this module.
Frames (federation.sessions.session) carry messages; the handshake goes bare, before any frame. A
*payload* is bytes that only a client or a slot ever opens. A *range* is [first, stop).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from federation.messages import (  # noqa: F401 - their messages
    deals,
    payments,
    reconciliation,
    reserving,
    slices,
    transferring,
)
from federation.messages.registry import REGISTRY, FromBuyer, FromEither, FromSeller, Receiver
from federation.messages.wire import (
    Anything,
    Catalogue,
    Count,
    Failures,
    Lines,
    Maps,
    Names,
    Number,
    Pairs,
    Payloads,
    Plain,
    Prints,
    Rows,
    Text,
    Texts,
)

# --- the handshake: bare, one after the other, before any frame --------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """Dialler → gateway, first on every pipe: the dialler's identity, and the session to resume."""

    kind: ClassVar[str] = "hello"
    versions: list[int]
    role: Text  # "client", "worker" or "gateway"
    name: Text
    user: Text
    nonce: bytes
    resume: Text  # the session to resume; empty for a new one
    received: Count  # the last frame of it that arrived here
    about: Plain  # a worker's slots, tags, pool and Python version; a gateway's federation and boot


@dataclass(frozen=True, slots=True)
class Challenge:
    """Gateway → dialler: the chosen version, the site, and a nonce for the proofs."""

    kind: ClassVar[str] = "challenge"
    version: Count
    site: Text
    boot: Count  # the number of this run of the site; 0 when it is in no federation
    nonce: bytes
    cards: bytes = b""  # of a site that has rotated its keys: the cards up to the newest, packed


@dataclass(frozen=True, slots=True)
class Proof:
    """Dialler → gateway: the dialler's proof.

    HMAC-SHA-256(secret, "dialler" + both nonces), empty without a secret; for a gateway, its
    signature over the meeting (federation.signed.identity).
    """

    kind: ClassVar[str] = "proof"
    proof: bytes


@dataclass(frozen=True, slots=True)
class Welcome:
    """Gateway → dialler: the session is open. `resumed` is false when it had to be a new one."""

    kind: ClassVar[str] = "welcome"
    session: Text
    resumed: bool
    received: Count
    proof: bytes  # likewise, of the listening side
    window: Count  # frames that the dialler may have unacknowledged
    heartbeat_s: Number
    grace_s: Number  # how long a session outlives its pipe
    tasks_max: Count  # tasks that a client may have unfinished
    bytes_max: Count  # and the bytes of their arguments
    message_bytes_max: Count
    others: Texts  # addresses of gateways that a client could go to if this one is lost
    place: Text = ""  # of this gateway: federation.sessions.credentials.place_of_this_process
    graphs: bool = False  # whether it takes calls that wait for others


@dataclass(frozen=True, slots=True)
class Refused:
    """Gateway → dialler: no session, with the reason. The gateway closes the pipe."""

    kind: ClassVar[str] = "refused"
    code: Text
    reason: Text


# --- both ways -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bye:
    """Either side: the session ends here, on purpose. Nothing follows."""

    kind: ClassVar[str] = "bye"
    reason: Text


@dataclass(frozen=True, slots=True)
class Unknown:
    """Either side: a message of an unknown kind arrived, and was ignored."""

    kind: ClassVar[str] = "unknown"
    what: Text


@dataclass(frozen=True, slots=True)
class PutFunction(FromBuyer, to=Receiver.FUNCTIONS):
    """Client → gateway → worker, buyer → seller: a pickled function.

    It is addressed by the SHA-256 of its bytes.
    """

    kind: ClassVar[str] = "function"
    digest: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class NeedFunction(FromSeller, to=Receiver.PURCHASES, at_once=True):
    """Worker → gateway → client, seller → buyer: request a missing function.

    Answered by PutFunction.
    """

    kind: ClassVar[str] = "need"
    digest: bytes


# --- client → gateway ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenJob:
    """Begin a job: one function, many calls, one set of requirements. The id is the client's.

    Opening the same job again changes nothing. `again` marks a job that was opened before, at a
    gateway that may have been lost: this one then looks up the earlier charges.
    """

    kind: ClassVar[str] = "open"
    job: Text
    name: Text
    function: bytes
    detached: bool
    project: Text
    priority: Number
    tags: Plain  # {"linux": True, "gpu": 2}: the tags that a worker must carry; numbers are counted
    timeout_s: Number | None
    retries: Count
    max_cost_nanos: Count | None
    currency: Text
    python: Text  # "3.11": the minor version that pickled
    prints: bool  # whether the output of tasks is sent back
    again: bool
    # {"objective": "cheapest", "deadline_s": …, "deferrable": True, "sites": […], "not_sites": […],
    # "jurisdictions": […]}: where and when it should run; all may be left out
    wishes: Plain
    preemptible: bool = False  # cheaper, and makes way for guaranteed work
    tasks: Count | None = None  # the number of calls to come, if its client knows
    task_s: Number | None = None  # and about how long one takes
    # The last HoldChanged of the job, {"by", "at_s", "is_operators"}, and in `is_own` whether it
    # came from this gateway, which then knows better; empty: none came
    hold: Plain = field(default_factory=dict)
    # "auto": large results are left at the site as objects, "ref": all; else they come as values
    results: Text = ""
    far_results: bool = False  # whether those of other sites may be objects here, too


@dataclass(frozen=True, slots=True)
class Tasks:
    """Calls `first`, `first + 1`, … of a job: their arguments, one payload each."""

    kind: ClassVar[str] = "tasks"
    job: Text
    first: Count
    arguments: Payloads
    objects: Payloads = field(default_factory=list)  # digests of the objects that they refer to
    inputs: bool = (
        False  # whether some have futures among their arguments: federation.objects.inputs
    )
    label: Texts = field(default_factory=list)  # of the results that are in them as values


@dataclass(frozen=True, slots=True)
class CloseJob:
    """Announce that no more tasks will come: the job has `total`. It ends when they have.

    `elsewhere` are the tasks that ended at another gateway, or before this one was lost: they are
    not sent here. It is in order, and empty for a job that was never opened again.
    """

    kind: ClassVar[str] = "close"
    job: Text
    total: Count
    elsewhere: Pairs


@dataclass(frozen=True, slots=True)
class Cancel:
    """Take back the tasks of these ranges that have not started; `stop` ends running ones too.

    Answered by Answer with `{"taken": [[first, stop], …]}` when `request` is not zero. No result of
    a task that was taken back will follow.
    """

    kind: ClassVar[str] = "cancel"
    request: Count
    job: Text
    ranges: Pairs
    stop: bool


@dataclass(frozen=True, slots=True)
class LetGo:
    """Release objects that this session has put, or has asked for by name: once for each digest."""

    kind: ClassVar[str] = "let-go"
    project: Text
    digests: Payloads


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the site (`verb`, with details); answered by Answer."""

    kind: ClassVar[str] = "ask"
    request: Count
    verb: Text
    details: Plain


# --- gateway → client ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RejectJob:
    """Reject a job: `code` is a Reason, `reason` its text. The job has ended.

    If the job's own limits are the reason, `details` has `offers`: limits by which it would be
    accepted. If calls arrived after its end, `details` has `tasks`: [first, stop] of those calls.
    They were not accepted; calls of an attached job that still run give their results.
    """

    kind: ClassVar[str] = "reject"
    job: Text
    code: Text
    reason: Text
    details: Plain = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Results:
    """Results of calls `first`, `first + 1`, …: a payload each, empty where the call failed.

    A failure is [offset, kind, text, payload]: kind as in federation.errors.FAILURES, text for
    people (with the remote traceback), payload the pickled exception, or empty. Prints are [offset,
    text], and `streams` those that they were written to (federation.messages.printed). `sites`
    lists the sites that it came through, the one where it ran last; empty for the gateway's own.
    """

    kind: ClassVar[str] = "results"
    job: Text
    first: Count
    values: Payloads
    failures: Failures
    prints: Prints
    sites: Names
    streams: list[int] = field(default_factory=list)
    left: bool = False  # as in Report
    label: Names = field(default_factory=list)  # the words of their label: where they may lie


@dataclass(frozen=True, slots=True)
class Dropped:
    """Tasks that ended without running, for one reason (kind as in Results).

    A range that extends beyond the calls that the client has made means that the job accepts no
    more: the calls that the client has not sent end in the same way.
    """

    kind: ClassVar[str] = "dropped"
    job: Text
    ranges: Pairs
    failure: Text
    reason: Text


@dataclass(frozen=True, slots=True)
class SendAgain:
    """Send these calls again: inputs of them have ended, and only the client has their values.

    The gateway has none of the calls any more. The results of these inputs were sent before.
    """

    kind: ClassVar[str] = "again"
    job: Text
    ranges: Pairs


@dataclass(frozen=True, slots=True)
class Kept:
    """A detached job's tasks up to `tasks` (not included) are on the gateway's disk."""

    kind: ClassVar[str] = "kept"
    job: Text
    tasks: Count
    closed: bool


@dataclass(frozen=True, slots=True)
class HoldChanged:
    """An attached job is held, or, with an empty `by`, no longer held.

    Its client repeats it to the next gateway, in OpenJob. Older clients ignore it.
    """

    kind: ClassVar[str] = "hold-changed"
    job: Text
    by: Text  # the user who holds it
    at_s: Number  # when, UTC
    is_operators: bool  # whether they are the operator, who alone releases it
    site: Text = ""  # where it was ordered; empty: here (or, of older gateways, not known)


@dataclass(frozen=True, slots=True)
class Gateways:
    """The new list of other gateways for this client, in place of the one in the Welcome."""

    kind: ClassVar[str] = "gateways"
    others: Texts


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an Ask or a Cancel; `code` is empty on success."""

    kind: ClassVar[str] = "answer"
    request: Count
    code: Text
    reason: Text
    value: Anything


# --- gateway → worker ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assign:
    """Run these calls.

    The assignment's number fences the reports: a late report of a closed assignment is ignored.
    """

    kind: ClassVar[str] = "assign"
    assignment: Count
    job: Text
    function: bytes
    first: Count
    arguments: Payloads
    timeout_s: Number | None
    prints: bool
    origin: Text = ""  # the site of the code's user; empty for our own users
    holds: Text = ""  # the counted tags that each task holds while it runs: "gpu=2"
    pass_key: bytes = b""  # with which tasks of the job may connect as its user; sealed, or empty
    wary: bool = False  # a worker was lost with these: start them singly, each after a BegunTasks
    logs: bool = False  # whether the output of tasks is sent while they run, as TaskOutput
    objects: Text = ""  # the project whose objects the calls refer to; empty: they refer to none
    results: Text = ""  # as in OpenJob
    project: Text = ""  # of results that are left as objects
    chained: bool = False  # calls may wait for earlier tasks of it: their slot fills them in


@dataclass(frozen=True, slots=True)
class Recall:
    """Return the unstarted tasks of this assignment in [first, stop); answered by Returned.

    With `kill`, running tasks are killed as well, and reported as failed with kind "cancelled".
    """

    kind: ClassVar[str] = "recall"
    assignment: Count
    first: Count
    stop: Count
    kill: bool


@dataclass(frozen=True, slots=True)
class Notice:
    """Tasks of this assignment in [first, stop) that still run in `in_s` seconds are stopped then.

    They are reported as failed with kind "preempted". A later notice for the same tasks replaces
    this one; None: they may run for as long as they like, after all.
    """

    kind: ClassVar[str] = "notice"
    assignment: Count
    first: Count
    stop: Count
    in_s: Number | None


@dataclass(frozen=True, slots=True)
class Drain:
    """Gateway → worker: finish the running tasks, take no new ones (`on`), or resume work.

    Worker → gateway: send no new tasks; the worker stops when its running ones have ended.
    """

    kind: ClassVar[str] = "drain"
    on: bool


# --- worker → gateway ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """Results of a contiguous part of an assignment, with the resources used.

    `streams` are those that the prints were written to; empty: all to stdout (as in Results).
    `wall_ns` is slot time: from taking the first argument to having pickled the last result.
    """

    kind: ClassVar[str] = "report"
    assignment: Count
    first: Count
    values: Payloads
    failures: Failures
    prints: Prints
    wall_ns: Count
    cpu_ns: Count
    peak_memory_bytes: Count
    streams: list[int] = field(default_factory=list)
    left: bool = False  # whether some values are of federation.objects.left


@dataclass(frozen=True, slots=True)
class BegunTasks:
    """Tasks that have begun and are not reported: rows of [assignment, task, milliseconds].

    Sent once for each task that runs for longer than a moment (gateway.worker.oversight.BEGUN_S),
    and before the start of each task of a wary assignment. A task that a lost worker has not named
    had not begun. A worker that sends these declares `begun: true` in its hello.
    """

    kind: ClassVar[str] = "begun"
    tasks: Rows


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """Output of tasks of an assignment with `logs`: [task, stream, text] of each piece, in order.

    It is sent before the report that ends the tasks. The streams are those of
    federation.messages.printed. A worker that sends these declares `output: true` in its hello.
    """

    kind: ClassVar[str] = "output"
    assignment: Count
    pieces: Lines


@dataclass(frozen=True, slots=True)
class Returned:
    """The answer to Recall: these tasks never started and are the gateway's again.

    An empty list means that all of them had started or ended.
    """

    kind: ClassVar[str] = "returned"
    assignment: Count
    ranges: Pairs


@dataclass(frozen=True, slots=True)
class Preparing:
    """Tasks of these functions wait for their environment, until a later message omits them.

    It may take minutes. The worker returns the tasks that it has of them, and continues other work.
    """

    kind: ClassVar[str] = "preparing"
    functions: Payloads  # their digests


@dataclass(frozen=True, slots=True)
class Pulse:
    """The worker's current activity, every few seconds: one map a slot."""

    kind: ClassVar[str] = "pulse"
    slots: Maps  # of plain values: they are shown in an Answer, which can't be deeper


# --- gateway ↔ gateway ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GossipMessage(FromEither, to=Receiver.GOSSIP):
    """Gateway → gateway: live members, and sites' own declarations; see
    federation.membership.gossip."""

    kind: ClassVar[str] = "gossip"
    body: bytes


@dataclass(frozen=True, slots=True)
class Advert(FromEither, to=Receiver.GOSSIP):
    """Gateway → gateway: an advert for the other site alone, sealed; see
    federation.messages.adverts.

    It takes precedence over the site's public advert of the same version.
    """

    kind: ClassVar[str] = "advert"
    envelope: bytes


@dataclass(frozen=True, slots=True)
class SignedDeclarations(FromEither, to=Receiver.TRUST):
    """The signed declarations of sites (federation.signed.declarations), each as its bytes.

    Sent whole when a session opens; after that, new declarations are sent as soon as they are
    known. The cards of one site are in the order in which each leads to the next.
    """

    kind: ClassVar[str] = "statements"
    cards: Payloads
    expulsions: Payloads
    farewells: Payloads
    revocations: Payloads


BETWEEN_GATEWAYS = tuple(REGISTRY.values())
HANDSHAKE = Catalogue([Hello, Challenge, Proof, Welcome, Refused])
MESSAGES = Catalogue(
    [
        *(Bye, Unknown, deals.Sealed, *BETWEEN_GATEWAYS),
        *(OpenJob, Tasks, CloseJob, Cancel, LetGo, Ask),
        *(RejectJob, Results, Dropped, SendAgain, Kept, HoldChanged, Gateways, Answer),
        *(Assign, Recall, Notice, Drain),
        *(Report, BegunTasks, TaskOutput, Returned, Preparing, Pulse),
    ]
)

ToClient = (
    NeedFunction
    | RejectJob
    | Results
    | Dropped
    | SendAgain
    | Kept
    | HoldChanged
    | Gateways
    | Answer
    | Bye
    | Unknown
)
ToWorker = PutFunction | Assign | Recall | Notice | Drain | Bye | Unknown
