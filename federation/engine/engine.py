"""The client's engine: one session with a gateway, driven by the calling threads.

There is no event loop. Under a lock, `_drain` takes the frames that have arrived, lets the pure
books (federation.engine.books) place them, and sends the messages that may go. Waiting on the
socket happens outside the lock, by one thread at a time, the *leader*:

- A thread that waits for a result of a map or a future leads by itself. If a second thread did the
  work, each of its calls into nng would wait up to 5 ms for the interpreter while the first is
  busy, and that decides throughput.
- A daemon thread leads when no other thread does, so that futures resolve, heartbeats are sent and
  a lost gateway is dialled again while the user's code is busy elsewhere.

federation.engine.dialling owns the pipes, and decides which gateway is dialled. Futures are
resolved outside the lock: their callbacks may call any method here.
"""

import logging
import os
import secrets
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from federation.address import USUAL_ORIGIN
from federation.clocks import MonoS
from federation.engine.books.shelves import FunctionShelf, StreamShelf
from federation.engine.books.streams import (
    BundleSender,
    ClientBundle,
    Ended,
    Outcome,
    Placed,
    Stream,
)
from federation.engine.dialling.connection import Connection
from federation.engine.dialling.gateways import GatewayLoss, Itinerary
from federation.engine.futures import resolve_all, screen, show
from federation.engine.objects import ClientObjects
from federation.errors import (
    GatewayUnreachable,
    GridError,
    JobNotFound,
    ProtocolError,
    SerializationError,
    SessionRefused,
)
from federation.ids import new_id
from federation.messages.messages import (
    MESSAGES,
    Answer,
    Ask,
    Bye,
    Cancel,
    Dropped,
    Gateways,
    Hello,
    HoldChanged,
    Kept,
    LetGo,
    NeedFunction,
    OpenJob,
    PutFunction,
    RejectJob,
    Results,
)
from federation.messages.printed import joined, stream_of
from federation.objects.left import AUTO
from federation.objects.references import any_has_references, references_of
from federation.offers import read_offers
from federation.payload import SealedFunction
from federation.ranges import Range, RangeSet
from federation.reasons import Reason
from federation.sessions.credentials import is_here
from federation.sessions.handshake import PASSING_REFUSALS, Dialogue, Opened, SharedSecret
from federation.sessions.nng import ANSWERS_NOT, ForkedProcessError, explain_silence, is_refused
from federation.sessions.task_passes import ABOUT, read_pass
from federation.transport import TlsSettings
from federation.words import size_text

if TYPE_CHECKING:
    from federation.engine.mapping import Feeder

REFUSED_S: Final = 1.0  # how long it is tried by default where all addresses are refused
PARK_S: Final = 0.05  # the daemon leads after this long without another leader
POLL_MAX_S: Final = 0.5
ENVELOPE_BYTES: Final = 4096  # room in a message beside its one large payload
IDLE_S: Final = 10.0  # a job that gets no call from submit is closed after one or two of these
LEAVE_S: Final = 2.0  # the longest time for a goodbye
_CANCELLED: Final = Ended("cancelled", "cancelled by this client")
_ELSEWHERE: Final = "elsewhere"  # the code of a request to a gateway that the client has left

_log = logging.getLogger("gridfed")
_here = os.getpid()  # read once in each process, not at every submit

os.register_at_fork(after_in_child=lambda: globals().update(_here=os.getpid()))


@dataclass(frozen=True, slots=True)
class Holder:
    """The identity of a client, and the sites that it trusts.

    Args:
        user: the user to bill; a token's user takes precedence.
        secret: the secret that the gateway may ask for.
        token: a token signed by the gateway's site, or by one whose users it admits; or a task's
            pass (federation.sessions.task_passes); or empty.
        trusted_sites: see federation.client.Client; None trusts all results that the gateway passes
            on.
    """

    user: str
    secret: str = ""
    token: str = ""
    trusted_sites: frozenset[str] | None = None

    @property
    def about(self) -> dict[str, Any]:
        """The `about` field of the hello."""
        if (found := read_pass(self.token)) is not None:
            return {ABOUT: found.subject}
        return {"token": self.token} if self.token else {}

    @property
    def credentials(self) -> SharedSecret:
        """The credentials with which the client proves itself."""
        found = read_pass(self.token)
        return SharedSecret(self.secret) if found is None else found.credentials

    @property
    def bears_token(self) -> bool:
        """Whether its hello holds a token, which any reader could use."""
        return "token" in self.about


