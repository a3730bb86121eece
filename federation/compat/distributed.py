"""The Client of dask.distributed, on the grid: submit, map, gather, scatter, compute, persist.

    from federation.compat.distributed import Client, as_completed, wait

    client = Client()  # and Dask's collections compute here from now on
    total = client.submit(sum, client.map(price, scenarios)).result()

docs/dropins.md lists what is there. Dask is needed for its collections alone.
"""

import concurrent.futures
import importlib.util
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from federation.address import TOKEN_VARIABLE
from federation.client import Client as GridClient
from federation.compat.distributed_futures import (
    DoneAndNotDoneFutures,
    Future,
    as_completed,
    new_key,
    plain,
    wait,
)
from federation.compat.task_clients import ClientOfTask
from federation.compat.tasks import finish_collection
from federation.engine.closing import drop
from federation.engine.futures import TaskFuture, abandon_all
from federation.engine.objects import ObjectRef
from federation.errors import ObjectRefused
from federation.graphs.collections import (
    is_collection,
    keys_of,
    merged,
    optimized,
)
from federation.sessions.task_passes import is_pass
from federation.words import Length, read_timeout

T = TypeVar("T")

# Arguments of Dask's client about a cluster that it starts: a gateway has its pools.
OF_CLUSTERS: Final = frozenset(
    {
        *("n_workers", "threads_per_worker", "processes", "memory_limit", "dashboard_address"),
        *("silence_logs", "worker_class", "local_directory", "loop", "heartbeat_interval"),
    }
)
# Arguments of `submit` about single workers, and about results in their memory.
OF_WORKERS: Final = frozenset({"workers", "allow_other_workers", "actor", "actors", "fifo_timeout"})

_log = logging.getLogger("gridfed")
_lock = threading.Lock()
_current: list["Client"] = []  # the last one is the default


