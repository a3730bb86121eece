"""Functions that tasks of the drop-ins run: pickles name them. Imports nothing of the client.

A slot has this module from its own installation; libraries are imported as they are needed.
"""

import resource
import time
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
    """Return the value: one that was scattered, or sent as an object, and travels in its calls."""
    return value


def finish_collection(finish: Callable[..., Any], state: Sequence[Any], values: Any) -> Any:
    """Return the value of a collection of Dask, of those of its parts."""
    return finish(values, *state)


class Measured:
    """A result with what its call took: seconds, those of CPU, the peak of memory in bytes."""

    __slots__ = ("cpu_s", "duration_s", "peak", "value")

    def __init__(self, value: Any, duration_s: float, cpu_s: float, peak: int) -> None:
        self.value = value
        self.duration_s = duration_s
        self.cpu_s = cpu_s
        self.peak = peak

    def __reduce__(self) -> tuple[Any, ...]:
        return Measured, (self.value, self.duration_s, self.cpu_s, self.peak)


def measured(function: Callable[..., Any], *args: Any) -> Measured:
    """Run a function, perhaps with results of measured calls, and measure what it takes."""
    given = [each.value if isinstance(each, Measured) else each for each in args]
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    value = function(*given)
    took_s, took_cpu_s = time.perf_counter() - begun_s, time.process_time() - cpu_s
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Measured(value, took_s, took_cpu_s, peak_kib << 10)


def run_serialized(serializer: Any, function: bytes, *args: Any) -> Any:
    """Run a function with a serializer of the user for the function, arguments and the result."""
    opened = [
        serializer.deserialize(bytes(each.body)) if isinstance(each, Serialized) else each
        for each in args
    ]
    return Serialized(serializer.serialize(serializer.deserialize(function)(*opened)))


class Serialized:
    """An argument or a result in the bytes of a user's serializer."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body

    def __reduce__(self) -> tuple[Any, ...]:
        return Serialized, (self.body,)
