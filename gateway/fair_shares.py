"""Slots shared out among projects and sites: jobs, assignments and books in a tree of shares. Pure.

Without [fair_share] there is none of this, and `dispatch.order` alone says who is served first.
With it that is the order within a share, and between shares their places go before it. Only slots
of our own pools count: what runs at another site takes none from anybody here.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gateway import dispatch
from gateway.jobs import Assignment, Job, Worker
from gateway.ledger.records import UsageRecord
from policies.fairness import NS, Node, Standing, Tree
from policies.parties import Whose
from policies.shares import FairShare

# What a task of unknown duration is held at until it is reported, or has run longer.
UNKNOWN_S: Final = 1.0
# Usage that is not counted: what ran again, was stopped to make room, or ended with its worker.
UNCOUNTED: Final = frozenset({"repeat", "preempted", "lost"})

Rank = tuple[Any, ...]


class Shares:
    """Which job is served first where slots are shared out, and what that is reckoned from.

    Args:
        rules: the shares.
    """

    def __init__(self, rules: FairShare) -> None:
        self.tree = Tree(rules)

    # --- jobs that come and go -----------------------------------------------------------------

    def take_up(self, used_ns: Mapping[Whose, int], now_s: float) -> None:
        """Begin with what the books say that everybody has used, decayed to now."""
        self.tree.move_on(now_s)
        for whose, ns in used_ns.items():
            self.tree.charge(self.tree.leaf_of(whose), ns)

    def opened(self, job: Job) -> None:
        """A job was opened: from now on it has a leaf, and what it has at workers counts."""
        job.leaf = self.tree.leaf_of(job.whose)
        job.leaf.jobs += 1
        for assignment in job.assignments.values():
            self.hold(assignment, len(assignment.left))

    def ended(self, job: Job) -> None:
        """A job has ended."""
        _leaf(job).jobs -= 1

    # --- what was used -------------------------------------------------------------------------

    def hold(self, assignment: Assignment, tasks: int) -> None:
        """So many tasks of an assignment were handed out; or, negative, are no longer out."""
        if assignment.worker.job:
            return
        if not assignment.held_ns:
            assignment.held_ns = _expected_ns(assignment.task_s)
        self.tree.hold(_leaf(assignment.job), tasks * assignment.held_ns)
        if tasks > 0:
            self.tree.gave(_leaf(assignment.job))

    def charge(self, assignment: Assignment, record: UsageRecord, now_s: float) -> None:
        """What was reported of an assignment took slot time."""
        if not assignment.worker.job and record.state not in UNCOUNTED:
            self.tree.move_on(now_s)
            self.tree.charge(_leaf(assignment.job), record.wall_ns)

    def note_overdue(self, workers: Iterable[Worker], now_s: float) -> None:
        """Hold what runs at no less than it has run.

        Of tasks that had a slot each at once, as those of unknown duration and long ones have;
        when one of those that are queued ahead began, nobody has said.
        """
        for worker in workers:
            for each in worker.assignments.values() if not worker.job else ():
                if each.task_s and each.task_s < worker.ahead_max_s:
                    continue
                more_ns = round((now_s - each.given_s) * NS) - each.held_ns
                if more_ns > 0:
                    each.held_ns += more_ns
                    self.tree.hold(_leaf(each.job), more_ns * len(each.left))

    # --- whose turn it is ----------------------------------------------------------------------

    def begin(self, leaves: Iterable[Node], now_s: float) -> None:
        """Jobs of these leaves have tasks to hand out: see Tree.begin."""
        self.tree.move_on(now_s)
        self.tree.begin(leaves)

    def turns(self) -> Iterable[Node]:
        """These leaves, in the order of their turns."""
        return self.tree.turns()

    def order(self, job: Job, task_s: float | None) -> Rank:
        """Which job is served first: by the places of their shares, then as it is without."""
        return (self.tree.place(_leaf(job)), *dispatch.order(job, task_s))

    def is_ahead(self, job: Job, assignment: Assignment) -> bool:
        """Whether a job goes before one of another share, even if that gave back what it has here.

        Else what is taken back would go to the same again at once.
        """
        other = assignment.job
        here = assignment.worker.assignments.values()
        held_ns = sum(each.held_ns * len(each.left) for each in here if each.job.leaf is other.leaf)
        return self.tree.is_ahead(_leaf(job), _leaf(other), held_ns)

    def turn(self, job: Job, others: Iterable[Job], task_s: float | None, tasks: int) -> int:
        """How many of so many tasks a job may have before it is another share's turn."""
        leaves = {_leaf(other) for other in others if other.leaf is not job.leaf}
        return self.tree.turn(_leaf(job), leaves, _expected_ns(task_s), tasks)

    # --- to look at ----------------------------------------------------------------------------

    def look(self, now_s: float) -> list[Standing]:
        """How each share stands now."""
        self.tree.move_on(now_s)
        return self.tree.standings()


def _leaf(job: Job) -> Node:
    assert job.leaf is not None, "opened before it is counted"
    return job.leaf


def _expected_ns(task_s: float | None) -> int:
    return max(1, round((task_s or UNKNOWN_S) * NS))
