"""A client's cache for later is bounded, and needed entries stay."""

from collections import deque
from dataclasses import replace

from federation.engine.books import shelves
from federation.engine.books.shelves import FunctionShelf, StreamShelf
from federation.engine.books.streams import Ended, Stream
from federation.messages.messages import OpenJob
from federation.payload import SealedFunction

OPENING = OpenJob(
    "j", "n", b"d" * 32, False, "p", 0.0, {}, None, 0, None, "", "3.11", False, False, {}
)


def stream(name, **terms):
    return Stream(replace(OPENING, job=name, **terms), deque())


def function(at, size=10):
    return SealedFunction(bytes([at]), bytes(size), "f")


def test_the_job_that_was_longest_not_used_goes(monkeypatch):
    monkeypatch.setattr(shelves, "STREAMS_MAX", 2)
    shelf, a, b, c = StreamShelf(), stream("a"), stream("b"), stream("c")
    assert shelf.add("a", a) == shelf.add("b", b) == []
    assert shelf.find("a") is a
    assert shelf.add("c", c) == [b]
    assert (shelf.find("a"), shelf.find("b"), shelf.find("c")) == (a, None, c)


def test_a_closed_job_is_not_found():
    shelf, one = StreamShelf(), stream("one")
    shelf.add("one", one)
    one.closed = True
    assert shelf.find("one") is None


def test_a_sweep_takes_what_has_nothing_to_do_and_got_nothing_since_the_last():
    shelf, one = StreamShelf(), stream("one")
    shelf.add("one", one)
    one.submit(b"x", None)
    assert shelf.sweep() == []
    assert shelf.sweep() == []  # it got nothing, but has a call that has not ended
    one.end_all(Ended("lost", ""))
    one.submit(b"x", None)
    one.end_all(Ended("lost", ""))
    assert shelf.sweep() == []  # it got a call
    assert shelf.sweep() == [one]
    assert shelf.find("one") is None


def test_a_job_with_a_cost_limit_stays(monkeypatch):
    # Another job would begin to count from nothing.
    monkeypatch.setattr(shelves, "STREAMS_MAX", 1)
    shelf, limited = StreamShelf(), stream("limited", max_cost_nanos=5)
    assert shelf.add("limited", limited) == shelf.add("one", stream("one")) == []
    assert limited not in shelf.sweep() + shelf.sweep() + shelf.add("two", stream("two"))
    assert shelf.find("limited") is limited


def test_a_function_that_a_job_needs_is_kept_and_of_the_others_the_latest(monkeypatch):
    monkeypatch.setattr(shelves, "FUNCTIONS_MAX", 2)
    shelf = FunctionShelf()
    for at in (0, 0, 1, 2, 3):
        shelf.use(function(at))
    assert shelf.release(b"\0") == []  # one job less, one to go
    assert shelf.release(b"\1") == shelf.release(b"\2") == []
    assert shelf.release(b"\3") == [b"\1"]
    assert shelf.body(b"\1") is None
    assert all(shelf.body(bytes([at])) for at in (0, 2, 3))


def test_functions_that_nobody_needs_are_bounded_by_their_bytes(monkeypatch):
    monkeypatch.setattr(shelves, "FUNCTION_BYTES_MAX", 25)
    shelf = FunctionShelf()
    for at in range(3):
        shelf.use(function(at))
        assert shelf.release(bytes([at])) == ([b"\0"] if at == 2 else [])
    shelf.use(function(1))
    shelf.use(function(4, size=20))
    assert shelf.release(b"\4") == [b"\2"]
    assert shelf.body(b"\1")
