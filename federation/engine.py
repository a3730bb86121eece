"""The client's engine: one connection to a gateway, kept up, and whoever has time drives it.

No event loop. Under a lock, `_drain` takes what has arrived, lets the pure books
(federation.streams) place it, and sends what may go. Waiting on the socket happens outside the
lock, by one thread at a time, the *leader*:

- a thread that needs something (the next result of a map, a future's result) leads by itself.
  With a second thread doing the work, each of its calls into nng would wait up to 5 ms for the
  interpreter while the first is busy, and that decides throughput;
- a daemon thread leads when nobody else does, so that futures resolve, heartbeats go out and a
  lost gateway is dialled again while the user's code is doing something else.

Futures are resolved outside the lock: their callbacks may call anything here.
"""

import logging
import os
import random
import secrets
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from typing import Any, Final

from federation.errors import (
    FAILURES,
    GatewayUnreachable,
    GridError,
    JobNotFound,
    JobRefused,
    ProtocolError,
    RemoteTraceback,
    SerializationError,
    SessionRefused,
)
from federation.handshake import ACKNOWLEDGE_S, PASSING_REFUSALS, Dialogue, Opened
from federation.messages import (
    MESSAGES,
    Answer,
    Ask,
    Bye,
    Cancel,
    CloseJob,
    Dropped,
    Hello,
    Kept,
    NeedFunction,
    OpenJob,
    PutFunction,
    RejectJob,
    Results,
)
from federation.nng import ForkedProcessError, NngLink, explain_silence
from federation.payload import SealedFunction, open_result
from federation.progress import show
from federation.ranges import Range
from federation.reasons import Reason
from federation.streams import Chunk, Ended, Outcome, Placed, Stream
from federation.transport import TlsSettings

PARK_S: Final = 0.05  # the daemon leads when nobody else has for so long
POLL_MAX_S: Final = 0.5
REDIAL_MIN_S: Final = 0.05
REDIAL_MAX_S: Final = 2.0
BACKLOG_BYTES: Final = 1 << 20  # so much is packed ahead of what the window lets out
LEAVE_S: Final = 2.0  # how long a goodbye may take

_log = logging.getLogger("gridfed")


