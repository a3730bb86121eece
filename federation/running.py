"""Information for a task about its own run.

from federation import deadline

def price(book):
    for trade in book:
        if (at_s := deadline()) is not None and at_s - time.time() < 5:
            return save(book)  # it will be stopped in less than five seconds
        ...
"""

from collections.abc import Callable

_source: Callable[[], float | None] | None = None


def deadline() -> float | None:
    """Return the time, as time.time() counts, at which the calling task will be stopped, or None.

    A task is stopped by its own time limit, or because its slot is needed for another task: the
    earlier of the two counts. The time may move, in either direction, or become known at any
    moment, so ask again, and save intermediate state some time before. A task that is stopped to
    make room runs again later, or elsewhere, from its beginning: it must find out itself where to
    continue. Outside of tasks the result is None.
    """
    return _source() if _source is not None else None


def set_source(source: Callable[[], float | None]) -> None:
    """Set the function that `deadline` calls. For the process that runs tasks."""
    global _source
    _source = source
