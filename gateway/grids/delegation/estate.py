"""Parcels that a former run of a delegate has left at its engine, kept until they are claimed.

A gateway that restarts knows which tasks have ended, and assigns all others anew; it knows nothing
of parcels. A parcel that is still at the engine is recognized by its contents (Label): its tasks'
job and numbers, its function and its arguments, byte for byte. So a job of the same name with other
calls gets no result of the first. Pure.

    Found ──► add ──► find, drop (its tasks are assigned to a lot) ──► the lot's, as any other
                 └──► stale (unclaimed for some time) ──► cancelled
"""

from collections.abc import Sequence
from dataclasses import dataclass

from federation.clocks import MonoS
from gateway.grids.delegating import Done, Label
from gateway.worker.pieces import AssignmentTerms


@dataclass(slots=True)
class _Left:
    label: Label
    since_s: MonoS
    outcome: Done | None = None


def label_of(terms: AssignmentTerms, first: int, arguments: Sequence[bytes]) -> Label:
    """Return the label of an assignment's tasks from `first` on."""
    return Label.of(
        *(terms.job, first, terms.function, arguments), *(terms.timeout_s, terms.prints)
    )


class Estate:
    """Parcels of a former run that no lot has claimed yet, by name."""

    def __init__(self) -> None:
        self._left: dict[str, _Left] = {}
        self._at: dict[tuple[str, int], list[str]] = {}  # by job and first task

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def __bool__(self) -> bool:
        return bool(self._left)

    def add(self, name: str, label: Label, mono_s: MonoS) -> None:
        """Add a parcel that is still at the engine."""
        if name not in self._left:
            self._left[name] = _Left(label, mono_s)
            self._at.setdefault((label.job, label.first), []).append(name)

    def keep(self, done: Done) -> None:
        """Keep the outcome of an unclaimed parcel."""
        self._left[done.parcel].outcome = done

    def drop(self, name: str) -> Done | None:
        """Remove a parcel; return its outcome, if there is one already."""
        left = self._left.pop(name)
        where = (left.label.job, left.label.first)
        self._at[where].remove(name)
        if not self._at[where]:
            del self._at[where]
        return left.outcome

    def find(
        self, terms: AssignmentTerms, first: int, arguments: Sequence[bytes]
    ) -> list[tuple[str, int, int]]:
        """Return the parcels of these tasks: (name, first task, the one after its last).

        They are in order, and share no task. A parcel counts only if all its tasks are among these:
        an outcome covers all of them, and they are no more than half a second of work together.
        """
        found: list[tuple[str, int, int]] = []
        at, stop = first, first + len(arguments)
        while self._left and at < stop:
            low, at = at, at + 1
            for name in self._at.get((terms.job, low), ()):
                label = self._left[name].label
                high = low + label.count
                calls = arguments[low - first : high - first]
                if high <= stop and label == label_of(terms, low, calls):
                    found.append((name, low, high))
                    at = high
                    break
        return found

    def stale(self, before_s: MonoS) -> list[str]:
        """Return the parcels that have been here since before a moment."""
        return [name for name, left in self._left.items() if left.since_s <= before_s]
