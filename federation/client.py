"""What a user imports: an Executor whose workers are a grid.

    with Client() as client:
        for result in client.map(price, scenarios): ...

`Client` keeps the whole contract of concurrent.futures.Executor and adds options, detached jobs
and questions about the site. The work is done by federation.engine.
"""

import atexit
import concurrent.futures
import contextlib
import hashlib
import os
import random
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, cast

from federation.address import TOKEN_VARIABLE, check_address, check_bearer
from federation.address import resolve as resolve_address
from federation.closing import drop, wind_up, wind_up_at_exit, wind_up_later
from federation.engine import LEAVE_S, Engine, Holder
from federation.environments import Environment, read_environment, wrap
from federation.errors import GridError, JobRefused
from federation.gateways import FAILOVER_S, Itinerary
from federation.houses import check_owners
from federation.ids import new_id
from federation.jobs import JobHandle
from federation.mapping import Inputs, MapResults, feed_all
from federation.messages import OpenJob
from federation.money import parse_money
from federation.outcomes import exception_of
from federation.payload import SealedFunction, seal_call, seal_function
from federation.streams import Ended, Stream
from federation.task_passes import is_pass
from federation.transport import TlsSettings
from federation.users import login
from federation.wishes import USUAL_PROJECT, wishes_plain

T = TypeVar("T")
TagValue = bool | int | float

# What the gateway takes at most; it checks again.
TIMEOUT_MAX_S: Final = 1e9
RETRIES_MAX: Final = 1000
PRIORITY_MAX: Final = 1e9
TAG_MAX: Final = 1e12
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
HOMES_MAX: Final = 10_000  # detached jobs of which a client knows the gateway
# What a question about a job that is not submitted says of it.
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
_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class _Where:
    """How a client connects; see Client."""

    address: str | tuple[str, ...] | None
    secret: str | None
    token: str | None
    tls: TlsSettings | None
    user: str | None
    trusted_sites: frozenset[str] | None
    connect_timeout_s: float
    failover_s: float
    give_up_s: float | None


@dataclass(slots=True)
class _Shared:
    """What all views of one client have in common."""

    engine: Engine | None = None
    beside: dict[str, Engine] = field(default_factory=dict)  # by address: gateways we have left
    homes: dict[str, str] = field(default_factory=dict)  # detached job → its gateway's address
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
    deadline_s: float | None = None
    sites: Sequence[str] | None = None
    not_sites: Sequence[str] | None = None
    jurisdictions: Sequence[str] | None = None
    preemptible: bool = False
    environment: str | os.PathLike[str] | Environment | None = None
    when_closed: str | None = None
    deferrable: bool = False
    whole: bool = False
    task_s: float | None = None

    @property
    def wishes(self) -> dict[str, Any]:
        """Where it should run, as it travels."""
        return wishes_plain(
            self.objective,
            self.deadline_s,
            when_closed=self.when_closed,
            deferrable=self.deferrable,
            whole=self.whole,
            sites=self.sites,
            not_sites=self.not_sites,
            jurisdictions=self.jurisdictions,
            environment=self.environment.wish
            if isinstance(self.environment, Environment)
            else None,
        )

    def seal(self, function: Callable[..., Any]) -> SealedFunction:
        """A function as it travels under these terms: with what it is to run in."""
        return self.house(seal_function(function))

    def house(self, sealed: SealedFunction) -> SealedFunction:
        """A sealed function with what it is to run in, under a digest of both."""
        if not isinstance(self.environment, Environment):
            return sealed
        body = wrap(sealed.body, self.environment)
        return replace(sealed, digest=hashlib.sha256(body).digest(), body=body)

    def _read_environment(self) -> None:
        """Read a file that is named, once: it may change meanwhile."""
        if self.environment is not None and not isinstance(self.environment, Environment):
            object.__setattr__(self, "environment", read_environment(self.environment, PYTHON))

    def __post_init__(self) -> None:
        self._read_environment()
        _ = self.wishes
        _check_tags(self.tags)
        if self.timeout_s is not None and not (
            _is_number(self.timeout_s, 0, TIMEOUT_MAX_S) and self.timeout_s > 0
        ):
            raise ValueError(f"timeout_s is {self.timeout_s!r}; it must be above zero, in seconds")
        if self.task_s is not None and not (
            _is_number(self.task_s, 0, TIMEOUT_MAX_S) and self.task_s > 0
        ):
            raise ValueError(f"task_s is {self.task_s!r}; it must be above zero, in seconds")
        if type(self.retries) is not int or not 0 <= self.retries <= RETRIES_MAX:
            raise ValueError(f"retries is {self.retries!r}; it must be 0 to {RETRIES_MAX}")
        if not _is_number(self.priority, -PRIORITY_MAX, PRIORITY_MAX):
            raise TypeError(f"priority is {self.priority!r}; it must be a number up to 1e9")
        for what in ("project", "name"):
            text = getattr(self, what)
            if text is not None and not (isinstance(text, str) and 0 < len(text) <= 200):
                raise ValueError(f"{what} is {text!r:.80}; it must be text of 1 to 200 characters")
            if text is not None and not _is_plain(text):
                raise ValueError(f"{what} is {text!a:.80}; it must be printable")
        if self.max_cost is not None:
            if not isinstance(self.max_cost, str):
                raise TypeError(f'max_cost is {self.max_cost!r:.80}; write text, as in "5 USD"')
            parse_money(self.max_cost)
        for what in ("prints", "preemptible"):
            if type(getattr(self, what)) is not bool:
                raise TypeError(f"{what} is {getattr(self, what)!r:.80}; it must be True or False")

    def key(self) -> tuple[Any, ...]:
        """What tells one set of options from another."""
        tags = tuple(sorted(self.tags.items()))
        rest = (self.timeout_s, self.retries, self.priority, self.project, self.max_cost)
        more = (self.name, self.prints, self.preemptible, self.task_s, repr(self.wishes))
        return (tags, *rest, *more)

    def __str__(self) -> str:
        """Those that are not as usual: `retries=2, project='risk'`."""
        usual = Options()
        pairs = ((name, getattr(self, name)) for name in self.__slots__)
        return ", ".join(
            f"{name}={value!r}" for name, value in pairs if value != getattr(usual, name)
        )


