"""Nodes of a graph that more than one function runs: evaluated by the task. Pure.

Tasks name these functions and classes: they stand in pickles.
"""

from collections.abc import Callable, Sequence
from typing import Any


class NestedTask:
    """A task among the arguments of another: evaluated where that one runs."""

    __slots__ = ("arguments", "function")

    def __init__(self, function: Callable[..., Any], arguments: list[Any]) -> None:
        self.function = function
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return NestedTask, (self.function, self.arguments)


def evaluated(value: Any) -> Any:
    """Return an argument with the tasks inside it replaced by their results."""
    if isinstance(value, NestedTask):
        return value.function(*map(evaluated, value.arguments))
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(map(evaluated, value))
    if type(value) is dict:
        return {key: evaluated(each) for key, each in value.items()}
    return value


def run_node(node: Callable[[dict[Any, Any]], Any], names: Sequence[Any], *values: Any) -> Any:
    """Run a node of Dask's own classes with the values of the keys that it needs."""
    return node(dict(zip(names, values, strict=True)))
