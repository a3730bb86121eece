"""Jobs accepted before all pools were known, which are judged again. Pure.

Just after a gateway's start no worker has joined and other sites have not shown their pools, so a
job that no pool can ever run is accepted. Once the pools are known it is refused, as a new one is.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from federation.clocks import UtcS
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.terms import JobSpec

SETTLE_S: Final = 30.0  # workers and sites return within this time after a start
JUDGED_MAX: Final = 100  # in one call

Refusal = tuple[str, str]  # code and sentence


class Provisional:
    """The jobs to be judged again, by id.

    Args:
        refusal: returns why no known pool can ever run work of a kind; None when one may.
        offers: the known offers at this site; a change restarts SETTLE_S.
    """

    def __init__(
        self, refusal: Callable[[JobSpec], Refusal | None], offers: Collection[object]
    ) -> None:
        self._refusal = refusal
        self._offers = offers
        self._offered = 0
        self._due_at_s: dict[str, UtcS] = {}  # in the order of judging
        self._began_at_s: UtcS | None = None

    def is_early(self, utc_s: UtcS) -> bool:
        """Whether the start was so recent that workers and sites may still return."""
        if self._began_at_s is None:
            self._began_at_s = utc_s
        return utc_s - self._began_at_s < SETTLE_S

    def take(self, job: Job, utc_s: UtcS) -> None:
        """Schedule a new job to be judged again."""
        self._due_at_s[job.id] = utc_s + SETTLE_S

    def look(self, jobs: Mapping[str, Job], utc_s: UtcS) -> list[tuple[Job, Refusal]]:
        """Judge the jobs that are due; return those that are refused after all.

        A job with begun tasks was rightly accepted, and one that has ended is forgotten.
        """
        self.is_early(utc_s)  # time counts from the first call on
        if len(self._offers) != self._offered:
            self._offered = len(self._offers)
            self._due_at_s = dict.fromkeys(self._due_at_s, utc_s + SETTLE_S)
        due = [name for name, due_s in list(self._due_at_s.items())[:JUDGED_MAX] if due_s <= utc_s]
        refused = []
        for name in due:
            del self._due_at_s[name]
            job = jobs.get(name)
            if job is None or job.leaving or job.in_flight or job.ended:
                continue
            refusal = self._refusal(job.spec)
            if refusal is not None:
                refused.append((job, refusal))
            else:
                self._due_at_s[name] = utc_s + SETTLE_S
        return refused
