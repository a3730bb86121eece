"""The client that users import: a concurrent.futures Executor with a grid for workers.

    with Client() as client:
        for result in client.map(price, scenarios): ...

`Client` keeps the whole contract of concurrent.futures.Executor, and adds options, detached jobs
and queries about the site. federation.engine.engine does the work.
"""

import atexit
import concurrent.futures
import contextlib
import hashlib
import os
import random
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Never, ParamSpec, TypeVar, cast, overload

from federation.address import (
    GATEWAY_VARIABLE,
    TOKEN_VARIABLE,
    NoToken,
    check_bearer,
    is_service,
    login,
)
from federation.address import resolve as resolve_address
from federation.clocks import CALENDAR_END_S, MonoS
from federation.engine.closing import drop, wind_up, wind_up_at_exit, wind_up_later
from federation.engine.dialling.client_file import ClientFile, read_client_file
from federation.engine.dialling.gateways import FAILOVER_S, Itinerary
from federation.engine.dialling.nearest import GatewayChoice, choose, measure
from federation.engine.dialling.resolver import find_candidates
from federation.engine.engine import CONNECT_S, LEAVE_S, ClientEngine, Holder
from federation.engine.environment_files import read_environment
from federation.engine.futures import exception_of, opened
from federation.engine.inquiries import is_running, why_waiting
from federation.engine.jobs import JobHandle, explanation
from federation.engine.mapping import Inputs, MapResults, feed_all
from federation.engine.objects import NAMED_S, LeftResult, ObjectRef
from federation.engine.streams import Ended, Stream
from federation.errors import GridError, JobRefused, ObjectRefused
from federation.ids import new_id
from federation.messages.environments import Environment, wrap
from federation.messages.messages import OpenJob
from federation.messages.objects import NAMED_MAX_S
from federation.money import parse_money
from federation.objects.left import CHOICES, REF, VALUE
from federation.offers import show_time
from federation.package_conflicts import check_owners
from federation.payload import SealedFunction, seal_call, seal_function
from federation.ranges import RangeSet
from federation.sessions.task_passes import is_pass
from federation.transport import TlsSettings
from federation.users import check_project
from federation.wishes import (
    DEADLINE_FORMS,
    NAME_CHARS_MAX,
    PRIORITY_MAX,
    RETRIES_MAX,
    USUAL_PROJECT,
    wishes_plain,
)
from federation.words import Length, duration_text, read_length, read_seconds, read_timeout

if TYPE_CHECKING:
    from federation.engine.explained import Explanation

T = TypeVar("T")
P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
FutureT = TypeVar("FutureT", bound=concurrent.futures.Future[Any])
TagValue = bool | int | float

# The gateway's limits; it checks them again.
TIMEOUT_MAX_S: Final = 1e9
TAG_MAX: Final = 1e12
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
HOMES_MAX: Final = 10_000  # detached jobs of which a client remembers the gateway
# The fields sent with an `explain` query about a job that is not submitted.
EXPLAINED: Final = (
    "name",
    "function",
    "project",
    "priority",
    "tags",
    "timeout_s",
    "max_cost_nanos",
    "currency",
    "python",
    "wishes",
)
NEARER_S: Final = 30.0  # how often a nearer gateway is looked for, after a failover
_engines: "weakref.WeakSet[ClientEngine]" = weakref.WeakSet()


class _Kept:
    """Stands for an option that is left as it is."""

    def __repr__(self) -> str:
        return "KEPT"


KEPT: Final[Any] = _Kept()


@dataclass(frozen=True, slots=True)
class _Where:
    """The connection settings of a client; see Client."""

    address: str | tuple[str, ...] | None
    secret: str | None
    token: str | None
    tls: TlsSettings | None
    user: str | None
    trusted_sites: frozenset[str] | None
    connect_timeout_s: float
    waits_refused: bool  # all of this time, also where nothing listens
    failover_s: float
    give_up_s: float | None


