"""The payers whose tasks may have ended a worker. Pure.

A payer is a user of ours, or another site whatever the names of its users. The cause of a worker's
end can't be observed, so it is inferred from the payers whose tasks had begun there: from one loss
if there was one payer, else from several losses. Payers whose tasks always begin at the same
workers can't be told apart: docs/lost_workers.md has what they gain by that at most.
"""

from collections.abc import Iterable
from math import inf
from typing import Final

from federation.clocks import UtcS
from gateway.scheduler.model.jobs import Assignment, Job

SEEN_S: Final = 3_600.0  # how long a payer's losses count against what it begins
PAYERS_MAX: Final = 10_000

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
        return None


def _note(at_s: dict[Payer, UtcS], payer: Payer, utc_s: UtcS) -> None:
    """Note a payer's moment, and forget the oldest above the limit."""
    at_s.pop(payer, None)
    at_s[payer] = utc_s
    while len(at_s) > PAYERS_MAX:
        del at_s[next(iter(at_s))]
