"""joblib on the grid, and with it scikit-learn.

    from federation.compat.joblib import register
    from joblib import Parallel, delayed, parallel_config

    register()
    with parallel_config(backend="gridfed"):
        Parallel()(delayed(price)(book, each) for each in scenarios)

    Parallel ─► submit ─► client.submit, large arguments as objects ══► slot: run_joblib_batch
    callback of joblib ◄─ a thread of its own ◄─ future

docs/dropins.md has its terms. Needs joblib 1.5 or newer.
"""

import concurrent.futures
import contextlib
import functools
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from joblib.parallel import (
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
    register_parallel_backend,
)

from federation.address import TOKEN_VARIABLE
from federation.client import Client
from federation.compat.large_arguments import LargeValues
from federation.compat.tasks import run_joblib_batch
from federation.engine.futures import TaskFuture, abandon_all
from federation.engine.objects import ObjectRef
from federation.errors import ObjectRefused, SerializationError
from federation.sessions.task_passes import is_pass

NAME: Final = "gridfed"
LARGE_BYTES: Final = 1 << 20  # joblib's own limit for mapping arrays, where it gives none
SLOTS_MIN: Final = 2  # with one, joblib would run the loop in this process

_lock = threading.Lock()
_shared: Client | None = None


def register(client: Client | None = None, *, make_default: bool = False) -> None:
    """Make the backend "gridfed" known to joblib.

    Args:
        client: runs the calls, under its options; by default a `Client()`, made at first use.
            `parallel_config(backend="gridfed", client=…)` names another one.
        make_default: whether loops that name no backend run here as well.
    """

    def make(**given: Any) -> GridfedBackend:
        return GridfedBackend(**({"client": client} | given))

    register_parallel_backend(NAME, make, make_default=make_default)


def _default_client() -> Client:
    global _shared
    with _lock:
        if _shared is None or not _shared._engine.takes_work:
            _shared = Client()
        return _shared


class GridfedBackend(AutoBatchingMixin, ParallelBackendBase):
    """The backend of joblib that submits batches of calls to the grid.

    Args:
        client: the client, or None for a `Client()` that all backends of this process share.
        nesting_level, inner_max_num_threads: of joblib.
        options: options of the client for these calls (Client.options), such as `project`.
    """

    supports_retrieve_callback = True
    default_n_jobs = -1
    # A batch of this time hides what a call costs here; a longer one keeps a slot to the end.
    MIN_IDEAL_BATCH_DURATION = 0.2
    MAX_IDEAL_BATCH_DURATION = 1.0

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        client: Client | None = None,
        **options: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self.parallel: Any = None
        self._client = client
        self._options = options
        self._kinds: dict[str, tuple[Client, Callable[..., Any]]] = {}
        self._futures: set[TaskFuture[Any]] = set()
        self._large_bytes: float = LARGE_BYTES
        self._large = LargeValues(self._put)
        self._callbacks: concurrent.futures.ThreadPoolExecutor | None = None

    @property
    def client(self) -> Client:
        """The client that submits the calls."""
        return _default_client() if self._client is None else self._client

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls may run at once: for -1 all slots of the site, for -2 one less."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs == 1 or is_pass(os.environ.get(TOKEN_VARIABLE, "")):
            return 1
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        slots = self.client._max_workers
        return max(SLOTS_MIN, slots + 1 + (-1 if n_jobs is None else n_jobs))

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: str | None = None,
        require: str | None = None,
        max_nbytes: int | float | None = LARGE_BYTES,
        **_ignored: Any,
    ) -> int:
        """Take the terms of a `Parallel`: `max_nbytes` is the size from which values are objects.

        Within a task of the grid, and for one job, the loop runs in order where it is: a task that
        waits keeps its slot, and all slots might wait.
        """
        jobs = self.effective_n_jobs(n_jobs)
        if jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        self._large_bytes = float("inf") if max_nbytes is None else max_nbytes
        return jobs

    def start_call(self) -> None:
        """Begin a loop."""
        self._large = LargeValues(self._put, self._large_bytes)
        self._callbacks = concurrent.futures.ThreadPoolExecutor(1, "gridfed-joblib")

    def stop_call(self) -> None:
        """End a loop, and let go of the large values that it has left."""
        if self._callbacks is not None:
            self._callbacks.shutdown(wait=False, cancel_futures=True)
        self._callbacks = None
        self._large.clear()
        self._kinds.clear()

    def submit(
        self, func: Any, callback: Callable[[TaskFuture[Any]], object] | None = None
    ) -> TaskFuture[Any]:
        """Submit a batch. `callback` runs in a thread of its own: it takes the next calls."""
        large = self._large
        calls, uses = large.replaced(func.items)
        try:
            client, run = self._kind(func.items[0][0])
            future: TaskFuture[Any] = client.submit(run, calls)
        except BaseException:
            large.ended(uses)
            raise
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        future.add_done_callback(
            functools.partial(_hand_over, self._callbacks, callback, lambda: large.ended(uses))
        )
        return future

    def _kind(self, function: Any) -> tuple[Client, Callable[..., Any]]:
        """Return the view and the function for calls of a user's function, named as it is."""
        module = getattr(function, "__module__", "")
        short = getattr(function, "__name__", type(function).__name__)
        name = f"{module}.{short}"
        if name not in self._kinds:
            options = self._options if "name" in self._options else {**self._options, "name": short}
            run = functools.partial(run_joblib_batch, name)
            self._kinds[name] = self.client.options(**options), run
        return self._kinds[name]

    def _put(self, value: Any) -> ObjectRef[Any] | None:
        client = self.client.options(**self._options) if self._options else self.client
        plain: Any = value.view(_array_type(value)) if type(value).__name__ == "memmap" else value
        try:
            return client.put(plain)
        except (ObjectRefused, SerializationError):
            return None  # it travels in each call

    def retrieve_result_callback(self, out: TaskFuture[Any]) -> Any:
        """Return the results of a batch, or raise."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all batches, running ones too, without waiting."""
        abandon_all(list(self._futures))
        self._futures.clear()

    def get_nested_backend(self) -> tuple[ParallelBackendBase, int | None]:
        """Return the backend of loops within tasks: in order."""
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None


def _hand_over(
    callbacks: concurrent.futures.Executor | None,
    callback: Callable[[TaskFuture[Any]], object] | None,
    after: Callable[[], object],
    future: TaskFuture[Any],
) -> None:
    """Call back in another thread: this one drives the connection. Then call `after`."""

    def call_back() -> None:
        try:
            if callback is not None:
                callback(future)
        finally:
            after()

    if callbacks is not None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            callbacks.submit(call_back)


def _array_type(value: Any) -> type:
    return next(each for each in type(value).__mro__ if each.__name__ == "ndarray")
