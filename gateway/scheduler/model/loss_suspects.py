"""The payers whose tasks may have ended a worker. Pure.

A payer is a user of ours, or another site whatever the names of its users. The cause of a worker's
end can't be observed, so it is inferred from the payers whose tasks had begun there: from one loss
if there was one payer, else from several losses. Payers whose tasks always begin at the same
workers could never be told apart. So the payers of a loss that can't be attributed are kept apart
for APART_S: see `Dispatcher`, and docs/lost_workers.md.
"""

from collections.abc import Iterable
from math import inf
from typing import Final, TypeVar

from federation.clocks import UtcS
from gateway.scheduler.model.jobs import Assignment, Job, Worker

SEEN_S: Final = 3_600.0  # how long a payer's losses count against what it begins
APART_S: Final = 300.0  # how long payers are kept apart after a loss under tasks of theirs
PAYERS_MAX: Final = 10_000
BESIDE_MAX: Final = 64  # payers of one loss that are kept apart

_Noted = TypeVar("_Noted")
Payer = tuple[str, str]  # a site that sent work, or else no site and a user of ours


def payer_of(job: Job) -> Payer:
    """Return the payer of a job. The names of another site's users are its own choice."""
    origin = job.spec.origin
    return (origin, "") if origin else ("", job.spec.user)


class LossSuspects:
    """Attributes lost workers to payers. All times are UTC."""

    def __init__(self) -> None:
        # By payer: its last loss among several payers, and the last loss attributed to it.
        self._seen_s: dict[Payer, UtcS] = {}
        self._found_s: dict[Payer, UtcS] = {}
        # By payer: those with which it had its last loss that could not be attributed, and when.
        self._beside: dict[Payer, tuple[UtcS, frozenset[Payer]]] = {}

    def attribute(self, held: Iterable[Assignment], utc_s: UtcS) -> Payer | None:
        """Return the payer to which the loss of a worker with these tasks is attributed, if any."""
        payers: dict[Payer, UtcS] = {}  # each with when the first of its tasks there began
        for assignment in held:
            if assignment.begun:
                payer, begun_s = payer_of(assignment.job), min(assignment.begun.values())
                payers[payer] = min(begun_s, payers.get(payer, begun_s))
        if len(payers) == 1:
            return next(iter(payers))
        for noted_s in (self._found_s, self._seen_s):
            known = [
                each
                for each, begun_s in payers.items()
                if noted_s.get(each, UtcS(inf)) <= utc_s
                and begun_s - noted_s[each] <= SEEN_S  # a long run does not make it forgotten
            ]
            if len(known) == 1:
                _note(self._found_s, known[0], utc_s)
                return known[0]
        for payer in payers:
            _note(self._seen_s, payer, utc_s)
        together = frozenset([*payers][:BESIDE_MAX])
        for payer in together:
            _note(self._beside, payer, (utc_s, together - {payer}))
        return None

    def apart_from(self, job: Job, utc_s: UtcS) -> frozenset[Payer]:
        """Return the payers beside whose tasks none of a job should begin now."""
        if not self._beside:
            return frozenset()
        payer = payer_of(job)
        noted_s, others = self._beside.get(payer, (utc_s, frozenset[Payer]()))
        if not 0 <= utc_s - noted_s < APART_S:
            del self._beside[payer]
            return frozenset()
        return others


def has_tasks_of(worker: Worker, payers: frozenset[Payer]) -> bool:
    """Whether a worker has tasks of one of these payers."""
    return any(payer_of(each.job) in payers for each in worker.assignments.values())


def _note(noted: dict[Payer, _Noted], payer: Payer, what: _Noted) -> None:
    """Note something of a payer, and forget the oldest above the limit."""
    noted.pop(payer, None)
    noted[payer] = what
    while len(noted) > PAYERS_MAX:
        del noted[next(iter(noted))]
