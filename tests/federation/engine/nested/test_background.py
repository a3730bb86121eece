"""Help in a thread: what is asked back, what is run, and when the thread ends."""

import threading
import time

import pytest

from federation.engine.nested.background import BackgroundHelp
from federation.engine.nested.depth import call_depth, set_call_depth

LIMIT_S = 60.0


class Job:
    """A job; calls of it begin elsewhere, or come back, as the test says."""

    def __init__(self, id="a"):
        self.id = id


class Calls:
    """The own calls of a fake engine."""

    def __init__(self):
        self.changed = threading.Condition()
        self.asked, self.back, self.ran, self.elsewhere = [], set(), [], set()
        self.depths = []

    def ask_back(self, stream, task):
        with self.changed:
            self.asked.append(task)
            if task not in self.elsewhere:
                self.back.add(task)
            self.changed.notify_all()
        return True

    def is_back(self, stream, task):
        return task in self.back

    def is_asked(self, stream, task):
        return False  # the gateway has answered

    def run(self, stream, task):
        with self.changed:
            self.back.discard(task)
            self.ran.append(task)
            self.depths.append(call_depth())
            self.changed.notify_all()

    def wait_for(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, LIMIT_S)


class Engine:
    closed, error = False, None

    def __init__(self):
        self.own_calls = Calls()

    def drive(self, done, timeout_s=None):
        until_s = time.monotonic() + timeout_s
        while not done() and not self.closed and time.monotonic() < until_s:
            time.sleep(0.001)
        return done()


class Waited:
    """A future of the engine."""

    is_input = is_waited_for = False

    def __init__(self, task=0):
        self.stream, self.task, self.is_done = Job(), task, False

    def done(self):
        return self.is_done


@pytest.fixture
def engine():
    made = Engine()
    yield made
    made.closed = True
    wait_ended()


def wait_ended():
    for thread in threading.enumerate():
        if thread.name == "gridfed-help":
            thread.join(LIMIT_S)
            assert not thread.is_alive()


def left(job, calls, engine):
    return lambda: [(job, task) for task in calls if task not in engine.own_calls.ran]


def test_calls_that_do_not_begin_elsewhere_are_run_and_the_thread_ends(engine):
    calls = engine.own_calls
    calls.elsewhere = {1}
    with BackgroundHelp(engine).waiting(left(Job(), [0, 1, 2], engine)):
        calls.wait_for(lambda: sorted(calls.ran) == [0, 2])
        calls.wait_for(lambda: calls.asked.count(1) > 1)  # it may come back later
    wait_ended()


def test_a_call_that_came_back_is_run_although_the_wait_is_over(engine):
    calls = engine.own_calls
    calls.elsewhere, calls.is_asked = {0}, lambda stream, task: task not in calls.ran
    with BackgroundHelp(engine).waiting(left(Job(), [0], engine)):
        calls.wait_for(lambda: calls.asked == [0])
    calls.back.add(0)  # the answer came late
    calls.wait_for(lambda: calls.ran == [0])
    wait_ended()


def test_a_future_is_helped_only_while_the_standard_library_waits_for_it(engine):
    help_, future, inner = BackgroundHelp(engine), Waited(0), Waited(1)
    inner.is_input = inner.is_waited_for = True  # another call needs it at the gateway
    help_.note(inner)
    help_.note(future)
    assert not engine.own_calls.asked
    future.is_waited_for = True
    engine.own_calls.wait_for(lambda: engine.own_calls.ran == [0])
    future.is_done = inner.is_done = True
    wait_ended()
    assert engine.own_calls.ran == [0]


def test_the_calls_in_one_another_are_counted_on_in_the_thread(engine):
    set_call_depth(3)
    try:
        with BackgroundHelp(engine).waiting(left(Job(), [0], engine)):
            engine.own_calls.wait_for(lambda: engine.own_calls.depths == [3])
    finally:
        set_call_depth(0)
    wait_ended()


def test_a_call_that_waits_by_the_same_client_has_help_too(engine):
    calls, help_ = engine.own_calls, BackgroundHelp(engine)
    run = calls.run

    def run_and_wait(stream, task):
        if task < 2:
            with help_.waiting(left(stream, [task + 1], engine)):
                calls.wait_for(lambda: task + 1 in calls.ran)
        run(stream, task)

    calls.run = run_and_wait
    with help_.waiting(left(Job(), [0], engine)):
        calls.wait_for(lambda: calls.ran == [2, 1, 0])
    wait_ended()
