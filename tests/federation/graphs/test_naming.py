"""Jobs of nodes are named by the layers of their keys."""

import pytest

from federation.graphs.naming import LAYER_CHARS, job_name, layer_of
from federation.graphs.nodes import evaluated, run_node
from federation.graphs.reading import GraphCall, GraphPlan

DIGEST = "0b36d6ff1d8b4d06a24aa8f3a1d3b9a2"


@pytest.mark.parametrize(
    ("key", "layer"),
    [
        ("x", "x"),
        ("x-1", "x"),
        ((f"sum-aggregate-{DIGEST}", 0, 1), "sum-aggregate"),
        (f"read-csv-{DIGEST}", "read-csv"),
        ("swap-facade", "swap-facade"),  # letters alone are a word
        (DIGEST[:16], DIGEST[:16]),
        ((("a-2", 1), 2), "a"),
        ((), "()"),
        (7, "7"),
        ("\x1b[31m", "\\x1b[31m"),
        ("long" * 50, ("long" * 50)[: LAYER_CHARS - 1] + "…"),
    ],
)
def test_the_layer_of_a_key(key, layer):
    assert layer_of(key) == layer


def steps(function, *keys):
    return [(key, GraphCall(function, ())) for key in keys]


def test_a_job_has_the_layers_nearest_to_the_result():
    graph = GraphPlan(
        (
            *steps(run_node, ("ones-1", 0), ("ones-1", 1), "getitem-2", "mul-3"),
            ("plain", 1),
            *steps(evaluated, "pairs"),
            *steps(run_node, f"sum-aggregate-{DIGEST}"),
        )
    )
    assert job_name(graph, run_node) == "dask: sum-aggregate, mul, getitem …"
    assert job_name(graph, evaluated) == "graph: pairs"
