"""How a map feeds its inputs and gives its results, over a grid that runs when it is told to."""

import itertools
import operator
import pickle
import weakref
from collections import deque

import pytest

from federation.engine import mapping
from federation.engine.books.streams import Stream
from federation.engine.mapping import Inputs, MapResults, feed_all
from federation.errors import SerializationError
from federation.messages.messages import OpenJob

OPENING = OpenJob(
    "j", "n", b"d" * 32, False, "p", 0.0, {}, None, 0, None, "", "3.11", False, False, {}
)


class Grid:
    """As much of an engine as a map needs; sent calls run when a thread waits."""

    closed = shut = False
    error = None
    takes_work = True

    def __init__(self, function):
        self.stream = Stream(OPENING, deque())
        self.sent = []  # the size of every bundle
        self.abandoned = ""
        self.cancels = self
        self._function = function
        self._waiting = deque()

    def map(self, calls):
        inputs = Inputs(calls, calls, singles=True)
        return MapResults(self, self.stream, inputs, timeout=None, progress=False)

    def attend(self, feeder):
        self.feeders = [feeder]

    def dismiss(self, feeder):
        self.feeders = []

    def extend(self, stream, arguments, late=False):
        bundle = stream.extend(arguments)
        bundle.sent = True
        self.sent.append(len(arguments))
        self._waiting.append((bundle.first, arguments))
        return bundle

    is_of_task = has_said_why = False

    def drive(self, done, timeout_s=None):
        while self._waiting:
            first, arguments = self._waiting.popleft()
            results = [pickle.dumps(self._function(*pickle.loads(each))) for each in arguments]
            self.stream.place(first, results, failed=False)
        return done()

    def check_size(self, payload):
        pass

    def close_stream(self, stream):
        stream.closed = True

    def abandon(self, stream, stop=False):
        self.abandoned = "stopped" if stop else "cancelled"


class Kept:
    """A result that can be referred to weakly."""

    def __init__(self, value):
        self.value = value


class Unreadable:
    """A result that can be pickled, and not unpickled."""

    def __reduce__(self):
        return operator.truediv, (1, 0)


@pytest.mark.parametrize("bad", [0, 1, 5, 6])
def test_results_before_one_that_cannot_be_opened_come_and_none_after_it(bad):
    grid = Grid(lambda at: Unreadable() if at == bad else at)
    results, came = grid.map(range(1000)), []
    with pytest.raises(SerializationError, match="can't be unpickled"):
        came.extend(results)
    assert came == list(range(bad))
    assert list(results) == []


@pytest.mark.parametrize(
    ("item_bytes", "items_made"),
    [(1 << 20, 200), pytest.param(0, 200_000, marks=pytest.mark.thorough)],
)
def test_a_detached_job_is_sent_no_further_ahead_than_allowed(item_bytes, items_made):
    grid, held, ahead = Grid(len), [], []

    def items():
        for _ in range(items_made):
            held.append(grid.stream.held_bytes)
            ahead.append(grid.stream.unfinished)
            yield bytes(item_bytes)

    made = items()
    feed_all(grid, grid.stream, Inputs(made, made, singles=True))
    assert max(held) <= mapping.AHEAD_BYTES + (2 << 20)
    assert max(ahead) <= mapping.AHEAD_CALLS + 1000
    assert grid.stream.total == items_made


class Clock:
    """A clock that inputs and consumers move by taking their time."""

    def __init__(self):
        self.now_s = 1000.0

    def monotonic(self):
        return self.now_s

    perf_counter = monotonic


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(mapping, "time", made)
    return made


class SlowInput:
    """An input whose items each take some time to come; it knows how many were taken."""

    def __init__(self, clock, item_times_s):
        self._clock = clock
        self._times = enumerate(item_times_s)
        self.taken = 0

    def __iter__(self):
        return self

    def __next__(self):
        at, item_s = next(self._times)
        self._clock.now_s += item_s
        self.taken += 1
        return at


