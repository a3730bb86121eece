"""Graphs are submitted in order; futures that they have from elsewhere are left as they are."""

from concurrent.futures import Future

from federation.graphs.collections import is_collection, merged, optimized
from federation.graphs.reading import plan
from federation.graphs.submitting import submit_plan


def submit(function, *arguments):
    made = Future()
    made.call = function, arguments
    return made


def test_only_calls_of_the_graph_are_inner():
    """A future of another graph is a plain value of this one: its user opens it."""
    given = Future()
    graph = {"given": given, "y": (abs, "given"), "z": (abs, "y")}
    found = submit_plan(plan(graph, "z"), "z", submit, lambda value: value)
    assert found["y"].is_inner
    assert not hasattr(given, "is_inner")
    assert not hasattr(found["z"], "is_inner")
    assert found["y"].call == (abs, (given,))


class Unhashable:
    """A callable that compares as arrays do."""

    __hash__ = None

    def __eq__(self, other):
        raise ValueError("ambiguous")

    def __call__(self, value):
        return value


def test_nodes_that_our_functions_run_are_submitted_under_the_name_of_their_layers():
    names = []

    def named(name):
        names.append(name)
        return submit

    graph = {"x": 1, "both": (pow, (pow, "x", 2), 3), "pair": ["both", (abs, "x")]}
    keys = ["pair", "own"]
    submit_plan(plan(graph | {"own": (Unhashable(), "x")}, keys), keys, submit, abs, named)
    assert names == ["graph: pair, both"]


class Lazy:
    """As a delayed value of Dask: it has any attribute, but those of protocols."""

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Lazy()

    def __call__(self):
        return Lazy()

    def __dask_graph__(self):
        return {"a": 1, "b": (abs, "a"), "unneeded": 2}

    def __dask_keys__(self):
        return ["b"]


class Culled(Lazy):
    def __dask_optimize__(self, graph, keys):
        return {key: graph[key] for key in ("a", *keys)}


class Table(Lazy):
    expr = "an expression"

    def optimize(self):
        return "optimised"


def test_collections_are_optimised_as_their_kinds_do():
    lazy = Lazy()
    assert is_collection(lazy)
    assert not is_collection(Lazy)
    assert not is_collection({"a": 1})
    assert optimized(lazy) is lazy
    assert optimized(Table()) == "optimised"
    assert set(merged([lazy])) == {"a", "b", "unneeded"}
    assert set(merged([Culled()])) == {"a", "b"}
    assert set(merged([Culled()], optimize_graph=False)) == {"a", "b", "unneeded"}
