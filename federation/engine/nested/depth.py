"""How many calls a thread runs in one another. Light: each client of a task loads it."""

import threading


class _Depth(threading.local):
    count = 0


_depth = _Depth()


def call_depth() -> int:
    """Return how many calls this thread runs in one another."""
    return _depth.count


def set_call_depth(count: int) -> None:
    """Begin or end a call in this thread; or carry the depth of a call over to a thread of it."""
    _depth.count = count