class ClientEngine:
    """One session at a time, with one of several gateways.

    Args:
        itinerary, origin: the gateways to dial, and the source of their addresses, for messages.
        holder, tls: the credentials for the gateway.
        connect_timeout_s: how long the first connection may take.
        waits_refused: whether that holds where each host says that nothing listens there, too.
        certificate_names: the names that certificates must have in place of the host, by address.
    """

    def __init__(
        self,
        itinerary: Itinerary,
        origin: str,
        *,
        holder: Holder,
        tls: TlsSettings,
        connect_timeout_s: float,
        waits_refused: bool = False,
        certificate_names: Mapping[str, str] | None = None,
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
        self._over = threading.Event()  # the same, for the daemon while it pauses
        self.shut = False  # takes no new work
        self.error: GridError | None = None
        self.failed = 0  # calls that ended with `error`
        self._streams: dict[str, Stream] = {}
        self._feeders: dict[str, Feeder] = {}
        self._sender = BundleSender(self._forget_if_over)
        self._filling = StreamShelf()
        self._sweep_at_s = MonoS(0.0)
        self._functions = FunctionShelf()
        self._sent_functions: set[bytes] = set()
        self._requests: dict[int, tuple[Any, list[Answer], str]] = {}
        self._request = 0
        self._kept: dict[str, Kept] = {}
        self._resolved: deque[tuple[Any, Outcome]] = deque()
        self.objects = ClientObjects(self, self._let_go_of)
        self.is_near = False  # whether files can be handed to the gateway, and from it
        self.session_number = 0  # sessions that were opened; each loses the objects of the last
        self._let_go: deque[tuple[str, bytes]] = deque()
        self._abandoned: deque[tuple[Stream, Range | None, bool]] = deque()
        self._refusal: SessionRefused | None = None  # the last temporary refusal
        self._printed: list[tuple[str, int]] = []  # with the stream of each
        self.site = ""  # of the current gateway; "" before the first session
        self._own_sites: set[str] = set()  # the sites of the gateways that the user named
        name = f"{os.path.basename(sys.argv[0]) or 'python'}-{self._pid}"[:200]
        self._dialogue = Dialogue(
            hello=Hello([], "client", name, holder.user, b"", "", 0, holder.about),
            credentials=holder.credentials,
            random_bytes=secrets.token_bytes,
        )
        self._line = Connection(
            itinerary,
            self._dialogue,
            tls,
            bears_token=holder.bears_token,
            certificate_names=certificate_names,
        )
        itinerary.begin(MonoS(time.monotonic()), connect_timeout_s)
        try:
            self._line.dial()
            self._connect(origin, connect_timeout_s, waits_refused=waits_refused)
        except BaseException:
            self._release()
            raise
        self._thread = threading.Thread(target=self._serve, name="gridfed", daemon=True)
        self._thread.start()

    def _connect(self, origin: str, timeout_s: float, *, waits_refused: bool) -> None:
        own = self._line.itinerary.own
        missing = all(
            address.startswith("ipc://") and not os.path.exists(address.removeprefix("ipc://"))
            for address in own
        )
        reached = not missing and self._wait_open(own, timeout_s, waits_refused=waits_refused)
        if self.error is not None:
            raise self.error
        if not reached and self._refusal is not None:
            raise self._refusal
        if not reached:
            names = map(self._line.certificate_name, own)
            why = "; ".join(dict.fromkeys(map(explain_silence, own, names)))
            if ANSWERS_NOT in why:
                todo = "Name"
            elif origin == USUAL_ORIGIN:
                todo = "Start one with `gridfed up`, or name"
            else:  # the user named it: it runs elsewhere, or is to
                todo = "Check the address and whether it runs, or name"
            raise GatewayUnreachable(
                f"no gateway answers at {' or '.join(own)} ({origin}): {why}. {todo} "
                "another with Client(address), --gateway or $GRIDFED_GATEWAY."
            )

    def _wait_open(self, own: Sequence[str], timeout_s: float, *, waits_refused: bool) -> bool:
        """Wait for a session; not for long where each host says that nothing listens there.

        With `waits_refused` all the time is waited for: the gateway may be about to start.
        """

        def is_open() -> bool:
            return self._dialogue.is_open

        if waits_refused or timeout_s <= REFUSED_S:
            return self.drive(is_open, timeout_s)
        if self.drive(is_open, REFUSED_S):
            return True
        if self.error is not None or (self._refusal is None and all(map(is_refused, own))):
            return False
        return self.drive(is_open, timeout_s - REFUSED_S)

    @property
    def address(self) -> str:
        """The address of the gateway that has the session, or is being dialled."""
        return self._line.itinerary.address

    @property
    def welcome(self) -> Any:
        """The gateway's Welcome, with its limits."""
        return self._dialogue.welcome

    # --- leading -------------------------------------------------------------------------------

    def drive(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Lead, or wait for the leader, until `done()`; False when the time runs out first."""
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
            self._line.wake()  # the daemon yields; another driver just checks again
            self._turn.wait(at_most_s)
            return
        self._lead(at_most_s)

    def _lead(self, at_most_s: float) -> None:
        """Wait for frames to arrive and take them. The lock is held, except during the wait."""
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
            for text, stream in printed:
                show(text, stream)
            resolve_all(self._resolved)
        finally:
            self._lock.acquire()
            # Other threads that checked in the meantime have not seen these futures done. They may
            # now wait for the socket, or for the thread that waits for it.
            self._turn.notify_all()
            if self._leader is not None:
                self._line.wake()

    def _serve(self) -> None:
        """Run the daemon thread: lead when no other thread does."""
        while True:
            with self._turn:
                if self.closed:
                    self._end_all()
                    return
                parked = self._drivers > 0 or time.monotonic() - self._driven_s < PARK_S
                if not parked and self._leader is None:
                    try:
                        self._lead(POLL_MAX_S)
                    except BaseException:  # noqa: BLE001 - a callback's exit must not end it
                        if not self.closed:
                            _log.warning("a callback of a result failed", exc_info=True)
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

    def _hang_up(
        self, loss: GatewayLoss, mono_s: MonoS, since_s: MonoS, *, by_us: bool = False
    ) -> None:
        is_missed = bool(self._streams) and not (by_us or self._leaving)
        reason = self._line.hang_up(loss, mono_s, since_s, is_missed=is_missed)
        if reason:
            refusal = self._refusal if loss is GatewayLoss.UNWILLING else None
            self._fail(refusal or GatewayUnreachable(reason))

    def _fail(self, error: GridError) -> None:
        """End all jobs and stop dialling: no job can ever finish."""
        self.error = error
        self._line.stop()
        kind = "refused" if isinstance(error, SessionRefused) else "unreachable"
        for stream in self.streams:
            self.failed += stream.unfinished
            self._take(stream, stream.end_all(Ended(kind, str(error))))

    def _drain(self) -> bool:
        """Take the frames that have arrived and send the messages that may go; True if any came."""
        try:
            return self._exchange(MonoS(time.monotonic()))
        except BaseException:
            # Ctrl-C half way: it is unknown how much was done. Connect as a new client, and send
            # the calls without an outcome again; calls that ran already are not charged again.
            self._dialogue.start_over()
            mono_s = MonoS(time.monotonic())
            self._hang_up(GatewayLoss.GONE, mono_s, mono_s, by_us=True)
            raise

    def _exchange(self, mono_s: MonoS) -> bool:
        self._drop_abandoned()
        self._post_let_go()
        if mono_s >= self._sweep_at_s:
            self._sweep_at_s = mono_s + IDLE_S
            for stream in self._filling.sweep():
                self.close_stream(stream)
        line, link, arrived = self._line, self._line.link, False
        if link is None:
            fault = None if self.closed else line.redial(mono_s)
            if fault is not None:
                self._hang_up(fault, mono_s, mono_s)
            return False
        try:
            line.greet(link, mono_s)
            for frame in link.receive():
                arrived = True
                for message in self._dialogue.receive(frame, mono_s):
                    self._hear(message)
                if line.link is not link:
                    return True  # it said goodbye
        except SessionRefused as refusal:
            self._refused(refusal, mono_s)
            return True
        except ProtocolError as error:
            _log.warning("protocol error of the gateway: %s", error)
            self._hang_up(GatewayLoss.GONE, mono_s, mono_s)
            return True
        lost = line.find_loss(link, mono_s)
        if lost is not None:
            loss, since_s = lost
            self._hang_up(loss, mono_s, since_s)
            return True
        self.transmit()
        return arrived

    def _drop_abandoned(self) -> None:
        while self._abandoned:
            self._drop(*self._abandoned.popleft())

    def _post_let_go(self) -> None:
        while self._let_go:
            project, digest = self._let_go.popleft()
            if self._dialogue.session is not None:
                self._dialogue.post(LetGo(project, [digest]))

    def _refused(self, refusal: SessionRefused, mono_s: MonoS) -> None:
        """Handle a refusal by the gateway. If it is not temporary, only another can help."""
        self._refusal = refusal
        if refusal.code in PASSING_REFUSALS:
            self._hang_up(GatewayLoss.GONE, mono_s, mono_s)
            return
        if self._line.itinerary.has_others:
            _log.warning("the gateway at %s refuses this client: %s", self.address, refusal)
        self._hang_up(GatewayLoss.UNWILLING, mono_s, mono_s)
        if refusal.code == "expelled":
            self._fail(refusal)  # caused by this client: another gateway would expel it too

    def transmit(self) -> None:
        """Send the messages that may go now. The lock is held."""
        self._sender.fill(self._dialogue)
        if self._line.link is not None:
            self._dialogue.flush(self._line.link.send, MonoS(time.monotonic()))

    @property
    def strangers(self) -> list[str]:
        """The current site, if the user did not name its gateway but another gateway did."""
        return [self.site] if self.site and self.site not in self._own_sites else []

    # --- messages of the gateway ---------------------------------------------------------------

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
            case HoldChanged():
                if (held := self._streams.get(message.job)) is not None:
                    held.note_hold(message, self.address)
            case Gateways(others):
                self._line.learn(others)
            case Bye():
                mono_s = MonoS(time.monotonic())
                self._hang_up(GatewayLoss.ABSENT, mono_s, mono_s)
            case _:
                pass  # Unknown, of an older gateway: the important ones were refused by name

    def _hear_answer(self, answer: Answer) -> None:
        asked = self._requests.get(answer.request)
        if asked is None:
            return
        question, answers, _ = asked
        answers.append(answer)
        if isinstance(question, Cancel):
            # Do it here, not in the thread that asked: that thread may have stopped waiting, and
            # the next message may be the end of the job.
            del self._requests[answer.request]
            self._end_taken(question, answer)

    def _end_taken(self, question: Cancel, answer: Answer) -> None:
        """End the calls that a cancel of this client took back."""
        stream = self._attached(question.job)
        if stream is None:
            return
        if not answer.code:
            taken = [(low, high) for low, high in answer.value["taken"]]
            self._take(stream, stream.end(taken, _CANCELLED))
        elif answer.code == Reason.JOB_NOT_FOUND and not stream.paused:
            self._take(stream, stream.end_all(_CANCELLED))  # nothing of the job is left there

    def _hear_dropped(self, message: Dropped) -> None:
        stream = self._streams.get(message.job)
        if stream is None:
            return
        ended = Ended(message.failure, message.reason)
        known = [(low, high) for low, high in message.ranges if high <= stream.total]
        self._take(stream, stream.end(known, ended))
        if len(known) < len(message.ranges):
            self._close_to_calls(stream, ended)  # calls that were not sent yet are dropped, too

    def _hear_rejected(self, message: RejectJob) -> None:
        kept = self._kept.get(message.job)
        if kept is not None and kept.closed:
            return  # it has ended by now: the calls that were sent again rightly came too late
        stream = self._streams.get(message.job)
        if stream is None:
            return
        if message.code == Reason.JOB_NOT_FOUND and not stream.opening.detached:
            self._job_over(stream, message)
            return
        offers = read_offers(message.details)
        rejection = Ended(f"refused:{message.code}", message.reason, offers=offers)
        self._sender.drop(stream.id)
        self._forget(stream)
        stream.rejection = rejection
        self._take(stream, stream.end_all(rejection))

    def _job_over(self, stream: Stream, message: RejectJob) -> None:
        """Handle a job that had ended when calls of this client arrived.

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
            case _:  # an older gateway does not name the calls
                self._take(stream, stream.end_all(ended))

    def _move(self, stream: Stream, first: int, stop: int) -> None:
        """Submit calls again, to the open job of their kind or to a new one."""
        digest, opening = stream.opening.function, stream.opening
        body = self._functions.body(digest)
        leases = stream.leases()  # they must not be let go of meanwhile
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
                own = {each: leases[each] for each in references_of(payload)}
                future.placed(target, target.submit(payload, future, own))
        self._sender.add(target)
        self._take(stream, placed)

    def _close_to_calls(self, stream: Stream, ended: Ended) -> None:
        """Close the job to new calls, and end the unsent ones with this outcome.

        Its running calls continue. The gateway is not told: it has ended the job, or is asked to.
        """
        stream.closed = True
        self._sender.drop(stream.id)
        self._take(stream, stream.end_unsent(ended))

    def _hear_results(self, message: Results) -> None:
        stream = self._streams.get(message.job)
        if stream is None:
            return
        sites, trusted = [*message.sites, *self.strangers], self.holder.trusted_sites
        outcomes = screen(message.values, message.failures, sites, trusted)
        if stream.opening.prints:  # otherwise nobody asked for them
            printed = joined(message.prints, message.streams)
            self._printed += [(row[1], stream_of(row)) for row in printed]
        if message.left and not message.sites:
            self.objects.arrived(outcomes, stream.opening.project)
        failed = bool(message.failures) or (bool(sites) and trusted is not None)
        placed = stream.place(message.first, outcomes, failed=failed)
        self._take(stream, placed)

    def _hear_kept(self, message: Kept) -> None:
        stream = self._streams.get(message.job)
        if stream is not None:
            self._kept[message.job] = message
            self._take(stream, stream.end([(0, message.tasks)], Ended("kept", "")))

    def _take(self, stream: Stream, placed: Placed) -> None:
        self._sender.returned(placed)
        self._forget_if_over(stream)

    def _forget_if_over(self, stream: Stream) -> None:
        if stream.is_over:
            self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        if self._streams.pop(stream.id, None) is not None:
            gone = self._functions.release(stream.opening.function)
            self._sent_functions.difference_update(gone)

    def _opened(self, opened: Opened) -> None:
        self.site = opened.site
        self.is_near = is_here(self.welcome.place)
        if self.address in self._line.itinerary.own:
            self._own_sites.add(opened.site)
        if not opened.resumed:
            self._check_fit()
        self._line.opened()
        self._refusal = None
        if opened.resumed:
            return
        self.session_number += 1
        self._let_go.clear()
        self._sent_functions.clear()
        self._sender.restart()
        for stream in list(self._streams.values()):
            stream.send_again()
            if stream.opening.detached and stream.home not in ("", self.address):
                self._leave_behind(stream)
                continue
            results = stream.opening.results
            if results == AUTO and not self.is_near:
                results = ""
            stream.opening = replace(stream.opening, again=True, results=results)
            stream.paused = bool(stream.leases())
            if not stream.paused:
                self._open(stream)
        if not self.objects.is_idle or any(each.paused for each in self.streams):
            back = threading.Thread(
                target=self._return_to_objects,
                args=(self.session_number,),
                name="gridfed-objects",
                daemon=True,
            )
            back.start()
        for question, answers, at in list(self._requests.values()):
            taken = self._taken_back(question)
            if taken:
                answers.append(Answer(question.request, "", "", {"taken": taken}))
                del self._requests[question.request]
            elif at in ("", self.address):
                self._dialogue.post(question)
            else:
                answers.append(self._no_answer(question.request, at))

    def _return_to_objects(self, session: int) -> None:
        """Hold in a new session what was held in the last one, then send the calls that need it.

        In a thread of its own: it asks the gateway, and puts again what is lost.
        """
        with self._lock:
            used = [
                lease for each in self.streams if each.paused for lease in each.leases().values()
            ]
        try:
            lost = self.objects.come_back(session, used)
        except GridError:
            return  # no session: the next one begins anew; or this client has ended
        with self._turn:
            if session != self.session_number or self.closed:
                return
            for stream in [each for each in self.streams if each.paused]:
                stream.paused = False
                for digest, text in lost.items():
                    calls = stream.calls_with({digest})
                    self._take(stream, stream.end(calls, Ended("object", text)))
                if stream.id in self._streams:
                    self._open(stream)
            self.transmit()
            self._settle()
            self._turn.notify_all()
        self._line.wake()

    def _taken_back(self, question: Any) -> list[Range]:
        """Return the calls of a cancel that were never sent in the new session, and end them."""
        stream = self._attached(question.job) if isinstance(question, Cancel) else None
        if stream is None:
            return []
        asked = [(low, high) for low, high in question.ranges] or [(0, stream.total)]
        return self._cancel_unsent(stream, asked)

    def _check_fit(self) -> None:
        """Refuse a gateway that can't take the calls and functions made for another."""
        limit = self.welcome.message_bytes_max - ENVELOPE_BYTES
        streams = self._streams.values()
        largest = max((stream.arguments_max() for stream in streams), default=0)
        bodies = (self._functions.body(stream.opening.function) for stream in streams)
        largest = max(largest, max((len(body or b"") for body in bodies), default=0))
        if largest > limit:
            raise SessionRefused(
                f"the gateway at {self.address} accepts messages of at most {limit:,} "
                f"bytes; a pending call or function has {largest:,}",
                "limits",
            )

    def _leave_behind(self, stream: Stream) -> None:
        """Reject a detached job that was being submitted to a gateway that the client left.

        That gateway may have all or part of it; here it would be a second job.
        """
        self._forget(stream)
        self._sender.drop(stream.id)
        stream.rejection = Ended(
            "unreachable",
            f"the connection to the gateway at {stream.home} was lost while job {stream.id} "
            "was submitted, and the gateway may have the whole job: call client.job(id) "
            "when the gateway is back, before you submit the job again",
        )
        self._take(stream, stream.end_all(stream.rejection))

    def _open(self, stream: Stream) -> None:
        digest = stream.opening.function
        if digest not in self._sent_functions:
            self._sent_functions.add(digest)
            self._put_function(digest)
        self._dialogue.post(stream.opening_at(self.address))
        self._sender.add(stream)
        if self._dialogue.session is not None:
            stream.home = self.address

    def _put_function(self, digest: bytes) -> None:
        body = self._functions.body(digest)
        if body is not None:
            self._dialogue.post(PutFunction(digest, body))

    # --- calls by users ------------------------------------------------------------------------

    def open_stream(self, opening: OpenJob, function: SealedFunction) -> Stream:
        """Open a job."""
        self._check_usable()
        if len(function.body) > self.welcome.message_bytes_max - ENVELOPE_BYTES:
            raise SerializationError(
                f"function {function.name} has {len(function.body):,} bytes when pickled; "
                f"the limit of the gateway is {size_text(self.welcome.message_bytes_max)}: check "
                "whether the function captures data"
            )
        MESSAGES.encode(opening)  # encoding errors must surface here, and leave nothing behind
        with self._lock:
            self._functions.use(function)
            stream = Stream(opening, self._resolved)
            self._streams[stream.id] = stream
            self._open(stream)
        return stream

    def filling(
        self, key: Hashable, function: SealedFunction, opening: Callable[[], OpenJob]
    ) -> Stream:
        """Return the open job for calls of this kind; open one if there is none."""
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
        """Add a call to a job, and send it at once if the window allows.

        Returns False if the job takes no more calls: it was unused and closed, or it has ended.
        """
        self.check_size(payload)
        # As has_references tells: here it is on the way of every call.
        leases = self.objects.leases_for([payload], stream.opening) if not payload[0] else None
        if self._pid != _here:
            self._check_process()  # before the lock, which a thread lost in the fork may hold
        with self._lock:
            if self.closed or self.shut or self.error is not None:
                self._check_usable()
            if stream.closed or stream.rejection is not None:
                return False
            number = stream.submit(payload, future, leases)
            future.placed(stream, number)
            self._sender.add(stream)
            session = self._dialogue.session
            if session is not None and session.has_room:
                self.transmit()
        return True

    def extend(self, stream: Stream, arguments: list[bytes], *, late: bool = False) -> ClientBundle:
        """Add many calls to a job; `late` ones are accepted even after shutdown."""
        self._check_process()
        refers = any_has_references(arguments)
        leases = self.objects.leases_for(arguments, stream.opening) if refers else None
        with self._lock:
            self._check_usable(late=late)
            bundle = stream.extend(arguments, leases)
            self._sender.add(stream)
            self.transmit()
        return bundle

    def _let_go_of(self, project: str, digest: bytes) -> None:
        """Tell the gateway, soon, that this session needs an object no more.

        Safe in a finaliser. Does nothing in a forked child.
        """
        if self.is_foreign or self.closed:
            return
        self._let_go.append((project, digest))
        self._line.wake()

    def close_stream(self, stream: Stream) -> None:
        """Close a job to new calls. Does nothing in a forked child."""
        if self.is_foreign:
            return
        with self._lock:
            if not stream.closed and not stream.rejected:
                self._sender.close(stream, self._dialogue)
                self.transmit()

    def check_size(self, payload: bytes) -> None:
        """Refuse arguments that are too large for the gateway."""
        limit = self.welcome.message_bytes_max - ENVELOPE_BYTES
        if len(payload) > limit:
            raise SerializationError(
                f"the arguments have {len(payload):,} bytes when pickled; the limit of the "
                f"gateway is {limit:,}: write a large value once with `client.put` and pass its "
                "reference, pass a path to the data, or split the data"
            )

    def cancel(
        self, stream: Stream, ranges: list[Range], *, stop: bool, timeout_s: float | None = None
    ) -> list[Range]:
        """Cancel calls; return those that were. Waits up to `timeout_s` for the gateway."""
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
        for bundle in list(stream.waiting):
            for first, stop in bundle.unfinished():
                taken += asked.within(first, stop)
        self._take(stream, stream.end(taken, _CANCELLED))
        return taken

    def cancel_unstarted(self, stream: Stream) -> int:
        """Cancel the unstarted calls of a job; return their number."""
        if not stream.unfinished:
            return 0
        taken = self.cancel(stream, [(0, stream.total)], stop=False)
        return sum(stop - first for first, stop in taken)

    def _attached(self, job: str) -> Stream | None:
        """Return the job of this id, if this client has it, unfinished and not detached."""
        stream = self._streams.get(job)
        return None if stream is None or stream.opening.detached else stream

    def cancel_job(self, job: str, *, stop: bool, at: str = "") -> tuple[int, str]:
        """Cancel a whole job by its id.

        Return the number of tasks taken back or stopped, and the job's id, user and project as its
        gateway writes them (empty from an older gateway).

        For a job of this client, the calls that wait here count too. The job takes no more calls:
        the next `submit` opens another.
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
                self._sender.close(stream, self._dialogue)  # it continues, without more calls
            self._settle()
        if answer is None or answer.code == _ELSEWHERE:
            raise self._no_gateway(answer)
        if answer.code:
            raise JobNotFound(answer.reason)
        taken = sum(int(high) - int(low) for low, high in answer.value["taken"])
        return before + taken, str(answer.value.get("title", ""))

    def abandon(self, stream: Stream, calls: Range | None = None, *, stop: bool = False) -> None:
        """Cancel calls whose results are not needed, without waiting; by default a whole job.

        With `stop`, running calls too. Safe in a finaliser. Does nothing in a forked child: the job
        continues in the parent.
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
        """Hold the future of a call weakly: once nothing else refers to it, the call is cancelled.

        For a future whose wait was interrupted. A running call is stopped.
        """
        if self.is_foreign:
            return

        def to_weak(future: Any) -> Any:
            if isinstance(future, weakref.ref):
                return future  # its wait was interrupted before
            return weakref.ref(future, lambda _: self.abandon(stream, (task, task + 1), stop=True))

        with self._lock:
            stream.loosen(task, to_weak)

    def ask(
        self, verb: str, details: dict[str, Any], timeout_s: float | None = None, at: str = ""
    ) -> Any:
        """Send the gateway a request; return the answer's value, or raise the error of its code.

        With `at`, only the gateway of that address may answer: GatewayUnreachable when this client
        goes to another before it has answered.
        """
        self._check_usable()
        question = Ask(0, verb, details)
        try:
            data = MESSAGES.encode(question)
            MESSAGES.decode(data, len(data))  # otherwise the gateway would end the session
        except (ValueError, OverflowError, ProtocolError) as error:
            # Half a surrogate pair, a number of more than 64 bits, endlessly nested lists.
            raise GridError(f"{verb}: the message can't be sent: {error}") from None
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
        return self.error or GatewayUnreachable(
            f"the gateway at {self.address} can't be reached any more"
        )

    def _no_answer(self, number: int, at: str) -> Answer:
        reason = (
            f"the gateway at {at} can't be reached; this client is now connected to {self.address}"
        )
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
            # A cancel by this client is carried out even if its answer is not awaited.
            if not (isinstance(question, Cancel) and self._attached(question.job)):
                with self._lock:
                    self._requests.pop(number, None)
        return answers[0] if answers else None

    def _post_request(self, question: Any, at: str = "") -> tuple[int, list[Answer]]:
        """Send the gateway a request; the list takes its answer. The lock is held."""
        self._request += 1
        asked = replace(question, request=self._request)
        answers: list[Answer] = []
        self._requests[self._request] = asked, answers, at
        self._dialogue.post(asked)
        return self._request, answers

    def wait_kept(self, stream: Stream) -> None:
        """Wait until all of a detached job is on the gateway's disk."""

        def is_kept() -> bool:
            kept = self._kept.get(stream.id)
            return stream.rejected or (kept is not None and kept.closed)

        self.drive(is_kept)
        with self._lock:
            self._kept.pop(stream.id, None)
            self._forget(stream)

    @property
    def unfinished(self) -> int:
        """The number of calls that have not ended; other threads may end some meanwhile."""
        return sum(stream.unfinished for stream in self.streams)

    @property
    def is_idle(self) -> bool:
        """Whether nothing of this client is under way here: it may leave without a loss."""
        is_done = not self.unfinished and not self._feeders
        return self.takes_work and is_done and self.objects.is_idle

    def has_attached(self, job: str) -> bool:
        """Whether the job follows this client to other gateways, and is unfinished."""
        stream = self._streams.get(job)
        return stream is not None and not stream.opening.detached

    def attend(self, feeder: "Feeder") -> None:
        """Keep the feeder of a map until all of its inputs were sent, or are not wanted."""
        self._feeders[feeder.stream.id] = feeder

    def dismiss(self, feeder: "Feeder") -> None:
        """Release a feeder. Safe in a finaliser."""
        self._feeders.pop(feeder.stream.id, None)

    @property
    def feeders(self) -> "list[Feeder]":
        """The feeders of the unfinished maps."""
        return list(self._feeders.values())

    def hurry(self) -> None:
        """From now on give up a lost gateway after the time allowed before a failover."""
        with self._lock:
            self._line.itinerary.hurry(MonoS(time.monotonic()))

    @property
    def streams(self) -> list[Stream]:
        """The unfinished jobs."""
        return list(self._streams.values())

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from the one that owns the connection."""
        return self._pid != _here

    @property
    def takes_work(self) -> bool:
        """Whether new calls are taken; `_check_usable` raises the reason if not."""
        return not self.closed and not self.shut and self.error is None

    def _check_process(self) -> None:
        if self.is_foreign:
            raise ForkedProcessError(
                "this client was created in the parent process, before a fork. Create a "
                "new Client in the child, and start the child with "
                'multiprocessing.get_context("spawn").'
            )

    def _check_usable(self, *, late: bool = False) -> None:
        self._check_process()
        if self.closed or (self.shut and not late):
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Say goodbye and release all resources. Idempotent, and safe in a forked child."""
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
        """End every call that is left, so that no future stays pending. The lock is held."""
        for stream in self.streams:
            self._take(stream, stream.end_all(Ended("cancelled", "the client was closed")))
        self._settle()

    def let_go(self) -> None:
        """End at once, without a goodbye: the gateway will detect it. Waits for nothing."""
        self.closed = True
        self._line.wake()
        self._over.set()

    def _is_said(self) -> bool:
        session = self._dialogue.session
        return session is None or session.is_idle or not self._dialogue.is_open

    def _release(self) -> None:
        self.objects.close()
        with self._lock:
            self.closed = True
            self._line.close()
