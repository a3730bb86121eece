"""A client for event loops: asyncio's (FastAPI, Jupyter) and trio's.

    async with AsyncClient() as client:
        price = await client.submit(revalue, book)
        async for result in client.map(revalue, books): ...

Futures of a `Client` can be awaited as well. This class moves into threads what blocks: connecting,
large values, the end.
"""

import concurrent.futures
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, ParamSpec, TypeVar, overload

from federation.client import Client, FutureT, Given, as_completed
from federation.engine.closing import drop
from federation.engine.futures import TaskFuture
from federation.engine.jobs import JobHandle
from federation.engine.mapping import MapResults
from federation.engine.objects import ObjectRef
from federation.loops.iterating import AsyncResults, CompletedFutures
from federation.loops.waits import in_thread
from federation.words import Length

T = TypeVar("T")
P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

THREADS: Final = 8  # calls that block at the same time


class AsyncClient:
    """A client whose methods never block the event loop, under asyncio and under trio.

    Use it as `async with AsyncClient() as client`; or call `connect`, and `aclose` in the end. The
    end of the block waits for all submitted calls; when its task is cancelled, they are dropped.

    Args:
        address, options: as of Client.

    Attributes:
        client: the Client below, once it is connected; for its other methods, which may block.
    """

    def __init__(self, address: Any = None, **options: Any) -> None:
        self._make: Callable[[], Client] = lambda: Client(address, **options)
        self._client: Client | None = None
        self._threads = concurrent.futures.ThreadPoolExecutor(THREADS, "gridfed-async")

    @property
    def client(self) -> Client:
        """The Client below. RuntimeError before `connect`."""
        if self._client is None:
            raise RuntimeError("not connected: use `async with`, or await `connect()` before")
        return self._client

    async def connect(self) -> "AsyncClient":
        """Connect to the nearest gateway. Errors: as of Client."""
        if self._client is None:
            self._client = await self._run(self._make)
        return self

    async def _run(self, function: Callable[[], T]) -> T:
        return await in_thread(self._threads, function)

    async def aclose(self, *, cancel_futures: bool = False) -> None:
        """Take no more work, and return when all submitted calls are done.

        With `cancel_futures`, calls that have not started are cancelled. When the waiting task is
        cancelled, all are dropped.
        """
        client = self._client
        if client is None:
            return
        try:
            await self._run(lambda: client.shutdown(cancel_futures=cancel_futures))
        except BaseException:
            self._drop()
            raise
        finally:
            self._threads.shutdown(wait=False)

    def _drop(self) -> None:
        """Drop all calls, without waiting."""
        client = self._client
        if client is not None:
            self._threads.submit(drop, client._engines.own, "their task was cancelled")

    async def __aenter__(self) -> "AsyncClient":
        return await self.connect()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and not issubclass(kind, Exception):  # cancelled, or Ctrl-C
            self._drop()
            self._threads.shutdown(wait=False)
        else:
            await self.aclose()

    def options(self, **terms: Any) -> "AsyncClient":
        """Return a view that submits under other terms: those of Client.options."""
        view = object.__new__(type(self))
        view._make, view._threads = self._make, self._threads
        view._client = self.client.options(**terms)
        return view

    # --- calls ---------------------------------------------------------------------------------

    @overload
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> TaskFuture[T]: ...

    @overload
    def submit(self, fn: Callable[[A], T], first: Given[A], /) -> TaskFuture[T]: ...

    @overload
    def submit(
        self, fn: Callable[[A, B], T], first: Given[A], second: Given[B], /
    ) -> TaskFuture[T]: ...

    @overload
    def submit(
        self, fn: Callable[[A, B, C], T], first: Given[A], second: Given[B], third: Given[C], /
    ) -> TaskFuture[T]: ...

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> TaskFuture[Any]:
        """Submit fn(*args, **kwargs), at once; `await` of the future gives its result.

        A task that is cancelled while it awaits the future cancels the call, also a running one.
        """
        return self.client.submit(fn, *args, **kwargs)

    @overload
    def map(self, fn: Callable[[A], T], iterable: Iterable[Given[A]], /) -> AsyncResults[T]: ...

    @overload
    def map(
        self,
        fn: Callable[[A, B], T],
        iterable: Iterable[Given[A]],
        second: Iterable[Given[B]],
        /,
    ) -> AsyncResults[T]: ...

    @overload
    def map(
        self, fn: Callable[..., T], iterable: Iterable[Any], /, *iterables: Iterable[Any]
    ) -> AsyncResults[T]: ...

    def map(self, fn: Callable[..., T], /, *iterables: Iterable[Any]) -> AsyncResults[T]:
        """Run fn over the zipped iterables, and yield the results in order, for `async for`.

        The map starts at once. Its inputs are taken in a thread, so they may be slow.
        """
        client = self.client

        def start() -> MapResults[T]:
            return client.map(fn, *iterables)

        return AsyncResults(start)

    def starmap(self, fn: Callable[..., T], iterable: Iterable[tuple[Any, ...]]) -> AsyncResults[T]:
        """Work as `map` does, with the arguments of each call already in a tuple."""
        client = self.client
        return AsyncResults(lambda: client.starmap(fn, iterable))

    def as_completed(
        self, futures: Iterable[FutureT], timeout: Length | None = None
    ) -> CompletedFutures[FutureT]:
        """Yield each future once, as it is done, for `async for`; the futures go on if it ends."""
        return as_completed(futures, timeout)

    # --- what may take long --------------------------------------------------------------------

    async def put(self, value: T, **named: Any) -> ObjectRef[T]:
        """Put a value at the gateway's site, as Client.put does."""
        return await self._run(lambda: self.client.put(value, **named))

    async def object(self, name: str, user: str | None = None) -> ObjectRef[Any]:
        """Return a reference to a named object, as Client.object does."""
        return await self._run(lambda: self.client.object(name, user))

    async def persist(self, dsk: Any, keys: Any) -> dict[Hashable, Any]:
        """Submit the calls that keys of a graph need; return the future of each key."""
        return await self._run(lambda: self.client.persist(dsk, keys))

    async def submit_job(
        self, fn: Callable[..., Any], iterable: Iterable[Any], **terms: Any
    ) -> JobHandle:
        """Submit a detached job; return once all of it is on the gateway's disk.

        Methods of its handle ask the gateway, and block: call them in a thread of the library.
        """
        return await self._run(lambda: self.client.submit_job(fn, iterable, **terms))

    async def ask(self, verb: str, **details: Any) -> Any:
        """Ask the gateway a question, and return plain data, as Client.ask does."""
        return await self._run(lambda: self.client.ask(verb, **details))

    def __repr__(self) -> str:
        return f"<AsyncClient over {self._client!r}>"