@dataclass(slots=True)
class _Shared:
    """The state that all views of one client share."""

    engine: ClientEngine | None = None
    beside: dict[str, ClientEngine] = field(
        default_factory=dict
    )  # by address: gateways we have left
    homes: dict[str, str] = field(default_factory=dict)  # detached job → its gateway's address
    shown: dict[str, RangeSet] = field(default_factory=dict)  # job → tasks whose output was shown
    choice: GatewayChoice | None = None
    certificate_names: Mapping[str, str] = field(default_factory=dict)  # by address
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class Options:
    """The terms under which a view of a client submits; see Client.options."""

    tags: Mapping[str, TagValue] = field(default_factory=dict)
    timeout_s: float | None = None
    retries: int = 0
    priority: float = 0.0
    project: str = USUAL_PROJECT
    max_cost: str | None = None
    name: str | None = None
    prints: bool = False
    objective: str | Mapping[str, float] | None = None
    deadline_s: float | str | datetime | timedelta | None = None
    sites: Sequence[str] | None = None
    not_sites: Sequence[str] | None = None
    jurisdictions: Sequence[str] | None = None
    data: Sequence[str] | None = None
    preemptible: bool = False
    environment: str | os.PathLike[str] | Environment | None = None
    when_closed: str | None = None
    deferrable: bool = False
    whole: bool = False
    task_s: float | None = None
    results: str = VALUE

    @property
    def wishes(self) -> dict[str, Any]:
        """The placement wishes, in wire form."""
        return wishes_plain(
            self.objective,
            cast("float | None", self.deadline_s),  # read already
            when_closed=self.when_closed,
            deferrable=self.deferrable,
            whole=self.whole,
            sites=self.sites,
            not_sites=self.not_sites,
            jurisdictions=self.jurisdictions,
            data=self.data,
            environment=self.environment.wish
            if isinstance(self.environment, Environment)
            else None,
        )

    def seal(self, function: Callable[..., Any]) -> SealedFunction:
        """Seal a function under these terms, with its environment."""
        return self.with_environment(seal_function(function))

    def with_environment(self, sealed: SealedFunction) -> SealedFunction:
        """Add the environment to a sealed function, under a digest of both."""
        if not isinstance(self.environment, Environment):
            return sealed
        body = wrap(sealed.body, self.environment)
        return replace(sealed, digest=hashlib.sha256(body).digest(), body=body)

    def _read_environment(self) -> None:
        """Read the file of the environment, if one is named, once: it may change later."""
        if self.environment is not None and not isinstance(self.environment, Environment):
            object.__setattr__(self, "environment", read_environment(self.environment, PYTHON))

    def _read_lengths(self) -> None:
        """Turn times that are written with a unit, as in "10m", into seconds."""
        for name in ("timeout_s", "task_s"):
            object.__setattr__(self, name, read_seconds(name, getattr(self, name)))

    def _read_deadline(self) -> None:
        """Turn a deadline that is a datetime, or a time from now, into seconds since 1970."""
        given = self.deadline_s
        if isinstance(given, str):
            try:
                given = timedelta(seconds=read_length(given))
            except (ValueError, OverflowError):
                raise ValueError(f"deadline_s is {given!r:.80}; {DEADLINE_FORMS}") from None
        if isinstance(given, timedelta):
            object.__setattr__(self, "deadline_s", time.time() + given.total_seconds())
        elif isinstance(given, datetime):  # without a time zone: local time
            object.__setattr__(self, "deadline_s", given.timestamp())
        if isinstance(self.deadline_s, int | float) and self.deadline_s >= float(CALENDAR_END_S):
            raise ValueError(f"deadline_s is {given!r:.80}, which is after the year 9999")

    def __post_init__(self) -> None:
        self._read_environment()
        self._read_lengths()
        self._read_deadline()
        _ = self.wishes
        _check_tags(self.tags)
        if self.timeout_s is not None and not (
            _is_number(self.timeout_s, 0, TIMEOUT_MAX_S) and self.timeout_s > 0
        ):
            raise ValueError(
                f"timeout_s is {self.timeout_s!r}; it must be greater than zero, in seconds"
            )
        if self.task_s is not None and not (
            _is_number(self.task_s, 0, TIMEOUT_MAX_S) and self.task_s > 0
        ):
            raise ValueError(f"task_s is {self.task_s!r}; it must be greater than zero, in seconds")
        if type(self.retries) is not int or not 0 <= self.retries <= RETRIES_MAX:
            raise ValueError(f"retries is {self.retries!r}; it must be from 0 to {RETRIES_MAX}")
        if not _is_number(self.priority, -PRIORITY_MAX, PRIORITY_MAX):
            raise TypeError(f"priority is {self.priority!r}; it must be a number up to 1e9")
        for what in ("project", "name"):
            text = getattr(self, what)
            _check_name(what, text)
            if text is not None and not _is_plain(text):
                raise ValueError(f"{what} is {text!a:.80}; it must be printable")
        check_project(self.project)
        if self.max_cost is not None:
            if not isinstance(self.max_cost, str):
                raise TypeError(
                    f'max_cost is {self.max_cost!r:.80}; it must be text, for example "5 USD"'
                )
            parse_money(self.max_cost)
        if self.results not in CHOICES:
            raise ValueError(
                f"results is {self.results!r:.40}; it must be 'auto', 'value' or 'ref'"
            )
        for what in ("prints", "preemptible"):
            if type(getattr(self, what)) is not bool:
                raise TypeError(f"{what} is {getattr(self, what)!r:.80}; it must be True or False")

    def key(self) -> tuple[Any, ...]:
        """Return a key that identifies this set of options."""
        tags = tuple(sorted(self.tags.items()))
        rest = (self.timeout_s, self.retries, self.priority, self.project, self.max_cost)
        more = (self.name, self.prints, self.preemptible, self.task_s, repr(self.wishes))
        return (tags, *rest, *more, self.results)

    def __str__(self) -> str:
        """The options that differ from their defaults, as in `retries=2, project='risk'`."""
        usual = Options()
        pairs = ((name, getattr(self, name)) for name in self.__slots__)
        return ", ".join(
            f"{name}={value!r}" for name, value in pairs if value != getattr(usual, name)
        )


