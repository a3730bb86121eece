"""The client's engine: one session with a gateway, driven by the calling threads.

There is no event loop. Under a lock, `drain` takes the frames that have arrived, places them in the
books, and sends the messages that may go.

    submit ─► streams ─► drain, transmit ─► dialling.connection ══► gateway
    futures ◄─ leading ◄─ streams ◄─ drain ◄─ dialling.connection

- `leading` decides which thread waits on the socket, and resolves futures outside the lock.
- `books` are pure: the jobs, and the questions that await an answer.
- `requests` and `cancelling` are for threads that ask the gateway something and wait.
"""

import logging
import os
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final

from federation.clocks import MonoS
from federation.engine.books.jobs import JobTable
from federation.engine.books.requests import RequestTable
from federation.engine.books.streams import ENVELOPE_BYTES, ClientBundle, Ended, Stream
from federation.engine.cancelling import Cancels
from federation.engine.dialling.connection import Connection
from federation.engine.dialling.gateways import GatewayLoss, Itinerary
from federation.engine.dialling.settings import Holder
from federation.engine.futures import screen
from federation.engine.graph_calls import GraphCalls
from federation.engine.leading import Leading
from federation.engine.left_results import Arrived, ResultFetcher
from federation.engine.nested.background import BackgroundHelp
from federation.engine.nested.own_calls import OwnCalls
from federation.engine.objects import ClientObjects
from federation.engine.requests import Requests
from federation.errors import (
    GatewayUnreachable,
    GridError,
    ProtocolError,
    SerializationError,
    SessionRefused,
)
from federation.ids import new_id
from federation.messages.messages import (
    Answer,
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
    RejectJob,
    Results,
    SendAgain,
)
from federation.messages.printed import joined, stream_of
from federation.objects.labels import told_label
from federation.objects.open_calls import SealedCall
from federation.objects.references import any_has_references
from federation.payload import SealedFunction
from federation.sessions.credentials import is_here
from federation.sessions.handshake import PASSING_REFUSALS, Dialogue, Opened
from federation.sessions.task_passes import ABOUT
from federation.transport import TlsSettings

if TYPE_CHECKING:
    from federation.engine.mapping import Feeder

REFUSED_S: Final = 1.0  # how long it is tried by default where all addresses are refused
IDLE_S: Final = 10.0  # a job that gets no call from submit is closed after one or two of these
LEAVE_S: Final = 2.0  # the longest time for a goodbye


_log = logging.getLogger("gridfed")