class TaskFuture(concurrent.futures.Future[T]):
    """The future of one task. A real concurrent.futures.Future that can cancel on the grid.

    Attributes:
        job: the id of the job that the task belongs to.
        task: its number in that job.
    """

    def __init__(self, engine: Engine, stream: Stream) -> None:
        # In place of Future.__init__, which makes a lock for every future, at half the cost of a
        # submit: ours is made when somebody asks for it. A test compares the attributes.
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
        """It is call `task` of this job now. For the engine."""
        self._stream, self.task = stream, task

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """What waiters and callbacks of the standard library are registered under."""
        own = self._own
        if own is None:
            with self._engine.futures_lock:
                own = self._own = self._own or threading.Condition()
        return own

    def finish(self, result: Any, error: BaseException | None) -> None:
        """Set the outcome: at once while nobody has asked for the lock, else as any future."""
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
        """Whether it has a result, failed, or was cancelled."""
        return self._state not in ("PENDING", "RUNNING")

    @property
    def job(self) -> str:
        """The id of the task's job."""
        return self._stream.id

    def cancel(self, *, stop: bool = False) -> bool:
        """Take the task back if it has not started; with `stop`, also end it if it runs.

        Asks the gateway and waits for its answer, two seconds at most. True when the task will
        give no result.
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

    def result(self, timeout: float | None = None) -> T:
        """The task's result; waits for it. Raises what the task raised.

        After a KeyboardInterrupt while it waits, the task is cancelled, and stopped if it runs, as
        soon as nobody refers to the future any more: `submit(f).result()` in a notebook cell that
        is interrupted leaves nothing in a slot. A future that is kept can be asked again.
        """
        try:
            self._wait(timeout)
            if self._state == "FINISHED" and self._exception is None:
                return cast("T", self._result)
            return super().result(timeout=0 if timeout is not None else None)
        finally:
            del self  # a traceback that leads through here must not keep the future

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the task raised, or None; waits for it."""
        try:
            self._wait(timeout)
            return super().exception(timeout=0 if timeout is not None else None)
        finally:
            del self  # as above

    def _wait(self, timeout: float | None) -> None:
        # The waiting thread drives the connection itself: no other thread has to be woken.
        try:
            if not self.done() and not self._engine.closed:
                self._engine.drive(self.done, timeout)
        except KeyboardInterrupt as interrupt:
            self.let_go(interrupt)
            raise
        finally:
            del self  # as above

    def let_go(self, interrupt: KeyboardInterrupt) -> None:
        """Have the task cancelled once nobody refers to the future; the traceback does not count.

        For an interrupt while somebody submits it, or waits for it.
        """
        self._engine.loosen(self._stream, self.task)
        traceback.clear_frames(interrupt.__traceback__)


