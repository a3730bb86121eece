"""Futures and errors as those of openGRIS Scaler."""

import concurrent.futures
import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from federation.compat.task_clients import cause_of
from federation.compat.tasks import Measured, Serialized
from federation.engine.futures import TaskFuture, abandon_all, helped_all
from federation.errors import (
    GatewayUnreachable,
    TaskCrashed,
    WorkerLost,
)
from federation.loops.waits import WaitedInLoops, until_done
from federation.words import Length, read_timeout

# A task that waits so long for a call of its own that has not begun runs it itself.
HELP_S: Final = 0.05
HELP_MAX_S: Final = 1.0  # the longest time to the next look


class MissingObjects(Exception):
    """A reference is used that was invalidated by `clear`, or by the end of its client."""


class ClientQuitException(Exception):
    """The client is disconnected, and takes no more calls."""


ProcessorDiedError = TaskCrashed
WorkerDiedError = WorkerLost
DisconnectedError = GatewayUnreachable


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """What a call took.

    Attributes:
        duration_s: wall time in seconds.
        memory_peak: the most memory of its slot until then, in bytes.
        cpu_time_s: CPU time in seconds.
    """

    duration_s: float = 0.0
    memory_peak: int = 0
    cpu_time_s: float = 0.0


class ScalerFuture(WaitedInLoops[Any]):
    """The future of a call, as of Scaler: `running()` from the beginning.

    Args:
        call: the call on the grid; None for a value that is known.
        opened: turns its result into the value of this future, and its profile if there is one.
        group: all futures of its graph: cancelling one cancels all.
        helper: within a task, takes calls back that do not begin elsewhere, and runs them here.
    """

    def __init__(
        self,
        call: TaskFuture[Any] | None,
        opened: "Callable[[Any], tuple[Any, ProfileResult | None]]",
        group: "Sequence[ScalerFuture]" = (),
        helper: "Callable[[ScalerFuture], object] | None" = None,
    ) -> None:
        super().__init__()
        self._call = call
        self._opened = opened
        self._group = group
        self._helper = helper
        self._profile: ProfileResult | None = None
        self._is_taken_back = False  # it is run in this process: see `_help`
        self.set_running_or_notify_cancel()
        if call is not None:
            call.add_done_callback(self._take)

    def _take(self, call: Any) -> None:
        """Take the outcome of the call, unless this one has another already."""
        if self._is_taken_back:
            return
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            if call.cancelled():
                self.end()
                return
            error = call.exception()
            if error is not None:
                self.set_exception(cause_of(error))
                return
            try:
                value, self._profile = self._opened(call.result())
            except Exception as unreadable:  # noqa: BLE001 - a user's serializer may raise anything
                self.set_exception(unreadable)
            else:
                self.set_result(value)

    def end(self) -> None:
        """Become cancelled, as only a future that is not running can be. For the client."""
        with self._condition:
            if self.done():
                return
            self._state = "CANCELLED_AND_NOTIFIED"
            for waiter in self._waiters:
                waiter.add_cancelled(self)
            self._condition.notify_all()
        self._invoke_callbacks()  # type: ignore[attr-defined]

    @property
    def task_id(self) -> bytes:
        """The id of the call: of its job, and its number there."""
        return b"" if self._call is None else f"{self._call.job}:{self._call.task}".encode()

    @property
    def call(self) -> TaskFuture[Any] | None:
        """The call on the grid."""
        return self._call

    def profiling_info(self) -> ProfileResult:
        """Return what the call took. ValueError if it is not done, or its client does not profile.

        `Client(profiling=True)` does.
        """
        if self._profile is None:
            raise ValueError(
                f"didn't receive profiling info for {self!r} yet: it comes with the result, for "
                "Client(profiling=True)"
            )
        return self._profile

    def cancel(self, timeout: Length | None = None) -> bool:
        """Cancel the call, also while it runs; with a graph, all of it. Wait for the answer."""
        if self.done():
            return self.cancelled()
        mine = [each for each in (self, *self._group) if not each.done()]
        abandon_all(each.call for each in mine if each.call is not None)
        with contextlib.suppress(concurrent.futures.CancelledError, TimeoutError):
            self.exception(timeout)
        return self.cancelled()

    def result(self, timeout: Length | None = None) -> Any:
        """Wait for the result, or raise the exception of the call."""
        self._help(read_timeout(timeout))
        with helped_all([self._call]):
            return super().result(read_timeout(timeout))

    def exception(self, timeout: Length | None = None) -> BaseException | None:
        """Wait for the exception of the call; None if it has none."""
        self._help(read_timeout(timeout))
        with helped_all([self._call]):
            return super().exception(read_timeout(timeout))

    def _help(self, timeout_s: float | None) -> None:
        """Within a task, have a call that does not begin taken back, and run here.

        A waiting task keeps its slot. If tasks that wait fill all slots, each of them runs what it
        waits for, so one of them always goes on.
        """
        call, helper, wait_s = self._call, self._helper, HELP_S
        if call is None or helper is None or timeout_s is not None:
            return
        while not self.done():
            with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError):
                call.exception(wait_s)
            if self.done() or call.done():
                return
            helper(self)
            wait_s = min(2 * wait_s, HELP_MAX_S)

    def take_back(self) -> bool:
        """Take the call back from the grid, to be run here; False if it has begun or ended."""
        call = self._call
        if call is None or self.done():
            return False
        self._is_taken_back = True  # the end of the call is not this future's
        if call.cancel():
            return True
        self._is_taken_back = False
        if call.done():
            self._take(call)
        return False

    def run_here(self, run: Callable[[], Any]) -> None:
        """Run the call, which was taken back, in this process."""
        try:
            self.set_result(run())
        except Exception as error:  # noqa: BLE001 - the user's function
            self.set_exception(error)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._awaited().__await__()

    async def _awaited(self) -> Any:
        call = self._call
        with helped_all([call]):
            await until_done(self, lambda: abandon_all([] if call is None else [call]))
        return super().result()

    def __reduce__(self) -> Any:
        if self._call is None:
            raise TypeError("a future can't be pickled: pass its result")
        return self._call.__reduce__()


def plain(value: Any) -> tuple[Any, None]:
    """Return a result as it is, without a profile."""
    return value, None


def profiled(result: Measured) -> tuple[Any, ProfileResult]:
    """Return the value of a measured call, and its profile."""
    return result.value, ProfileResult(result.duration_s, result.peak, result.cpu_s)


def deserializing(serializer: Any, result: Any) -> Any:
    """Return the value in the bytes of a user's serializer."""
    return serializer.deserialize(result.body) if isinstance(result, Serialized) else result
