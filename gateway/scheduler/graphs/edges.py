"""Edges between ranges of tasks: which tasks each call of a range needs. Pure.

A regular graph of a million calls is a few edges, whatever its shape:

    stride 1, width 1      one to one: call i needs task first + i
    stride 0, width n      all to one, one to all, all to each: every call needs the same n tasks
    stride k, width k      fan-in of k: call i needs k tasks of its own
    stride 1, width k      a window of k tasks that moves with the call

Calls that follow no pattern are a range of one call each, with an edge for each range of inputs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Inputs = tuple[tuple[str, int, int], ...]  # of one call, in order: job, first, stop


@dataclass(frozen=True, slots=True)
class Edge:
    """Call `i` of a range needs tasks [first + i·stride, first + i·stride + width) of a job."""

    source: str
    first: int
    width: int
    stride: int = 0

    def stop(self, calls: int) -> int:
        """Return the number after the last task that any of so many calls needs."""
        return self.first + (calls - 1) * self.stride + self.width

    def inputs(self, call: int) -> range:
        """Return the tasks that a call needs."""
        start = self.first + call * self.stride
        return range(start, start + self.width)

    def consumers(self, low: int, high: int, calls: int) -> range:
        """Return which of so many calls need any task of [low, high)."""
        if not self.stride:
            meets = low < self.first + self.width and self.first < high
            return range(calls if meets else 0)
        start = (low - self.first - self.width) // self.stride + 1
        end = -((self.first - high) // self.stride)
        return range(min(calls, max(0, start)), max(0, min(calls, end)))


@dataclass(frozen=True, slots=True)
class CallRange:
    """Calls [first, stop) of a job, and the tasks that they need."""

    first: int
    stop: int
    edges: tuple[Edge, ...]


def call_ranges(first: int, calls: Sequence[Inputs]) -> Iterator[CallRange]:
    """Yield calls `first`, `first` + 1, … as few ranges, in order.

    Every call has at least one input.
    """
    start = 0
    while start < len(calls):
        stop = start + 1
        strides = _strides(calls[start], calls[stop]) if stop < len(calls) else None
        if strides is not None:
            stop += 1
            while stop < len(calls) and _strides(calls[stop - 1], calls[stop]) == strides:
                stop += 1
        used = strides or [0] * len(calls[start])
        edges = tuple(
            Edge(source, low, high - low, stride)
            for (source, low, high), stride in zip(calls[start], used, strict=True)
        )
        yield CallRange(first + start, first + stop, edges)
        start = stop


def _strides(before: Inputs, after: Inputs) -> list[int] | None:
    """Return by how much each range of inputs moves from a call to the next; None: no pattern."""
    if before is after or before == after:
        return [0] * len(before)
    if len(before) != len(after):
        return None
    found = []
    for (source, low, high), (other, next_low, next_high) in zip(before, after, strict=True):
        if source != other or high - low != next_high - next_low or next_low < low:
            return None
        found.append(next_low - low)
    return found
