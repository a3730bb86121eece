"""Functions that tasks of the drop-ins run: pickles name them. Imports nothing of the client.

A slot has this module from its own installation; libraries are imported as they are needed.
"""

from collections.abc import Callable, Sequence
from typing import Any


def run_joblib_batch(
    _name: str, calls: Sequence[tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]]
) -> list[Any]:
    """Run calls of joblib in order. Parallel loops within them run in order, too.

    The name, of the user's function, is part of the function that the scheduler knows: so durations
    are measured for each.
    """
    from joblib import parallel_config

    with parallel_config(backend="sequential"):
        return [function(*args, **kwargs) for function, args, kwargs in calls]


def same(value: Any) -> Any:
    """Return the value: a scattered one that travels in its calls."""
    return value


def finish_collection(finish: Callable[..., Any], state: Sequence[Any], values: Any) -> Any:
    """Return the value of a collection of Dask, of those of its parts."""
    return finish(values, *state)