class TaskFuture(concurrent.futures.Future[T]):
    """The future of one task: a real concurrent.futures.Future that can cancel on the grid.

    Attributes:
        job: the id of the job that the task belongs to.
        task: its number in that job.
    """

    def __init__(self, engine: ClientEngine, stream: Stream) -> None:
        # Replaces Future.__init__, which makes a lock for every future, at half the cost of a
        # submit. This class makes the lock on first use. A test compares the attributes.
        self._own: threading.Condition | None = None
        self._state = "PENDING"
        self._result = None
        self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self._engine = engine
        self._stream = stream
        self.task = -1

    def placed(self, stream: Stream, task: int) -> None:
        """Record that the future is call `task` of this job from now on. For the engine."""
        self._stream, self.task = stream, task

    if TYPE_CHECKING:  # an attribute, as in the standard library: its `as_completed` asks for one
        _condition: threading.Condition
    else:

        @property
        def _condition(self) -> threading.Condition:
            """The condition under which the standard library registers waiters and callbacks."""
            own = self._own
            if own is None:
                with self._engine.futures_lock:
                    own = self._own = self._own or threading.Condition()
            return own

    def finish(self, result: Any, error: BaseException | None) -> None:
        """Set the outcome: directly while the lock is unused, otherwise as any future does."""
        with self._engine.futures_lock:
            if self._own is None:
                if self._state == "PENDING":
                    self._result, self._exception = result, error
                    self._state = "FINISHED"
                return
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(result)

    def done(self) -> bool:
        """Whether the task has a result, has failed, or was cancelled."""
        return self._state not in ("PENDING", "RUNNING")

    def running(self) -> bool:
        """Whether the task runs now, as far as its gateway knows.

        Asks the gateway, at most twice a second for all tasks of a job, and waits for its answer
        for at most two seconds. Workers report a task that has run for a quarter of a second. A
        task that was handed to another site counts as running. A task whose worker was lost is not
        running until it begins again.
        """
        return not self.done() and is_running(self._engine, self._stream, self.task)

    def why_waiting(self) -> str:
        """Return why tasks of its job wait, in one sentence; empty if this task does not wait.

        Asks the gateway, and waits up to two seconds for its answer.
        """
        return "" if self.done() or self.running() else why_waiting(self._engine, self._stream)

    def __repr__(self) -> str:
        return f"<TaskFuture: task {self.task} of job {self._stream.id}, {self._state.lower()}>"

    @property
    def job(self) -> str:
        """The id of the task's job."""
        return self._stream.id

    def cancel(self, *, stop: bool = False) -> bool:
        """Cancel the task if it has not started; with `stop`, also end it if it is running.

        Asks the gateway and waits for its answer for at most two seconds. Returns True if the task
        will give no result.
        """
        if self.cancelled():
            return True
        if self.done():
            return False
        span = (self.task, self.task + 1)
        if self._engine.cancel(self._stream, [span], stop=stop, timeout_s=LEAVE_S):
            with contextlib.suppress(concurrent.futures.CancelledError, TimeoutError):
                super().exception(LEAVE_S)  # another thread may be about to set it
        return self.cancelled()

    def result(self, timeout: Length | None = None) -> T:
        """Wait for the task and return its result, or raise the exception that the task raised.

        After a KeyboardInterrupt during the wait, the task is cancelled, and stopped if it is
        running, as soon as nothing refers to the future any more. An interrupted
        `submit(f).result()` in a notebook cell thus leaves nothing in a slot. A future that is kept
        can be asked again.
        """
        timeout = None if timeout is None else read_timeout(timeout)
        try:
            self._wait(timeout)
            if self._state == "FINISHED" and self._exception is None:
                found = self._result
                if type(found) is LeftResult:  # another thread may open it meanwhile, too
                    self._result = found = opened(found, self._stream.opening.results)
                return cast("T", found)
            return super().result(timeout=0 if timeout is not None else None)
        finally:
            del self  # a traceback through this frame must not keep the future alive

    def exception(self, timeout: Length | None = None) -> BaseException | None:
        """Wait for the task and return the exception that it raised, or None."""
        timeout = None if timeout is None else read_timeout(timeout)
        try:
            self._wait(timeout)
            return super().exception(timeout=0 if timeout is not None else None)
        finally:
            del self  # as above

    def _wait(self, timeout: float | None) -> None:
        # The waiting thread drives the connection itself, so that no other thread has to be woken.
        try:
            if not self.done() and not self._engine.closed:
                self._engine.drive(self.done, timeout)
            if timeout is not None and not self.done():
                raise TimeoutError(
                    f"task {self.task} of job {self.job} has no result after {timeout:g} s; "
                    "`why_waiting()` of its future tells if it waits, and for what"
                )
        except KeyboardInterrupt as interrupt:
            self.let_go(interrupt)
            raise
        finally:
            del self  # as above

    def let_go(self, interrupt: KeyboardInterrupt) -> None:
        """Cancel the task once nothing refers to the future; the traceback does not count.

        For an interrupt during the submit or the wait.
        """
        self._engine.loosen(self._stream, self.task)
        traceback.clear_frames(interrupt.__traceback__)


def as_completed(futures: Iterable[FutureT], timeout: Length | None = None) -> Iterator[FutureT]:
    """Yield each future once, as it is done: concurrent.futures.as_completed, for any class of it.

    Raises TimeoutError when a future is not done within `timeout` (seconds, or a text such as
    "10m") of the call; TypeError for anything but futures, such as a map.
    """
    if isinstance(futures, MapResults):
        raise TypeError(
            "as_completed takes futures of `submit`: a map yields its results itself, in order"
        )
    named = list(futures)
    wrong = next((each for each in named if not isinstance(each, concurrent.futures.Future)), None)
    if wrong is not None:
        raise TypeError(f"as_completed takes futures, and {wrong!r:.80} is none")
    return cast("Iterator[FutureT]", concurrent.futures.as_completed(named, read_timeout(timeout)))


def _read_addresses(address: object) -> str | tuple[str, ...] | None:
    """Return the addresses as they are kept. Raises TypeError."""
    if address is None or isinstance(address, str):
        return address
    named = tuple(address) if isinstance(address, Iterable) else ()
    if not all(isinstance(each, str) for each in named) or not isinstance(address, Iterable):
        raise TypeError(
            f"address is {address!r:.80}; it must be the text of an address, or a list of them"
        )
    return cast("tuple[str, ...]", named)


