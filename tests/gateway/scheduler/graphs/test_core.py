"""The core of graphs: against a naive model, its memory, cycles, long chains."""

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.scheduler.graphs import core
from gateway.scheduler.graphs.core import CycleFound, Ready, TaskGraph
from gateway.scheduler.graphs.edges import CallRange, Edge, Inputs, call_ranges


class Naive:
    """The same by a table of calls: each one's missing inputs, one pass over all at each step."""

    def __init__(self):
        self.waiting: dict[tuple[str, int], list[tuple[str, int]]] = {}
        self.values: dict[tuple[str, int], bytes] = {}

    def add(self, job, first, calls):
        for task, inputs in enumerate(calls, first):
            self.waiting[job, task] = [(j, t) for j, low, high in inputs for t in range(low, high)]
        return self._ready()

    def ended(self, job, first, values):
        for task, value in enumerate(values, first):
            if any((job, task) in needs for needs in self.waiting.values()):
                self.values.setdefault((job, task), value)
        found = self._ready()
        self._forget()
        return found

    def _ready(self):
        found = {
            node: tuple(self.values[each] for each in needs)
            for node, needs in self.waiting.items()
            if all(each in self.values for each in needs)
        }
        for node in found:
            del self.waiting[node]
        self._forget()
        return found

    def _forget(self):
        used = {each for needs in self.waiting.values() for each in needs}
        self.values = {node: value for node, value in self.values.items() if node in used}

    def failed(self, job, task):
        work, found = [(job, task)], set()
        while work:
            cause = work.pop()
            for node in [node for node, needs in self.waiting.items() if cause in needs]:
                del self.waiting[node]
                found.add(node)
                work.append(node)
        self._forget()
        return found

    def drop(self, job, task):
        found = self.waiting.pop((job, task), None) is not None
        self._forget()
        return found


def _as_map(ready):
    return {(each.job, each.task): each.values for each in ready}


def _state(graph):
    return {
        (job, task) for job in "abcd" for low, high in graph.waits(job) for task in range(low, high)
    }


TASKS = 6


@st.composite
def _steps(draw):
    """Bundles of calls in any order, whose inputs are of earlier jobs, and outcomes in between."""
    steps = []
    sent: dict[str, int] = dict.fromkeys("abcd", 0)
    for _ in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["add", "add", "ended", "failed", "drop"]))
        job = draw(st.sampled_from("bcd" if kind in ("add", "drop") else "abcd"))
        if kind == "add":
            earlier = "abcd"[: "abcd".index(job)]
            calls = []
            for _ in range(draw(st.integers(1, 4))):
                inputs: list[tuple[str, int, int]] = []
                for _ in range(draw(st.integers(1, 3))):
                    low = draw(st.integers(0, TASKS - 1))
                    stop = draw(st.integers(low + 1, TASKS))
                    inputs.append((draw(st.sampled_from(earlier)), low, stop))
                calls.append(tuple(inputs))
            if draw(st.booleans()):  # a pattern
                low, move = draw(st.integers(0, 2)), draw(st.integers(0, 2))
                source = draw(st.sampled_from(earlier))
                width = draw(st.integers(1, 2))
                calls = [((source, low + i * move, low + i * move + width),) for i in range(4)]
            steps.append(("add", job, sent[job], calls))
            sent[job] += len(calls)
        elif kind == "ended":
            first = draw(st.integers(0, TASKS))
            values = [b"v%d" % draw(st.integers(0, 99)) for _ in range(draw(st.integers(1, 4)))]
            steps.append(("ended", job, first, values))
        else:
            steps.append((kind, job, draw(st.integers(0, TASKS)), None))
    return steps


@settings(max_examples=400, deadline=None)
@given(_steps())
def test_it_does_what_a_table_of_all_calls_does(steps):
    graph, naive = TaskGraph(), Naive()
    for kind, job, at, what in steps:
        if kind == "add":
            ready = [one for part in call_ranges(at, what) for one in graph.add(job, part)]
            assert _as_map(ready) == naive.add(job, at, what)
            assert len(_as_map(ready)) == len(ready)
        elif kind == "ended":
            assert _as_map(graph.ended(job, at, what)) == naive.ended(job, at, what)
        elif kind == "failed":
            fallen = graph.failed(job, [(at, at + 1)], "why")
            found = {(each.job, task) for each in fallen for task in range(each.first, each.stop)}
            assert found == naive.failed(job, at)
            assert sum(each.stop - each.first for each in fallen) == len(found)  # each once
        else:
            assert bool(graph.drop(job, [(at, at + 1)])) == naive.drop(job, at)
        assert _state(graph) == set(naive.waiting)
        assert graph.held_bytes == sum(map(len, naive.values.values()))
        for name in "abcd":
            lacks = {
                (j, t)
                for j, ranges in graph.lacking(name)
                for low, high in ranges
                for t in range(low, high)
            }
            assert lacks == {
                node
                for node, needs in naive.waiting.items()
                if any(each[0] == name and each not in naive.values for each in needs)
            }


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 5),
    st.lists(
        st.lists(
            st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(1, 3)).map(
                lambda row: (row[0], row[1], row[1] + row[2])
            ),
            min_size=1,
            max_size=2,
        ).map(tuple),
        max_size=12,
    ),
)
def test_shapes_say_what_the_calls_said(first, calls):
    found = {}
    at = first
    for part in call_ranges(first, calls):
        assert part.first == at < part.stop
        at = part.stop
        for task in range(part.first, part.stop):
            found[task] = [
                (edge.source, each)
                for edge in part.edges
                for each in edge.inputs(task - part.first)
            ]
    assert at == first + len(calls)
    assert found == {
        task: [(job, each) for job, low, high in inputs for each in range(low, high)]
        for task, inputs in enumerate(calls, first)
    }


