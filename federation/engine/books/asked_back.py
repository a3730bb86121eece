"""The calls of one job that a task asks back from its gateway, to run them itself. Pure.

A task keeps its slot while it waits. If waiting tasks had all slots, none of the calls that they
wait for would ever begin: so each of them runs what it waits for. A call is

    asked ─► to run ─► running ─► ended

and it is `here` from the answer on: no gateway is sent it any more, in any session.
"""

from collections.abc import Iterable

from federation.messages.messages import OpenJob
from federation.objects.left import REF
from federation.objects.open_calls import SealedCall
from federation.objects.references import MARK
from federation.ranges import Range, RangeSet

# Wishes that say nothing about the place, the hour or the environment of a call.
_HARMLESS = frozenset({"objective", "deadline_s"})


class AskedBack:
    """What is asked back, and what has come back.

    Attributes:
        here: the calls that came back, also those that have ended since.
    """

    __slots__ = ("_asked", "_to_run", "here")

    def __init__(self) -> None:
        self._asked: set[int] = set()
        self._to_run: set[int] = set()
        self.here = RangeSet()

    def ask(self, task: int) -> bool:
        """Note that a call is asked back; False if it is already, or has come back."""
        if task in self._asked or task in self.here:
            return False
        self._asked.add(task)
        return True

    def are_asked(self, ranges: Iterable[Range]) -> bool:
        """Whether all of these calls, at least one, are asked back."""
        tasks = [task for low, high in ranges for task in range(low, min(high, low + 2))]
        return bool(tasks) and all(task in self._asked for task in tasks)

    def come_back(self, ranges: Iterable[Range]) -> list[Range]:
        """Take calls that the gateway has given up; return those that nothing has asked back."""
        others = RangeSet(ranges)
        for task in [task for task in self._asked if task in others]:
            others.remove(task, task + 1)
            self._asked.remove(task)
            self._to_run.add(task)
            self.here.add(task, task + 1)
        for low, high in self.here:
            others.remove(low, high)
        return list(others)

    def refuse(self, ranges: Iterable[Range]) -> None:
        """Note that the gateway has answered, and keeps the rest of these calls: they run there."""
        for low, high in ranges:
            self._asked -= {task for task in self._asked if low <= task < high}

    def withdraw(self, ranges: Iterable[Range]) -> list[Range]:
        """Ask for these calls no more, as they are cancelled; return those that are to be run."""
        asked, found = RangeSet(ranges), RangeSet()
        self._asked = {task for task in self._asked if task not in asked}
        for task in [task for task in self._to_run if task in asked]:
            self._to_run.remove(task)
            found.add(task, task + 1)
        return list(found)

    def is_to_run(self, task: int) -> bool:
        """Whether a call has come back, and no thread runs it yet."""
        return task in self._to_run

    def begin(self, task: int) -> bool:
        """Take a call that is to be run; False if another thread has, or it did not come back."""
        if task not in self._to_run:
            return False
        self._to_run.remove(task)
        return True


def may_run_in_task(opening: OpenJob, call: SealedCall) -> bool:
    """Whether a call can run in the task that waits for it, and means the same there.

    Not if it has references or inputs, which a worker fetches, and not if its job says where, when,
    in which environment, for how long or for how much it may run.
    """
    is_plain = type(call) is bytes and call[0] != MARK
    is_bound = opening.tags or opening.timeout_s is not None or opening.max_cost_nanos is not None
    is_elsewhere = opening.detached or opening.results == REF or set(opening.wishes) - _HARMLESS
    return is_plain and not is_bound and not is_elsewhere
