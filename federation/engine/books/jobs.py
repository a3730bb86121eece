"""The unfinished jobs of a client, and what the gateway of its session has of them. Pure.

The engine (federation.engine.engine) calls it under its lock. Results come by `take`: the engine
places them in their stream itself.
"""

import weakref
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, Final, Protocol

from federation.engine.books.asked_back import may_run_in_task
from federation.engine.books.repeated import REPEATS_MAX, RepeatedCalls
from federation.engine.books.shelves import FunctionShelf, StreamShelf
from federation.engine.books.streams import (
    BUNDLE_TASKS_MAX,
    DEPENDENCY,
    ENVELOPE_BYTES,
    BundleSender,
    Ended,
    Outcome,
    Placed,
    Stream,
    in_messages,
)
from federation.errors import SerializationError, SessionRefused
from federation.messages.messages import (
    MESSAGES,
    Answer,
    Cancel,
    Dropped,
    HoldChanged,
    Kept,
    OpenJob,
    PutFunction,
    RejectJob,
)
from federation.objects.left import AUTO
from federation.objects.open_calls import OpenCall
from federation.objects.references import references_of
from federation.offers import read_offers
from federation.payload import SealedFunction
from federation.ranges import Range, RangeSet
from federation.reasons import Reason
from federation.sessions.handshake import Dialogue
from federation.words import size_text

CANCELLED: Final = Ended("cancelled", "cancelled by this client")


class Addressed(Protocol):
    """The gateway of the session, or the one that is dialled."""

    @property
    def address(self) -> str:
        """Its address."""


