"""Collections of Dask (arrays, tables, bags, delayed values), by their protocol.

https://docs.dask.org/en/stable/custom-collections.html. Nothing of Dask is imported.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from federation.graphs.reading import flatten


def is_collection(value: Any) -> bool:
    """Whether a value is a collection of Dask."""
    if isinstance(value, type):
        return False
    graph = getattr(value, "__dask_graph__", None)
    return callable(graph) and callable(getattr(value, "__dask_keys__", None))


def optimized(collection: Any) -> Any:
    """Return a collection whose expression is optimised, if it has one, as tables do."""
    kind = type(collection)  # a delayed value has any attribute
    has_expression = hasattr(kind, "expr") and callable(getattr(kind, "optimize", None))
    return collection.optimize() if has_expression else collection


def merged(collections: Iterable[Any], *, optimize_graph: bool = True) -> dict[Hashable, Any]:
    """Return the graph of all collections together, optimised as their kinds do."""
    graph: dict[Hashable, Any] = {}
    for each in collections:
        part = each.__dask_graph__()
        optimize = getattr(each, "__dask_optimize__", None)
        if optimize_graph and callable(optimize):
            part = optimize(part, keys_of(each))
        graph.update(part)
    return graph


def keys_of(collection: Any) -> list[Any]:
    """Return the keys of a collection's parts, in nested lists."""
    return list(collection.__dask_keys__())


def rebuilt(collection: Any, value_of: Callable[[Hashable], Any]) -> Any:
    """Return a collection like this one whose parts are there, or come as futures."""
    rebuild, state = collection.__dask_postpersist__()
    return rebuild({key: value_of(key) for key in flatten(keys_of(collection))}, *state)
