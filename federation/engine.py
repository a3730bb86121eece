"""The client's engine: one connection to a gateway, kept up, and whoever has time drives it.

No event loop. Under a lock, `_drain` takes what has arrived, lets the pure books
(federation.streams) place it, and sends what may go. Waiting on the socket happens outside the
lock, by one thread at a time, the *leader*:

- a thread that needs something (the next result of a map, a future's result) leads by itself.
  With a second thread doing the work, each of its calls into nng would wait up to 5 ms for the
  interpreter while the first is busy, and that decides throughput;
- a daemon thread leads when nobody else does, so that futures resolve, heartbeats go out and a
  lost gateway is dialled again while the user's code is doing something else.

Pipes are federation.connection's; which gateway is dialled is decided in federation.gateways.

Futures are resolved outside the lock: their callbacks may call anything here.
"""

import logging
import os
import secrets
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from federation.connection import Connection
from federation.errors import (
    GatewayUnreachable,
    GridError,
    JobNotFound,
    ProtocolError,
    SerializationError,
    SessionRefused,
)
from federation.gateways import Itinerary, Loss
from federation.handshake import PASSING_REFUSALS, Dialogue, Opened, SharedSecret
from federation.ids import new_id
from federation.messages import (
    MESSAGES,
    Answer,
    Ask,
    Bye,
    Cancel,
    CloseJob,
    Dropped,
    Gateways,
    Hello,
    Kept,
    NeedFunction,
    OpenJob,
    PutFunction,
    RejectJob,
    Results,
)
from federation.nng import ANSWERS_NOT, ForkedProcessError, explain_silence
from federation.offers import read_offers
from federation.outcomes import resolve_all, screen, show
from federation.payload import SealedFunction
from federation.ranges import Range, RangeSet
from federation.reasons import Reason
from federation.shelves import FunctionShelf, StreamShelf
from federation.streams import Chunk, Ended, Outcome, Placed, Stream
from federation.task_passes import ABOUT, read_pass
from federation.transport import TlsSettings

if TYPE_CHECKING:
    from federation.mapping import Feeder

PARK_S: Final = 0.05  # the daemon leads when nobody else has for so long
POLL_MAX_S: Final = 0.5
ENVELOPE_BYTES: Final = 4096  # what a message may hold beside its one large payload
BACKLOG_BYTES: Final = 1 << 20  # so much is packed ahead of what the window lets out
IDLE_S: Final = 10.0  # a job that gets no call from submit is closed after one or two of these
LEAVE_S: Final = 2.0  # how long a goodbye may take
_CANCELLED: Final = Ended("cancelled", "cancelled by this client")
_ELSEWHERE: Final = "elsewhere"  # the code of a question whose gateway is not where we are

_log = logging.getLogger("gridfed")
_here = os.getpid()  # asked once in each process, not at every submit

os.register_at_fork(after_in_child=lambda: globals().update(_here=os.getpid()))


@dataclass(frozen=True, slots=True)
class Holder:
    """Who a client is, and whom it trusts.

    Args:
        user: who is billed; what a token says goes before it.
        secret: that the gateway may ask for.
        token: that the gateway's site, or one whose users it welcomes, has signed; or a task's
            pass (federation.task_passes); or empty.
        trusted_sites: see federation.client.Client; None for all that the gateway passes on.
    """

    user: str
    secret: str = ""
    token: str = ""
    trusted_sites: frozenset[str] | None = None

    @property
    def about(self) -> dict[str, Any]:
        """What the hello says of it."""
        if (found := read_pass(self.token)) is not None:
            return {ABOUT: found.subject}
        return {"token": self.token} if self.token else {}

    @property
    def credentials(self) -> SharedSecret:
        """How it proves that it may come in."""
        found = read_pass(self.token)
        return SharedSecret(self.secret) if found is None else found.credentials

    @property
    def bears_token(self) -> bool:
        """Whether its hello holds what is good for whoever reads it."""
        return "token" in self.about