class Engine:
    """One session with a gateway.

    Args:
        address, origin: where to dial, and where that came from, for messages.
        secret, tls: what the gateway asks for.
        user: who is billed.
        connect_timeout_s: how long the first connection may take.
    """

    def __init__(
        self,
        address: str,
        origin: str,
        *,
        secret: str,
        tls: TlsSettings,
        user: str,
        connect_timeout_s: float,
    ) -> None:
        self.address = address
        self._tls = tls
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._turn = threading.Condition(self._lock)
        self.futures_lock = threading.RLock()  # see federation.client.TaskFuture
        self._leader: int | None = None
        self._drivers = 0
        self._driven_s = 0.0
        self._link: NngLink | None = None
        self._redial_s = 0.0
        self._redial_wait_s = REDIAL_MIN_S
        self._warned = False
        self._leaving = False  # has said goodbye, or is about to
        self.closed = False
        self.shut = False  # takes no new work
        self.error: GridError | None = None
        self._streams: dict[str, Stream] = {}
        self._sending: dict[str, Stream] = {}
        self._functions: dict[bytes, bytes] = {}
        self._sent_functions: set[bytes] = set()
        self._calls_out = 0
        self._bytes_out = 0
        self._requests: dict[int, tuple[Any, list[Answer]]] = {}
        self._request = 0
        self._kept: dict[str, Kept] = {}
        self._resolved: deque[tuple[Any, Outcome]] = deque()
        self._abandoned: deque[Stream] = deque()
        self._refusal: SessionRefused | None = None  # the last one that may pass
        self._printed: list[str] = []
        name = f"{os.path.basename(sys.argv[0]) or 'python'}-{self._pid}"[:200]
        self._dialogue = Dialogue(
            hello=Hello([], "client", name, user, b"", "", 0, {}),
            secret=secret,
            random_bytes=secrets.token_bytes,
        )
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._dial(0.0)
        try:
            self._connect(origin, connect_timeout_s)
        except BaseException:
            self._release()
            raise
        self._thread = threading.Thread(target=self._serve, name="gridfed", daemon=True)
        self._thread.start()

    def _connect(self, origin: str, timeout_s: float) -> None:
        missing = self.address.startswith("ipc://") and not os.path.exists(
            self.address.removeprefix("ipc://")
        )
        reached = not missing and self.drive(lambda: self._dialogue.is_open, timeout_s)
        if self.error is not None:
            raise self.error
        if not reached and self._refusal is not None:
            raise self._refusal
        if not reached:
            raise GatewayUnreachable(
                f"no gateway answers at {self.address} ({origin}): "
                f"{explain_silence(self.address)}. Start one with `gridfed up`, "
                "or name another by Client(address), --gateway or $GRIDFED_GATEWAY."
            )

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
            self._wake()  # the daemon gives way; another driver just looks once more
            self._turn.wait(at_most_s)
            return
        self._lead(at_most_s)

    def _lead(self, at_most_s: float) -> None:
        """Wait for something to arrive and take it. The lock is held, and let go while waiting."""
        self._leader = threading.get_ident()
        try:
            if not self._drain():
                link = self._link
                poll = select.poll()
                poll.register(self._wake_read, select.POLLIN)
                if link is not None:
                    poll.register(link.fileno(), select.POLLIN)
                wait_s = min(at_most_s, ACKNOWLEDGE_S) if self._dialogue.owes else at_most_s
                self._lock.release()
                try:
                    ready = poll.poll(wait_s * 1000)
                finally:
                    self._lock.acquire()
                if any(descriptor == self._wake_read for descriptor, _ in ready):
                    self._clear_wakes()
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
                _show(text)
            resolved = self._resolved
            while resolved:
                try:
                    first = resolved.popleft()
                except IndexError:
                    return  # another thread was quicker
                try:
                    resolve(*first)
                except BaseException:
                    # A callback, or Ctrl-C: whoever comes next goes on, with this one first.
                    if not first[0].done():
                        resolved.appendleft(first)
                    raise
        finally:
            self._lock.acquire()

    def _serve(self) -> None:
        """The daemon thread: lead when nobody else does."""
        while True:
            with self._turn:
                if self.closed:
                    return
                parked = self._drivers > 0 or time.monotonic() - self._driven_s < PARK_S
                if not parked and self._leader is None:
                    try:
                        self._lead(POLL_MAX_S)
                    except BaseException:  # noqa: BLE001 - a callback's exit is not this thread's
                        if not self.closed:
                            _log.warning("what a result set off has failed", exc_info=True)
                    continue
            time.sleep(PARK_S)

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"w")
        except BlockingIOError:
            return  # it is full of wake-ups already

    def _clear_wakes(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            return

    # --- the connection ------------------------------------------------------------------------

    def _dial(self, now_s: float) -> None:
        self._link = NngLink(self.address, self._wake, self._tls)
        self._redial_s = now_s
        self._greeted = False

    def _hang_up(self, now_s: float, *, by_us: bool = False) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        self._dialogue.lost()
        self._redial_s = now_s + self._redial_wait_s * random.uniform(0.5, 1.5)  # noqa: S311
        self._redial_wait_s = min(2 * self._redial_wait_s, REDIAL_MAX_S)
        if self._streams and not (self._warned or by_us or self._leaving):
            self._warned = True
            _log.warning("the gateway at %s is gone; dialling until it is back", self.address)

    def _drain(self) -> bool:
        """Take what has arrived and send what may go; whether anything arrived."""
        try:
            return self._exchange(time.monotonic())
        except BaseException:
            # Ctrl-C half way: what was done of it nobody knows. Say hello as a new client, and
            # send again what has no outcome; what ran already is not charged again.
            self._dialogue.start_over()
            self._hang_up(time.monotonic(), by_us=True)
            raise

    def _exchange(self, now_s: float) -> bool:
        while self._abandoned:
            self._drop(self._abandoned.popleft())
        if self._link is None:
            if now_s >= self._redial_s:
                self._dial(now_s)
            return False
        link, arrived = self._link, False
        try:
            if link.is_up and not self._greeted:
                self._greeted = True
                self._dialogue.connected(now_s)
            for frame in link.receive():
                arrived = True
                for message in self._dialogue.receive(frame, now_s):
                    self._hear(message)
        except SessionRefused as refusal:
            self._refused(refusal, now_s)
            return True
        except ProtocolError as error:
            _log.warning("the gateway broke the protocol: %s", error)
            self._hang_up(now_s)
            return True
        if link.is_lost or (self._greeted and self._dialogue.is_silent(now_s)):
            self._hang_up(now_s)
            return True
        self.transmit()
        return arrived

    def _refused(self, refusal: SessionRefused, now_s: float) -> None:
        """The gateway does not let us in; unless that may pass, nothing will ever finish."""
        self._hang_up(now_s)
        self._refusal = refusal
        if refusal.code in PASSING_REFUSALS:
            return
        self.error = refusal
        for stream in list(self._streams.values()):
            self._take(stream, stream.end_all(Ended("refused", str(refusal))))

    def transmit(self) -> None:
        """Send what may go now. The lock is held."""
        session, welcome = self._dialogue.session, self._dialogue.welcome
        if session is not None and welcome is not None and self._dialogue.is_open:
            while self._sending and session.backlog_bytes < BACKLOG_BYTES and session.has_room:
                if self._calls_out >= welcome.tasks_max or self._bytes_out >= welcome.bytes_max:
                    break
                self._send_chunk(next(iter(self._sending.values())))
        if self._link is not None:
            self._dialogue.flush(self._link.send, time.monotonic())

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
            self._dialogue.post(CloseJob(stream.id, stream.total))
            self._forget_if_over(stream)

    # --- what the gateway says -----------------------------------------------------------------

    def _hear(self, message: Any) -> None:  # noqa: C901 - one match
        match message:
            case Results():
                self._hear_results(message)
            case Opened():
                self._opened(resumed=message.resumed)
            case Answer():
                waiting = self._requests.get(message.request)
                if waiting is not None:
                    waiting[1].append(message)
            case Dropped(job, ranges, failure, reason):
                stream = self._streams.get(job)
                if stream is not None:
                    pairs = [(low, high) for low, high in ranges]
                    self._take(stream, stream.end(pairs, Ended(failure, reason)))
            case RejectJob(job, code, reason):
                stream = self._streams.pop(job, None)
                self._sending.pop(job, None)
                if stream is not None:
                    stream.rejection = Ended(f"refused:{code}", reason)
                    self._take(stream, stream.end_all(stream.rejection))
            case NeedFunction(digest):
                if digest in self._functions:
                    self._dialogue.post(PutFunction(digest, self._functions[digest]))
            case Kept():
                self._hear_kept(message)
            case Bye():
                self._hang_up(time.monotonic())
            case _:
                pass  # Unknown: a newer client than gateway; what matters was refused by name

    def _hear_results(self, message: Results) -> None:
        stream = self._streams.get(message.job)
        if stream is None:
            return
        outcomes: list[Any] = message.values
        for offset, kind, text, payload in message.failures:
            if offset < len(outcomes):
                outcomes[offset] = Ended(kind, text, payload)
        self._printed += [text for _, text in message.prints]
        placed = stream.place(message.first, outcomes, failed=bool(message.failures))
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
            self._streams.pop(stream.id, None)

    def _opened(self, *, resumed: bool) -> None:
        self._redial_wait_s = REDIAL_MIN_S
        if self._warned:
            self._warned = False
            _log.warning("the gateway at %s is back", self.address)
        if resumed:
            return
        self._sent_functions.clear()
        self._calls_out = self._bytes_out = 0
        for stream in self._streams.values():
            stream.send_again()
            stream.opening = replace(stream.opening, again=True)
            self._open(stream)
        for question, _ in self._requests.values():
            self._dialogue.post(question)

    def _open(self, stream: Stream) -> None:
        digest = stream.opening.function
        if digest not in self._sent_functions:
            self._sent_functions.add(digest)
            self._dialogue.post(PutFunction(digest, self._functions[digest]))
        self._dialogue.post(stream.opening)
        self._sending[stream.id] = stream

    # --- what users do -------------------------------------------------------------------------

    def open_stream(self, opening: OpenJob, function: SealedFunction) -> Stream:
        """Begin a job."""
        self._check_usable()
        if len(function.body) > self.welcome.message_bytes_max - 4096:
            raise SerializationError(
                f"function {function.name} is {len(function.body):,} bytes when pickled; the "
                f"gateway takes {self.welcome.message_bytes_max:,}: does it carry data along?"
            )
        MESSAGES.encode(opening)  # what can't travel must fail here, and leave nothing behind
        with self._lock:
            self._functions[function.digest] = function.body
            stream = Stream(opening, self._resolved)
            self._streams[stream.id] = stream
            self._open(stream)
        return stream

    def submit(self, stream: Stream, payload: bytes, future: Any) -> int:
        """Add a call to a job; sent at once when the window allows."""
        self.check_size(payload)
        with self._lock:
            if self.error is not None:
                raise self.error
            number = stream.submit(payload, future)
            self._sending[stream.id] = stream
            session = self._dialogue.session
            if session is not None and session.has_room:
                self.transmit()
        return number

    def extend(self, stream: Stream, arguments: list[bytes]) -> Chunk:
        """Add many calls to a job."""
        with self._lock:
            chunk = stream.extend(arguments)
            self._sending[stream.id] = stream
            self.transmit()
        return chunk

    def close_stream(self, stream: Stream) -> None:
        """No more calls will come."""
        with self._lock:
            if not stream.closed and not stream.rejected:
                stream.closed = True
                if stream.id not in self._sending:
                    self._maybe_close(stream)
                self.transmit()

    def check_size(self, payload: bytes) -> None:
        """Refuse arguments that the gateway would not take."""
        limit = self.welcome.message_bytes_max - 4096
        if len(payload) > limit:
            raise SerializationError(
                f"the arguments are {len(payload):,} bytes when pickled; the gateway takes "
                f"{limit:,}: pass a path to the data, or split it"
            )

    def cancel(
        self, stream: Stream, ranges: list[Range], *, stop: bool, timeout_s: float | None = None
    ) -> list[Range]:
        """Take back calls; return those that were. Waits for the gateway's answer, if so long."""
        with self._lock:
            taken = self._cancel_unsent(stream, ranges)
        question = Cancel(0, stream.id, [list(pair) for pair in ranges], stop)
        answer = self._request_answer(question, timeout_s)
        if answer is not None and not answer.code:
            taken += [(low, high) for low, high in answer.value["taken"]]
        with self._lock:
            self._take(stream, stream.end(taken, Ended("cancelled", "cancelled by this client")))
            self._settle()
        return taken

    def _cancel_unsent(self, stream: Stream, ranges: list[Range]) -> list[Range]:
        taken = []
        for chunk in list(stream.waiting):
            for low, high in ranges:
                first, stop = max(low, chunk.first), min(high, chunk.stop)
                if first < stop:
                    taken.append((first, stop))
        self._take(stream, stream.end(taken, Ended("cancelled", "cancelled by this client")))
        return taken

    def cancel_job(self, job: str, *, stop: bool) -> int:
        """Cancel a whole job by its id; how many tasks were taken back or stopped."""
        self._check_usable()
        answer = self._request_answer(Cancel(0, job, [], stop))
        if answer is None:
            raise self.error or GatewayUnreachable(f"the gateway at {self.address} is gone")
        if answer.code:
            raise JobNotFound(answer.reason)
        return sum(stop - first for first, stop in answer.value["taken"])

    def abandon(self, stream: Stream) -> None:
        """Stop a job whose results nobody will read, without waiting. Safe in a finaliser."""
        self._abandoned.append(stream)
        self._wake()  # whoever leads next does it: a finaliser may run in the middle of anything

    def _drop(self, stream: Stream) -> None:
        self._streams.pop(stream.id, None)
        self._sending.pop(stream.id, None)
        self._take(stream, stream.end_all(Ended("cancelled", "nobody reads it")))
        self._dialogue.post(Cancel(0, stream.id, [], True))
        self._dialogue.post(CloseJob(stream.id, stream.total))

    def ask(self, verb: str, details: dict[str, Any], timeout_s: float | None = None) -> Any:
        """Ask the gateway; return the answer's value. Raises what its code says."""
        self._check_usable()
        answer = self._request_answer(Ask(0, verb, details), timeout_s)
        if answer is None:
            raise self.error or GatewayUnreachable(f"the gateway at {self.address} is gone")
        if answer.code == Reason.JOB_NOT_FOUND:
            raise JobNotFound(answer.reason)
        if answer.code:
            raise GridError(answer.reason)
        return answer.value

    def _request_answer(self, question: Any, timeout_s: float | None = None) -> Answer | None:
        with self._lock:
            self._request += 1
            number = self._request
            asked = _numbered(question, number)
            answers: list[Answer] = []
            self._requests[number] = asked, answers
            self._dialogue.post(asked)
            self.transmit()
        try:
            self.drive(lambda: bool(answers), timeout_s)
        finally:
            with self._lock:
                del self._requests[number]
        return answers[0] if answers else None

    def wait_kept(self, stream: Stream) -> None:
        """Wait until a detached job is whole on the gateway's disk."""

        def is_kept() -> bool:
            kept = self._kept.get(stream.id)
            return stream.rejected or (kept is not None and kept.closed)

        self.drive(is_kept)
        with self._lock:
            self._kept.pop(stream.id, None)
            self._streams.pop(stream.id, None)

    @property
    def unfinished(self) -> int:
        """Calls that have not ended."""
        return sum(stream.unfinished for stream in self._streams.values())

    @property
    def streams(self) -> list[Stream]:
        """The jobs that are not over."""
        return list(self._streams.values())

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcessError(
                "this client belongs to the process that this one was forked from. Make a new "
                'Client in a child started by multiprocessing.get_context("spawn").'
            )

    def _check_usable(self) -> None:
        self._check_process()
        if self.closed or self.shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self.error is not None:
            raise self.error

    def wind_up(self, *, cancel: bool, on_cancelled: Callable[[], object] = lambda: None) -> None:
        """Take back what has not started, if asked to, wait for the rest, and close."""
        for stream in self.streams:
            if cancel:
                self.cancel(stream, [(0, stream.total)], stop=False)
            self.close_stream(stream)
        on_cancelled()
        self.drive(lambda: self.unfinished == 0)
        self.close()

    def wind_up_later(self, *, cancel: bool) -> None:
        """As `wind_up`, but return once what can be is cancelled, or after LEAVE_S."""
        cancelled = threading.Event()
        threading.Thread(
            target=self.wind_up,
            kwargs={"cancel": cancel, "on_cancelled": cancelled.set},
            name="gridfed-close",
            daemon=True,
        ).start()
        cancelled.wait(LEAVE_S)

    def close(self) -> None:
        """Say goodbye and let go of everything. Idempotent, and safe in a forked child."""
        if os.getpid() != self._pid or self.closed:
            return
        self._leaving = True
        with self._lock:
            for stream in self.streams:
                self.close_stream(stream)
            self._dialogue.post(Bye("done"))
        self.drive(self._is_said, LEAVE_S)
        with self._turn:
            for stream in self.streams:
                self._take(stream, stream.end_all(Ended("cancelled", "the client was closed")))
            self._settle()
            self.closed = True
            self._turn.notify_all()
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(LEAVE_S)
        self._release()

    def let_go(self) -> None:
        """End at once, without a goodbye: the gateway finds out by itself. Waits for nothing."""
        self.closed = True
        self._wake()

    def _is_said(self) -> bool:
        session = self._dialogue.session
        return session is None or session.is_idle or not self._dialogue.is_open

    def _release(self) -> None:
        with self._lock:
            self.closed = True
            if self._link is not None:
                self._link.close()
                self._link = None
            if self._wake_write >= 0:
                os.close(self._wake_read)
                os.close(self._wake_write)
                self._wake_read = self._wake_write = -1


def _numbered(question: Any, number: int) -> Any:
    if isinstance(question, Ask):
        return Ask(number, question.verb, question.details)
    return Cancel(number, question.job, question.ranges, question.stop)


def _show(text: str) -> None:
    """Print what a task has printed, if this process can."""
    try:
        show(text)
    except (OSError, ValueError) as error:
        _log.warning("what a task has printed can't be shown: %s", error)


def resolve(future: Any, outcome: Outcome) -> None:
    """Give a future its outcome; one that was cancelled meanwhile stays so."""
    try:
        if type(outcome) is bytes:
            try:
                value = open_result(outcome)
            except SerializationError as error:
                future.finish(None, error)
            else:
                future.finish(value, None)
        elif isinstance(outcome, Ended) and outcome.kind == "cancelled":
            if future.cancelled() or Future.cancel(future):
                future.set_running_or_notify_cancel()
        elif isinstance(outcome, Ended):
            future.finish(None, exception_of(outcome))
    except InvalidStateError:
        return  # it was resolved already: exactly once is kept


def exception_of(ended: Ended) -> BaseException:
    """The exception that a failed call raises in the client."""
    if ended.kind.startswith("refused"):
        _, _, code = ended.kind.partition(":")
        return JobRefused(ended.text, code or "refused") if code else SessionRefused(ended.text)
    if ended.payload:
        try:
            error = open_result(ended.payload)
        except SerializationError:
            error = None
        if isinstance(error, BaseException):
            error.__cause__ = RemoteTraceback(ended.text)
            return error
    return FAILURES.get(ended.kind, FAILURES["error"])(ended.text)
