"""Graphs of Dask's contract: which calls keys need, in which order, and the errors."""

from concurrent.futures import Future
from functools import partial
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import DependencyFailed, ObjectRefused, RemoteTraceback
from federation.graphs.nodes import NestedTask, evaluated
from federation.graphs.reading import DEPTH_MAX, flatten, plan
from federation.graphs.submitting import LARGE_BYTES, submit_plan, values


def inc(x):
    return x + 1


class Site:
    """Runs each call at once; arguments may be futures of it, anywhere."""

    def __init__(self):
        self.calls = []
        self.kept = []

    def submit(self, function, *arguments):
        future = Future()
        self.calls.append(function)
        try:
            future.set_result(function(*map(self._opened, arguments)))
        except Exception as error:
            future.set_exception(error)
        return future

    def put(self, value):
        self.kept.append(value)
        return value

    def _opened(self, value):
        if isinstance(value, Future):
            return value.result()
        if isinstance(value, NestedTask):
            return NestedTask(value.function, list(map(self._opened, value.arguments)))
        if type(value) is dict:
            return {name: self._opened(each) for name, each in value.items()}
        if type(value) in (list, tuple, set, frozenset):
            return type(value)(map(self._opened, value))
        return value

    def get(self, graph, keys):
        return values(submit_plan(plan(graph, keys), keys, self.submit, self.put), keys)


GRAPH = {
    "x": 1,
    "y": (inc, "x"),
    "z": (add, (inc, "y"), 10),
    "all": [(sum, ["x", "y", "z"]), "z", [1, "other"]],
    "alias": "z",
    "of alias": (inc, "alias"),
    ("tuple", 0): (inc, "of alias"),
    "by tuple": (add, ("tuple", 0), ("tuple", 0)),
    "map": (sorted, {"of": "y", "b": (inc, 1)}),
    "in map": (dict.get, {"a": "y"}, "a"),
    "none": (list,),
    "partial": (partial(add, 5), "x"),
    "literal": (len, ("tuple", "unknown")),
    "unused": (inc, "bad"),
    "bad": (inc, "text"),
}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("x", 1),
        ("y", 2),
        ("z", 13),
        ("all", [16, 13, [1, "other"]]),
        ("alias", 13),
        ("of alias", 14),
        (("tuple", 0), 15),
        ("by tuple", 30),
        ("map", ["b", "of"]),
        ("in map", 2),
        ("none", []),
        ("partial", 6),
        ("literal", 2),
        (["x", "y"], (1, 2)),
        ([["x"], ["y", ["z", "x"]]], ((1,), (2, (13, 1)))),
        ([], ()),
    ],
)
def test_values_are_those_of_dask(keys, expected):
    found = Site().get(GRAPH, keys)
    assert found == expected
    assert type(found) is type(expected)


def test_only_what_the_keys_need_runs_and_each_once():
    site = Site()
    site.get(GRAPH, ["z", "of alias"])
    assert site.calls == [inc, evaluated, inc]  # y, z, of alias
    site = Site()
    site.get(GRAPH, "y")
    assert site.calls == [inc]


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        ({"a": (inc, "b"), "b": (inc, "c"), "c": (add, 1, "a")}, "'a' → 'b' → 'c' → 'a'"),
        ({"a": (inc, "a")}, "'a' → 'a'"),
        ({"a": "b", "b": "a"}, "'a' → 'b' → 'a'"),
        ({"s": (inc, "a"), "a": [(inc, "b")], "b": {"deep": [("a",), "a"]}}, "'a' → 'b' → 'a'"),
    ],
)
def test_a_cycle_is_named(graph, text):
    first = next(iter(graph))
    with pytest.raises(ValueError, match="the graph has a cycle: ") as found:
        plan(graph, first)
    assert text in str(found.value)


def test_a_cycle_that_no_key_needs_is_no_error():
    assert Site().get({"a": (inc, "a"), "b": 1}, "b") == 1


def test_a_long_cycle_is_cut_and_a_long_chain_is_none():
    size = 5_000
    graph = {at: (inc, at + 1) for at in range(size)} | {size: 0.5}
    assert len(plan(graph, 0).steps) == size + 1
    with pytest.raises(ValueError, match="…"):
        plan(graph | {size: (inc, 0)}, 0)