class ClientEngine:
    """One session at a time, with one of several gateways.

    Args:
        itinerary, origin: the gateways to dial, and the source of their addresses, for messages.
        holder, tls: the credentials for the gateway.
        connect_timeout_s: how long the first connection may take.
        waits_refused: whether that holds where each host says that nothing listens there, too.
        certificate_names: the names that certificates must have in place of the host, by address.

    Attributes:
        cancels: cancels calls and jobs.
        own_calls: takes calls of a task back, and runs them in it.
        background: does so for waits that can't.
        is_of_task: whether a task of the grid has this client.
        has_said_why: whether it has said, as a task's, why its calls wait.
        objects: the objects that this client has put, and refers to.
        drive: lead, or wait for the leader, until a condition holds; False when `timeout_s` runs
            out, or the engine ends, first.
        is_near: whether files can be handed to the gateway, and from it.
        session_number: the sessions that were opened; each loses the objects of the last.
        site: the site of the current gateway; "" before the first session.
        shut: whether no new work is taken.
        error, failed: why everything has failed, and how many calls have.
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
        self.futures_lock = threading.RLock()  # see federation.engine.futures.TaskFuture
        self._leaving = False  # has said goodbye, or is about to
        self.closed = False
        self.shut = False
        self.error: GridError | None = None
        self.failed = 0
        self._feeders: dict[str, Feeder] = {}
        self._sweep_at_s = MonoS(0.0)
        self.is_near = False
        self.session_number = 0
        self.is_of_task = ABOUT in holder.about
        self.has_said_why = False
        self._let_go: deque[tuple[str, bytes]] = deque()
        self._refusal: SessionRefused | None = None  # the last temporary refusal
        self.site = ""
        self._own_sites: set[str] = set()  # the sites of the gateways that the user named
        name = f"{os.path.basename(sys.argv[0]) or 'python'}-{os.getpid()}"[:200]
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
        self._leading = leading = Leading(self, self._line)
        self.drive = leading.drive
        self._jobs = JobTable(self._dialogue, itinerary, leading.resolved, new_id)
        self._table = RequestTable(self._dialogue)
        self._requests = Requests(leading, self._table, self._dialogue, itinerary)
        self.cancels = Cancels(leading, self._jobs, self._dialogue, self._requests, self._table)
        self.own_calls = OwnCalls(leading, self._jobs, self._table)
        self.background = BackgroundHelp(self)
        self._graph_calls = GraphCalls(self, self._jobs, self._dialogue)
        self.objects = ClientObjects(self, self._let_go_of)
        self._fetcher = ResultFetcher(self._session, self._place_fetched)
        itinerary.begin(MonoS(time.monotonic()), connect_timeout_s)
        try:
            self._line.dial()
            self._connect(origin, connect_timeout_s, waits_refused=waits_refused)
        except BaseException:
            self._release()
            raise
        self._thread = threading.Thread(target=leading.serve, name="gridfed", daemon=True)
        self._thread.start()

    def _connect(self, origin: str, timeout_s: float, *, waits_refused: bool) -> None:
        missing = self._line.is_missing
        reached = not missing and self._wait_open(timeout_s, waits_refused=waits_refused)
        if self.error is not None:
            raise self.error
        if not reached and self._refusal is not None:
            raise self._refusal
        if not reached:
            raise GatewayUnreachable(self._line.explain_silence(origin))

    def _wait_open(self, timeout_s: float, *, waits_refused: bool) -> bool:
        """Wait for a session; not for long where each host says that nothing listens there.

        With `waits_refused` all the time is waited for: the gateway may be about to start.
        """

        def is_open() -> bool:
            return self._dialogue.is_open

        if waits_refused or timeout_s <= REFUSED_S:
            return self.drive(is_open, timeout_s)
        if self.drive(is_open, REFUSED_S):
            return True
        if self.error is not None or (self._refusal is None and self._line.is_refused):
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

    # --- the connection ------------------------------------------------------------------------

    def _hang_up(
        self, loss: GatewayLoss, mono_s: MonoS, since_s: MonoS, *, by_us: bool = False
    ) -> None:
        is_missed = bool(self._jobs.streams) and not (by_us or self._leaving)
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
            self._jobs.end(stream, Ended(kind, str(error)))

    def drain(self) -> bool:
        """Take the frames that have arrived and send the messages that may go; True if any came.

        The lock is held.
        """
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
        self.cancels.post_abandoned()
        self._post_let_go()
        self._graph_calls.post_again()
        if mono_s >= self._sweep_at_s:
            self._sweep_at_s = mono_s + IDLE_S
            self._jobs.sweep()
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
        self._jobs.sender.fill(self._dialogue)
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
                question = self._table.hear(message)
                if isinstance(question, Cancel):
                    # Here, not in the thread that asked: the next message may be the job's end.
                    self._jobs.hear_cancelled(question, message)
            case Dropped():
                self._jobs.hear_dropped(message)
            case RejectJob():
                self._jobs.hear_rejected(message, moves=self.takes_work)
            case NeedFunction(digest):
                self._jobs.put_function(digest)
            case Kept():
                self._jobs.hear_kept(message)
            case SendAgain():
                self._graph_calls.hear(message)
            case HoldChanged():
                self._jobs.hear_hold(message, self.site)
            case Gateways() | Bye():
                self._hear_of_gateways(message)
            case _:
                pass  # Unknown, of an older gateway: the important ones were refused by name

    def _hear_of_gateways(self, message: Gateways | Bye) -> None:
        if isinstance(message, Gateways):
            self._line.learn(message.others)
            return
        mono_s = MonoS(time.monotonic())
        self._hang_up(GatewayLoss.ABSENT, mono_s, mono_s)

    def _hear_results(self, message: Results) -> None:
        stream = self._jobs.find(message.job)
        if stream is None:
            return
        sites, trusted = [*message.sites, *self.strangers], self.holder.trusted_sites
        outcomes = screen(message.values, message.failures, sites, trusted)
        if stream.opening.prints:  # otherwise output was not asked for
            printed = joined(message.prints, message.streams)
            self._leading.printed += [(row[1], stream_of(row)) for row in printed]
        if message.label:
            stream.told_label = told_label(message.label).words
        if message.left:
            self.objects.arrived(outcomes, stream.opening.project, stream.label)
            self._fetcher.add(Arrived(stream, message.first, outcomes))
            return
        failed = bool(message.failures) or (bool(sites) and trusted is not None)
        placed = stream.place(message.first, outcomes, failed=failed)
        self._jobs.take(stream, placed)

    def _session(self) -> int | None:
        """Return the number of the session, 0 while there is none; None: there will be none."""
        if self.closed or self.error is not None:
            return None
        return self.session_number if self._dialogue.is_open else 0

    def _place_fetched(self, arrived: Arrived, lost: list[int], text: str) -> None:
        """Give calls the outcomes that were fetched, and run those again whose results were lost.

        In the thread that fetches.
        """
        stream, first = arrived.stream, arrived.first
        with self._leading.lock:
            if self._session() is None or self._jobs.find(stream.id) is None:
                return
            again = self._jobs.repeat(stream, [first + at for at in lost], near=self.is_near)
            text = "" if again else text
            self._jobs.place_fetched(stream, first, arrived.outcomes, lost, text)
            self.transmit()
            self._leading.settle()
            self._leading.notify()
        self._leading.wake()

    def _opened(self, opened: Opened) -> None:
        self.site = opened.site
        self.is_near = is_here(self.welcome.place)
        if self.address in self._line.itinerary.own:
            self._own_sites.add(opened.site)
        if not opened.resumed:
            self._jobs.check_fit()
            self._graph_calls.check_fit()
        self._line.opened()
        self._refusal = None
        if opened.resumed:
            return
        self.session_number += 1
        self._let_go.clear()
        self._graph_calls.restart()
        self._jobs.restart(near=self.is_near)
        if not self.objects.is_idle or self._jobs.paused:
            back = threading.Thread(
                target=self._return_to_objects,
                args=(self.session_number,),
                name="gridfed-objects",
                daemon=True,
            )
            back.start()
        self._table.restart(self.address, self._jobs.taken_back)

    def _return_to_objects(self, session: int) -> None:
        """Hold in a new session what was held in the last one, then send the calls that need it.

        In a thread of its own: it asks the gateway, and puts again what is lost.
        """
        with self._leading.lock:
            used = [lease for each in self._jobs.paused for lease in each.leases().values()]
        try:
            lost = self.objects.come_back(session, used)
        except GridError:
            return  # no session: the next one begins anew; or this client has ended
        with self._leading.lock:
            if session != self.session_number or self.closed:
                return
            self._jobs.resume(lost)
            self.transmit()
            self._leading.settle()
            self._leading.notify()
        self._leading.wake()

    # --- calls by users ------------------------------------------------------------------------

    def open_stream(self, opening: OpenJob, function: SealedFunction) -> Stream:
        """Open a job. Raises SerializationError if its function is too large for the gateway."""
        self.check_usable()
        with self._leading.lock:
            return self._jobs.open(opening, function)

    def filling(
        self, key: Hashable, function: SealedFunction, opening: Callable[[], OpenJob]
    ) -> Stream:
        """Return the open job for calls of this kind; open one if there is none."""
        self._leading.check_process()
        with self._leading.lock:
            self.check_usable()
            return self._jobs.fill(key, function, opening)

    def submit(self, stream: Stream, payload: SealedCall, future: Any) -> bool:
        """Add a call to a job, and send it at once if the window allows.

        Returns False if the job takes no more calls: it was unused and closed, or it has ended.
        """
        self.check_size(payload)
        # As has_references tells: here it is on the way of every call.
        leases = self.objects.leases_for([payload], stream.opening) if not payload[0] else None
        waits = leases is not None and self._graph_calls.check([payload], detached=False)
        self._leading.check_process()  # before the lock, which a thread lost in a fork may hold
        with self._leading.lock:
            if self.closed or self.shut or self.error is not None:
                self.check_usable()
            if stream.closed or stream.rejection is not None:
                return False
            number = stream.submit(payload, future, leases)
            future.placed(stream, number)
            self._jobs.sender.add(stream)
            session = self._dialogue.session
            if session is not None and session.has_room:
                self.transmit()
                if waits:
                    self._leading.settle()  # an input may have failed
        return True

    def extend(
        self, stream: Stream, arguments: list[SealedCall], *, late: bool = False
    ) -> ClientBundle:
        """Add many calls to a job; `late` ones are accepted even after shutdown."""
        self._leading.check_process()
        refers = any_has_references(arguments)
        leases = self.objects.leases_for(arguments, stream.opening) if refers else None
        waits = refers and self._graph_calls.check(arguments, detached=stream.opening.detached)
        with self._leading.lock:
            self.check_usable(late=late)
            bundle = stream.extend(arguments, leases, has_open=waits)
            self._jobs.sender.add(stream)
            self.transmit()
        return bundle

    def _let_go_of(self, project: str, digest: bytes) -> None:
        """Tell the gateway, soon, that this session needs an object no more.

        Safe in a finaliser. Does nothing in a forked child.
        """
        if self.is_foreign or self.closed:
            return
        self._let_go.append((project, digest))
        self._leading.wake()

    def close_stream(self, stream: Stream) -> None:
        """Close a job to new calls. Does nothing in a forked child."""
        if self.is_foreign:
            return
        with self._leading.lock:
            self._jobs.close(stream)
            self.transmit()

    def check_size(self, payload: SealedCall) -> None:
        """Refuse arguments that are too large for the gateway."""
        limit = self.welcome.message_bytes_max - ENVELOPE_BYTES
        if len(payload) > limit:
            raise SerializationError(
                f"the arguments have {len(payload):,} bytes when pickled; the limit of the "
                f"gateway is {limit:,}: write a large value once with `client.put` and pass its "
                "reference, pass a path to the data, or split the data"
            )

    def ask(
        self,
        verb: str,
        details: dict[str, Any],
        timeout_s: float | None = None,
        at: str = "",
        *,
        late: bool = False,
    ) -> Any:
        """Send the gateway a request; return the answer's value, or raise the error of its code.

        With `at`, only the gateway of that address may answer: GatewayUnreachable when this client
        goes to another before it has answered. With `late`, also where no new work is taken.
        """
        self.check_usable(late=late)
        return self._requests.ask(verb, details, timeout_s, at)

    def wait_kept(self, stream: Stream) -> None:
        """Wait until all of a detached job is on the gateway's disk."""
        self.drive(lambda: self._jobs.is_kept(stream))
        with self._leading.lock:
            self._jobs.forget_kept(stream)

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
        return self._jobs.attached(job) is not None

    def feed_unattended(self) -> None:
        """Feed the maps that were dropped unread, outside the lock."""
        for feeder in self.feeders if self._feeders else ():
            while feeder.is_unattended and feeder.feed_on():
                pass

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
        with self._leading.lock:
            self._line.itinerary.hurry(MonoS(time.monotonic()))

    @property
    def streams(self) -> list[Stream]:
        """The unfinished jobs."""
        return self._jobs.streams

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from the one that owns the connection."""
        return self._leading.is_foreign

    @property
    def takes_work(self) -> bool:
        """Whether new calls are taken; `check_usable` raises the reason if not."""
        return not self.closed and not self.shut and self.error is None

    def check_usable(self, *, late: bool = False) -> None:
        """Raise the reason if no new calls are taken; `late` ones are, after shutdown."""
        self._leading.check_process()
        if self.closed or (self.shut and not late):
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Say goodbye and release all resources. Idempotent, and safe in a forked child."""
        if self.is_foreign or self.closed:
            return
        self._leaving = True
        with self._leading.lock:
            for stream in self.streams:
                self.close_stream(stream)
            self._dialogue.post(Bye("done"))
        self.drive(self._is_said, LEAVE_S)
        with self._leading.lock:
            self.end_all()
            self._leading.settle()
            self.let_go()
            self._leading.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(LEAVE_S)
        self._release()

    def end_all(self) -> None:
        """End every call that is left, so that no future stays pending. The lock is held."""
        for stream in self.streams:
            self._jobs.end(stream, Ended("cancelled", "the client was closed"))

    def let_go(self) -> None:
        """End at once, without a goodbye: the gateway will detect it. Waits for nothing."""
        self.closed = True
        self._leading.end()

    def _is_said(self) -> bool:
        session = self._dialogue.session
        return session is None or session.is_idle or not self._dialogue.is_open

    def _release(self) -> None:
        self.objects.close()
        with self._leading.lock:
            self.closed = True
            self._line.close()