class Client(concurrent.futures.Executor):
    """A connection to the nearest gateway.

    When that gateway is lost, the client goes to another: first those that were named, the nearest
    first, then those that gateways have told it about. Tasks without a result are sent again, and
    every future resolves once. A client without unfinished tasks goes back to a nearer gateway of
    those that were named, once that one answers again.

    Args:
        address: the address of the gateway, or several: a sequence, or text with commas. The
            nearest that admits the client is taken, by measured round trips; about equally near
            ones in the order given. `srv://NAME` stands for the gateways in the SRV records of
            `_gridfed._tcp.NAME`, and needs gridfed[dns]. By default $GRIDFED_GATEWAY, else the
            gateways of the client file (docs/client.md), else this user's own.
        secret: the secret that the gateway asks for; by default $GRIDFED_SECRET.
        token: a token that `gridfed token` printed, which states your identity and your rights; by
            default $GRIDFED_TOKEN. Its holder acts as you, so it is sent only over tls+tcp:// or
            within this host.
        tls: the settings for tls+tcp:// addresses. Fields that it leaves out are taken from
            $GRIDFED_TLS_CA_FILE, $GRIDFED_TLS_SERVER_NAME and $GRIDFED_TLS_CERTIFICATE_FILE.
        user: the user to bill, unless a token names one; by default the login name.
        trusted_sites: the sites, besides the gateway's own, from which results are unpickled here.
            A task that ran at another site, or came back through one, fails with ResultUntrusted;
            an exception from there is raised as a RemoteError with its text. By default the
            gateway's operator decides.
        connect_timeout_s: how long the first connection may take. By default 5 s, or one where
            nothing listens at the address; a given time is waited for in full.
        failover_s: how long the client waits for a lost gateway before it goes to another, if it
            knows one. It goes at once when nothing listens at the address any more, or when the
            gateway says that it stops.
        give_up_s: how long every gateway may be unreachable before everything fails with
            GatewayUnreachable; without limit by default.

    Times are numbers of seconds, texts with a unit ("90s", "10m"), or a timedelta.

    A task may use a `Client()` of its own. It finds the gateway by itself and connects as the user
    of the task's job, for the job's project, until that job ends. A task keeps its slot while it
    waits for tasks that it submitted: a gateway does not take a waiting task off its slot to run
    the tasks that it waits for. When such tasks fill every slot, or nest deeper than there are
    slots, nothing proceeds until one of them ends at its `timeout_s`. Keep fewer of them unfinished
    than there are slots, or give the inner tasks workers of their own by tags.

    Raises:
        GatewayUnreachable: no gateway answers at the address.
        SessionRefused: the gateway refuses the session.
        AddressError: the address can't be dialled, or not with a token.
    """

    def __init__(  # noqa: PLR0913 - each is an option for the user
        self,
        address: str | Sequence[str] | None = None,
        *,
        secret: str | None = None,
        token: str | None = None,
        tls: TlsSettings | None = None,
        user: str | None = None,
        trusted_sites: Iterable[str] | None = None,
        connect_timeout_s: Length | None = None,
        failover_s: Length = FAILOVER_S,
        give_up_s: Length | None = None,
    ) -> None:
        check_owners()
        waits_refused = connect_timeout_s is not None
        connect_s: float = read_seconds(
            "connect_timeout_s", connect_timeout_s if waits_refused else CONNECT_S
        )
        lost_s: float = read_seconds("failover_s", failover_s)
        alone_s: float | None = read_seconds("give_up_s", give_up_s)
        if not (_is_number(connect_s, 0, TIMEOUT_MAX_S) and connect_s > 0):
            raise ValueError(
                f"connect_timeout_s is {connect_timeout_s!r:.80}; it must be above zero, in seconds"
            )
        if not _is_number(lost_s, 0, TIMEOUT_MAX_S):
            raise ValueError(f"failover_s is {failover_s!r}; it must be zero or more, in seconds")
        if alone_s is not None and not _is_number(alone_s, 0, TIMEOUT_MAX_S):
            raise ValueError(f"give_up_s is {give_up_s!r}; it must be zero or more, in seconds")
        if isinstance(trusted_sites, str):
            raise TypeError("trusted_sites must be a list of site names, not a single string")
        named = _read_addresses(address)
        if token is not None and not token.strip() and not isinstance(token, NoToken):
            raise ValueError(
                "the token is empty, as if from an empty file: pass the text that `gridfed token` "
                "printed, or token=None for that of $GRIDFED_TOKEN or the client file"
            )
        self._where = _Where(
            named,
            secret,
            token,
            tls,
            user,
            None if trusted_sites is None else frozenset(trusted_sites),
            connect_s,
            waits_refused,
            lost_s,
            alone_s,
        )
        self._options = Options()
        self._shared = _Shared()
        self._recent: tuple[SealedFunction, Stream] | None = None
        self._connect()

    def _connect(self) -> ClientEngine:
        where = self._where
        file = self._file()
        addresses, origin = resolve_address(where.address)
        if file is not None:
            addresses, _ = resolve_address(file.gateways)
            origin = f"from {file.path}"
        if self._holder.bears_token:
            for each in addresses:
                check_bearer(each)
        found = find_candidates(addresses, where.connect_timeout_s)
        services = list(filter(is_service, addresses))
        if services:
            origin = f"{', '.join(services)}, {origin}"
        self._shared.certificate_names = found.certificate_names
        self._shared.choice = choose(found.groups, origin)
        itinerary = Itinerary(
            self._shared.choice.addresses,
            failover_s=where.failover_s,
            give_up_s=where.give_up_s,
            random=random.Random(),  # noqa: S311 - it spreads clients, and hides nothing
        )
        engine = self._shared.engine = self._start(itinerary, origin, where.connect_timeout_s)
        return engine

    def _file(self) -> ClientFile | None:
        """Return the client file, where nothing else names a gateway."""
        if self._where.address is not None or os.environ.get(GATEWAY_VARIABLE, "").strip(" ,"):
            return None
        return read_client_file()

    @property
    def _holder(self) -> Holder:
        where, environ = self._where, os.environ
        token = environ.get(TOKEN_VARIABLE, "") if where.token is None else where.token
        if not token and where.token is None and where.secret is None:
            file = self._file()
            token = "" if file is None else file.token
        if where.token is None and where.secret is not None and is_pass(token):
            token = ""  # a task proves itself by the secret that it names, not by its pass
        return Holder(
            where.user or login(),
            environ.get("GRIDFED_SECRET", "") if where.secret is None else where.secret,
            token,
            where.trusted_sites,
        )

    @property
    def _tls(self) -> TlsSettings:
        """The settings given, by the environment, and of the client file, in this order."""
        found = (self._where.tls or TlsSettings()).or_environment()
        file = self._file()
        return found if file is None else found.or_else(file.tls)

    def _start(self, itinerary: Itinerary, origin: str, connect_timeout_s: float) -> ClientEngine:
        engine = ClientEngine(
            itinerary,
            origin,
            holder=self._holder,
            tls=self._tls,
            connect_timeout_s=connect_timeout_s,
            waits_refused=self._where.waits_refused,
            certificate_names=self._shared.certificate_names,
        )
        _engines.add(engine)
        return engine

    def _reach(self, gateway: str, within_s: float | None = None) -> ClientEngine:
        """Return the engine at a gateway: the client's own while there, else a separate one."""
        engine = self._engine
        if gateway in ("", engine.address):
            return engine
        connect_timeout_s = self._where.connect_timeout_s
        if within_s is not None:
            connect_timeout_s = min(connect_timeout_s, within_s)
        beside = self._shared.beside
        with self._shared.lock:
            known = beside.get(gateway)
            if known is None or known.closed or known.error is not None:
                if known is not None:
                    known.close()
                itinerary = Itinerary(
                    (gateway,),
                    give_up_s=self._where.connect_timeout_s,
                    random=random.Random(),  # noqa: S311 - as above
                    follows=False,
                )
                origin = "the gateway of a job"
                known = beside[gateway] = self._start(itinerary, origin, connect_timeout_s)
            return known

    @property
    def _engine(self) -> ClientEngine:
        """The engine; a client that was unpickled connects on first use."""
        engine = self._shared.engine
        return engine if engine is not None else self._connect()

    def _nearest(self) -> ClientEngine:
        """Return the engine for new work: at a nearer gateway, if one answers again.

        Nothing moves while work is under way: it would all be sent again.
        """
        engine, choice = self._engine, self._shared.choice
        at_s = MonoS(time.monotonic())
        if choice is None or at_s - choice.measured_at_s < NEARER_S:
            return engine
        nearer = choice.better(engine.address)
        if nearer and not engine.is_idle:  # which looks at all jobs: not at each submit
            return engine
        self._shared.choice = replace(choice, measured_at_s=at_s)
        if not nearer or not measure(nearer):
            return engine
        try:
            there = self._connect()
        except GridError:  # it answers, and lets nobody in
            return engine
        engine.close()
        self._recent = None
        return there

    @property
    def address(self) -> str:
        """The address of the gateway."""
        return self._engine.address

    @property
    def gateway(self) -> dict[str, Any]:
        """The gateway of this client, why it is this one, and the round trips that were measured.

        A map of `address`, `site` (its name; "" before the first session), `why` (in words),
        `addresses` (all that were named, the nearest first), `round_trips_s` (by address, in
        seconds; of those that answered) and `unasked` (addresses of a worse priority, which were
        not measured).
        """
        address, choice = self._engine.address, self._shared.choice
        assert choice is not None
        return {
            "address": address,
            "site": self._engine.site,
            "why": choice.why(address),
            "addresses": list(choice.addresses),
            "round_trips_s": dict(choice.round_trips_s),
            "unasked": list(choice.unasked),
        }

    # --- submitting ----------------------------------------------------------------------------

    def options(  # noqa: PLR0913 - each is an option for the user
        self,
        *,
        tags: Mapping[str, TagValue] = KEPT,
        timeout_s: Length | None = KEPT,
        retries: int = KEPT,
        priority: float = KEPT,
        project: str = KEPT,
        max_cost: str | None = KEPT,
        name: str | None = KEPT,
        prints: bool = KEPT,
        objective: str | Mapping[str, float] | None = KEPT,
        deadline_s: float | str | datetime | timedelta | None = KEPT,
        sites: Sequence[str] | None = KEPT,
        not_sites: Sequence[str] | None = KEPT,
        jurisdictions: Sequence[str] | None = KEPT,
        data: Sequence[str] | None = KEPT,
        preemptible: bool = KEPT,
        environment: str | os.PathLike[str] | Environment | None = KEPT,
        when_closed: str | None = KEPT,
        deferrable: bool = KEPT,
        whole: bool = KEPT,
        task_s: Length | None = KEPT,
        results: str = KEPT,
        **unknown: Never,
    ) -> "Client":
        """Return a view of this client that submits under other terms.

        Times are numbers of seconds, texts with a unit ("90s", "10m", "04:00:00"), or a timedelta.

        Args (all optional):
            tags: the tags that a worker must carry: {"linux": True, "gpu": 2}; numbers are counted.
            timeout_s: the time limit of a task; a task that runs longer is stopped and fails.
            retries: how often a task that raised, or exceeded its time limit or its memory, is run
                again. A task that takes its process down is run a second time regardless of this
                number, and alone: only this tells the culprit from its neighbours. A task whose
                worker was lost is run again too, until the gateway's `task_losses` workers, 5 by
                default, were lost while it ran: then it fails with WorkerLost. Neither counts as a
                retry. A task that had not begun on a lost worker is tried again without limit.
            priority: jobs of higher priority go first.
            project: the project that is billed, besides the user.
            max_cost: "5 USD"; when the job has cost this much, no more of its tasks start, and
                at twice as much those that run are stopped. All calls of one function submitted
                under a limit are one job; without a limit, submit begins a new job when a function
                was not used for a while.
            name: the name of the job.
            prints: whether the output of tasks is shown here as results come, that of each task
                once, stdout on stdout and stderr on stderr.
            objective: "cheapest", "fastest", "greenest", or weights as in {"money": 1, "time": 2,
                "carbon": 0}; by default the gateway's own.
            deadline_s: the job goes only where it would be done by then: UTC, in seconds since
                1970; or a datetime (local time, if it names no zone); or a timedelta, or a text
                such as "2h", from this call on.
            sites: the only sites at which the job may run.
            not_sites: sites at which the job must not run.
            jurisdictions: the jurisdictions to which its data may go.
            data: the classes of its data, as the site's rules about places name them
                (docs/residency.md).
            deferrable: tasks may wait for greener or cheaper hours, as the objective weighs them,
                if they gain by it. The job is still done by its deadline_s.
            whole: the job is useful only if all of it is done within deadline_s and max_cost. It is
                refused when that is known to be impossible, and ended when it becomes impossible.
            task_s: about how many seconds a call takes, if you know. Until calls have ended, the
                job is planned by this figure, and checked by it against deadline_s and max_cost. It
                is a hint: longer calls are not stopped. By default the measured time of earlier
                calls is used.
            results: "value" sends all results in messages, up to the gateway's limit; "auto"
                leaves those of over 1 MiB at the site as objects, if this client is on the
                gateway's host, and `result()` fetches them without a copy; with "ref" every result
                is an ObjectRef, to be passed on to other calls (docs/data.md). Results of detached
                jobs are always values.
            preemptible: the job is cheaper, and goes after all work that is not preemptible.
            environment: the environment of the tasks (docs/environments.md): the name of a
                container image, "localhost/quant:1", or the Path of a uv.lock or a requirements
                file, which is read now. The job goes only where that environment is offered.
            when_closed: the choice for pools that are closed to the job now, by their windows:
                "wait" for one that would suit it better than all open ones, or go "elsewhere", to
                one that is open now. By default the wait is weighed as any other.

        The view shares the connection: shutting down either shuts down both.
        """
        given = locals()
        if unknown:
            raise TypeError(
                f"unknown option {', '.join(sorted(unknown))}; known options: "
                f"{', '.join(Options.__slots__)}"
            )
        changes = {each: given[each] for each in Options.__slots__ if given[each] is not KEPT}
        view = object.__new__(type(self))
        view._where, view._shared = self._where, self._shared
        view._options = replace(self._options, **changes)
        if "deadline_s" in changes:
            _check_ahead(deadline_s, view._options.deadline_s)
        view._recent = None
        return view

    # A reference may stand for any argument; type checkers know it of three positional ones.
    @overload
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> TaskFuture[T]: ...

    @overload
    def submit(self, fn: Callable[[A], T], first: A | ObjectRef[A], /) -> TaskFuture[T]: ...

    @overload
    def submit(
        self, fn: Callable[[A, B], T], first: A | ObjectRef[A], second: B | ObjectRef[B], /
    ) -> TaskFuture[T]: ...

    @overload
    def submit(
        self,
        fn: Callable[[A, B, C], T],
        first: A | ObjectRef[A],
        second: B | ObjectRef[B],
        third: C | ObjectRef[C],
        /,
    ) -> TaskFuture[T]: ...

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> TaskFuture[Any]:
        """Run fn(*args, **kwargs) on the grid, and return its future."""
        engine = self._nearest()
        payload = seal_call(args, kwargs)
        function = seal_function(fn)
        recent = self._recent
        if recent is not None and recent[0].digest == function.digest:
            stream = recent[1]
        else:
            stream = self._stream(engine, function)
        future: TaskFuture[Any] = TaskFuture(engine, stream)
        try:
            while not engine.submit(stream, payload, future):
                stream = self._stream(engine, function)  # the job was closed meanwhile: use another
        except KeyboardInterrupt as interrupt:
            future.let_go(interrupt)  # the caller will not get the future
            del future
            raise
        return future

    def put(self, value: T, *, name: str | None = None, for_s: Length = NAMED_S) -> ObjectRef[T]:
        """Put a value at the gateway's site, and return a reference to it.

        Pass the reference anywhere among the arguments of calls of the same project: the bytes are
        written once, and tasks read arrays where they lie, read-only and without a copy. The object
        is held for this client until the reference and the calls that use it are gone; with a
        `name` also for `for_s` seconds, for other clients of the project (`object`). So far this
        works on the gateway's own host, with local pools.

        Raises:
            SerializationError: the value can't be pickled.
            ObjectRefused: the site has no room, keeps no objects, or is on another host.
        """
        seconds: float = read_seconds("for_s", for_s)
        if not (_is_number(seconds, 0, NAMED_MAX_S) and seconds > 0):
            most = duration_text(NAMED_MAX_S)
            raise ValueError(
                f"for_s is {for_s!r:.80}; it must be above zero, and {most} at most: seconds, or a "
                'text such as "12h"'
            )
        _check_name("name", name)
        kept_s = None if name is None else seconds
        return self._nearest().objects.put(value, self._options.project, name or "", kept_s)

    def object(self, name: str, user: str | None = None) -> ObjectRef[Any]:
        """Return a reference to an object that was put with this name in the view's project.

        Args:
            name: the name.
            user: the user who put it; by default this client's own. Who reads the object runs the
                pickle of that user: name only those that you trust.

        Raises ObjectLost when there is none, or its time is over.
        """
        return self._nearest().objects.find(name, self._options.project, user)

    def _stream(self, engine: ClientEngine, function: SealedFunction) -> Stream:
        """Return the job for calls of this function under these options."""
        sealed = self._options.with_environment(function)
        key = (sealed.digest, self._options.key())
        stream = engine.filling(key, sealed, lambda: self._opening(sealed, detached=False))
        self._recent = function, stream
        return stream

    def _opening(
        self, function: SealedFunction, *, detached: bool, tasks: int | None = None
    ) -> OpenJob:
        options = self._options
        results = "" if detached or options.results == VALUE else options.results
        if results and not self._engine.is_near:
            if results == REF:
                raise ObjectRefused(
                    "results='ref' keeps results as objects at the gateway's site, which is for "
                    "clients on the gateway's own host so far: take values, or work there"
                )
            results = ""
        nanos, currency = parse_money(options.max_cost) if options.max_cost else (None, "")
        return OpenJob(
            job=new_id(),
            name=options.name or function.name,
            function=function.digest,
            detached=detached,
            project=options.project,
            priority=float(options.priority),
            tags=dict(options.tags),
            timeout_s=options.timeout_s,
            retries=options.retries,
            max_cost_nanos=nanos,
            currency=currency,
            python=PYTHON,
            prints=options.prints,
            again=False,
            wishes=options.wishes,
            preemptible=options.preemptible,
            tasks=tasks,
            task_s=options.task_s,
            results=results,
        )

    @overload  # type: ignore[override]  # narrower than Executor's: it checks the items' types
    def map(
        self,
        fn: Callable[[A], T],
        iterable: Iterable[A | ObjectRef[A]],
        /,
        *,
        timeout: Length | None = None,
        chunksize: int = 1,
        progress: bool = False,
    ) -> "MapResults[T]": ...

    @overload
    def map(
        self,
        fn: Callable[[A, B], T],
        iterable: Iterable[A | ObjectRef[A]],
        second: Iterable[B | ObjectRef[B]],
        /,
        *,
        timeout: Length | None = None,
        chunksize: int = 1,
        progress: bool = False,
    ) -> "MapResults[T]": ...

    @overload
    def map(
        self,
        fn: Callable[[A, B, C], T],
        iterable: Iterable[A | ObjectRef[A]],
        second: Iterable[B | ObjectRef[B]],
        third: Iterable[C | ObjectRef[C]],
        /,
        *,
        timeout: Length | None = None,
        chunksize: int = 1,
        progress: bool = False,
    ) -> "MapResults[T]": ...

    @overload
    def map(
        self,
        fn: Callable[..., T],
        iterable: Iterable[Any],
        second: Iterable[Any],
        third: Iterable[Any],
        fourth: Iterable[Any],
        /,
        *iterables: Iterable[Any],
        timeout: Length | None = None,
        chunksize: int = 1,
        progress: bool = False,
    ) -> "MapResults[T]": ...

    def map(
        self,
        fn: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        timeout: Length | None = None,
        chunksize: int = 1,
        progress: bool = False,
    ) -> "MapResults[T]":
        """Run fn over the zipped iterables; return an iterator over the results, in order.

        The map starts at once. Inputs are taken in this thread, up to some 64,000 calls ahead of
        the reader, and more as results are read. When the inputs are slow, each is sent before the
        next is requested, and a result that is ready is yielded before more input is awaited.

        A map that is not read still runs, at the latest when the client closes, which waits for it;
        results for which there is no room are dropped then. If no iterable has a length, the calls
        may have no end: closing then cancels the calls that have not begun, unless all inputs were
        taken by then, and logs their number.

        Dropping the iterator half way, or closing it, cancels the calls that have not begun; a
        KeyboardInterrupt also stops those that are running. A failed task cancels the calls that
        have not begun, too: its exception ends the iterator, as with every Executor. To continue
        past failures use submit, or submit_job and its results(return_exceptions=True).

        Args:
            timeout: raise TimeoutError when a result is not there this many seconds after the call;
                a text such as "10m" or a timedelta will do as well.
            chunksize: accepted for compatibility; bundles are sized by measured time.
            progress: show a progress bar.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        singles = len(iterables) == 1
        calls = iterables[0] if singles else zip(*iterables, strict=False)
        return self._mapped(fn, Inputs(calls, *iterables, singles=singles), timeout, progress)

    def starmap(
        self,
        fn: Callable[..., T],
        iterable: Iterable[tuple[Any, ...]],
        *,
        timeout: Length | None = None,
        progress: bool = False,
    ) -> "MapResults[T]":
        """Work as `map` does, with the arguments of each call already in a tuple."""
        return self._mapped(fn, Inputs(iterable, iterable, singles=False), timeout, progress)

    def _mapped(
        self,
        fn: Callable[..., T],
        inputs: Inputs,
        timeout: Length | None,
        progress: bool,
    ) -> "MapResults[T]":
        within_s = read_timeout(timeout)
        engine = self._nearest()
        function = self._options.seal(fn)
        opening = self._opening(function, detached=False, tasks=inputs.total)
        stream = engine.open_stream(opening, function)
        return MapResults(engine, stream, inputs, timeout=within_s, progress=progress)

    @property
    def _max_workers(self) -> int:
        """The slots of the gateway's site now, at least one: libraries such as Dask read it."""
        pools = self.ask("status")["pools"]
        return max(1, sum(int(pool["slots"]) for pool in pools))

    def as_completed(
        self, futures: Iterable[FutureT], timeout: Length | None = None
    ) -> Iterator[FutureT]:
        """Yield each future once, as it is done, like concurrent.futures.as_completed."""
        return as_completed(futures, timeout)

    # --- detached jobs and queries -------------------------------------------------------------

    def submit_job(
        self,
        fn: Callable[..., Any],
        iterable: Iterable[Any],
        *,
        name: str | None = None,
        star: bool = False,
    ) -> JobHandle:
        """Submit fn over an iterable as a detached job, which survives this client.

        Returns once the whole job is on the gateway's disk. With `star` each item is a tuple of
        arguments.
        """
        view = self.options(name=name) if name is not None else self
        engine = self._nearest()
        function = view._options.seal(fn)
        inputs = Inputs(iterable, iterable, singles=not star)
        opening = view._opening(function, detached=True, tasks=inputs.total)
        stream = engine.open_stream(opening, function)
        feed_all(engine, stream, inputs)
        engine.close_stream(stream)
        engine.wait_kept(stream)
        self._remember_home(stream)
        if stream.rejected:
            raise exception_of(stream.rejection or Ended("refused", "the job was refused"))
        if engine.error is not None:
            raise engine.error
        return self._handle(stream.id, stream.home, prints=stream.opening.prints)

    def _handle(self, job_id: str, gateway: str, *, prints: bool = True) -> JobHandle:
        shown = self._shared.shown
        known = shown.setdefault(job_id, RangeSet())
        while len(shown) > HOMES_MAX:
            del shown[next(iter(shown))]
        trusted = self._where.trusted_sites
        return JobHandle(self._reach, job_id, gateway, trusted, prints=prints, shown=known)

    def _remember_home(self, stream: Stream) -> None:
        homes = self._shared.homes
        homes[stream.id] = stream.home
        while len(homes) > HOMES_MAX:
            del homes[next(iter(homes))]

    def job(self, job_id: str, *, gateway: str | None = None) -> JobHandle:
        """Return the handle of a job, detached or not. Sends no request yet.

        Args:
            job_id: the id of the job, at least four characters of its beginning, or the job's name.
                The first question of the handle raises GridError, with the candidates, if it may
                mean several jobs that this user sees.
            gateway: the address of the gateway that has the job. By default the one to which this
                client submitted it, else the one to which this client is connected.
        """
        if gateway is None:
            engine = self._engine
            here = "" if engine.has_attached(job_id) else engine.address
            gateway = self._shared.homes.get(job_id, here)
        return self._handle(job_id, gateway)

    def jobs(
        self,
        limit: int = 50,
        *,
        all_users: bool = False,
        user: str | None = None,
        project: str | None = None,
        name: str | None = None,
        state: str | None = None,
        after: str | None = None,
    ) -> list[dict[str, Any]]:
        """Return this user's latest jobs: id, name, user, state, counts, slot time and cost each.

        The newest is first. `user`, `project`, `name` and `state` (see JobHandle.state) select;
        "failed" selects jobs that failed in part as well;
        `after` is the id of a job, the last of another list, behind which this one goes on.

        The jobs of all users are returned at the gateway's own socket, by a token with the scope
        `audit`, and, by the shared secret, with `all_users`. Raises GridError where that is not
        allowed.
        """
        if state is not None:
            state = state.replace("-", " ")  # "partly-failed", as at the command line
        wanted = {"user": user, "project": project, "name": name, "state": state, "after": after}
        details: dict[str, Any] = {key: each for key, each in wanted.items() if each is not None}
        if all_users:
            details["all_users"] = True
        found: list[dict[str, Any]] = self.ask("jobs", limit=limit, **details)
        return found

    def explain(
        self,
        what: "str | TaskFuture[Any] | JobHandle | Callable[..., Any]",
        /,
        *,
        tasks: int = 1,
        task_s: Length | None = None,
    ) -> "Explanation":
        """Explain why a job goes where it goes; or, before it is submitted, where it would go.

        `print` of the answer shows what `gridfed explain` shows.

        Args:
            what: a job (its id, its handle, or a future of it); or a function, as if its calls
                were submitted under this view's options.
            tasks: the number of calls of the function.
            task_s: the seconds that a call takes; by default the option `task_s`, else the measured
                time.

        Returns:
            A map: `text` is a sentence of explanation; `shares` holds the tasks, the end and the
            cost by place; `candidates` every site and pool with its figures; `refused` the others,
            with the reasons; `deadline` the expected end against the job's deadline, and what would
            meet it. Of a job that has ended `past` holds where its tasks ran, and the rules of that
            time.
        """
        if isinstance(what, str):
            return explanation(self.ask("explain", job=what))
        if isinstance(what, TaskFuture):
            return explanation(self.ask("explain", job=what.job))
        if isinstance(what, JobHandle):
            return what.explain()
        opening = self._opening(self._options.seal(what), detached=False)
        terms = {name: getattr(opening, name) for name in EXPLAINED}
        if task_s is None:
            task_s = opening.task_s
        task_s = read_seconds("task_s", task_s)
        return explanation(self.ask("explain", tasks=tasks, task_s=task_s, **terms))

    def ask(self, verb: str, **details: Any) -> Any:
        """Ask the gateway a question and return plain data; docs/protocol.md lists the verbs."""
        return self._engine.ask(verb, details)

    # --- the end -------------------------------------------------------------------------------

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; with `wait`, return when all submitted tasks are done.

        With `cancel_futures`, tasks that have not started are cancelled, and their number logged.
        Without `wait`, pending futures still get their results: the interpreter's exit waits for
        them. A gateway that does not answer delays the call by at most two seconds. In a forked
        child the call does nothing.
        """
        for beside in list(self._shared.beside.values()):
            beside.close()
        engine = self._shared.engine
        if engine is None or engine.closed or engine.is_foreign:
            return
        engine.shut = True
        if wait:
            wind_up(engine, cancel=cancel_futures)
        else:
            wind_up_later(engine, cancel=cancel_futures)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Wait for all submitted tasks; after a Ctrl-C drop them, and log how many there were."""
        engine = self._shared.engine
        if engine is not None and kind is not None and issubclass(kind, KeyboardInterrupt):
            drop(engine, "interrupted")
        else:
            self.shutdown()

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (self._where, self._options)

    def __repr__(self) -> str:
        engine = self._shared.engine
        if engine is None:
            address, state = resolve_address(self._where.address)[0][0], "not connected yet"
        else:
            address = engine.address
            state = "shut down" if engine.closed else f"{engine.unfinished:,} tasks unfinished"
        terms = str(self._options)
        return f"<gridfed Client of {address}, {state}{terms and ', ' + terms}>"

    def _repr_html_(self) -> str:
        text = repr(self).strip("<>").replace("&", "&amp;").replace("<", "&lt;")
        return f"<code>{text}</code>"