class JobTable:
    """The jobs of a client, as streams of calls; their functions; what was sent in this session.

    Args:
        dialogue: takes the messages for the gateway.
        gateway: where the gateway is.
        resolved: takes the futures whose calls have ended, with their outcomes.
        new_id: draws the id of a job.
    """

    def __init__(
        self,
        dialogue: Dialogue,
        gateway: Addressed,
        resolved: deque[tuple[Any, Outcome]],
        new_id: Callable[[], str],
    ) -> None:
        self._new_id = new_id
        self._dialogue = dialogue
        self._gateway = gateway
        self._resolved = resolved
        self._streams: dict[str, Stream] = {}
        self._filling = StreamShelf()
        self._functions = FunctionShelf()
        self._sent_functions: set[bytes] = set()
        self._kept: dict[str, Kept] = {}
        self.sender = BundleSender(self._forget_if_over)

    # --- jobs ----------------------------------------------------------------------------------

    @property
    def streams(self) -> list[Stream]:
        """The unfinished jobs."""
        return list(self._streams.values())

    def find(self, job: str) -> Stream | None:
        """Return the job of this id, if it is unfinished."""
        return self._streams.get(job)

    def attached(self, job: str) -> Stream | None:
        """Return the job of this id, if it is unfinished and not detached."""
        stream = self._streams.get(job)
        return None if stream is None or stream.opening.detached else stream

    def open(self, opening: OpenJob, function: SealedFunction) -> Stream:
        """Open a job. Raises SerializationError if its function is too large for the gateway."""
        if len(function.body) > self.payload_max:
            limit = size_text(self.payload_max + ENVELOPE_BYTES)
            raise SerializationError(
                f"function {function.name} has {len(function.body):,} bytes when pickled; "
                f"the limit of the gateway is {limit}: check whether the function captures data"
            )
        MESSAGES.encode(opening)  # encoding errors must surface here, and leave nothing behind
        self._functions.use(function)
        stream = Stream(opening, self._resolved)
        self._streams[stream.id] = stream
        self._send_opening(stream)
        return stream

    def fill(
        self, key: Hashable, function: SealedFunction, opening: Callable[[], OpenJob]
    ) -> Stream:
        """Return the open job for calls of this kind; open one if there is none."""
        stream = self._filling.find(key)
        if stream is None:
            stream = self.open(opening(), function)
            stream.key = key
            for unused in self._filling.add(key, stream):
                self.close(unused)
        return stream

    def sweep(self) -> None:
        """Close the jobs that have had no call from submit since the last sweep."""
        for stream in self._filling.sweep():
            self.close(stream)

    def close(self, stream: Stream) -> None:
        """Close a job to new calls; the gateway is told once all of them have been sent."""
        if not stream.closed and not stream.rejected:
            self.sender.close(stream, self._dialogue)

    def close_to_calls(self, stream: Stream, ended: Ended) -> None:
        """Close the job to new calls, and end the unsent ones with this outcome.

        Its running calls continue. The gateway is not told: it has ended the job, or is asked to.
        """
        stream.closed = True
        self.sender.drop(stream.id)
        self.take(stream, stream.end_unsent(ended))

    def take(self, stream: Stream, placed: Placed) -> None:
        """Make room for other calls, as these of a job have ended; forget the job if it is over."""
        self.sender.returned(placed)
        self._forget_if_over(stream)

    def end(self, stream: Stream, ended: Ended) -> None:
        """End all calls of a job that are left."""
        self.take(stream, stream.end_all(ended))

    def cancel_unsent(self, stream: Stream, ranges: list[Range]) -> list[Range]:
        """Cancel the calls that were not sent in this session; return them."""
        asked, taken = RangeSet(ranges), []
        for bundle in list(stream.waiting):
            for first, stop in bundle.unfinished():
                taken += asked.within(first, stop)
        self.take(stream, stream.end(stream.back.come_back(taken), CANCELLED))
        return taken

    def ask_back(self, stream: Stream, task: int) -> Cancel | None:
        """Note that a task of this client asks a call back; return the question to the gateway.

        None if it is asked already, has ended, or must not run in that task. A call that was not
        sent comes back at once; the gateway must not wait for it.
        """
        if self._streams.get(stream.id) is not stream or stream.is_held or stream.paused:
            return None
        call = stream.pending([task]).get(task)
        if call is None or not may_run_in_task(stream.opening, call) or not stream.back.ask(task):
            return None
        self.cancel_unsent(stream, [(task, task + 1)])
        return Cancel(0, stream.id, [[task, task + 1]], False)

    def begin_here(self, stream: Stream, task: int) -> tuple[bytes, bytes] | None:
        """Begin a call that came back: return its function and its arguments, both sealed.

        None if another thread has begun it, or it has ended.
        """
        if not stream.back.begin(task):
            return None
        call = stream.pending([task]).get(task)
        body = self._functions.body(stream.opening.function)
        return None if body is None or not isinstance(call, bytes) else (body, call)

    def taken_back(self, question: Cancel) -> list[Range]:
        """Return the calls of a cancel that were never sent in the new session, and end them."""
        stream = self.attached(question.job)
        if stream is None:
            return []
        asked = [(low, high) for low, high in question.ranges] or [(0, stream.total)]
        return self.cancel_unsent(stream, asked)

    def _forget_if_over(self, stream: Stream) -> None:
        if stream.is_over:
            self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        if self._streams.pop(stream.id, None) is not None:
            gone = self._functions.release(stream.opening.function)
            self._sent_functions.difference_update(gone)

    # --- sessions ------------------------------------------------------------------------------

    @property
    def payload_max(self) -> int:
        """The largest arguments and function that the gateway takes, in bytes."""
        welcome = self._dialogue.welcome
        assert welcome is not None
        return welcome.message_bytes_max - ENVELOPE_BYTES

    def check_fit(self) -> None:
        """Refuse a gateway that can't take the calls and functions made for another."""
        streams = self._streams.values()
        largest = max((stream.arguments_max() for stream in streams), default=0)
        bodies = (self._functions.body(stream.opening.function) for stream in streams)
        largest = max(largest, max((len(body or b"") for body in bodies), default=0))
        if largest > self.payload_max:
            raise SessionRefused(
                f"the gateway at {self._gateway.address} accepts messages of at most "
                f"{self.payload_max:,} bytes; a pending call or function has {largest:,}",
                "limits",
            )

    def restart(self, *, near: bool) -> None:
        """Begin a new session, in which the gateway has nothing: open all jobs again.

        A job that refers to objects is paused: see `resume`. `near` tells whether the client is on
        the gateway's host.
        """
        self._sent_functions.clear()
        self.sender.restart()
        for stream in self.streams:
            stream.send_again()
            if stream.opening.detached and stream.home not in ("", self._gateway.address):
                self._leave_behind(stream)
                continue
            results = stream.opening.results
            if results == AUTO and not near:
                results = ""
            stream.opening = replace(stream.opening, again=True, results=results)
            stream.paused = bool(stream.leases())
            if not stream.paused:
                self._send_opening(stream)

    @property
    def paused(self) -> list[Stream]:
        """The jobs that wait until the objects that they refer to are held in the new session."""
        return [stream for stream in self._streams.values() if stream.paused]

    def resume(self, lost: dict[bytes, str]) -> None:
        """Open the paused jobs; end the calls that refer to objects that are lost, and why."""
        for stream in self.paused:
            stream.paused = False
            for digest, text in lost.items():
                calls = stream.calls_with({digest})
                self.take(stream, stream.end(calls, Ended("object", text)))
            if stream.id in self._streams:
                self._send_opening(stream)

    def _leave_behind(self, stream: Stream) -> None:
        """Reject a detached job that was being submitted to a gateway that the client left.

        That gateway may have all or part of it; here it would be a second job.
        """
        self._forget(stream)
        self.sender.drop(stream.id)
        stream.rejection = Ended(
            "unreachable",
            f"the connection to the gateway at {stream.home} was lost while job {stream.id} "
            "was submitted, and the gateway may have the whole job: call client.job(id) "
            "when the gateway is back, before you submit the job again",
        )
        self.end(stream, stream.rejection)

    def _send_opening(self, stream: Stream) -> None:
        digest = stream.opening.function
        if digest not in self._sent_functions:
            self._sent_functions.add(digest)
            self.put_function(digest)
        self._dialogue.post(stream.opening_at(self._gateway.address))
        self.sender.add(stream)
        if self._dialogue.session is not None:
            stream.home = self._gateway.address

    def put_function(self, digest: bytes) -> None:
        """Send the gateway a function, if it is kept."""
        body = self._functions.body(digest)
        if body is not None:
            self._dialogue.post(PutFunction(digest, body))

    # --- messages of the gateway ---------------------------------------------------------------

    def hear_hold(self, message: HoldChanged, site: str) -> None:
        """Note that the gateway of `site` holds a job, or has released it."""
        if (held := self._streams.get(message.job)) is not None:
            held.note_hold(message, self._gateway.address, site)

    def hear_kept(self, message: Kept) -> None:
        """Note which calls of a detached job are on the gateway's disk."""
        stream = self._streams.get(message.job)
        if stream is not None:
            self._kept[message.job] = message
            self.take(stream, stream.end([(0, message.tasks)], Ended("kept", "")))

    def is_kept(self, stream: Stream) -> bool:
        """Whether all of a detached job is on the gateway's disk, or was rejected."""
        kept = self._kept.get(stream.id)
        return stream.rejected or (kept is not None and kept.closed)

    def forget_kept(self, stream: Stream) -> None:
        """Forget a detached job: its user knows that it is kept."""
        self._kept.pop(stream.id, None)
        self._forget(stream)

    def hear_dropped(self, message: Dropped) -> None:
        """End the calls that the gateway has dropped; unsent ones too, if it names those."""
        stream = self._streams.get(message.job)
        if stream is None:
            return
        ended = Ended(message.failure, message.reason)
        known = [(low, high) for low, high in message.ranges if high <= stream.total]
        is_behind = message.failure == DEPENDENCY
        self.take(
            stream, stream.end_behind(known, ended) if is_behind else stream.end(known, ended)
        )
        if len(known) < len(message.ranges):
            self.close_to_calls(stream, ended)  # calls that were not sent yet are dropped, too

    def hear_cancelled(self, question: Cancel, answer: Answer) -> None:
        """End the calls that a cancel of this client took back."""
        stream = self.attached(question.job)
        if stream is None:
            return
        if not answer.code:
            taken = [(low, high) for low, high in answer.value["taken"]]
            self.take(stream, stream.end(stream.back.come_back(taken), CANCELLED))
            stream.back.refuse((low, high) for low, high in question.ranges)
        elif stream.back.are_asked((low, high) for low, high in question.ranges):
            # Perhaps the job is over, and its last results are fetched: they must not be lost.
            stream.back.refuse((low, high) for low, high in question.ranges)
        elif answer.code == Reason.JOB_NOT_FOUND and not stream.paused:
            self.end(stream, CANCELLED)  # nothing of the job is left there

    def hear_rejected(self, message: RejectJob, *, moves: bool) -> None:
        """End a job that the gateway refuses.

        Calls of `submit` that crossed the end of their job go to another one if the client `moves`
        them, as it does while it takes work.
        """
        kept = self._kept.get(message.job)
        if kept is not None and kept.closed:
            return  # it has ended by now: the calls that were sent again rightly came too late
        stream = self._streams.get(message.job)
        if stream is None:
            return
        if message.code == Reason.JOB_NOT_FOUND and not stream.opening.detached:
            self._job_over(stream, message, moves=moves)
            return
        offers = read_offers(message.details)
        rejection = Ended(f"refused:{message.code}", message.reason, offers=offers)
        self.sender.drop(stream.id)
        self._forget(stream)
        stream.rejection = rejection
        self.end(stream, rejection)

    def _job_over(self, stream: Stream, message: RejectJob, *, moves: bool) -> None:
        """Handle a job that had ended when calls of this client arrived.

        Calls of `submit` that crossed the end go to a new job: they may be newer than the end. All
        others are cancelled with their job.
        """
        ended = Ended("cancelled", message.reason)
        self.close_to_calls(stream, ended)
        match message.details.get("tasks"):
            case [int(first), int(stop)]:
                if moves:
                    self.move(stream, first, stop)
                self.take(stream, stream.end([(first, stop)], ended))
            case _:  # an older gateway does not name the calls
                self.end(stream, ended)

    def move(self, stream: Stream, first: int, stop: int) -> None:
        """Submit calls again, to the open job of their kind or to a new one."""
        digest, opening = stream.opening.function, stream.opening
        body = self._functions.body(digest)
        leases = stream.leases()  # they must not be let go of meanwhile
        calls, placed = stream.take_out(first, stop) if body is not None else ([], Placed())
        if not calls or body is None:
            return

        def reopened() -> OpenJob:
            return replace(opening, job=self._new_id(), again=False)

        function = SealedFunction(digest, body, opening.name)
        target = self.fill(stream.key, function, reopened)
        for payload, held in calls:
            future = held() if isinstance(held, weakref.ref) else held
            if future is not None:
                own = {each: leases[each] for each in references_of(payload)}
                future.placed(target, target.submit(payload, future, own))
        self.sender.add(target)
        self.take(stream, placed)

    def repeat(self, stream: Stream, tasks: list[int], *, near: bool) -> bool:
        """Run unfinished calls of a job again, in a job of their own; return whether that is done.

        Not for a job with a limit of cost, which was spent; and a few times only. `near` tells
        whether the client is on the gateway's host.
        """
        opening = stream.opening
        calls = stream.pending(tasks)
        body = self._functions.body(opening.function)
        is_over = opening.max_cost_nanos is not None or stream.repeats >= REPEATS_MAX
        if not calls or body is None or is_over:
            return not calls
        results = "" if opening.results == AUTO and not near else opening.results
        own = replace(opening, job=self._new_id(), again=False, tasks=len(calls), results=results)
        twin = RepeatedCalls(own, self._resolved, stream, list(calls), self.take)
        self._functions.use(SealedFunction(opening.function, body, opening.name))
        self._streams[twin.id] = twin
        self._send_opening(twin)
        held, payloads = stream.leases(), list(calls.values())
        for at in range(0, len(payloads), BUNDLE_TASKS_MAX):
            bunch = payloads[at : at + BUNDLE_TASKS_MAX]
            for part in in_messages(bunch, sum(map(len, bunch))):
                digests = [each for call in part for each in references_of(call)]
                leases = {each: held[each] for each in digests if each in held}
                twin.extend(part, leases, has_open=any(type(each) is OpenCall for each in part))
        self.sender.add(twin)
        self.sender.close(twin, self._dialogue)
        return True

    def place_fetched(
        self, stream: Stream, first: int, outcomes: list[Outcome], lost: list[int], text: str
    ) -> None:
        """Give calls from `first` on the outcomes that were fetched, but for the lost ones.

        `lost` are offsets, ascending. These calls end, for that reason, unless they are repeated.
        """
        failed = any(type(each) is Ended for each in outcomes)
        low = 0
        for at in [*lost, len(outcomes)]:
            self.take(stream, stream.place(first + low, outcomes[low:at], failed=failed))
            low = at + 1
        if text:
            spans = [(first + at, first + at + 1) for at in lost]
            self.take(stream, stream.end(spans, Ended("object", text)))
