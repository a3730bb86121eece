"""The client of openGRIS Scaler 2.9, on the grid.

    from federation.compat.scaler import Client, SchedulerClusterCombo

    with Client(address="tcp://127.0.0.1:8516") as client:
        results = client.map(square, range(10))

Arguments and quirks are Scaler's; docs/dropins.md lists what differs.
"""

import abc
import functools
import graphlib
import inspect
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import cloudpickle

from federation.address import TOKEN_VARIABLE
from federation.client import Client as GridClient
from federation.compat.scaler_cluster import SchedulerClusterCombo, shut_down_at
from federation.compat.scaler_futures import (
    ClientQuitException,
    DisconnectedError,
    MissingObjects,
    ProcessorDiedError,
    ProfileResult,
    ScalerFuture,
    WorkerDiedError,
    deserializing,
    plain,
    profiled,
)
from federation.compat.task_clients import ClientOfTask
from federation.compat.tasks import Serialized, measured, run_serialized, same
from federation.engine.closing import drop
from federation.engine.futures import TaskFuture, abandon_all
from federation.engine.objects import ObjectRef
from federation.errors import ObjectRefused
from federation.graphs.submitting import as_argument
from federation.ids import new_id
from federation.sessions.task_passes import is_pass

T = TypeVar("T")

_log = logging.getLogger("gridfed")
_of_task: ClientOfTask[GridClient] = ClientOfTask(
    lambda client: drop(client._engines.own, "their job has ended")
)


class Serializer(metaclass=abc.ABCMeta):
    """How functions, arguments and results become bytes: a subclass in place of cloudpickle."""

    @staticmethod
    @abc.abstractmethod
    def serialize(obj: Any) -> bytes:
        """Return an object in bytes."""

    @staticmethod
    @abc.abstractmethod
    def deserialize(payload: bytes) -> Any:
        """Return the object of bytes."""


class DefaultSerializer(Serializer):
    """cloudpickle; arrays of objects are read in place."""

    @staticmethod
    def serialize(obj: Any) -> bytes:
        """Return the pickle of an object."""
        found: bytes = cloudpickle.dumps(obj)
        return found

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        """Return the object of a pickle."""
        return cloudpickle.loads(payload)


class ObjectReference:
    """Stands for an object that `send_object` sent, among the arguments of calls.

    Attributes:
        name: its name, in bytes.
        size: its bytes; 0 if it travels in each call.
        object_id: its identity, in bytes.
    """

    def __init__(self, held: Any, name: bytes, size: int) -> None:
        self._held: Any = held
        self.name = name
        self.size = size
        self.object_id = new_id().encode()

    @property
    def held(self) -> Any:
        """The reference to the object, or the value. MissingObjects after `clear`."""
        if self._held is None:
            raise MissingObjects(f"unknown object: {self.object_id!r}.")
        return self._held[0]

    def forget(self) -> None:
        """Let go of the object. For the client."""
        self._held = None

    def __reduce__(self) -> Any:
        held = self.held
        return held.__reduce__() if isinstance(held, ObjectRef) else (same, (held,))

    def __hash__(self) -> int:
        return hash(self.object_id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectReference):
            return NotImplemented
        return self.object_id == other.object_id

    def __repr__(self) -> str:
        return f"ObjectReference(name={self.name!r}, size={self.size} bytes, id={self.object_id!r})"


