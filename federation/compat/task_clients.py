"""What the drop-ins share: the client of a task's process, and the failures that users see."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from federation.errors import DependencyFailed, RemoteTraceback

T = TypeVar("T")


class ClientOfTask(Generic[T]):
    """The one client of this process for the job of its task, made when it is first asked for.

    Args:
        end: ends the client of an earlier job: a slot runs tasks of one job after those of another.
    """

    def __init__(self, end: Callable[[T], object]) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._found: tuple[str, T] | None = None

    def get(self, task_pass: str, make: Callable[[], T]) -> T:
        """Return the client of the job with a pass, by `make` if there is none."""
        with self._lock:
            if self._found is not None and self._found[0] == task_pass:
                return self._found[1]
            before, self._found = self._found, None
            if before is not None:
                self._end(before[1])
            made = make()
            self._found = task_pass, made
            return made


def cause_of(error: BaseException) -> BaseException:
    """Return the exception of the call that failed first, as Dask and Scaler do, if there is one.

    A call fails by DependencyFailed where one that it needs has failed.
    """
    cause = error.__cause__
    if not isinstance(error, DependencyFailed) or cause is None:
        return error
    return error if isinstance(cause, RemoteTraceback) else cause
