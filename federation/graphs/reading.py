"""Reads graphs of Dask's contract: which keys are needed, in which order, and by which calls. Pure.

A graph maps keys to tasks (tuples with a callable first), other keys (aliases), collections of
these, or plain values. Nodes of Dask's own classes (`dask._task_spec`) are taken by their
interface: `dependencies`, and a call with a map of values. Nothing of Dask is imported.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from federation.graphs.nodes import NestedTask, evaluated, run_node

DEPTH_MAX: Final = 100  # of collections and tasks in one node
CYCLE_SHOWN: Final = 20  # keys in the text about a cycle
COLLECTIONS: Final = (list, tuple, set, frozenset)


@dataclass(frozen=True, slots=True)
class KeyRef:
    """Stands for the value of a key."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class GraphCall:
    """A call of a graph: its arguments have a KeyRef for each value that it needs."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """The needed keys of a graph, each after those that it needs, with its call, value or alias."""

    steps: tuple[tuple[Hashable, GraphCall | KeyRef | Any], ...]


def flatten(keys: Any) -> Iterator[Hashable]:
    """Yield the keys of nested lists."""
    level = [iter([keys])]
    while level:
        each = next(level[-1], level)
        if each is level:
            level.pop()
        elif isinstance(each, list):
            level.append(iter(each))
        else:
            yield each


def nested(keys: Any, value_of: Callable[[Hashable], Any]) -> Any:
    """Return the values of keys: of a list a tuple, as Dask's own schedulers do."""
    if isinstance(keys, list):
        return tuple(nested(each, value_of) for each in keys)
    return value_of(keys)


def plan(graph: Any, keys: Any) -> GraphPlan:
    """Return the steps that lead to some keys, without those that none of them needs.

    Args:
        graph: a mapping, or an object with `__dask_graph__`.
        keys: one key, or a list of keys and lists.

    Raises:
        KeyError: a wanted key is not in the graph.
        ValueError: keys need each other: the text names them; or a node is nested too deeply.
    """
    found: Mapping[Hashable, Any] = graph if isinstance(graph, Mapping) else graph.__dask_graph__()
    made: dict[Hashable, Any] = {}
    needs: dict[Hashable, list[Hashable]] = {}
    ordered: list[tuple[Hashable, Any]] = []
    done: set[Hashable] = set()
    for wanted in flatten(keys):
        if wanted not in found:
            raise KeyError(wanted)
        path: dict[Hashable, Iterator[Hashable]] = {}
        node: Any = wanted
        while True:
            if node is not _NONE and node in path:
                raise ValueError(_cycle(list(path), node))
            if node is not _NONE and node not in done:
                made[node] = _read(found[node], found, 0)
                needs[node] = list(_needs(made[node]))
                path[node] = iter(needs[node])
            if not path:
                break
            last = next(reversed(path))
            node = next(path[last], _NONE)
            if node is _NONE:
                done.add(last)
                del path[last]
                ordered.append((last, made.pop(last)))
    return GraphPlan(tuple(ordered))


_NONE: Final = object()


def _cycle(path: list[Hashable], again: Hashable) -> str:
    names = [*path[path.index(again) :], again]
    shown = [repr(each)[:80] for each in names]
    if len(shown) > CYCLE_SHOWN:
        shown[CYCLE_SHOWN // 2 : 1 - CYCLE_SHOWN // 2] = ["…"]
    return f"the graph has a cycle: {' → '.join(shown)}"


def _read(value: Any, graph: Mapping[Hashable, Any], depth: int) -> Any:
    """Return a node as a GraphCall, a KeyRef or a plain value."""
    if _is_node(value):
        return _read_node(value)
    if _is_task(value):
        arguments = [_argument(each, graph, depth + 1) for each in value[1:]]
        if any(map(_holds_task, arguments)):
            return GraphCall(evaluated, (NestedTask(value[0], arguments),))
        return GraphCall(value[0], tuple(arguments))
    read = _argument(value, graph, depth)
    if isinstance(read, KeyRef) or (next(_needs(read), _NONE) is _NONE and not _holds_task(read)):
        return read
    return GraphCall(evaluated, (read,))


def _argument(value: Any, graph: Mapping[Hashable, Any], depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise ValueError(f"a node of the graph is nested over {DEPTH_MAX} levels deep")
    if _is_task(value):
        return NestedTask(value[0], [_argument(each, graph, depth + 1) for each in value[1:]])
    if type(value) is dict:
        return {name: _argument(each, graph, depth + 1) for name, each in value.items()}
    if type(value) is not list and _is_key(value, graph):
        return KeyRef(value)
    if type(value) in COLLECTIONS:
        return type(value)(_argument(each, graph, depth + 1) for each in value)
    return value


def _is_task(value: Any) -> bool:
    return type(value) is tuple and bool(value) and callable(value[0])


def _is_key(value: Any, graph: Mapping[Hashable, Any]) -> bool:
    try:
        return value in graph
    except TypeError:
        return False  # it can't be hashed


def _is_node(value: Any) -> bool:
    """Whether a value is a node of Dask's own classes."""
    return callable(value) and isinstance(getattr(value, "dependencies", None), frozenset)


def _read_node(node: Any) -> Any:
    target = getattr(node, "target", None)
    if type(node).__name__ == "Alias" and target is not None:
        return KeyRef(getattr(target, "key", target))
    names = sorted(node.dependencies, key=repr)
    if not names and type(node).__name__ == "DataNode":
        return node()
    return GraphCall(run_node, (node, names, *map(KeyRef, names)))


def _holds_task(value: Any) -> bool:
    if isinstance(value, NestedTask):
        return True
    return any(map(_holds_task, _parts(value)))


def _needs(value: Any) -> Iterator[Hashable]:
    """Yield the keys that a node needs, in order."""
    if isinstance(value, KeyRef):
        yield value.key
    elif isinstance(value, (GraphCall, NestedTask)):
        for each in value.arguments:
            yield from _needs(each)
    else:
        for each in _parts(value):
            yield from _needs(each)


def _parts(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return value.values()
    return value if type(value) in COLLECTIONS else ()


def filled_in(value: Any, value_of: Callable[[Hashable], Any]) -> Any:
    """Return arguments with what stands for each key in its place."""
    if isinstance(value, KeyRef):
        return value_of(value.key)
    if isinstance(value, NestedTask):
        return NestedTask(value.function, [filled_in(each, value_of) for each in value.arguments])
    if type(value) is dict:
        return {name: filled_in(each, value_of) for name, each in value.items()}
    if type(value) in COLLECTIONS:
        return type(value)(filled_in(each, value_of) for each in value)
    return value