class Client(concurrent.futures.Executor):
    """A connection to the nearest gateway.

    When that gateway is lost, the client goes to another: of those that were named, in their
    order, then of those that gateways have told it of. What has no result yet is sent again, and
    every future resolves once. It stays there until that one is lost too.

    Args:
        address: the gateway's, or several, best first: a sequence, or text with commas; else
            $GRIDFED_GATEWAY, else this user's own gateway.
        secret: what the gateway asks for; else $GRIDFED_SECRET.
        token: what `gridfed token` printed: who you are and what you may do; else $GRIDFED_TOKEN.
            Whoever holds it is you, so it goes over tls+tcp://, or stays on this host.
        tls: for tls+tcp:// addresses; what it leaves out is in $GRIDFED_TLS_CA_FILE,
            $GRIDFED_TLS_SERVER_NAME and $GRIDFED_TLS_CERTIFICATE_FILE.
        user: who is billed, where no token says so; else the login name.
        trusted_sites: the sites whose results are unpickled here, beside the gateway's own. What
            ran at another, or came through it, fails with ResultUntrusted, and an exception of
            its as RemoteError, by its text. By default the gateway's operator decides.
        connect_timeout_s: how long the first connection may take.
        failover_s: how long a lost gateway is waited for before the client goes to another, if
            it knows one: at once when nobody listens there any more, or when it says that it
            stops.
        give_up_s: how long no gateway may be reached before everything fails with
            GatewayUnreachable; for ever by default.

    A task may use a `Client()` of its own, which finds the gateway by itself and comes in as the
    user of its job, for the job's project, until that job ends. While it waits for
    what it submitted, it keeps its slot: a gateway does not take a waiting task off its slot to
    run what it waits for. When tasks that wait for tasks fill every slot, or nest deeper than
    there are slots, nothing goes on until one of them ends at its `timeout_s`. Keep fewer of them
    unfinished than there are slots, or give the inner ones to workers of their own by tags.

    Raises:
        GatewayUnreachable: nobody answers there.
        SessionRefused: the gateway does not let us in.
        AddressError: nobody can dial that, or not with a token.
    """

    def __init__(  # noqa: PLR0913 - each is a knob of the user's
        self,
        address: str | Sequence[str] | None = None,
        *,
        secret: str | None = None,
        token: str | None = None,
        tls: TlsSettings | None = None,
        user: str | None = None,
        trusted_sites: Iterable[str] | None = None,
        connect_timeout_s: float = 5.0,
        failover_s: float = FAILOVER_S,
        give_up_s: float | None = None,
    ) -> None:
        check_owners()
        if not _is_number(failover_s, 0, TIMEOUT_MAX_S):
            raise ValueError(f"failover_s is {failover_s!r}; it must be zero or more, in seconds")
        if give_up_s is not None and not _is_number(give_up_s, 0, TIMEOUT_MAX_S):
            raise ValueError(f"give_up_s is {give_up_s!r}; it must be zero or more, in seconds")
        if isinstance(trusted_sites, str):
            raise TypeError("trusted_sites must be a list of names, not one text")
        named = address if isinstance(address, str | None) else tuple(address)
        self._where = _Where(
            named,
            secret,
            token,
            tls,
            user,
            None if trusted_sites is None else frozenset(trusted_sites),
            connect_timeout_s,
            failover_s,
            give_up_s,
        )
        self._options = Options()
        self._shared = _Shared()
        self._recent: tuple[SealedFunction, Stream] | None = None
        self._connect()

    def _connect(self) -> Engine:
        where = self._where
        addresses, origin = resolve_address(where.address)
        for each in addresses:
            check_address(each)
            if self._holder.bears_token:
                check_bearer(each)
        itinerary = Itinerary(
            addresses,
            failover_s=where.failover_s,
            give_up_s=where.give_up_s,
            random=random.Random(),  # noqa: S311 - it spreads clients, and hides nothing
        )
        engine = self._shared.engine = self._start(itinerary, origin, where.connect_timeout_s)
        return engine

    @property
    def _holder(self) -> Holder:
        where, environ = self._where, os.environ
        token = environ.get(TOKEN_VARIABLE, "") if where.token is None else where.token
        if where.token is None and where.secret is not None and is_pass(token):
            token = ""  # of two ways to prove itself a task takes the one that it names
        return Holder(
            where.user or login(),
            environ.get("GRIDFED_SECRET", "") if where.secret is None else where.secret,
            token,
            where.trusted_sites,
        )

    def _start(self, itinerary: Itinerary, origin: str, connect_timeout_s: float) -> Engine:
        engine = Engine(
            itinerary,
            origin,
            holder=self._holder,
            tls=(self._where.tls or TlsSettings()).or_environment(),
            connect_timeout_s=connect_timeout_s,
        )
        _engines.add(engine)
        return engine

    def _reach(self, gateway: str, within_s: float | None = None) -> Engine:
        """The connection to a certain gateway: our own while we are there, else one beside it."""
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
                origin = "where a job of this client is"
                known = beside[gateway] = self._start(itinerary, origin, connect_timeout_s)
            return known

    @property
    def _engine(self) -> Engine:
        """The engine; connected late in a client that came out of a pickle."""
        engine = self._shared.engine
        return engine if engine is not None else self._connect()

    @property
    def address(self) -> str:
        """The address of the gateway."""
        return self._engine.address

    # --- submitting ----------------------------------------------------------------------------

    def options(self, **changes: Any) -> "Client":
        """A view of this client that submits under other terms.

        Args (all optional):
            tags: what a worker must carry: {"linux": True, "gpu": 2}; numbers are counted.
            timeout_s: a task that runs longer is stopped and fails.
            retries: how often a task that raised, ran over its time or its memory is tried
                again. One that takes its process down is tried a second time whatever this
                says, and alone: only so can the culprit be told from its neighbours. One whose
                worker was lost is tried again too, and neither counts as a retry. Such a task is
                given up (WorkerLost) after the gateway's `task_losses` workers, 5 by default,
                were lost while it ran; what had not begun is tried without end.
            priority: higher goes first.
            project: who is billed, beside the user.
            max_cost: "5 USD"; when the job has cost so much, nothing more of it starts. All that
                is submitted of one function under it is one job; otherwise submit begins another
                when a function was not used for a while.
            name: what the job is called.
            prints: whether what tasks print comes back here; else nobody sees it.
            objective: "cheapest", "fastest", "greenest", or weights as in
                {"money": 1, "time": 2, "carbon": 0}; the gateway's own taste otherwise.
            deadline_s: UTC, seconds since 1970; goes only where it would be done by then.
            sites: the only sites that it may run at.
            not_sites: sites that it must not run at.
            jurisdictions: where its data may go.
            deferrable: what of it gains by that may wait for greener hours, or cheaper ones, as
                its objective weighs them; so that it is done by its deadline_s all the same.
            whole: it is of use only if all of it is done within deadline_s and max_cost: it is
                refused when that is known to be impossible, and ended when it becomes so.
            task_s: about how many seconds a call takes, where you know: by that it is planned, and
                held against deadline_s and max_cost, until calls of it have ended. A hint; what
                runs longer goes on. Else what calls of the function took before counts.
            preemptible: it is cheaper, and goes after all work that is not.
            environment: what its tasks run in (docs/environments.md): the name of a container
                image, "localhost/quant:1", or the Path of a uv.lock or a requirements file, which
                is read now. It goes only where that is offered.
            when_closed: what is done about pools that are not open to it now, by their windows:
                "wait" for one that would suit it better than all that are open; go "elsewhere",
                where it is open now. Otherwise the wait is weighed as any other.

        The view shares the connection: shutting down either shuts down both.
        """
        unknown = set(changes) - set(Options.__slots__)
        if unknown:
            raise TypeError(
                f"unknown option {', '.join(sorted(unknown))}; there are "
                f"{', '.join(Options.__slots__)}"
            )
        view = object.__new__(type(self))
        view._where, view._shared = self._where, self._shared
        view._options = replace(self._options, **changes)
        view._recent = None
        return view

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> TaskFuture[T]:
        """Run fn(*args, **kwargs) on the grid."""
        engine = self._engine
        payload = seal_call(args, kwargs)
        function = seal_function(fn)
        recent = self._recent
        if recent is not None and recent[0] is function:
            stream = recent[1]
        else:
            stream = self._stream(engine, function)
        future: TaskFuture[T] = TaskFuture(engine, stream)
        try:
            while not engine.submit(stream, payload, future):
                stream = self._stream(engine, function)  # the job was closed meanwhile: to another
        except KeyboardInterrupt as interrupt:
            future.let_go(interrupt)  # nobody will have it
            del future
            raise
        return future

    def _stream(self, engine: Engine, function: SealedFunction) -> Stream:
        """The job that calls of this function go to, under these options."""
        housed = self._options.house(function)
        key = (housed.digest, self._options.key())
        stream = engine.filling(key, housed, lambda: self._opening(housed, detached=False))
        self._recent = function, stream
        return stream

    def _opening(
        self, function: SealedFunction, *, detached: bool, tasks: int | None = None
    ) -> OpenJob:
        options = self._options
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
        )

    def map(
        self,
        fn: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        progress: bool = False,
    ) -> "MapResults[T]":
        """Run fn over the iterables, zipped; an iterator over the results, in order.

        It starts at once. Inputs are taken in this thread, up to some 64,000 calls ahead of their
        reader, and more as results are read. An input that is slow to come is sent before the
        next is asked for, and not waited for while there is a result to give.

        A map that is not read runs all the same: at the latest when the client closes, which
        waits for it; results that nobody has room for are dropped then. Only where no iterable
        has a length, so that the calls may have no end, does closing cancel what has not begun,
        unless all inputs were taken by then; it logs how many calls that were.

        Dropping the iterator half way, or closing it, cancels what has not begun; after a
        KeyboardInterrupt also what runs. So does a task that failed: its exception ends the
        iterator, as with every Executor. To go on past failures use submit, or submit_job and
        its results(return_exceptions=True).

        Args:
            timeout: raise TimeoutError when a result is not there so many seconds after the call.
            chunksize: accepted for compatibility; bundles are sized by measured time.
            progress: show a bar.
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
        timeout: float | None = None,
        progress: bool = False,
    ) -> "MapResults[T]":
        """As `map`, with the arguments of each call already in a tuple."""
        return self._mapped(fn, Inputs(iterable, iterable, singles=False), timeout, progress)

    def _mapped(
        self,
        fn: Callable[..., T],
        inputs: Inputs,
        timeout: float | None,
        progress: bool,
    ) -> "MapResults[T]":
        engine = self._engine
        function = self._options.seal(fn)
        opening = self._opening(function, detached=False, tasks=inputs.total)
        stream = engine.open_stream(opening, function)
        return MapResults(engine, stream, inputs, timeout=timeout, progress=progress)

    def as_completed(
        self, futures: Iterable[concurrent.futures.Future[T]], timeout: float | None = None
    ) -> Iterator[concurrent.futures.Future[T]]:
        """The futures as they are done, each once; as concurrent.futures.as_completed."""
        return concurrent.futures.as_completed(list(futures), timeout)

    # --- detached jobs and questions -----------------------------------------------------------

    def submit_job(
        self,
        fn: Callable[..., Any],
        iterable: Iterable[Any],
        *,
        name: str | None = None,
        star: bool = False,
    ) -> JobHandle:
        """Hand fn over an iterable to the gateway as a job that survives this client.

        Returns once all of it is on the gateway's disk. With `star` each item is a tuple of
        arguments.
        """
        view = self.options(name=name) if name is not None else self
        engine = self._engine
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
        trusted, prints = self._where.trusted_sites, stream.opening.prints
        return JobHandle(self._reach, stream.id, stream.home, trusted, prints=prints)

    def _remember_home(self, stream: Stream) -> None:
        homes = self._shared.homes
        homes[stream.id] = stream.home
        while len(homes) > HOMES_MAX:
            del homes[next(iter(homes))]

    def job(self, job_id: str, *, gateway: str | None = None) -> JobHandle:
        """A detached job, or any other, by its id. Asks nothing yet.

        Args:
            gateway: the address of the gateway that has it; else the one that this client handed
                it to, else the one where this client is.
        """
        if gateway is None:
            engine = self._engine
            here = "" if engine.has_attached(job_id) else engine.address
            gateway = self._shared.homes.get(job_id, here)
        return JobHandle(self._reach, job_id, gateway, self._where.trusted_sites)

    def jobs(self, limit: int = 50, *, all_users: bool = False) -> list[dict[str, Any]]:
        """This user's latest jobs, one map each: id, name, user, state, counts, slot time and cost.

        Those of all users at the gateway's own socket, by a token with the scope `audit`, and, by
        the shared secret, with `all_users`; GridError where that is not allowed.
        """
        details = {"all_users": True} if all_users else {}
        found: list[dict[str, Any]] = self.ask("jobs", limit=limit, **details)
        return found

    def explain(
        self,
        what: "str | TaskFuture[Any] | JobHandle | Callable[..., Any]",
        /,
        *,
        tasks: int = 1,
        task_s: float | None = None,
    ) -> dict[str, Any]:
        """Why a job goes where it goes; or, before it is submitted, where it would go.

        Args:
            what: a job (its id, its handle, or a future of it) that has not ended; or a function,
                whose calls would be submitted under this view's options.
            tasks: how many calls of the function.
            task_s: how long one takes, if not as its option `task_s` says, or as was measured.

        Returns:
            `text` says it in a sentence; `shares` have the tasks, the end and the cost by place;
            `candidates` every site and pool with its figures; `refused` the others, and why.
        """
        if isinstance(what, str):
            return dict(self.ask("explain", job=what))
        if isinstance(what, TaskFuture):
            return dict(self.ask("explain", job=what.job))
        if isinstance(what, JobHandle):
            return what.explain()
        opening = self._opening(self._options.seal(what), detached=False)
        terms = {name: getattr(opening, name) for name in EXPLAINED}
        if task_s is None:
            task_s = opening.task_s
        return dict(self.ask("explain", tasks=tasks, task_s=task_s, **terms))

    def ask(self, verb: str, **details: Any) -> Any:
        """Ask the gateway a question (docs/protocol.md lists the verbs); plain data comes back."""
        return self._engine.ask(verb, details)

    # --- the end -------------------------------------------------------------------------------

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; with `wait`, return when what was submitted is done.

        With `cancel_futures` what has not started is taken back, and its number logged. Without
        `wait`, pending futures still get their results: the interpreter's exit waits for them.
        A gateway that does not answer delays the call by two seconds at most. In a forked child
        it does nothing.
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
        """Wait for what was submitted; after a Ctrl-C drop it, and log how much that was."""
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
        raise TypeError(f'tags is {tags!r:.80}; write a map, as in {{"gpu": 1}}')
    for name, value in tags.items():
        if not isinstance(name, str) or not name or not _is_plain(name):
            raise TypeError(f"tags: {name!r} is no name")
        if value is not True and not _is_number(value, 0, TAG_MAX):
            raise TypeError(f"tags: {name} is {value!r}; it must be True or a number from zero")


def _is_number(value: Any, least: float, most: float) -> bool:
    return type(value) in (int, float) and least <= value <= most


def _is_plain(text: str) -> bool:
    return text.isprintable()  # which lone surrogates are not


def _wind_up_engines() -> None:
    """Wait for what was submitted, as executors do, and say goodbye; at once after a Ctrl-C."""
    ended_by = getattr(sys, "last_type", None)
    is_script = not (sys.flags.interactive or hasattr(sys, "ps1"))
    waits = not (is_script and ended_by is not None and issubclass(ended_by, KeyboardInterrupt))
    for engine in list(_engines):
        if waits:
            waits = wind_up_at_exit(engine)
        elif not (engine.closed or engine.is_foreign):
            drop(engine, "interrupted")


def _register_at_exit() -> None:
    # As concurrent.futures does: when functions of `atexit` run, threads can't be started any
    # more. Those are for what is connected after that.
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        with contextlib.suppress(RuntimeError):  # imported while the interpreter ends
            register(_wind_up_engines)
    atexit.register(_wind_up_engines)


_register_at_exit()


__all__ = ["Client", "GridError", "JobRefused", "Options", "TaskFuture"]
