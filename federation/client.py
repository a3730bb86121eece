"""The client that users import: a concurrent.futures Executor with a grid for workers.

    with Client() as client:
        for result in client.map(price, scenarios): ...

`Client` keeps the whole contract of concurrent.futures.Executor, and adds options, detached jobs
and queries about the site. federation.engine does the work: `options` reads the terms, `engines`
connects, `engine` sends and receives, `futures` resolves.
"""

import concurrent.futures
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Never, ParamSpec, TypeAlias, TypeVar, overload

from federation.address import resolve as resolve_address
from federation.engine.books.streams import Ended, Stream
from federation.engine.closing import drop, wind_up, wind_up_later
from federation.engine.dialling.gateways import FAILOVER_S
from federation.engine.dialling.settings import ConnectionSettings, read_settings
from federation.engine.engine import ClientEngine
from federation.engine.engines import HOMES_MAX, ClientEngines
from federation.engine.failures import exception_of
from federation.engine.futures import TaskFuture, abandon_all
from federation.engine.graph_calls import seal_large_call
from federation.engine.jobs import JobHandle, explanation
from federation.engine.mapping import Inputs, MapResults, feed_all
from federation.engine.objects import NAMED_S, ObjectRef
from federation.engine.options import (
    KEPT,
    Options,
    TagValue,
    check_name,
    is_number,
)
from federation.errors import GridError, JobRefused
from federation.graphs.collections import keys_of, merged, optimized, rebuilt
from federation.graphs.reading import flatten, plan
from federation.graphs.submitting import submit_plan, values
from federation.loops.iterating import CompletedFutures
from federation.messages.environments import Environment
from federation.messages.messages import OpenJob
from federation.messages.objects import NAMED_MAX_S
from federation.objects.labels import UNLABELLED, DataLabel
from federation.objects.large_arguments import LARGE_BYTES
from federation.objects.left import REF
from federation.objects.open_calls import OpenCall, SealedCall
from federation.package_conflicts import check_owners
from federation.payload import SealedFunction, seal_function, seal_small
from federation.ranges import RangeSet
from federation.transport import TlsSettings
from federation.words import Length, duration_text, read_seconds, read_timeout

if TYPE_CHECKING:
    from federation.engine.explained import Explanation

T = TypeVar("T")
P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
FutureT = TypeVar("FutureT", bound=concurrent.futures.Future[Any])

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
    "preemptible",
)
# Pickles of clients name it so.
_Where = ConnectionSettings


# An argument of a call: the value, or its replacement.
Given: TypeAlias = A | ObjectRef[A] | TaskFuture[A]


