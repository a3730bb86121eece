"""Submits the calls of a graph, and gets the values of keys."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Final

from federation.errors import DependencyFailed, ObjectRefused, RemoteTraceback, SerializationError
from federation.graphs.naming import job_name
from federation.graphs.nodes import evaluated, run_node
from federation.graphs.reading import GraphCall, GraphPlan, KeyRef, filled_in, flatten, nested

LARGE_BYTES: Final = 1 << 20  # plain values of this size are written once, where objects are kept
OURS: Final = (evaluated, run_node)  # they run nodes of any layer


def submit_plan(
    plan: GraphPlan,
    keys: Any,
    submit: Callable[..., Future[Any]],
    put: Callable[[Any], Any],
    named: Callable[[str], Callable[..., Future[Any]]] | None = None,
) -> dict[Hashable, Any]:
    """Submit the calls of a graph in order; return the future, or the plain value, of each key.

    Args:
        keys: those that are wanted; results of other calls are not opened here.
        submit: as of a client.
        put: as of a client; may raise ObjectRefused.
        named: returns `submit` of a client whose jobs have a name, for the nodes that a function of
            ours runs; by default they have the name of that function.
    """
    submits: dict[int, Callable[..., Future[Any]]] = {}

    def submit_of(function: Any) -> Callable[..., Future[Any]]:
        if named is None or not any(function is each for each in OURS):
            return submit
        if id(function) not in submits:
            submits[id(function)] = named(job_name(plan, function))
        return submits[id(function)]

    wanted = set(flatten(keys))
    found: dict[Hashable, Any] = {}
    made: list[Future[Any]] = []  # futures that the graph has from elsewhere are not among them
    given: dict[Hashable, Any] = {}  # as arguments: large values are references
    for key, step in plan.steps:
        if isinstance(step, KeyRef):
            found[key], given[key] = found[step.key], given[step.key]
        elif isinstance(step, GraphCall):
            arguments = [filled_in(each, given.__getitem__) for each in step.arguments]
            found[key] = given[key] = submit_of(step.function)(step.function, *arguments)
            made.append(found[key])
        else:
            found[key], given[key] = step, as_argument(step, put)
    needed = {id(found[key]) for key in wanted}
    for each in made:
        if id(each) not in needed:
            each.is_inner = True  # type: ignore[attr-defined]
    return found


def as_argument(value: Any, put: Callable[[Any], Any]) -> Any:
    """Return a plain value, or a reference to it if it is large and can be put."""
    size = getattr(value, "nbytes", 0)
    if not isinstance(size, int) or size < LARGE_BYTES:
        return value
    try:
        return put(value)
    except (ObjectRefused, SerializationError):
        return value  # in each call, then


def values(found: dict[Hashable, Any], keys: Any) -> Any:
    """Wait for the values of keys, nested as these are.

    Raises the exception of the first task that failed, as Dask does.
    """
    for key in flatten(keys):
        each = found[key]
        if isinstance(each, Future):
            try:
                each.result()
            except DependencyFailed as error:
                cause = error.__cause__
                if cause is None or isinstance(cause, RemoteTraceback):
                    raise
                raise cause from error
    return nested(keys, lambda key: _value(found[key]))


def _value(each: Any) -> Any:
    return each.result() if isinstance(each, Future) else each
