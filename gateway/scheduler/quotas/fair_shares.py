"""Fair shares of slots among projects and sites: a tree fed with jobs, assignments and books. Pure.

Without [fair_share], `matching.order` alone decides the order of service. With it, that is the
order within a share, and the places of shares come first. Only slots of our own pools count: work
at another site takes no slot here.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from federation.clocks import UtcS
from gateway.ledger.db.usage.records import UsageRecord
from gateway.scheduler.model import matching
from gateway.scheduler.model.jobs import Assignment, Job, Worker
from policies.access.fairness import NS, ShareNode, ShareStanding, Tree
from policies.access.shares import FairShare
from policies.parties import Owner

# The assumed duration of a task of unknown duration, until it is reported or has run longer.
ASSUMED_TASK_S: Final = 1.0
# Usage that does not count: repeats, preempted tasks, and runs that ended with their worker.
UNCOUNTED: Final = frozenset({"repeat", "preempted", "lost"})

Rank = tuple[Any, ...]


class FairShares:
    """The order of service of jobs under fair shares, and the usage that it is based on.

    Args:
        rules: the shares.
    """

    def __init__(self, rules: FairShare) -> None:
        self.tree = Tree(rules)

    # --- job lifecycle -------------------------------------------------------------------------

    def take_up(self, used_ns: Mapping[Owner, int], utc_s: UtcS) -> None:
        """Begin with the usage of all principals from the books, decayed to now."""
        self.tree.move_on(utc_s)
        for whose, ns in used_ns.items():
            self.tree.charge(self.tree.leaf_of(whose), ns)

    def opened(self, job: Job) -> None:
        """Give an opened job its leaf, and count its assignments."""
        job.leaf = self.tree.leaf_of(job.whose)
        job.leaf.jobs += 1
        for assignment in job.assignments.values():
            self.hold(assignment, len(assignment.left))

    def ended(self, job: Job) -> None:
        """Note that a job has ended."""
        _leaf(job).jobs -= 1

    # --- usage ---------------------------------------------------------------------------------

    def hold(self, assignment: Assignment, tasks: int) -> None:
        """Note that `tasks` tasks of an assignment were handed out or, if negative, came back."""
        if assignment.worker.job:
            return
        if not assignment.held_ns:
            assignment.held_ns = _expected_ns(assignment.task_s)
        self.tree.hold(_leaf(assignment.job), tasks * assignment.held_ns)
        if tasks > 0:
            self.tree.gave(_leaf(assignment.job))

    def charge(self, assignment: Assignment, record: UsageRecord, utc_s: UtcS) -> None:
        """Charge the slot time of a usage record to its job's share."""
        if not assignment.worker.job and record.state not in UNCOUNTED:
            self.tree.move_on(utc_s)
            self.tree.charge(_leaf(assignment.job), record.wall_ns)

    def note_overdue(self, workers: Iterable[Worker], utc_s: UtcS) -> None:
        """Hold running tasks at no less than their run time so far.

        This covers tasks that had a slot each at once: those of unknown or long duration. The start
        of tasks that are queued ahead is not known.
        """
        for worker in workers:
            for each in worker.assignments.values() if not worker.job else ():
                if each.task_s and each.task_s < worker.ahead_max_s:
                    continue
                more_ns = round((utc_s - each.given_at_s) * NS) - each.held_ns
                if more_ns > 0:
                    each.held_ns += more_ns
                    self.tree.hold(_leaf(each.job), more_ns * len(each.left))

    # --- order of service ----------------------------------------------------------------------

    def begin(self, leaves: Iterable[ShareNode], utc_s: UtcS) -> None:
        """Begin a round with these leaves, whose jobs have tasks to hand out: see Tree.begin."""
        self.tree.move_on(utc_s)
        self.tree.begin(leaves)

    def turns(self) -> Iterable[ShareNode]:
        """The leaves of the round, in the order of their turns."""
        return self.tree.turns()

    def order(self, job: Job, task_s: float | None, less: int = 0) -> Rank:
        """The rank of a job: by the place of its share, then by `matching.order`."""
        return (self.tree.place(_leaf(job)), *matching.order(job, task_s, less))

    def is_ahead(self, job: Job, assignment: Assignment) -> bool:
        """Whether a job goes before one of another share, even after that gave up its tasks here.

        Otherwise recalled tasks would return to the same job at once.
        """
        other = assignment.job
        here = assignment.worker.assignments.values()
        held_ns = sum(each.held_ns * len(each.left) for each in here if each.job.leaf is other.leaf)
        return self.tree.is_ahead(_leaf(job), _leaf(other), held_ns)

    def turn(self, job: Job, others: Iterable[Job], task_s: float | None, tasks: int) -> int:
        """The number of `tasks` that a job may have before another share's turn."""
        leaves = {_leaf(other) for other in others if other.leaf is not job.leaf}
        return self.tree.turn(_leaf(job), leaves, _expected_ns(task_s), tasks)

    # --- views ---------------------------------------------------------------------------------

    def look(self, utc_s: UtcS) -> list[ShareStanding]:
        """The current standing of each share."""
        self.tree.move_on(utc_s)
        return self.tree.standings()


def _leaf(job: Job) -> ShareNode:
    assert job.leaf is not None, "a job must be opened before it is counted"
    return job.leaf


def _expected_ns(task_s: float | None) -> int:
    return max(1, round((task_s or ASSUMED_TASK_S) * NS))
