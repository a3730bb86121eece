"""Results that stay at their site (federation.engine.left_results)."""

import threading
import time
from collections import deque
from types import SimpleNamespace

import pytest

from federation.engine import left_results
from federation.engine.books.repeated import RepeatedCalls
from federation.engine.books.streams import Ended, Stream
from federation.engine.left_results import Arrived, ResultFetcher
from federation.engine.objects import LeftResult, NotThere
from federation.errors import ObjectLost
from federation.messages.messages import OpenJob

OPENING = OpenJob(
    "j", "n", b"d" * 32, False, "p", 0.0, {}, None, 0, None, "", "3.11", False, False, {}
)
WAIT_S = 60.0


class Result(LeftResult):
    """A result whose fetching fails with each of these errors in turn."""

    __slots__ = ("errors",)

    def __init__(self, *errors):
        super().__init__(None, SimpleNamespace(view=None))
        self.errors = list(errors)

    def own(self, *, as_reference):
        if self.errors:
            raise self.errors.pop(0)


class Engine:
    def __init__(self, *sessions):
        self.placed, self.done = [], threading.Event()
        self.sessions = list(sessions)

    def session(self):
        return self.sessions.pop(0) if self.sessions else 1

    def place(self, arrived, lost, text):
        self.placed.append((arrived.first, lost, text))
        self.done.set()


def fetched(engine, *outcomes):
    arrived = Arrived(Stream(OPENING, deque()), 3, list(outcomes))
    ResultFetcher(engine.session, engine.place).add(arrived)
    assert engine.done.wait(WAIT_S)
    return engine.placed


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(left_results, "IDLE_S", 0.01)
    monkeypatch.setattr(left_results, "AGAIN_S", 0.001)
    monkeypatch.setattr(left_results, "LeftResult", Result)


def test_what_the_host_lacks_is_lost_and_a_broken_line_is_tried_again():
    gone = ObjectLost("the object host is gone"), OSError("x")
    found = fetched(Engine(), b"v", Result(NotThere("it has none")), Result(*gone), Result())
    assert found == [(3, [1], "it has none")]


def test_a_host_that_never_answers_loses_the_result_but_not_without_a_session(monkeypatch):
    monkeypatch.setattr(left_results, "PATIENCE_S", 0.0)
    errors = [OSError("deaf")] * 100_000
    assert fetched(Engine(), Result(*errors)) == [(3, [0], "deaf")]
    apart = Engine(*[0] * 5)
    assert fetched(apart, Result(*errors[:5])) == [(3, [], "")]


def test_later_results_are_fetched_after_an_unexpected_error_and_an_exit_in_a_callback(caplog):
    engine = Engine()
    place = engine.place

    def exits(*what):
        place(*what)
        raise SystemExit

    fetcher = ResultFetcher(engine.session, exits)
    both = threading.Event()
    engine.done.set = lambda: both.set() if len(engine.placed) == 2 else None
    for first in (0, 1):
        fetcher.add(Arrived(Stream(OPENING, deque()), first, [Result(ValueError("odd"))]))
    assert both.wait(WAIT_S)
    until_s = time.monotonic() + WAIT_S
    while fetcher._is_running:  # it logs in its thread, which must not go on behind this test
        assert time.monotonic() < until_s
        time.sleep(0.01)
    assert engine.placed == [(at, [0], "it can't be mapped: ValueError('odd')") for at in (0, 1)]
    assert caplog.text.count("a callback of a result failed") == 2


def test_the_end_of_the_client_ends_the_wait():
    engine = Engine(1, None)
    assert fetched(engine, Result(OSError("deaf"))) == [(3, [], "")]


def test_the_thread_ends_when_idle_and_starts_again():
    engine = Engine()
    fetcher = ResultFetcher(engine.session, engine.place)
    arrived = Arrived(Stream(OPENING, deque()), 0, [Result()])
    for _ in range(2):
        engine.done.clear()
        fetcher.add(arrived)
        assert engine.done.wait(WAIT_S)
        until_s = time.monotonic() + WAIT_S
        while fetcher._is_running:
            assert time.monotonic() < until_s
            time.sleep(0.01)


def test_outcomes_of_calls_that_are_run_again_are_those_of_the_first_job():
    placed, resolved = [], deque()
    origin = Stream(OPENING, resolved)
    for task in range(4):
        origin.submit(b"call %d" % task, f"future {task}")
    origin.next_to_send()
    origin.place(0, [b"a", b"b"], failed=False)
    calls = origin.pending([1, 2, 3])
    assert calls == {2: b"call 2", 3: b"call 3"}
    again = RepeatedCalls(
        OPENING, resolved, origin, list(calls), lambda *which: placed.append(which)
    )
    again.extend(list(calls.values()))
    assert again.repeats == 1
    again.place(1, [b"d"], failed=False)
    again.end_all(Ended("error", "no"))
    assert [future for future, _ in resolved] == [f"future {task}" for task in (0, 1, 3, 2)]
    assert resolved[2][1] == b"d"
    assert resolved[3][1].text == "no"
    assert [which for which, _ in placed] == [origin] * 3
    assert not origin.unfinished