class Client:
    """A client of the grid with the interface of Scaler's.

    Args:
        address: of the gateway; by default found as by federation.Client, and within a task by its
            job.
        profiling: whether futures tell what their calls took (`profiling_info`).
        timeout_seconds: how long connecting may take.
        heartbeat_interval_seconds: ignored.
        serializer: a Serializer for functions, arguments and results.
        stream_output: whether prints of tasks are shown here.
        object_storage_address: ignored.
        security_config: ignored; secrets and TLS come from the environment (docs/client.md).
    """

    def __init__(
        self,
        address: str | None = None,
        profiling: bool = False,
        timeout_seconds: float = 60,
        heartbeat_interval_seconds: float = 2,
        serializer: Any = None,
        stream_output: bool = False,
        object_storage_address: str | None = None,
        security_config: Any = None,
    ) -> None:
        self._state: dict[str, Any] = {
            "address": None if address is None else str(address),
            "profiling": profiling,
            "timeout_seconds": timeout_seconds,
            "heartbeat_interval_seconds": heartbeat_interval_seconds,
            "stream_output": stream_output,
        }
        self._profiles = profiling
        self._serializer = None if isinstance(serializer, DefaultSerializer) else serializer
        token = os.environ.get(TOKEN_VARIABLE, "")
        self.is_of_task = is_pass(token)
        if self.is_of_task:
            # Not by the address: this host may reach the gateway by another than its clients.
            grid = _of_task.get(token, lambda: GridClient(connect_timeout_s=timeout_seconds))
        else:
            grid = GridClient(self._state["address"], connect_timeout_s=timeout_seconds)
        self.grid = grid.options(prints=stream_output)
        self._views: dict[frozenset[str], GridClient] = {frozenset(): self.grid}
        self._futures: set[ScalerFuture] = set()
        self._references: list[ObjectReference] = []
        self._is_stopped = False
        self.identity = f"Client|{new_id()}".encode()

    def __getstate__(self) -> dict[str, Any]:
        return self._state

    def __setstate__(self, state: dict[str, Any]) -> None:
        Client.__init__(self, **state)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.disconnect()

    # --- calls ---------------------------------------------------------------------------------

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> ScalerFuture:
        """Submit a call, and return its future."""
        return self.submit_verbose(fn, args, kwargs)

    def submit_verbose(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        capabilities: Mapping[str, Any] | None = None,
        reserialize: bool = False,
    ) -> ScalerFuture:
        """Submit a call, perhaps for workers with capabilities, and return its future.

        Args:
            fn: the function.
            args: its positional arguments.
            kwargs: its other arguments; names that it does not have are dropped, as by Scaler.
            capabilities: tags that a worker must have; their values are ignored, as by Scaler.
            reserialize: ignored: arguments are as they are now.
        """
        self._check()
        given = positional(fn, args, kwargs)
        function, arguments = self._sealed(fn, given)
        call = self._view(capabilities).submit(function, *arguments)

        def run_here(future: ScalerFuture) -> None:
            if future.take_back():
                future.run_here(lambda: fn(*map(value_of, given)))

        return self._future(call, helper=run_here)

    def _sealed(
        self, fn: Callable[..., Any], args: Sequence[Any]
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Return the function and the arguments of the call on the grid."""
        for each in args:
            if isinstance(each, ObjectReference):
                _ = each.held  # raises here, and not while it is pickled
        if self._serializer is None:
            return (functools.partial(measured, fn) if self._profiles else fn), list(args)
        return self._run_of(fn), [self._packed(each) for each in args]

    def _run_of(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        assert self._serializer is not None
        run = functools.partial(run_serialized, self._serializer, self._serializer.serialize(fn))
        return functools.partial(measured, run) if self._profiles else run

    def _packed(self, value: Any) -> Any:
        if isinstance(value, (ObjectReference, ObjectRef, Serialized, TaskFuture)):
            return value
        assert self._serializer is not None
        return Serialized(self._serializer.serialize(value))

    def _opened(self, result: Any) -> tuple[Any, ProfileResult | None]:
        value, profile = profiled(result) if self._profiles else plain(result)
        if self._serializer is not None:
            value = deserializing(self._serializer, value)
        return value, profile

    def _future(
        self,
        call: TaskFuture[Any],
        group: Sequence[ScalerFuture] = (),
        helper: Callable[[ScalerFuture], object] | None = None,
    ) -> ScalerFuture:
        made = ScalerFuture(call, self._opened, group, helper if self.is_of_task else None)
        self._futures.add(made)
        made.add_done_callback(self._futures.discard)
        return made

    def _view(self, capabilities: Mapping[str, Any] | None) -> GridClient:
        names = frozenset(capabilities or ())
        if names not in self._views:
            self._views[names] = self.grid.options(tags=dict.fromkeys(names, True))
        return self._views[names]

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        capabilities: Mapping[str, Any] | None = None,
        reserialize: bool = False,
    ) -> list[T]:
        """Apply fn to the zipped iterables, and return the results.

        A call that fails disconnects the client, as in Scaler.
        """
        if not iterables:
            raise TypeError("map() requires at least one iterable")
        calls = zip(*iterables, strict=False)
        return self.starmap(fn, calls, capabilities=capabilities, reserialize=reserialize)

    def starmap(
        self,
        fn: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        capabilities: Mapping[str, Any] | None = None,
        reserialize: bool = False,
    ) -> list[T]:
        """Apply fn to arguments that are in tuples already, and return the results."""
        futures = [
            self.submit_verbose(fn, tuple(each), {}, capabilities, reserialize) for each in iterable
        ]
        return list(self._results(dict(enumerate(futures)), "starmap").values())

    def _results(self, futures: Mapping[Any, ScalerFuture], name: str) -> dict[Any, Any]:
        try:
            return {key: each.result() for key, each in futures.items()}
        except Exception as error:
            _log.warning("client.%s failed, and the client disconnects: %s", name, error)
            self.disconnect()
            raise

    def get(
        self,
        graph: Mapping[str, Any],
        keys: Sequence[str],
        block: bool = True,
        capabilities: Mapping[str, Any] | None = None,
        reserialize: bool = False,
    ) -> dict[str, Any]:
        """Compute keys of a graph: a map of names to values, and to tuples of a function and names.

        Returns a map of keys to results, or with block=False to futures.

        Raises:
            KeyError: a name is not in the graph, or a key is given twice.
            graphlib.CycleError: names need each other.
            TypeError: an argument of a function is not a name.
        """
        self._check()
        twice = [key for key, count in Counter(keys).items() if count > 1]
        if twice:
            raise KeyError(f"duplicate key detected in argument keys: {twice}")
        view = self._view(capabilities)
        given: dict[str, Any] = {}  # as arguments: calls, references, values
        calls: dict[str, ScalerFuture] = {}
        group: list[ScalerFuture] = []

        def run_here(_future: ScalerFuture) -> None:
            # What needs others first: a call must not lose an input that it waits for.
            taken = [name for name in reversed(calls) if calls[name].take_back()]
            for name in reversed(taken):
                calls[name].run_here(functools.partial(run_node, name))

        def run_node(name: str) -> Any:
            function, *names = graph[name]
            inputs = [calls[each].result() if each in calls else graph[each] for each in names]
            return function(*map(value_of, inputs))

        for name in ordered(graph, keys):
            node = graph[name]
            if is_call(node):
                function, arguments = self._sealed(node[0], [given[each] for each in node[1:]])
                given[name] = view.submit(function, *arguments)
                calls[name] = self._future(given[name], group, run_here)
            else:
                given[name] = self._data(node)
        group += calls.values()
        futures = {key: calls[key] if key in calls else known(graph[key]) for key in keys}
        return self._results(futures, "get") if block else futures

    def _data(self, node: Any) -> Any:
        if isinstance(node, ObjectReference):
            return node
        return as_argument(node if self._serializer is None else self._packed(node), self.grid.put)

    # --- objects, and the end ------------------------------------------------------------------

    def send_object(self, obj: Any, name: str | None = None) -> ObjectReference:
        """Send an object once, and return a reference for the arguments of calls.

        It is an object of the site (docs/data.md); where none can be put, it travels in each call.
        """
        self._check()
        sent = Serialized(self._serializer.serialize(obj)) if self._serializer is not None else obj
        try:
            held: Any = self.grid.put(sent)
        except ObjectRefused as error:
            _log.info("the object travels in each call: %s", error)
            held = DefaultSerializer.deserialize(DefaultSerializer.serialize(sent))
        size = held.size if isinstance(held, ObjectRef) else 0
        title = (name or f"<obj {type(obj).__name__}>").encode()
        made = ObjectReference((held,), title, size)
        self._references.append(made)
        return made

    def clear(self) -> None:
        """Cancel all calls, and invalidate all references."""
        self._cancel_all()
        for each in self._references:
            each.forget()
        self._references.clear()

    def _cancel_all(self) -> None:
        futures = list(self._futures)
        abandon_all(each.call for each in futures if each.call is not None)
        for future in futures:
            future.end()

    def disconnect(self) -> None:
        """Cancel all calls, and disconnect."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self.clear()
        if not self.is_of_task:  # in a task, others share the connection
            drop(self.grid._engines.own, "their client has disconnected")

    def shutdown(self) -> None:
        """Disconnect, and end the SchedulerClusterCombo of this process at the address.

        Raises ValueError for a gateway that is none, and for one that is protected, the default.
        """
        address = self.grid.address
        self.disconnect()
        if not shut_down_at(address):
            raise ValueError("Scheduler is in protected mode. Can't shutdown")

    def _check(self) -> None:
        if self._is_stopped:
            raise ClientQuitException("client is already stopped.")

    def __repr__(self) -> str:
        return f"<Client: {self.grid!r}>"


def known(value: Any) -> ScalerFuture:
    """Return the future of a value that is there."""
    made = ScalerFuture(None, plain)
    made.set_result(value)
    return made


def positional(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return all arguments of a call as positional ones, as Scaler does.

    Names that the function does not have, or has by keyword alone, are dropped. TypeError for a
    required one that is missing.
    """
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:  # a builtin that does not tell
        return list(args)
    by_place = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    given, rest = list(args), by_place[len(args) :]
    missing = tuple(
        each.name for each in rest if each.default is each.empty and each.name not in kwargs
    )
    if missing:
        raise TypeError(f"{fn} missing {len(missing)} arguments: {missing}")
    return given + [kwargs.get(each.name, each.default) for each in rest]


def value_of(argument: Any) -> Any:
    """Return an argument as its function gets it."""
    if not isinstance(argument, ObjectReference):
        return argument
    held = argument.held
    return held.result() if isinstance(held, ObjectRef) else held


def is_call(node: Any) -> bool:
    """Whether a node of a graph is a call. TypeError if an argument of it is not a name."""
    if not (isinstance(node, tuple) and node and callable(node[0])):
        return False
    for each in node[1:]:
        if not isinstance(each, str):
            raise TypeError(
                f"argument `{each}` must be a string and the string has to be in the graph"
            )
    return True


def ordered(graph: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """Return the names that keys need, each after those that it needs. KeyError, CycleError."""
    needs: dict[str, tuple[str, ...]] = {}
    left = list(keys)
    while left:
        name = left.pop()
        if name in needs:
            continue
        if name not in graph:
            raise KeyError(f"key {name} has to be in graph")
        node = graph[name]
        needs[name] = node[1:] if is_call(node) else ()
        left += needs[name]
    return list(graphlib.TopologicalSorter(needs).static_order())


__all__ = [
    "Client",
    "ClientQuitException",
    "DisconnectedError",
    "MissingObjects",
    "ObjectReference",
    "ProcessorDiedError",
    "ProfileResult",
    "ScalerFuture",
    "SchedulerClusterCombo",
    "Serializer",
    "WorkerDiedError",
]