class Client:
    """A client of the grid with the interface of dask.distributed's.

    Args:
        address: of the gateway, as of federation.Client.
        set_as_default: whether Dask's collections compute here from now on, until it is closed.
        name: the name of its jobs.
        timeout: how long connecting may take.
        asynchronous: only False; see federation.AsyncClient.
        options: further arguments of federation.Client. Those about a cluster that Dask would start
            are ignored, with a log line.

    Attributes:
        grid: the federation.Client below, with its options.
        lasting: calls of `fire_and_forget` that are not done; `close` waits for them.
    """

    asynchronous = False  # Dask asks whether `get` waits

    def __init__(
        self,
        address: Any = None,
        *,
        set_as_default: bool = True,
        name: str | None = None,
        timeout: Length | None = None,
        asynchronous: bool = False,
        **options: Any,
    ) -> None:
        if asynchronous:
            raise ValueError("asynchronous=True: use federation.AsyncClient, or await the futures")
        ignored = sorted(OF_CLUSTERS & options.keys())
        if ignored:
            _log.warning("%s: no meaning here, a gateway has its pools", ", ".join(ignored))
        given = {key: each for key, each in options.items() if key not in OF_CLUSTERS}
        grid = GridClient(address, connect_timeout_s=timeout, **given)
        self.grid = grid if name is None else grid.options(name=name)
        self._views: dict[Any, GridClient] = {}
        self._by_key: weakref.WeakValueDictionary[str, Future[Any]] = weakref.WeakValueDictionary()
        self.lasting: set[TaskFuture[Any]] = set()
        self._dask: Any = None
        with _lock:
            _current.append(self)
        if set_as_default and importlib.util.find_spec("dask") is not None:
            import dask

            self._dask = dask.config.set(scheduler=self)

    @classmethod
    def current(cls, allow_global: bool = True) -> "Client":
        """Return the client that was made last and is open. ValueError where there is none."""
        with _lock:
            if not _current:
                raise ValueError("no client found: make a Client() first")
            return _current[-1]

    # --- calls ---------------------------------------------------------------------------------

    def submit(
        self,
        func: Callable[..., T],
        *args: Any,
        key: str | None = None,
        retries: int | None = None,
        priority: float = 0,
        resources: Mapping[str, Any] | None = None,
        pure: bool = False,
        **kwargs: Any,
    ) -> Future[T]:
        """Submit func(*args, **kwargs), and return its future.

        Futures may stand anywhere among the arguments. Every call runs: equal calls are not one, as
        with pure=False of Dask. A key that a future of this client has already gives that future.

        Args:
            retries, priority: as of federation.Client.options.
            resources: counted tags that a worker must have, such as {"gpu": 1}.
            pure: ignored.
        """
        self._check(kwargs)
        known = None if key is None else self._by_key.get(key)
        if known is not None:
            return known
        view = self._terms(retries, priority, resources)

        def again() -> TaskFuture[T]:
            return view.submit(func, *args, **kwargs)

        made: Future[T] = Future(again(), key or new_key(_name(func)), self).on_retry(again)
        if key is not None:
            self._by_key[key] = made
        return made

    def _check(self, kwargs: dict[str, Any]) -> None:
        wrong = sorted(OF_WORKERS & kwargs.keys())
        if wrong:
            raise TypeError(f"{', '.join(wrong)}: not here; `resources` names tags of workers")

    def _terms(
        self, retries: int | None, priority: float, resources: Mapping[str, Any] | None
    ) -> GridClient:
        terms = (retries, priority, tuple(sorted((resources or {}).items())))
        if terms == (None, 0, ()):
            return self.grid
        if terms not in self._views:
            options: dict[str, Any] = {} if retries is None else {"retries": retries}
            options |= {"priority": priority} if priority else {}
            options |= {"tags": dict(resources)} if resources else {}
            self._views[terms] = self.grid.options(**options)
        return self._views[terms]

    def map(
        self,
        func: Callable[..., T],
        *iterables: Iterable[Any],
        key: str | None = None,
        retries: int | None = None,
        priority: float = 0,
        resources: Mapping[str, Any] | None = None,
        pure: bool = False,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[Future[T]]:
        """Submit func over the zipped iterables, and return the futures, in order.

        Keyword arguments go to every call; `key` begins the keys. See `submit` for the others;
        batch_size is ignored, as calls that wait travel together anyway.
        """
        name = key or _name(func)
        calls = zip(*iterables, strict=False)
        return [
            self.submit(
                func,
                *each,
                key=new_key(name) if key else None,
                retries=retries,
                priority=priority,
                resources=resources,
                **kwargs,
            )
            for each in calls
        ]

    def gather(self, futures: Any, errors: str = "raise", direct: bool | None = None) -> Any:
        """Return the values of futures, in the nesting of lists, tuples, sets and dicts given.

        Args:
            errors: "raise" the first exception; or "skip", which leaves out what has failed (in a
                named tuple it is None).
            direct: ignored.
        """
        if errors not in ("raise", "skip"):
            raise ValueError(f"errors is {errors!r}; it must be 'raise' or 'skip'")
        if isinstance(futures, Future):
            return futures.result()
        if isinstance(futures, Mapping):
            found = {name: each for name, each in futures.items() if _is_kept(each, errors)}
            return {name: self.gather(each, errors) for name, each in found.items()}
        if isinstance(futures, tuple) and hasattr(futures, "_make"):  # a named tuple
            return futures._make(
                self.gather(each, errors) if _is_kept(each, errors) else None for each in futures
            )
        if isinstance(futures, (list, tuple, set, frozenset)):
            kind = type(futures)
            return kind(self.gather(each, errors) for each in futures if _is_kept(each, errors))
        if isinstance(futures, Iterable) and not isinstance(futures, (str, bytes)):
            return [self.gather(each, errors) for each in futures if _is_kept(each, errors)]
        return futures

    def scatter(
        self,
        data: Any,
        workers: Any = None,
        broadcast: bool = False,
        direct: bool | None = None,
        hash: bool = True,
        timeout: Length | None = None,
    ) -> Any:
        """Put values at the site, and return futures that stand for them.

        A list, tuple or dict gives one future for each item. The other arguments are ignored: a
        value is written once, and tasks read it where it lies. Where no object can be put, the
        value travels in each call.
        """
        if isinstance(data, dict):
            return {name: self._scattered(each, str(name)) for name, each in data.items()}
        if type(data) in (list, tuple, set, frozenset):
            return type(data)(self._scattered(each) for each in data)
        return self._scattered(data)

    def _scattered(self, value: Any, key: str = "") -> Future[Any]:
        try:
            held: Any = self.grid.put(value)
        except ObjectRefused as error:
            _log.info("a scattered value travels in each call: %s", error)
            held = plain(value)
        return Future(held, key or new_key(type(value).__name__), self)

    def cancel(
        self,
        futures: Any,
        asynchronous: bool | None = None,
        force: bool = False,
        reason: str | None = None,
        msg: str | None = None,
    ) -> None:
        """Cancel calls, running ones too, without waiting. Collections: those of their parts."""
        abandon_all(each.held for each in _futures_of(futures) if isinstance(each.held, TaskFuture))

    def retry(self, futures: Any, asynchronous: bool | None = None) -> None:
        """Run calls again that have failed or were cancelled."""
        for each in _futures_of(futures):
            each.retry()

    # --- collections of Dask -------------------------------------------------------------------

    def compute(
        self, collections: Any, sync: bool = False, optimize_graph: bool = True, **_ignored: Any
    ) -> Any:
        """Compute collections of Dask; return a future for each, or with `sync` their values.

        Of a list it returns a list; what is no collection is returned as it is.
        """
        group = list(collections) if isinstance(collections, (list, tuple, set)) else [collections]
        mine = [each for each in group if is_collection(each)]
        parts = [optimized(each) if optimize_graph else each for each in mine]
        graph = merged(parts, optimize_graph=optimize_graph)
        futures = self.grid.persist(graph, [keys_of(each) for each in parts])

        def future_of(part: Any) -> Future[Any]:
            finish, state = part.__dask_postcompute__()
            values = _filled(keys_of(part), futures)
            made = self.grid.submit(finish_collection, finish, state, values)
            return Future(made, new_key("finalize"), self)

        whole = iter([future_of(each) for each in parts])
        found = [next(whole) if is_collection(each) else each for each in group]
        answer = self.gather(found) if sync else found
        return answer if isinstance(collections, (list, tuple, set)) else answer[0]

    def persist(self, collections: Any, optimize_graph: bool = True, **_ignored: Any) -> Any:
        """Begin to compute collections of Dask; return them with futures for their parts."""
        if isinstance(collections, (list, tuple, set)):
            return self.grid.persist(list(collections), optimize_graph=optimize_graph)
        return self.grid.persist([collections], optimize_graph=optimize_graph)[0]

    def get(self, dsk: Any, keys: Any, sync: bool = True, **_ignored: Any) -> Any:
        """Compute keys of a graph of Dask; with sync=False return futures, nested as the keys."""
        if sync:
            return self.grid.get(dsk, keys)
        found = self.grid.persist(dsk, keys)
        made = {key: Future(_held(each), str(key), self) for key, each in found.items()}
        return _filled(keys, made)

    # --- the site, and the end -----------------------------------------------------------------

    def ncores(self) -> dict[str, int]:
        """Return the slots of each pool of the gateway's site, by its name."""
        return {str(pool["pool"]): int(pool["slots"]) for pool in self.grid.ask("status")["pools"]}

    nthreads = ncores

    def scheduler_info(self) -> dict[str, Any]:
        """Return the state of the gateway's site, as `gridfed status --json`."""
        return dict(self.grid.ask("status"))

    def close(self, timeout: Length | None = None) -> None:
        """Drop all that is not done, and disconnect; wait for calls of `fire_and_forget`.

        Raises TimeoutError where these are not done within `timeout`: they are dropped, too.
        """
        with _lock:
            if self in _current:
                _current.remove(self)
        self._by_key.clear()
        if self._dask is not None:
            import dask

            if dask.config.get("scheduler", None) is self:
                self._dask.__exit__(None, None, None)
            self._dask = None
        calls = set(self.lasting)
        self.lasting.clear()
        try:
            late = concurrent.futures.wait(calls, read_timeout(timeout)).not_done if calls else ()
        finally:  # also after Ctrl-C
            drop(self.grid._engines.own, "their client was closed")
        if late:
            raise TimeoutError(
                f"{len(late)} of {len(calls)} calls of fire_and_forget were not done when the "
                "client was closed, and are dropped: give close a longer timeout, or none"
            )

    shutdown = close

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client: {self.grid!r}>"


def get_client(address: Any = None, timeout: Length | None = None) -> Client:
    """Return the current client; within a task one of its own, for the job's user and project.

    A task that waits for a call of its own may run it itself: see federation.Client.
    """
    if address is not None:
        return Client(address, timeout=timeout, set_as_default=False)
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not is_pass(token):
        return Client.current()
    return _of_task.get(token, lambda: Client(timeout=timeout, set_as_default=False))


_of_task: ClientOfTask[Client] = ClientOfTask(Client.close)


def fire_and_forget(obj: Any) -> None:
    """Let calls run though nothing refers to their futures; `close` of their client waits."""
    for each in _futures_of(obj):
        if isinstance(each.client, Client) and isinstance(each.held, TaskFuture):
            lasting = each.client.lasting
            lasting.add(each.held)
            each.held.add_done_callback(lasting.discard)


def secede() -> None:
    """Do nothing: a task keeps its slot."""


def rejoin() -> None:
    """Do nothing, as `secede`."""


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _held(value: Any) -> Any:
    return value if isinstance(value, (TaskFuture, ObjectRef)) else plain(value)


def _filled(keys: Any, values: Mapping[Any, Any]) -> Any:
    if isinstance(keys, list):
        return [_filled(each, values) for each in keys]
    return values[keys]


def _is_kept(value: Any, errors: str) -> bool:
    """Whether gather gives a value, or raises for it."""
    if errors == "raise" or not isinstance(value, Future):
        return True
    wait(value)
    return value.status == "finished"


def _futures_of(value: Any) -> list[Future[Any]]:
    if isinstance(value, Future):
        return [value]
    if is_collection(value):
        found = value.__dask_graph__().values()
        return [Future(each, "") for each in found if isinstance(each, TaskFuture)]
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [each for item in value for each in _futures_of(item)]
    return []


__all__ = [
    "Client",
    "DoneAndNotDoneFutures",
    "Future",
    "as_completed",
    "fire_and_forget",
    "get_client",
    "rejoin",
    "secede",
    "wait",
]