def as_completed(
    futures: Iterable[FutureT], timeout: Length | None = None
) -> CompletedFutures[FutureT]:
    """Yield each future once, as it is done: concurrent.futures.as_completed, for any class of it.

    `async for` works as well, under asyncio and trio; the futures go on when its task is cancelled.
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
    return CompletedFutures(named, read_timeout(timeout))


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
    waits for tasks that it submitted. One that does not begin elsewhere is taken back and runs in
    the thread that waits for it by `result()` or `map`, without a timeout, so tasks in tasks end
    with any number of slots. Tasks with tags, an environment, limits, objects or futures among
    their arguments are not taken back: leave slots for them.

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
        settings = read_settings(
            address,
            secret=secret,
            token=token,
            tls=tls,
            user=user,
            trusted_sites=trusted_sites,
            connect_timeout_s=connect_timeout_s,
            failover_s=failover_s,
            give_up_s=give_up_s,
        )
        self._options = Options()
        self._engines = ClientEngines(settings)
        self._shown: dict[str, RangeSet] = {}  # job → tasks whose output was shown
        self._recent: tuple[SealedFunction, Stream, ClientEngine] | None = None
        self._recent_open: tuple[SealedFunction, Stream, ClientEngine] | None = None
        self._engines.connect()

    @property
    def _engine(self) -> ClientEngine:
        return self._engines.own

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
        address, choice = self._engine.address, self._engines.choice
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
            results: with "auto" results of over 1 MiB come as files that this client maps, without
                a copy and of any size, if it is on the gateway's host; "value" sends all in
                messages, up to the gateway's limit; with "ref" every result is an ObjectRef, to be
                passed on to other calls (docs/data.md). Results of detached jobs are always values.
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
        view = object.__new__(type(self))
        view._engines, view._shown = self._engines, self._shown
        view._options = self._options.changed(given)
        view._recent = view._recent_open = None
        return view

    # A reference or a future may stand for any argument; type checkers know it of three positional
    # ones.
    @overload
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> TaskFuture[T]: ...

    @overload
    def submit(self, fn: Callable[[A], T], first: Given[A], /) -> TaskFuture[T]: ...

    @overload
    def submit(
        self,
        fn: Callable[[A, B], T],
        first: Given[A],
        second: Given[B],
        /,
    ) -> TaskFuture[T]: ...

    @overload
    def submit(
        self,
        fn: Callable[[A, B, C], T],
        first: Given[A],
        second: Given[B],
        third: Given[C],
        /,
    ) -> TaskFuture[T]: ...

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> TaskFuture[Any]:
        """Run fn(*args, **kwargs) on the grid, and return its future."""
        engine = self._engines.nearest()
        payload = seal_small(args, kwargs)
        if payload is None or len(payload) > LARGE_BYTES:
            terms = self._options
            payload = seal_large_call(engine, args, kwargs, payload, terms.project, terms.results)
        function = seal_function(fn)
        waits = type(payload) is OpenCall
        recent = self._recent_open if waits else self._recent
        label = UNLABELLED if payload[0] else self._label_of(engine, payload)
        if label:
            stream = self._stream(engine, function, waits, label)
        elif recent is not None and recent[0].digest == function.digest and recent[2] is engine:
            stream = recent[1]
        else:
            stream = self._stream(engine, function, waits)
        future: TaskFuture[Any] = TaskFuture(engine, stream)
        try:
            while not engine.submit(stream, payload, future):
                # The job was closed meanwhile.
                stream = self._stream(engine, function, waits, label)
        except KeyboardInterrupt as interrupt:
            future.let_go(interrupt)  # the caller will not get the future
            del future
            raise
        return future

    def put(
        self,
        value: T,
        *,
        name: str | None = None,
        for_s: Length = NAMED_S,
        residency: Iterable[str] = (),
    ) -> ObjectRef[T]:
        """Put a value at the gateway's site, and return a reference to it.

        Pass the reference anywhere among the arguments of calls of the same project: the bytes are
        written once, and tasks read arrays where they lie, read-only and without a copy. The object
        is held for this client until the reference and the calls that use it are gone; with a
        `name` also for `for_s` seconds, for other clients of the project (`object`). So far this
        works on the gateway's own host, with local pools.

        `residency` is the label of the object: where it may lie, and tasks that read it may run,
        with their results and output (docs/residency.md). Its words: "EU" for a jurisdiction,
        "site:paris", "not-site:tokyo", or "home" for the gateway's own site.

        Raises:
            ValueError: `for_s` is given without a name, or is out of its bounds; a word of
                `residency` means nothing, or they leave no place.
            SerializationError: the value can't be pickled.
            ObjectRefused: the site has no room, keeps no objects, or is on another host.
        """
        seconds: float = read_seconds("for_s", for_s)
        if not (is_number(seconds, 0, NAMED_MAX_S) and seconds > 0):
            most = duration_text(NAMED_MAX_S)
            raise ValueError(
                f"for_s is {for_s!r:.80}; it must be above zero, and {most} at most: seconds, or a "
                'text such as "12h"'
            )
        check_name("name", name)
        if name is None and for_s != NAMED_S:
            raise ValueError(
                f"for_s is {for_s!r:.80}, but the object has no name: give name= as well, or omit "
                "for_s to hold the object as long as its reference"
            )
        kept_s = None if name is None else seconds
        project = self._options.project
        objects = self._engines.nearest().objects
        return objects.put(value, project, name or "", kept_s, residency)

    def object(self, name: str, user: str | None = None) -> ObjectRef[Any]:
        """Return a reference to an object that was put with this name in the view's project.

        Args:
            name: the name.
            user: the user who put it; by default this client's own. Who reads the object runs the
                pickle of that user: name only those that you trust.

        Raises ObjectLost when there is none, or its time is over.
        """
        return self._engines.nearest().objects.find(name, self._options.project, user)

    def release(self, name: str) -> str:
        """Take the name of an object back before it expires; return what holds it still.

        The object is freed once no client, job or other name holds it: the text is empty then.

        Raises ObjectLost when this user has named no object so in the view's project.
        """
        return self._engines.nearest().objects.drop(name, self._options.project)

    def _label_of(self, engine: ClientEngine, payload: SealedCall) -> DataLabel:
        return engine.objects.label_of(payload, self._options.project)

    def _stream(
        self,
        engine: ClientEngine,
        function: SealedFunction,
        waits: bool,
        label: DataLabel = UNLABELLED,
    ) -> Stream:
        """Return the job for calls of this function under these options.

        Those that wait for others have a job of their own: it stays at its site; and those with
        data of one label, which may run at fewer places.
        """
        sealed = self._options.with_environment(function)
        key = (sealed.digest, self._options.key(), waits, label.words)
        stream = engine.filling(key, sealed, lambda: self._opening(sealed, engine, label=label))
        if label:
            return stream
        if waits:
            self._recent_open = function, stream, engine
        else:
            self._recent = function, stream, engine
        return stream

    def _opening(
        self,
        function: SealedFunction,
        engine: ClientEngine,
        *,
        detached: bool = False,
        tasks: int | None = None,
        label: DataLabel = UNLABELLED,
    ) -> OpenJob:
        near = engine.is_near
        opening = self._options.opening(function, near=near, detached=detached, tasks=tasks)
        if not label:
            return opening
        return replace(opening, wishes={**opening.wishes, "label": list(label.words)})

    @overload  # type: ignore[override]  # narrower than Executor's: it checks the items' types
    def map(
        self,
        fn: Callable[[A], T],
        iterable: Iterable[Given[A]],
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
        iterable: Iterable[Given[A]],
        second: Iterable[Given[B]],
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
        iterable: Iterable[Given[A]],
        second: Iterable[Given[B]],
        third: Iterable[Given[C]],
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
        engine = self._engines.nearest()
        function = self._options.seal(fn)
        opening = self._opening(function, engine, tasks=inputs.total)
        stream = engine.open_stream(opening, function)
        return MapResults(engine, stream, inputs, timeout=within_s, progress=progress)

    # --- graphs as Dask writes them ------------------------------------------------------------

    asynchronous = False  # Dask asks whether `get` waits

    def get(self, dsk: Any, keys: Any, **_ignored: Any) -> Any:
        """Compute keys of a graph of Dask's contract; return their values, nested as the keys are.

        `dask.config.set(scheduler=client)` lets Dask call it. Only the calls that the keys need
        run. Each begins at the gateway when its inputs have ended. See docs/graphs.md.

        Args:
            dsk: a mapping of keys to tasks (tuples with a callable first), other keys, collections
                of these, or values; or an object with `__dask_graph__`.
            keys: a key, or a list of keys and lists; of a list the answer is a tuple.

        Raises:
            KeyError: a key is not in the graph.
            ValueError: keys need each other; the text names them.
            Exception: that of the first task that failed.
        """
        found = submit_plan(plan(dsk, keys), keys, self.submit, self.put, self._named)
        try:
            return values(found, keys)
        except BaseException:
            abandon_all(each for each in found.values() if isinstance(each, TaskFuture))
            raise

    @overload
    def persist(self, dsk: Any, keys: Any) -> dict[Hashable, Any]: ...

    @overload
    def persist(self, dsk: Sequence[Any], *, optimize_graph: bool = True) -> list[Any]: ...

    def persist(
        self, dsk: Any, keys: Any = None, *, optimize_graph: bool = True, **_ignored: Any
    ) -> Any:
        """Submit the calls that keys of a graph need; return the future of each key at once.

        A key whose value is in the graph gets that value. Futures may stand in other graphs, and
        among the arguments of calls. Arguments and errors: as of `get`, but those of tasks. Without
        keys, `dsk` is a list of Dask's collections: it returns them with futures for their parts,
        as `dask.persist` calls it.
        """
        if keys is None:
            parts = [optimized(each) if optimize_graph else each for each in dsk]
            graph = merged(parts, optimize_graph=optimize_graph)
            futures = self.persist(graph, [keys_of(each) for each in parts])
            return [rebuilt(each, futures.__getitem__) for each in parts]
        found = submit_plan(plan(dsk, keys), keys, self.submit, self.put, self._named)
        return {key: found[key] for key in flatten(keys)}

    def _named(self, name: str) -> Callable[..., TaskFuture[Any]]:
        """Return `submit` of a view with this name, unless the user has named the jobs."""
        return self.submit if self._options.name else self.options(name=name).submit

    @property
    def _max_workers(self) -> int:
        """The slots of the gateway's site now, at least one: libraries such as Dask read it."""
        pools = self.ask("status")["pools"]
        return max(1, sum(int(pool["slots"]) for pool in pools))

    def as_completed(
        self, futures: Iterable[FutureT], timeout: Length | None = None
    ) -> CompletedFutures[FutureT]:
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
        arguments. Its results are values: the option results="ref" raises ValueError.
        """
        view = self.options(name=name) if name is not None else self
        if view._options.results == REF:
            raise ValueError(
                "results='ref' is for submit and map: results of submit_job are kept as values, "
                "for a later client; use options(results='value')"
            )
        engine = self._engines.nearest()
        function = view._options.seal(fn)
        inputs = Inputs(iterable, iterable, singles=not star)
        opening = view._opening(function, engine, detached=True, tasks=inputs.total)
        stream = engine.open_stream(opening, function)
        feed_all(engine, stream, inputs)
        engine.close_stream(stream)
        engine.wait_kept(stream)
        self._engines.remember_home(stream)
        if stream.rejected:
            raise exception_of(stream.rejection or Ended("refused", "the job was refused"))
        if engine.error is not None:
            raise engine.error
        return self._handle(stream.id, stream.home, prints=stream.opening.prints)

    def _handle(self, job_id: str, gateway: str, *, prints: bool = True) -> JobHandle:
        shown = self._shown
        known = shown.setdefault(job_id, RangeSet())
        while len(shown) > HOMES_MAX:
            del shown[next(iter(shown))]
        trusted = self._engines.settings.trusted_sites
        return JobHandle(self._engines.at, job_id, gateway, trusted, prints=prints, shown=known)

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
            gateway = self._engines.home_of(job_id)
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
        opening = self._opening(self._options.seal(what), self._engine)
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
        self._engines.close_beside()
        engine = self._engines.connected
        if engine is None or engine.closed or engine.is_foreign:
            return
        engine.shut = True
        if wait:
            wind_up(engine, cancel=cancel_futures)
        else:
            wind_up_later(engine, cancel=cancel_futures)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Wait for all submitted tasks; after a Ctrl-C drop them, and log how many there were."""
        engine = self._engines.connected
        if engine is not None and kind is not None and issubclass(kind, KeyboardInterrupt):
            drop(engine, "interrupted")
        else:
            self.shutdown()

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (self._engines.settings, self._options)

    def __repr__(self) -> str:
        engine = self._engines.connected
        if engine is None:
            address, state = (
                resolve_address(self._engines.settings.address)[0][0],
                "not connected yet",
            )
        else:
            address = engine.address
            state = "shut down" if engine.closed else f"{engine.unfinished:,} tasks unfinished"
        terms = str(self._options)
        return f"<gridfed Client of {address}, {state}{terms and ', ' + terms}>"

    def _repr_html_(self) -> str:
        text = repr(self).strip("<>").replace("&", "&amp;").replace("<", "&lt;")
        return f"<code>{text}</code>"


def _revive(settings: ConnectionSettings, options: Options) -> Client:
    client = object.__new__(Client)
    client._engines, client._options = ClientEngines(settings), options
    client._shown, client._recent, client._recent_open = {}, None, None
    return client


__all__ = [
    "Client",
    "GridError",
    "JobRefused",
    "ObjectRef",
    "Options",
    "TaskFuture",
    "as_completed",
]