def _revive(where: _Where, options: Options) -> Client:
    client = object.__new__(Client)
    client._where, client._options = where, options
    client._shared, client._recent = _Shared(), None
    return client


def _check_tags(tags: Any) -> None:
    if not isinstance(tags, Mapping):
        raise TypeError(f'tags is {tags!r:.80}; it must be a dict, for example {{"gpu": 1}}')
    for name, value in tags.items():
        if not isinstance(name, str) or not name or not _is_plain(name):
            raise TypeError(f"tags: {name!r} is not a valid name")
        if value is not True and not _is_number(value, 0, TAG_MAX):
            raise TypeError(
                f"tags: {name} is {value!r}; it must be True or a number of zero or more"
            )


def _check_ahead(given: object, deadline_s: object) -> None:
    """Raise ValueError for a deadline, as it was given and in seconds, that is not to come."""
    if isinstance(deadline_s, int | float) and deadline_s <= time.time():
        raise ValueError(
            f"deadline_s is {given!r:.80}, which is not after now, "
            f"{show_time(time.time())}; {DEADLINE_FORMS}"
        )


def _is_number(value: Any, least: float, most: float) -> bool:
    return type(value) in (int, float) and least <= value <= most


def _check_name(what: str, name: object) -> None:
    """Raise ValueError unless a name is None, or text of a length that a gateway takes."""
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= NAME_CHARS_MAX):
        raise ValueError(
            f"{what} is {name!r:.80}; it must be text of 1 to {NAME_CHARS_MAX} characters"
        )


def _is_plain(text: str) -> bool:
    return text.isprintable()  # False for lone surrogates too


def _wind_up_engines() -> None:
    """Wait for submitted tasks, as executors do, and end the sessions; at once after a Ctrl-C."""
    ended_by = getattr(sys, "last_type", None)
    is_script = not (sys.flags.interactive or hasattr(sys, "ps1"))
    waits = not (is_script and ended_by is not None and issubclass(ended_by, KeyboardInterrupt))
    for engine in list(_engines):
        if waits:
            waits = wind_up_at_exit(engine)
        elif not (engine.closed or engine.is_foreign):
            drop(engine, "interrupted")


def _register_at_exit() -> None:
    # As concurrent.futures does: threads can't be started any more when functions of `atexit` run.
    # Those functions are for engines that connect after that point.
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        with contextlib.suppress(RuntimeError):  # imported while the interpreter ends
            register(_wind_up_engines)
    atexit.register(_wind_up_engines)


_register_at_exit()


__all__ = [
    "Client",
    "GridError",
    "JobRefused",
    "ObjectRef",
    "Options",
    "TaskFuture",
    "as_completed",
]