def test_a_result_comes_while_a_slow_input_has_more(clock):
    grid, inputs = Grid(abs), SlowInput(clock, [0.1] * 40)
    results = grid.map(inputs)
    assert inputs.taken == 1  # one item was waited for
    for at in range(40):
        assert next(results) == at
        assert inputs.taken <= at + 2
    assert list(results) == []


def test_the_items_of_a_slow_input_leave_one_by_one(clock):
    grid = Grid(abs)
    assert list(grid.map(SlowInput(clock, [0.1] * 20))) == list(range(20))
    assert grid.sent == [1] * 20


def test_what_came_quickly_leaves_when_an_item_keeps_us_waiting(clock):
    # Without that, the items after the quick ones would be collected into a batch of hundreds.
    grid, inputs = Grid(abs), SlowInput(clock, [0.0] * 1000 + [0.1] * 100)
    results = grid.map(inputs)
    assert sum(grid.sent) == inputs.taken == 1001
    assert next(results) == 0


def test_a_result_that_is_there_does_not_wait_for_a_slow_input(clock):
    grid, inputs = Grid(abs), SlowInput(clock, [0.0] * 3 + [60.0] * 5)
    results = grid.map(inputs)
    taken = inputs.taken
    grid.drive(lambda: True)
    assert [next(results) for _ in range(taken)] == list(range(taken))
    assert inputs.taken == taken


def test_the_lead_over_a_slow_consumer_is_kept(clock):
    grid, inputs = Grid(abs), SlowInput(clock, [0.0] * 31 + [0.1] * 40)
    results = grid.map(inputs)
    lead = inputs.taken
    grid.drive(lambda: True)
    for at in range(30):
        assert next(results) == at
        grid.drive(lambda: True)
        clock.now_s += 1.0
    assert inputs.taken >= lead + 15  # those of every bundle that was used up


def test_a_quick_input_is_taken_as_far_ahead_as_allowed_at_once(clock):
    grid, inputs = Grid(abs), SlowInput(clock, [0.0] * 100_000)
    grid.map(inputs)
    assert mapping.AHEAD_CALLS <= inputs.taken < mapping.AHEAD_CALLS + 1000


@pytest.mark.parametrize("tasks", [1, 10, 200, 999])
@pytest.mark.parametrize("kind", [list, range, tuple])
def test_a_short_job_whose_inputs_are_at_hand_goes_whole(clock, tasks, kind):
    grid = Grid(abs)
    results = grid.map(range(tasks) if kind is range else kind(range(tasks)))
    assert grid.sent == [tasks]
    assert list(results) == list(range(tasks))


def test_a_short_job_of_several_iterables_goes_whole_too(clock):
    grid = Grid(operator.add)
    calls = zip(range(300), [1] * 200, strict=False)
    inputs = Inputs(calls, range(300), [1] * 200, singles=False)
    results = MapResults(grid, grid.stream, inputs, timeout=None, progress=False)
    assert grid.sent == [200]
    assert list(results) == list(range(1, 201))


def test_a_long_job_begins_with_small_bundles(clock):
    grid = Grid(abs)
    grid.map(range(5000))
    assert grid.sent[:3] == [1, 2, 4]
    assert max(grid.sent) == 1000


def test_short_jobs_of_large_arguments_are_not_sealed_as_a_whole(clock):
    grid = Grid(len)
    grid.map([bytes(1 << 19)] * 20)
    assert max(grid.sent) <= 2


def test_a_map_that_is_dropped_unread_goes_on_and_one_that_is_half_read_does_not():
    grid = Grid(abs)
    unread = grid.map(range(10))
    feeder = grid.feeders[0]
    del unread
    assert feeder.is_unattended
    assert not grid.abandoned

    other = Grid(abs)
    half_read = other.map(range(5000))
    next(half_read)
    del half_read
    assert other.abandoned == "cancelled"
    assert other.feeders == []