@given(st.integers(0, 4), st.integers(1, 4), st.integers(0, 4), st.integers(1, 8), st.data())
def test_the_consumers_of_a_range_are_those_that_need_a_part_of_it(
    first, width, stride, calls, data
):
    low = data.draw(st.integers(0, 40))
    high = data.draw(st.integers(low + 1, 41))
    edge = Edge("a", first, width, stride)
    needed = [at for at in range(calls) if set(edge.inputs(at)) & set(range(low, high))]
    assert list(edge.consumers(low, high, calls)) == needed
    assert edge.stop(calls) == max(edge.inputs(calls - 1)) + 1


def test_regular_graphs_are_a_few_shapes():
    one_to_one: list[Inputs] = [(("a", at, at + 1),) for at in range(1000)]
    assert len(list(call_ranges(0, one_to_one))) == 1
    all_to_each: list[Inputs] = [(("a", 0, 1000),)] * 50
    assert len(list(call_ranges(0, all_to_each))) == 1
    tree: list[Inputs] = [(("a", 8 * at, 8 * at + 8),) for at in range(100)]
    assert len(list(call_ranges(0, tree))) == 1
    with_a_constant: list[Inputs] = [(("a", at, at + 1), ("c", 0, 1)) for at in range(100)]
    assert len(list(call_ranges(0, with_a_constant))) == 1


def _large() -> TaskGraph:
    """100,000 calls: 60,000 after one other each, and reductions of 2 and of 3, in bundles."""
    graph = TaskGraph()
    for start in range(0, 60_000, 1000):
        graph.add("map", CallRange(start, start + 1000, (Edge("load", start, 1, 1),)))
    for start in range(0, 30_000, 1000):
        graph.add("pair", CallRange(start, start + 1000, (Edge("map", 2 * start, 2, 2),)))
    for start in range(0, 10_000, 1000):
        graph.add("triple", CallRange(start, start + 1000, (Edge("pair", 3 * start, 3, 3),)))
    return graph


@pytest.mark.slow
def test_a_call_of_a_regular_graph_takes_at_most_64_bytes():
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        graph = _large()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 100_000 < 64
    assert len(graph.waits("map")) == 60_000


@pytest.mark.slow
def test_all_of_a_large_graph_is_released_and_nothing_is_left():
    graph = _large()
    released = 0
    work = [("load", at, [b"x"] * 1000) for at in range(0, 60_000, 1000)]
    random.Random(1).shuffle(work)
    for job, first, values in work:
        ready = graph.ended(job, first, values)
        released += len(ready)
        while ready:
            after = []
            for each in ready:
                after += graph.ended(each.job, each.task, [b"y"])
            ready = after
            released += len(ready)
    assert released == 100_000
    assert graph.held_bytes == 0
    assert not any(graph.has_consumers(job) for job in ("load", "map", "pair", "triple"))
    assert not any(graph.waits(job) for job in ("map", "pair", "triple"))


def test_a_long_chain_falls_without_recursion():
    graph = TaskGraph()
    graph.add("a", CallRange(1, 20_000, (Edge("a", 0, 1, 1),)))
    fallen = graph.failed("a", [(0, 1)], "boom")
    assert sum(each.stop - each.first for each in fallen) == 19_999
    assert {each.cause for each in fallen} == {"boom"}


def test_a_value_lives_until_its_last_use():
    graph = TaskGraph()
    graph.add("b", CallRange(0, 2, (Edge("a", 0, 1),)))
    graph.add("c", CallRange(0, 1, (Edge("a", 0, 1), Edge("b", 0, 2))))
    assert graph.ended("a", 0, [b"12345"]) == [
        Ready("b", 0, (b"12345",)),
        Ready("b", 1, (b"12345",)),
    ]
    assert graph.held_bytes == 5  # c waits with it
    assert graph.ended("a", 0, [b"another"]) == []  # the first outcome counts
    assert graph.ended("b", 0, [b"x", b"y"]) == [Ready("c", 0, (b"12345", b"x", b"y"))]
    assert graph.held_bytes == 0


