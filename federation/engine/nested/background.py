"""Help for waits that can't run a call themselves: with a time limit, in an event loop, for many.

    wait ─► waiting ─┐
    futures.wait ────┴─► a thread ─► own_calls: asked back one by one, and run there

The waiting thread keeps its time limit, and its event loop goes on. The thread begins with the
first such wait and ends with the last one.
"""

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from federation.engine.books.streams import Stream
from federation.engine.nested.depth import call_depth, set_call_depth
from federation.engine.nested.helping import HELP_MAX_S, AskingBack, first_wait_s
from federation.errors import GridError

LOOK_S: Final = 0.25  # the longest time until a wait by the standard library is found
CALLS_MAX: Final = 256  # of one wait that are looked at

Call = tuple[Stream, int]


class WaitedFor(Protocol):
    """A future of the engine, as far as waits need it."""

    is_input: bool
    task: int

    @property
    def stream(self) -> Stream:
        """Its job."""

    def done(self) -> bool:
        """Whether it has an outcome."""

    @property
    def is_waited_for(self) -> bool:
        """Whether a function of the standard library waits for it."""


class HelpedEngine(Protocol):
    """The engine of a task's client."""

    closed: bool
    error: GridError | None

    @property
    def own_calls(self) -> AskingBack:
        """Its calls."""

    def drive(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Take messages until `done()`; False when the time runs out first."""


class BackgroundHelp:
    """Runs calls that are waited for and do not begin elsewhere, one at a time, in a thread.

    Args:
        engine: of the task's client.
    """

    def __init__(self, engine: HelpedEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._waits: dict[object, Callable[[], Iterable[Call]]] = {}
        self._noted: weakref.WeakSet[Any] = weakref.WeakSet()
        self._asked: list[Call] = []  # by the thread: what comes back has to be run
        self._last_asked_s: dict[tuple[str, int], float] = {}

    @contextlib.contextmanager
    def waiting(self, calls: Callable[[], Iterable[Call]]) -> Iterator[None]:
        """Help while the block waits for any of these calls."""
        key = object()
        with self._lock:
            self._waits[key] = calls
            self._begin()
        try:
            yield
        finally:
            with self._lock:
                del self._waits[key]

    def note(self, future: WaitedFor) -> None:
        """Help whenever a function of the standard library waits for this future."""
        with self._lock:
            self._noted.add(future)
            self._begin()

    def _begin(self) -> None:
        if self._thread is None and not self._engine.closed:
            depth = call_depth()  # of the call that waits: what it runs is deeper, in any thread
            self._thread = threading.Thread(
                target=self._serve, args=(depth,), name="gridfed-help", daemon=True
            )
            self._thread.start()

    def _serve(self, depth: int) -> None:
        set_call_depth(depth)
        wait_s = first_wait_s()
        ask_at_s = time.monotonic() + wait_s
        while not self._is_over():
            calls = self._calls()
            back = self._take_back()
            if back is not None:
                if not self._run(back):
                    return
                wait_s = first_wait_s()
                ask_at_s = time.monotonic() + wait_s
            elif not calls:
                ask_at_s = time.monotonic() + first_wait_s()
                self._engine.drive(self._is_news, LOOK_S)
            elif time.monotonic() >= ask_at_s:
                self._ask(calls)
                wait_s = min(2 * wait_s, HELP_MAX_S)
                ask_at_s = time.monotonic() + wait_s
            else:
                step_s = max(0.0, ask_at_s - time.monotonic())
                self._engine.drive(self._is_news, min(step_s, LOOK_S))

    def _is_over(self) -> bool:
        """Whether the thread ends: nothing is waited for, and nothing comes back any more."""
        with self._lock:
            pending = any(not each.done() for each in self._noted)
            is_over = self._engine.closed or self._engine.error is not None
            if is_over or not (self._waits or pending or self._asked):
                self._thread = None
                return True
            return False

    def _calls(self) -> list[Call]:
        """Return the calls that are waited for now."""
        with self._lock:
            found = [call for calls in self._waits.values() for call in calls()]
            noted = list(self._noted)
        return found + [
            (each.stream, each.task)
            for each in noted
            if each.is_waited_for and not each.is_input and not each.done()
        ]

    def _is_news(self) -> bool:
        return any(self._engine.own_calls.is_back(*call) for call in self._asked)

    def _take_back(self) -> Call | None:
        """Return a call that has come back and is to be run; None if none has."""
        for call in self._asked:
            if self._engine.own_calls.is_back(*call):
                self._asked.remove(call)
                return call
        self._asked = [call for call in self._asked if self._engine.own_calls.is_asked(*call)]
        return None

    def _run(self, call: Call) -> bool:
        """Run a call; return whether this thread goes on, as no other has taken over.

        The call may wait for others by the same client: that wait begins another thread.
        """
        with self._lock:
            self._thread = None
        self._engine.own_calls.run(*call)
        with self._lock:
            if self._thread is None:
                self._thread = threading.current_thread()
            return self._thread is threading.current_thread()

    def _ask(self, calls: list[Call]) -> None:
        """Ask for one more call: the one for which it is longest that it was asked for."""
        known = {(stream.id, task): (stream, task) for stream, task in calls}
        last_s = self._last_asked_s = {
            key: self._last_asked_s.get(key, 0.0) for key in known
        }  # of others no more
        for key in sorted(known, key=last_s.__getitem__):
            last_s[key] = time.monotonic()
            if self._engine.own_calls.ask_back(*known[key]):
                self._asked.append(known[key])
                return