def test_an_unknown_key_is_a_key_error():
    with pytest.raises(KeyError, match="nowhere"):
        plan(GRAPH, ["x", "nowhere"])


def test_a_node_is_nested_so_deeply_at_most():
    node: object = 1
    for _ in range(DEPTH_MAX + 2):
        node = [node]
    with pytest.raises(ValueError, match="levels deep"):
        plan({"a": (len, node)}, "a")


def test_the_exception_of_the_first_task_that_failed_is_raised():
    with pytest.raises(TypeError):
        Site().get({"a": (inc, "text")}, "a")
    failed, lost = DependencyFailed("task 0, which it needs, failed"), DependencyFailed("lost")
    failed.__cause__ = LookupError("boom")
    lost.__cause__ = RemoteTraceback("text")
    for error, kind in ((failed, LookupError), (lost, DependencyFailed)):
        future: Future[object] = Future()
        future.set_exception(error)
        with pytest.raises(kind):
            values({"a": future}, ["a"])


def test_large_values_are_put_once_where_they_can_be():
    class Array:
        nbytes = LARGE_BYTES

    array, site = Array(), Site()
    graph = {"a": array, "b": (id, "a"), "c": (id, "a"), "d": 5}
    assert site.get(graph, ["b", "c", "a"]) == (id(array), id(array), array)
    assert site.kept == [array]

    def refuse(_value):
        raise ObjectRefused("no room")

    site.put = refuse
    assert site.get(graph, "b") == id(array)


def test_results_of_inner_keys_are_marked():
    site = Site()
    found = submit_plan(plan(GRAPH, "of alias"), "of alias", site.submit, site.put)
    inner = {key for key, each in found.items() if getattr(each, "is_inner", False)}
    assert inner == {"y", "z", "alias"}


# --- Dask's own classes, as they are used by their interface -------------------------------------


class Task:
    """As dask._task_spec.Task: it is called with a map of values."""

    def __init__(self, function, *names):
        self.function, self.names = function, names
        self.dependencies = frozenset(names)

    def __call__(self, found=()):
        return self.function(*(found[name] for name in self.names))


class Alias(Task):
    def __init__(self, target):
        super().__init__(lambda value: value, target)
        self.target = target


class DataNode(Task):
    def __init__(self, value):
        super().__init__(lambda: value)


class Collection:
    def __dask_graph__(self):
        return {"a": DataNode(4), "b": Alias("a"), ("c", 0): Task(add, "a", "b"), "d": Task(int)}


def test_nodes_of_dasks_classes():
    site = Site()
    assert site.get(Collection(), [("c", 0), "b", "d"]) == (8, 4, 0)
    assert len(site.calls) == 2


# --- any graph -----------------------------------------------------------------------------------


@st.composite
def graphs(draw):
    graph: dict[str, object] = {}
    for at in range(draw(st.integers(1, 12))):
        earlier = list(graph)

        def argument(depth, earlier=earlier):
            kinds = ["value", *(["key"] * 3 if earlier else []), *(["task", "list"] * (depth < 2))]
            match draw(st.sampled_from(kinds)):
                case "key":
                    return draw(st.sampled_from(earlier))
                case "task":
                    return (add, argument(depth + 1), argument(depth + 1))
                case "list":
                    return (sum, [argument(depth + 1) for _ in range(draw(st.integers(0, 3)))])
            return draw(st.integers(0, 9))

        graph[f"k{at}"] = argument(0)
    return graph


def reference(graph, value):
    """Evaluate by the words of Dask's specification."""
    if isinstance(value, list):
        return [reference(graph, each) for each in value]
    if isinstance(value, tuple) and value and callable(value[0]):
        return value[0](*[reference(graph, each) for each in value[1:]])
    if isinstance(value, str) and value in graph:
        return reference(graph, graph[value])
    return value


@given(graphs())
def test_any_graph_gives_what_its_specification_says(graph):
    keys = list(graph)
    assert Site().get(graph, keys) == tuple(reference(graph, key) for key in keys)
    assert list(flatten([keys, keys[0]])) == [*keys, keys[0]]