def test_a_call_may_come_before_or_after_the_value_that_another_waits_with():
    graph = TaskGraph()
    graph.add("c", CallRange(0, 1, (Edge("a", 0, 1), Edge("b", 0, 1))))
    graph.ended("a", 0, [b"v"])
    assert graph.held("a", 0, 1) == [0]
    assert graph.add("d", CallRange(0, 1, (Edge("a", 0, 1),))) == [Ready("d", 0, (b"v",))]
    assert graph.drop("c", [(0, 1)]) == [(0, 1)]
    assert graph.held("a", 0, 1) == []
    assert graph.held_bytes == 0


@pytest.mark.parametrize(
    ("added", "last", "names"),
    [
        ([], ("a", CallRange(3, 4, (Edge("a", 3, 1),))), [("a", 3), ("a", 3)]),
        (
            [("a", CallRange(0, 1, (Edge("b", 0, 1),)))],
            ("b", CallRange(0, 1, (Edge("a", 0, 1),))),
            [("b", 0), ("a", 0), ("b", 0)],
        ),
        (
            [
                ("a", CallRange(0, 5, (Edge("b", 0, 1, 1),))),
                ("c", CallRange(7, 8, (Edge("a", 4, 1),))),
            ],
            ("b", CallRange(0, 5, (Edge("c", 3, 1, 1),))),
            [("b", 4), ("c", 7), ("a", 4), ("b", 4)],
        ),
    ],
)
def test_a_cycle_is_refused_with_the_names_on_it(added, last, names):
    graph = TaskGraph()
    for job, part in added:
        graph.add(job, part)
    before = {job: graph.waits(job) for job in "abc"}
    with pytest.raises(CycleFound) as found:
        graph.add(*last)
    assert list(found.value.names) == names
    assert "task" in str(found.value)
    assert {job: graph.waits(job) for job in "abc"} == before  # nothing of it was added


def test_inputs_that_come_later_are_no_cycle():
    graph = TaskGraph()
    graph.add("a", CallRange(1, 3, (Edge("b", 0, 1, 1),)))
    graph.add("b", CallRange(0, 2, (Edge("a", 0, 1),)))
    assert [each.task for each in graph.ended("a", 0, [b"x"])] == [0, 1]


def test_calls_whose_inputs_all_come_after_them_are_bounded(monkeypatch):
    monkeypatch.setattr(core, "CYCLE_LOOK_MAX", 50)
    graph = TaskGraph()
    for at in range(100):
        graph.add("a", CallRange(at, at + 1, (Edge("b", at, 1),)))
    graph.add("c", CallRange(0, 1, (Edge("a", 0, 100),)))
    with pytest.raises(CycleFound, match="waits for over 50 calls that came after it"):
        graph.add("b", CallRange(99, 100, (Edge("c", 1, 1), Edge("a", 0, 99))))


# --- chains: calls that go to a slot together ---------------------------------------------------


def a_chain(calls):
    """Return a graph in which task `n` + 1 of job `j` waits for task `n`; task 0 is there."""
    graph = TaskGraph()
    for part in call_ranges(1, [(("j", at, at + 1),) for at in range(calls)]):
        graph.add("j", part)
    return graph


def test_calls_ride_behind_the_task_that_each_waits_for():
    graph = a_chain(9)
    assert graph.follow("j", 0, 4) == 4
    assert list(graph.waits("j")) == [(5, 10)]
    assert graph.rode("j", 0, 3) == 2
    assert graph.ended("j", 0, [b"0", b"1", b"2"]) == []
    assert graph.held_bytes == 1  # of task 2, for a rider that may come back
    assert graph.came_back("j", 3, 5) == ([3, 4], [Ready("j", 3, (b"2",))])
    assert graph.ended("j", 3, [b"3"]) == [Ready("j", 4, (b"3",))]
    assert graph.follow("j", 4, 100) == 5
    assert graph.rode("j", 4, 10) == 5
    assert graph.ended("j", 4, [b"v"] * 6) == []
    assert graph.held_bytes == 0
    assert not graph.has_consumers("j")


def test_nothing_rides_that_waits_for_more_or_behind_what_others_read():
    graph = a_chain(4)
    for part in call_ranges(0, [(("j", 2, 3),)]):
        graph.add("other", part)
    assert graph.follow("j", 0, 4) == 2
    graph = a_chain(2)
    for part in call_ranges(3, [(("j", 2, 3), ("k", 0, 1))]):
        graph.add("j", part)
    assert graph.follow("j", 0, 4) == 2


def test_riders_fall_with_the_task_that_they_wait_for():
    graph = a_chain(5)
    graph.follow("j", 0, 3)
    fallen = graph.failed("j", [(1, 2)], "boom")
    assert [(each.first, each.stop) for each in fallen] == [(2, 3), (3, 4), (4, 5), (5, 6)]
    assert graph.came_back("j", 0, 9) == ([1], [])