class Engine:
    """One session at a time, with one of several gateways.

    Args:
        itinerary, origin: where to dial, and where that came from, for messages.
        holder, tls: what the gateway asks for.
        connect_timeout_s: how long the first connection may take.
    """

    def __init__(
        self,
        itinerary: Itinerary,
        origin: str,
        *,
        holder: Holder,
        tls: TlsSettings,
        connect_timeout_s: float,
    ) -> None:
        self.holder = holder
        self._pid = _here
        self._lock = threading.RLock()
        self._turn = threading.Condition(self._lock)
        self.futures_lock = threading.RLock()  # see federation.client.TaskFuture
        self._leader: int | None = None
        self._drivers = 0
        self._driven_s = 0.0
        self._leaving = False  # has said goodbye, or is about to
        self.closed = False
        self._over = threading.Event()  # the same, for the daemon when it rests
        self.shut = False  # takes no new work
        self.error: GridError | None = None
        self.failed = 0  # calls that ended with `error`
        self._streams: dict[str, Stream] = {}
        self._feeders: dict[str, Feeder] = {}
        self._sending: dict[str, Stream] = {}
        self._filling = StreamShelf()
        self._sweep_s = 0.0
        self._functions = FunctionShelf()
        self._sent_functions: set[bytes] = set()
        self._calls_out = 0
        self._bytes_out = 0
        self._requests: dict[int, tuple[Any, list[Answer], str]] = {}
        self._request = 0
        self._kept: dict[str, Kept] = {}
        self._resolved: deque[tuple[Any, Outcome]] = deque()
        self._abandoned: deque[tuple[Stream, Range | None, bool]] = deque()
        self._refusal: SessionRefused | None = None  # the last one that may pass
        self._printed: list[str] = []
        self._host = ""  # the site whose gateway we are at
        self._own_sites: set[str] = set()  # those whose gateways the user named
        name = f"{os.path.basename(sys.argv[0]) or 'python'}-{self._pid}"[:200]
        self._dialogue = Dialogue(
            hello=Hello([], "client", name, holder.user, b"", "", 0, holder.about),
            credentials=holder.credentials,
            random_bytes=secrets.token_bytes,
        )
        self._line = Connection(itinerary, self._dialogue, tls, bears_token=holder.bears_token)
        itinerary.begin(time.monotonic(), connect_timeout_s)
        try:
            self._line.dial()
            self._connect(origin, connect_timeout_s)
        except BaseException:
            self._release()
            raise
        self._thread = threading.Thread(target=self._serve, name="gridfed", daemon=True)
        self._thread.start()

    def _connect(self, origin: str, timeout_s: float) -> None:
        own = self._line.itinerary.own
        missing = all(
            address.startswith("ipc://") and not os.path.exists(address.removeprefix("ipc://"))
            for address in own
        )
        reached = not missing and self.drive(lambda: self._dialogue.is_open, timeout_s)
        if self.error is not None:
            raise self.error
        if not reached and self._refusal is not None:
            raise self._refusal
        if not reached:
            why = "; ".join(dict.fromkeys(map(explain_silence, own)))
            start = "Name" if ANSWERS_NOT in why else "Start one with `gridfed up`, or name"
            raise GatewayUnreachable(
                f"no gateway answers at {' or '.join(own)} ({origin}): {why}. "
                f"{start} another by Client(address), --gateway or $GRIDFED_GATEWAY."
            )

    @property
    def address(self) -> str:
        """The address of the gateway where the session is, or that is dialled now."""
        return self._line.itinerary.address

    @property
    def welcome(self) -> Any:
        """What the gateway said of its limits."""
        return self._dialogue.welcome

    # --- leading -------------------------------------------------------------------------------

    def drive(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Lead, or wait for who leads, until `done()`; False when the time is over first."""
        self._check_process()
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._turn:
            self._drivers += 1
            try:
                while not done():
                    if self.error is not None or self.closed:
                        return False
                    left_s = POLL_MAX_S if until_s is None else until_s - time.monotonic()
                    if left_s <= 0:
                        return False
                    self._lead_or_wait(min(left_s, POLL_MAX_S))
                return True
            finally:
                self._drivers -= 1
                self._driven_s = time.monotonic()
                self._turn.notify_all()

    def _lead_or_wait(self, at_most_s: float) -> None:
        if self._leader is not None:
            self._line.wake()  # the daemon gives way; another driver just looks once more
            self._turn.wait(at_most_s)
            return
        self._lead(at_most_s)

    def _lead(self, at_most_s: float) -> None:
        """Wait for something to arrive and take it. The lock is held, and let go while waiting."""
        self._leader = threading.get_ident()
        try:
            if not self._drain():
                self._line.wait(at_most_s, self._lock)
                self._drain()
        finally:
            self._leader = None
            self._turn.notify_all()
        self._settle()

    def _settle(self) -> None:
        """Resolve futures and show prints, outside the lock."""
        if not self._resolved and not self._printed:
            return
        printed, self._printed = self._printed, []
        self._lock.release()
        try:
            for text in printed:
                show(text)
            resolve_all(self._resolved)
        finally:
            self._lock.acquire()
            # Other threads that looked meanwhile have not seen these futures done, and may wait
            # for the socket by now, or for the one that does.
            self._turn.notify_all()
            if self._leader is not None:
                self._line.wake()

    def _serve(self) -> None:
        """The daemon thread: lead when nobody else does."""
        while True:
            with self._turn:
                if self.closed:
                    self._end_all()
                    return
                parked = self._drivers > 0 or time.monotonic() - self._driven_s < PARK_S
                if not parked and self._leader is None:
                    try:
                        self._lead(POLL_MAX_S)
                    except BaseException:  # noqa: BLE001 - a callback's exit is not this thread's
                        if not self.closed:
                            _log.warning("what a result set off has failed", exc_info=True)
                    pause_s = 0.0
                else:
                    pause_s = PARK_S
            self._feed_unattended()
            self._over.wait(pause_s)

    def _feed_unattended(self) -> None:
        """Feed the maps that were dropped unread, outside the lock."""
        for feeder in self.feeders if self._feeders else ():
            while feeder.is_unattended and feeder.feed_on():
                pass

    # --- the connection ------------------------------------------------------------------------

    def _hang_up(self, loss: Loss, now_s: float, since_s: float, *, by_us: bool = False) -> None:
        is_missed = bool(self._streams) and not (by_us or self._leaving)
        reason = self._line.hang_up(loss, now_s, since_s, is_missed=is_missed)
        if reason:
            refusal = self._refusal if loss is Loss.UNWILLING else None
            self._fail(refusal or GatewayUnreachable(reason))

    def _fail(self, error: GridError) -> None:
        """Nothing will ever finish: end everything, and dial no more."""
        self.error = error
        self._line.stop()
        kind = "refused" if isinstance(error, SessionRefused) else "unreachable"
        for stream in self.streams:
            self.failed += stream.unfinished
            self._take(stream, stream.end_all(Ended(kind, str(error))))

    def _drain(self) -> bool:
        """Take what has arrived and send what may go; whether anything arrived."""
        try:
            return self._exchange(time.monotonic())
        except BaseException:
            # Ctrl-C half way: what was done of it nobody knows. Say hello as a new client, and
            # send again what has no outcome; what ran already is not charged again.
            self._dialogue.start_over()
            now_s = time.monotonic()
            self._hang_up(Loss.GONE, now_s, now_s, by_us=True)
            raise

    def _exchange(self, now_s: float) -> bool:
        while self._abandoned:
            self._drop(*self._abandoned.popleft())
        if now_s >= self._sweep_s:
            self._sweep_s = now_s + IDLE_S
            for stream in self._filling.sweep():
                self.close_stream(stream)
        line, link, arrived = self._line, self._line.link, False
        if link is None:
            fault = None if self.closed else line.redial(now_s)
            if fault is not None:
                self._hang_up(fault, now_s, now_s)
            return False
        try:
            line.greet(link, now_s)
            for frame in link.receive():
                arrived = True
                for message in self._dialogue.receive(frame, now_s):
                    self._hear(message)
                if line.link is not link:
                    return True  # it said goodbye
        except SessionRefused as refusal:
            self._refused(refusal, now_s)
            return True
        except ProtocolError as error:
            _log.warning("the gateway broke the protocol: %s", error)
            self._hang_up(Loss.GONE, now_s, now_s)
            return True
        lost = line.find_loss(link, now_s)
        if lost is not None:
            loss, since_s = lost
            self._hang_up(loss, now_s, since_s)
            return True
        self.transmit()
        return arrived

    def _refused(self, refusal: SessionRefused, now_s: float) -> None:
        """The gateway does not let us in. Unless that may pass, only another can help."""
        self._refusal = refusal
        if refusal.code in PASSING_REFUSALS:
            self._hang_up(Loss.GONE, now_s, now_s)
            return
        if self._line.itinerary.has_others:
            _log.warning("the gateway at %s refuses this client: %s", self.address, refusal)
        self._hang_up(Loss.UNWILLING, now_s, now_s)
        if refusal.code == "expelled":
            self._fail(refusal)  # for what this client did: it would do so elsewhere

    def transmit(self) -> None:
        """Send what may go now. The lock is held."""
        session, welcome = self._dialogue.session, self._dialogue.welcome
        if session is not None and welcome is not None and self._dialogue.is_open:
            while self._sending and session.backlog_bytes < BACKLOG_BYTES and session.has_room:
                if self._calls_out >= welcome.tasks_max or self._bytes_out >= welcome.bytes_max:
                    break
                self._send_chunk(next(iter(self._sending.values())))
        if self._line.link is not None:
            self._dialogue.flush(self._line.link.send, time.monotonic())

    def _send_chunk(self, stream: Stream) -> None:
        found = stream.next_to_send()
        if found is None:
            del self._sending[stream.id]
            self._maybe_close(stream)
            return
        chunk, messages = found
        self._calls_out += chunk.missing
        self._bytes_out += chunk.size
        for message in messages:
            self._dialogue.post(message)

    def _maybe_close(self, stream: Stream) -> None:
        """Tell the gateway that no more calls come, once all of them have been sent."""
        if stream.closed and not stream.waiting:
            self._dialogue.post(CloseJob(stream.id, stream.total, stream.elsewhere()))
            self._forget_if_over(stream)

    @property
    def strangers(self) -> list[str]:
        """The site that we are at, if its gateway is none that the user named: it was told of."""
        return [self._host] if self._host and self._host not in self._own_sites else []

    # --- what the gateway says -----------------------------------------------------------------

    def _hear(self, message: Any) -> None:
        match message:
            case Results():
                self._hear_results(message)
            case Opened():
                self._opened(message)
            case Answer():
                self._hear_answer(message)
            case Dropped():
                self._hear_dropped(message)
            case RejectJob():
                self._hear_rejected(message)
            case NeedFunction(digest):
                self._put_function(digest)
            case Kept():
                self._hear_kept(message)
            case Gateways(others):
                self._line.learn(others)
            case Bye():
                now_s = time.monotonic()
                self._hang_up(Loss.ABSENT, now_s, now_s)
            case _:
                pass  # Unknown: a newer client than gateway; what matters was refused by name

    def _hear_answer(self, answer: Answer) -> None:
        asked = self._requests.get(answer.request)
        if asked is None:
            return
        question, answers, _ = asked
        answers.append(answer)
        if isinstance(question, Cancel):
            # Here, and not by the thread that asked: it may have stopped waiting, and what
            # arrives next may be the end of the job.
            del self._requests[answer.request]
            self._end_taken(question, answer)

    def _end_taken(self, question: Cancel, answer: Answer) -> None:
        """End what a cancel of ours took back."""
        stream = self._attached(question.job)
        if stream is None:
            return
        if not answer.code:
            taken = [(low, high) for low, high in answer.value["taken"]]
            self._take(stream, stream.end(taken, _CANCELLED))
        elif answer.code == Reason.JOB_NOT_FOUND:
            self._take(stream, stream.end_all(_CANCELLED))  # nothing of it is left there

    def _hear_dropped(self, message: Dropped) -> None:
        stream = self._streams.get(message.job)
        if stream is None:
            return
        ended = Ended(message.failure, message.reason)
        known = [(low, high) for low, high in message.ranges if high <= stream.total]
        self._take(stream, stream.end(known, ended))
        if len(known) < len(message.ranges):
            self._close_to_calls(stream, ended)  # what it has not had yet is dropped, too

    def _hear_rejected(self, message: RejectJob) -> None:
        kept = self._kept.get(message.job)
        if kept is not None and kept.closed:
            return  # it has ended by now: what we had sent again came too late, rightly
        stream = self._streams.get(message.job)
        if stream is None:
            return
        if message.code == Reason.JOB_NOT_FOUND and not stream.opening.detached:
            self._job_over(stream, message)
            return
        offers = read_offers(message.details)
        rejection = Ended(f"refused:{message.code}", message.reason, offers=offers)
        self._sending.pop(stream.id, None)
        self._forget(stream)
        stream.rejection = rejection
        self._take(stream, stream.end_all(rejection))

    def _job_over(self, stream: Stream, message: RejectJob) -> None:
        """The job had ended when calls of ours arrived.

        Calls of `submit` that crossed the end go to a new job: they may be newer than the end. All
        others are cancelled with their job.
        """
        ended = Ended("cancelled", message.reason)
        self._close_to_calls(stream, ended)
        match message.details.get("tasks"):
            case [int(first), int(stop)]:
                if self.takes_work:
                    self._move(stream, first, stop)
                self._take(stream, stream.end([(first, stop)], ended))
            case _:  # an older gateway does not say which calls
                self._take(stream, stream.end_all(ended))

    def _move(self, stream: Stream, first: int, stop: int) -> None:
        """Submit calls again, to the open job of their kind or to a new one."""
        digest, opening = stream.opening.function, stream.opening
        body = self._functions.body(digest)
        calls, placed = stream.take_out(first, stop) if body is not None else ([], Placed())
        if not calls or body is None:
            return

        def reopened() -> OpenJob:
            return replace(opening, job=new_id(), again=False)

        function = SealedFunction(digest, body, opening.name)
        target = self.filling(stream.key, function, reopened)
        for payload, held in calls:
            future = held() if isinstance(held, weakref.ref) else held
            if future is not None:
                future.placed(target, target.submit(payload, future))
        self._sending[target.id] = target
        self._take(stream, placed)

    def _close_to_calls(self, stream: Stream, ended: Ended) -> None:
        """The job takes no more calls, and those that were not sent end so.

        Its running calls go on. The gateway is not told: it has ended the job, or is asked to.
        """
        stream.closed = True
        self._sending.pop(stream.id, None)
        self._take(stream, stream.end_unsent(ended))

    def _hear_results(self, message: Results) -> None:
        stream = self._streams.get(message.job)
        if stream is None:
            return
        sites, trusted = [*message.sites, *self.strangers], self.holder.trusted_sites
        outcomes = screen(message.values, message.failures, sites, trusted)
        if stream.opening.prints:  # else nobody asked for them
            self._printed += [text for _, text in message.prints]
        failed = bool(message.failures) or (bool(sites) and trusted is not None)
        placed = stream.place(message.first, outcomes, failed=failed)
        self._take(stream, placed)

    def _hear_kept(self, message: Kept) -> None:
        stream = self._streams.get(message.job)
        if stream is not None:
            self._kept[message.job] = message
            self._take(stream, stream.end([(0, message.tasks)], Ended("kept", "")))

    def _take(self, stream: Stream, placed: Placed) -> None:
        self._calls_out -= placed.calls
        self._bytes_out -= placed.size
        self._forget_if_over(stream)

    def _forget_if_over(self, stream: Stream) -> None:
        # A detached job is kept until its client has seen that it is whole at the gateway.
        over = stream.closed and not stream.waiting and not stream.unfinished
        if over and not stream.opening.detached:
            self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        if self._streams.pop(stream.id, None) is not None:
            gone = self._functions.release(stream.opening.function)
            self._sent_functions.difference_update(gone)

    def _opened(self, opened: Opened) -> None:
        self._host = opened.site
        if self.address in self._line.itinerary.own:
            self._own_sites.add(opened.site)
        if not opened.resumed:
            self._check_fit()
        self._line.opened()
        self._refusal = None
        if opened.resumed:
            return
        self._sent_functions.clear()
        self._calls_out = self._bytes_out = 0
        for stream in list(self._streams.values()):
            stream.send_again()
            if stream.opening.detached and stream.home not in ("", self.address):
                self._leave_behind(stream)
                continue
            stream.opening = replace(stream.opening, again=True)
            self._open(stream)
        for question, answers, at in list(self._requests.values()):
            taken = self._taken_back(question)
            if taken:
                answers.append(Answer(question.request, "", "", {"taken": taken}))
                del self._requests[question.request]
            elif at in ("", self.address):
                self._dialogue.post(question)
            else:
                answers.append(self._no_answer(question.request, at))

    def _taken_back(self, question: Any) -> list[Range]:
        """The calls that a cancel was about, in a new session: they wait here, none is sent."""
        stream = self._attached(question.job) if isinstance(question, Cancel) else None
        if stream is None:
            return []
        asked = [(low, high) for low, high in question.ranges] or [(0, stream.total)]
        return self._cancel_unsent(stream, asked)

    def _check_fit(self) -> None:
        """Refuse a gateway that would not take what was made for another."""
        limit = self.welcome.message_bytes_max - ENVELOPE_BYTES
        streams = self._streams.values()
        largest = max((stream.arguments_max() for stream in streams), default=0)
        bodies = (self._functions.body(stream.opening.function) for stream in streams)
        largest = max(largest, max((len(body or b"") for body in bodies), default=0))
        if largest > limit:
            raise SessionRefused(
                f"the gateway at {self.address} takes messages of {limit:,} bytes, and a call or "
                f"function that waits has {largest:,}",
                "limits",
            )

    def _leave_behind(self, stream: Stream) -> None:
        """A detached job was being handed to a gateway that we had to leave.

        It may be whole there, or in part; here it would be a second one.
        """
        self._forget(stream)
        self._sending.pop(stream.id, None)
        stream.rejection = Ended(
            "unreachable",
            f"the gateway at {stream.home} went away while job {stream.id} was handed over to "
            "it, and may have all of it: ask client.job(id) when that gateway is back, before "
            "submitting it again",
        )
        self._take(stream, stream.end_all(stream.rejection))

    def _open(self, stream: Stream) -> None:
        digest = stream.opening.function
        if digest not in self._sent_functions:
            self._sent_functions.add(digest)
            self._put_function(digest)
        self._dialogue.post(stream.opening)
        self._sending[stream.id] = stream
        if self._dialogue.session is not None:
            stream.home = self.address

    def _put_function(self, digest: bytes) -> None:
        body = self._functions.body(digest)
        if body is not None:
            self._dialogue.post(PutFunction(digest, body))

    # --- what users do -------------------------------------------------------------------------

    def open_stream(self, opening: OpenJob, function: SealedFunction) -> Stream:
        """Begin a job."""
        self._check_usable()
        if len(function.body) > self.welcome.message_bytes_max - ENVELOPE_BYTES:
            raise SerializationError(
                f"function {function.name} is {len(function.body):,} bytes when pickled; the "
                f"gateway takes {self.welcome.message_bytes_max:,}: does it carry data along?"
            )
        MESSAGES.encode(opening)  # what can't travel must fail here, and leave nothing behind
        with self._lock:
            self._functions.use(function)
            stream = Stream(opening, self._resolved)
            self._streams[stream.id] = stream
            self._open(stream)
        return stream

    def filling(
        self, key: Hashable, function: SealedFunction, opening: Callable[[], OpenJob]
    ) -> Stream:
        """The job that calls of this kind are submitted to; opened when there is none."""
        self._check_process()
        with self._lock:
            stream = self._filling.find(key)
            if stream is None:
                stream = self.open_stream(opening(), function)
                stream.key = key
                for unused in self._filling.add(key, stream):
                    self.close_stream(unused)
        return stream

    def submit(self, stream: Stream, payload: bytes, future: Any) -> bool:
        """Add a call to a job; sent at once when the window allows.

        False when the job takes no more calls: it was unused and closed, or it has ended.
        """
        self.check_size(payload)
        if self._pid != _here:
            self._check_process()  # before the lock, which a thread that we lack may hold
        with self._lock:
            if self.closed or self.shut or self.error is not None:
                self._check_usable()
            if stream.closed or stream.rejection is not None:
                return False
            number = stream.submit(payload, future)
            future.placed(stream, number)
            self._sending[stream.id] = stream
            session = self._dialogue.session
            if session is not None and session.has_room:
                self.transmit()
        return True

    def extend(self, stream: Stream, arguments: list[bytes], *, late: bool = False) -> Chunk:
        """Add many calls to a job; `late` ones also when no new work is taken any more."""
        self._check_process()
        with self._lock:
            self._check_usable(late=late)
            chunk = stream.extend(arguments)
            self._sending[stream.id] = stream
            self.transmit()
        return chunk

    def close_stream(self, stream: Stream) -> None:
        """No more calls will come. Says nothing in a forked child."""
        if self.is_foreign:
            return
        with self._lock:
            if not stream.closed and not stream.rejected:
                stream.closed = True
                if stream.id not in self._sending:
                    self._maybe_close(stream)
                self.transmit()

    def check_size(self, payload: bytes) -> None:
        """Refuse arguments that the gateway would not take."""
        limit = self.welcome.message_bytes_max - ENVELOPE_BYTES
        if len(payload) > limit:
            raise SerializationError(
                f"the arguments are {len(payload):,} bytes when pickled; the gateway takes "
                f"{limit:,}: pass a path to the data, or split it"
            )

    def cancel(
        self, stream: Stream, ranges: list[Range], *, stop: bool, timeout_s: float | None = None
    ) -> list[Range]:
        """Take back calls; return those that were. Waits for the gateway's answer, if so long."""
        self._check_process()
        with self._lock:
            taken = self._cancel_unsent(stream, ranges)
        question = Cancel(0, stream.id, [list(pair) for pair in ranges], stop)
        answer = self._request_answer(question, timeout_s)
        if answer is not None and not answer.code:
            taken += [(low, high) for low, high in answer.value["taken"]]
        with self._lock:
            self._settle()
        return taken

    def _cancel_unsent(self, stream: Stream, ranges: list[Range]) -> list[Range]:
        asked, taken = RangeSet(ranges), []
        for chunk in list(stream.waiting):
            for first, stop in chunk.unfinished():
                taken += asked.within(first, stop)
        self._take(stream, stream.end(taken, _CANCELLED))
        return taken

    def cancel_unstarted(self, stream: Stream) -> int:
        """Take back what has not begun of a job; how many calls that was."""
        if not stream.unfinished:
            return 0
        taken = self.cancel(stream, [(0, stream.total)], stop=False)
        return sum(stop - first for first, stop in taken)

    def _attached(self, job: str) -> Stream | None:
        """The job of this id, if it is one of ours that is not over and not detached."""
        stream = self._streams.get(job)
        return None if stream is None or stream.opening.detached else stream

    def cancel_job(self, job: str, *, stop: bool, at: str = "") -> int:
        """Cancel a whole job by its id; how many tasks were taken back or stopped.

        Of a job of this client what waits here counts too. It takes no more calls: the next
        `submit` opens another.
        """
        self._check_usable()
        with self._lock:
            stream = self._attached(job)
            before = stream.unfinished if stream is not None else 0
            if stream is not None:
                self._close_to_calls(stream, _CANCELLED)
                before -= stream.unfinished
        answer = self._request_answer(Cancel(0, job, [], stop), at=at)
        with self._lock:
            if stream is not None and (answer is None or answer.code):
                self._maybe_close(stream)  # it goes on, without more calls
            self._settle()
        if answer is None or answer.code == _ELSEWHERE:
            raise self._no_gateway(answer)
        if answer.code:
            raise JobNotFound(answer.reason)
        return before + sum(int(high) - int(low) for low, high in answer.value["taken"])

    def abandon(self, stream: Stream, calls: Range | None = None, *, stop: bool = False) -> None:
        """Cancel calls whose results nobody will read, without waiting; by default a whole job.

        With `stop`, also what runs. Safe in a finaliser. Nothing in a forked child: the job goes
        on in the parent.
        """
        if self.is_foreign:
            return
        self._abandoned.append((stream, calls, stop))
        self._line.wake()  # the next leader does it: a finaliser may run in the middle of anything

    def _drop(self, stream: Stream, calls: Range | None, stop: bool) -> None:
        if stream.id not in self._streams:
            return
        if calls is None:
            self._close_to_calls(stream, _CANCELLED)
            self._post_request(Cancel(0, stream.id, [], stop))
        else:
            self._cancel_unsent(stream, [calls])
            self._post_request(Cancel(0, stream.id, [list(calls)], stop))

    def loosen(self, stream: Stream, task: int) -> None:
        """Hold the future of a call no longer: once nobody does, the call is cancelled.

        For a future whose waiting was interrupted. A call that runs is stopped.
        """
        if self.is_foreign:
            return

        def to_weak(future: Any) -> Any:
            if isinstance(future, weakref.ref):
                return future  # its waiting was interrupted before
            return weakref.ref(future, lambda _: self.abandon(stream, (task, task + 1), stop=True))

        with self._lock:
            stream.loosen(task, to_weak)

    def ask(
        self, verb: str, details: dict[str, Any], timeout_s: float | None = None, at: str = ""
    ) -> Any:
        """Ask the gateway; return the answer's value. Raises what its code says.

        With `at`, only the gateway of that address may answer: GatewayUnreachable when this
        client goes to another meanwhile.
        """
        self._check_usable()
        question = Ask(0, verb, details)
        try:
            data = MESSAGES.encode(question)
            MESSAGES.decode(data, len(data))  # else the gateway would end the session
        except (ValueError, OverflowError, ProtocolError) as error:
            # Half a surrogate pair, a number of more than 64 bits, lists in lists without end.
            raise GridError(f"{verb}: this can't be sent: {error}") from None
        answer = self._request_answer(question, timeout_s, at)
        if answer is None or answer.code == _ELSEWHERE:
            raise self._no_gateway(answer)
        if answer.code == Reason.JOB_NOT_FOUND:
            raise JobNotFound(answer.reason)
        if answer.code:
            raise GridError(answer.reason)
        return answer.value

    def _no_gateway(self, answer: Answer | None) -> GridError:
        if answer is not None:
            return GatewayUnreachable(answer.reason)
        return self.error or GatewayUnreachable(f"the gateway at {self.address} is gone")

    def _no_answer(self, number: int, at: str) -> Answer:
        reason = f"the gateway at {at} is away; this client is at {self.address} now"
        return Answer(number, _ELSEWHERE, reason, None)

    def _request_answer(
        self, question: Any, timeout_s: float | None = None, at: str = ""
    ) -> Answer | None:
        with self._lock:
            if self._dialogue.is_open and at not in ("", self.address):
                return self._no_answer(self._request, at)
            number, answers = self._post_request(question, at)
            self.transmit()
        try:
            self.drive(lambda: bool(answers), timeout_s)
        finally:
            # A cancel of ours is carried out whether its answer is waited for or not.
            if not (isinstance(question, Cancel) and self._attached(question.job)):
                with self._lock:
                    self._requests.pop(number, None)
        return answers[0] if answers else None

    def _post_request(self, question: Any, at: str = "") -> tuple[int, list[Answer]]:
        """Ask the gateway; the list takes its answer. The lock is held."""
        self._request += 1
        asked = replace(question, request=self._request)
        answers: list[Answer] = []
        self._requests[self._request] = asked, answers, at
        self._dialogue.post(asked)
        return self._request, answers

    def wait_kept(self, stream: Stream) -> None:
        """Wait until a detached job is whole on the gateway's disk."""

        def is_kept() -> bool:
            kept = self._kept.get(stream.id)
            return stream.rejected or (kept is not None and kept.closed)

        self.drive(is_kept)
        with self._lock:
            self._kept.pop(stream.id, None)
            self._forget(stream)

    @property
    def unfinished(self) -> int:
        """Calls that have not ended."""
        return sum(stream.unfinished for stream in self._streams.values())

    def has_attached(self, job: str) -> bool:
        """Whether it is a job that goes wherever this client goes, and is not over."""
        stream = self._streams.get(job)
        return stream is not None and not stream.opening.detached

    def attend(self, feeder: "Feeder") -> None:
        """Keep what feeds a map until all of it was fed, or is not wanted."""
        self._feeders[feeder.stream.id] = feeder

    def dismiss(self, feeder: "Feeder") -> None:
        """Keep it no longer. Safe in a finaliser."""
        self._feeders.pop(feeder.stream.id, None)

    @property
    def feeders(self) -> "list[Feeder]":
        """What feeds the maps that are not over."""
        return list(self._feeders.values())

    def hurry(self) -> None:
        """From now on wait for a lost gateway no longer than for one before going to another."""
        with self._lock:
            self._line.itinerary.hurry(time.monotonic())

    @property
    def streams(self) -> list[Stream]:
        """The jobs that are not over."""
        return list(self._streams.values())

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from the one that the connection belongs to."""
        return self._pid != _here

    @property
    def takes_work(self) -> bool:
        """Whether new calls are taken; who adds some all the same is told why not."""
        return not self.closed and not self.shut and self.error is None

    def _check_process(self) -> None:
        if self.is_foreign:
            raise ForkedProcessError(
                "this client belongs to the process that this one was forked from. Make a new "
                'Client in a child started by multiprocessing.get_context("spawn").'
            )

    def _check_usable(self, *, late: bool = False) -> None:
        self._check_process()
        if self.closed or (self.shut and not late):
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Say goodbye and let go of everything. Idempotent, and safe in a forked child."""
        if self.is_foreign or self.closed:
            return
        self._leaving = True
        with self._lock:
            for stream in self.streams:
                self.close_stream(stream)
            self._dialogue.post(Bye("done"))
        self.drive(self._is_said, LEAVE_S)
        with self._turn:
            self._end_all()
            self.let_go()
            self._turn.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(LEAVE_S)
        self._release()

    def _end_all(self) -> None:
        """End every call that is left: no future is pending for ever. The lock is held."""
        for stream in self.streams:
            self._take(stream, stream.end_all(Ended("cancelled", "the client was closed")))
        self._settle()

    def let_go(self) -> None:
        """End at once, without a goodbye: the gateway finds out by itself. Waits for nothing."""
        self.closed = True
        self._line.wake()
        self._over.set()

    def _is_said(self) -> bool:
        session = self._dialogue.session
        return session is None or session.is_idle or not self._dialogue.is_open

    def _release(self) -> None:
        with self._lock:
            self.closed = True
            self._line.close()