def test_a_map_that_is_dropped_after_an_interrupt_stops_what_runs():
    def interrupted(done, timeout_s=None):
        raise KeyboardInterrupt

    grid = Grid(abs)
    results = grid.map(range(10))
    grid.drive = interrupted
    kept = []
    try:
        next(results)
    except KeyboardInterrupt as interrupt:
        kept.append(interrupt)  # as a notebook does, for its traceback
    assert not grid.abandoned
    del results
    assert grid.abandoned == "stopped"


def test_an_interrupted_map_can_be_read_on():
    def interrupted(done, timeout_s=None):
        raise KeyboardInterrupt

    grid = Grid(abs)
    results = grid.map(range(10))
    grid.drive, drive = interrupted, grid.drive
    with pytest.raises(KeyboardInterrupt):
        next(results)
    grid.drive = drive
    assert list(results) == list(range(10))
    assert not grid.abandoned


def test_a_result_that_was_given_is_not_kept(clock):
    grid = Grid(Kept)
    given = []
    for value in grid.map(range(10)):
        given.append(weakref.ref(value))
        del value
        assert given[-1]() is None


def test_what_is_left_runs_out_with_bounded_memory(monkeypatch):
    monkeypatch.setattr(mapping, "AHEAD_CALLS", 3000)
    grid, held = Grid(abs), []
    results = grid.map(range(100_000))
    (feeder,) = grid.feeders
    assert grid.stream.total < 5000
    extend = grid.extend

    def counted(stream, arguments, late=False):
        held.append(stream.unfinished)
        assert late
        return extend(stream, arguments, late)

    grid.extend = counted
    feeder.is_closing = True
    feeder.run_out()
    assert (grid.stream.total, feeder.not_taken, feeder.has_more) == (100_000, 0, False)
    assert max(held) <= 4000
    came = []
    with pytest.raises(RuntimeError, match="after shutdown"):
        came.extend(results)
    assert came == list(range(len(came)))
    assert 3000 <= len(came) <= 5000


@pytest.mark.parametrize(
    ("sources", "is_finite", "total"),
    [
        ([range(9), [1] * 5], True, 5),
        ([range(9), itertools.repeat(2)], True, 9),
        ([itertools.count()], False, None),
        ([{1: 2}, {3}], True, 1),
        ([map(abs, [1])], False, None),
    ],
)
def test_what_is_known_of_inputs(sources, is_finite, total):
    inputs = Inputs(zip(*sources, strict=False), *sources, singles=False)
    assert (inputs.is_finite, inputs.total) == (is_finite, total)


def test_results_that_were_given_are_let_go_while_others_of_their_bundle_are_awaited():
    grid = Grid(lambda x: bytes(10_000))
    results = grid.map(range(3))
    bundle = results._bundles[0]
    answer = pickle.dumps(bytes(10_000), 5)
    grid.stream.place(0, [answer, answer], failed=False)
    next(results)
    held = [outcome for outcome in bundle.outcomes if outcome is answer]
    assert len(held) == 1


class Bar:
    """A progress bar that keeps its text."""

    text = ""

    def update(self):
        pass

    def set_postfix_str(self, text):
        self.text = text

    def close(self):
        self.is_closed = True


def test_a_bar_says_that_a_call_failed_and_not_what_it_waited_for_before(monkeypatch):
    shown = Bar()
    monkeypatch.setattr(mapping, "bar", lambda total, name: shown)
    grid = Grid(operator.neg)
    results = MapResults(
        grid, grid.stream, Inputs([1], [1], singles=True), timeout=0.0, progress=True
    )
    grid.drive = lambda *_: None
    results._say_why("all slots are busy")
    with pytest.raises(TimeoutError):
        next(results)
    assert shown.text == "timed out, the rest is cancelled"
    assert shown.is_closed
