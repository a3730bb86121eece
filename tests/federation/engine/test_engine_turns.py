"""Threads that wait at one engine: none sleeps on when its result has come."""

import threading
import time
from collections import deque
from types import SimpleNamespace

import pytest

from federation.engine.books.jobs import JobTable
from federation.engine.engine import ClientEngine
from federation.engine.leading import Leading

pytestmark = pytest.mark.real
LIMIT_S = 60.0


class Line:
    """A connection without messages; a wait ends when a thread wakes it."""

    def __init__(self):
        self.is_polled = threading.Event()
        self.results = []
        self._woken = threading.Event()

    def wake(self):
        self._woken.set()

    def wait(self, at_most_s, lock):
        lock.release()
        self.is_polled.set()
        self.results.append(self._woken.wait(LIMIT_S))
        self._woken.clear()
        lock.acquire()


class Turn(threading.Condition):
    """A condition that keeps how its waits ended."""

    def __init__(self, lock):
        super().__init__(lock)
        self.is_waited_for = threading.Event()
        self.results = []

    def wait(self, timeout=None):
        self.is_waited_for.set()
        self.results.append(super().wait(LIMIT_S))
        return self.results[-1]


class SlowFuture:
    """A future that is resolved only after a thread has looked, and waits."""

    def __init__(self, is_waited_for):
        self._is_waited_for = is_waited_for
        self.is_done = False

    def finish(self, value, error):
        assert self._is_waited_for.wait(LIMIT_S)
        self.is_done = True

    def done(self):
        return self.is_done


@pytest.fixture
def leading():
    engine = SimpleNamespace(closed=False, error=None, drain=lambda: False)
    made = Leading(engine, Line())
    made._turn = Turn(made.lock)
    return made


def settle(leading, future):
    """Resolve a future as the thread does that has led, while another looks for it."""
    leading.resolved.append((future, b"\x80\x05N."))  # a pickled None

    def run():
        with leading.lock:
            leading.settle()

    thread = threading.Thread(target=run)
    thread.start()
    while leading.resolved:  # until it has let go of the lock
        time.sleep(0.001)
    return thread


def test_a_thread_that_polls_is_woken_when_another_has_resolved_its_future(leading):
    future = SlowFuture(leading._line.is_polled)
    thread = settle(leading, future)
    assert leading.drive(lambda: future.is_done, LIMIT_S)
    thread.join()
    assert leading._line.results == [True]


def test_a_thread_that_waits_for_the_leader_is_woken_too(leading):
    leading._leader = -1  # another thread, which polls
    future = SlowFuture(leading._turn.is_waited_for)
    thread = settle(leading, future)
    assert leading.drive(lambda: future.is_done, LIMIT_S)
    thread.join()
    assert leading._turn.results == [True]


def test_calls_are_counted_while_another_thread_ends_or_opens_jobs():
    engine = object.__new__(ClientEngine)
    engine._jobs = JobTable(None, None, deque(), str)
    streams = engine._jobs._streams

    class Job:
        @property
        def unfinished(self):
            streams[f"opened meanwhile {len(streams)}"] = None
            return 2

    streams |= {"a": Job(), "b": Job()}
    assert engine.unfinished == 4
