"""What a task may know of its own run.

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
    """When the task that asks is going to be stopped, as time.time() counts; None if it isn't.

    By its own time limit, or since its slot is needed by somebody else: whichever is sooner. It may
    become sooner, or later, or known, at any moment; so ask again, and save what is worth saving
    some time before. Whoever is stopped to make room runs again later, or elsewhere, from its
    beginning: where to go on is for the task to find. None outside of tasks, too.
    """
    return _source() if _source is not None else None


def set_source(source: Callable[[], float | None]) -> None:
    """Say where to ask. For whoever runs tasks."""
    global _source
    _source = source
