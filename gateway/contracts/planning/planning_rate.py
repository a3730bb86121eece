"""A budget for planning, shared by all jobs, and the order in which they use it. Pure.

The unit is a look at a candidate: a user may have fifty thousand jobs, and a federation a thousand
sites. Looks above a round's budget are taken off the next round's. A round's budget is spent over
several turns of the gateway's loop: on a host that is short of CPU every turn begins a round, and a
turn must not take as long as a lease.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from federation.clocks import MonoS
from gateway.scheduler.model.jobs import Job

# Per `plan_s`: about a tenth of a second of a core.
LOOKS_MAX: Final = 8_000
TURN_LOOKS: Final = LOOKS_MAX // 8  # at one time: about a hundredth of a second
# A plan begins with a look at our own pools for its job. That takes as long as this many looks, and
# is most of a plan with few candidates. It looks at the times ahead of each pool, too, which change
# with windows and reservations: at SPANS_A_LOOK of them in the time of a look.
PLAN_LOOKS: Final = 16
SPANS_A_LOOK: Final = 6
# A tenth more is for judging jobs that begin. To find offers for a job that can't meet its limits
# takes as long as JUDGED_PLANS plans; to sum up the waiting work of JOBS_A_LOOK jobs takes a look.
JUDGED_PART: Final = 0.1
JUDGED_PLANS: Final = 12
JOBS_A_LOOK: Final = 50
SENDERS_MAX: Final = 4_096  # whose turns are remembered


class PlanningTurns:
    """The order in which jobs are planned: their senders take turns.

    A sender is a user of this site, or another site. A flood of jobs of one of them delays the
    job of another by no more than one plan for each sender.
    """

    def __init__(self) -> None:
        self._served: dict[tuple[str, str], int] = {}  # when each sender was served last
        self._plans = 0

    def order(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield jobs: one of each sender, the one served longest ago first, then a second of each.

        Those of one sender keep their order.
        """
        lanes: dict[tuple[str, str], deque[Job]] = {}
        for job in jobs:
            lanes.setdefault(_sender(job), deque()).append(job)
        waiting = sorted(lanes, key=lambda sender: self._served.get(sender, -1))
        while waiting:
            for sender in waiting:
                yield lanes[sender].popleft()
            waiting = [sender for sender in waiting if lanes[sender]]

    def planned(self, job: Job) -> None:
        """Note that a job was planned."""
        self._plans += 1
        self._served.pop(_sender(job), None)
        self._served[_sender(job)] = self._plans
        if len(self._served) > SENDERS_MAX:
            del self._served[next(iter(self._served))]


def _sender(job: Job) -> tuple[str, str]:
    """Return whose turn a job takes; a site may name as many users as it likes."""
    whose = job.whose
    return (whose.site, "") if whose.site else ("", whose.user)


class PlanningRateLimit:
    """Counts plans, each of which looks at our own pools and at all candidates.

    Args:
        round_s: the length of a round.
    """

    def __init__(self, round_s: float) -> None:
        self._round_s = round_s
        self._begun_at_s = MonoS(-inf)
        self._looks = 1 + PLAN_LOOKS  # of one plan
        self._left = 0.0  # plans left in this round
        self._turn_left = 0.0  # and in this turn
        self.judgements = 0.0  # left in this round for jobs that begin, in plans

    def begin(self, mono_s: MonoS, candidates: int, spans: int = 0) -> None:
        """Begin a round, if the last is over.

        Args:
            mono_s: now.
            candidates: at which a plan looks.
            spans: the times ahead, of all our pools, with slots of their own.
        """
        rounds = (mono_s - self._begun_at_s) / self._round_s
        if rounds < 1:
            return
        self._begun_at_s = mono_s
        self._looks = candidates + PLAN_LOOKS + spans // SPANS_A_LOOK
        plans = max(1.0, LOOKS_MAX / self._looks)
        most = JUDGED_PART * plans
        self._left = min(plans, self._left + rounds * plans)
        self.judgements = min(most, self.judgements + rounds * most)

    def begin_turn(self) -> None:
        """Allow this turn a part of the plans that are left in the round."""
        self._turn_left = max(1.0, TURN_LOOKS / self._looks)

    @property
    def plans(self) -> float:
        """The plans that may be made in this turn."""
        return min(self._left, self._turn_left)

    def planned(self, plans: float = 1.0) -> None:
        """Count plans, or work that takes as long."""
        self._left -= plans
        self._turn_left -= plans

    def judged(self, jobs: int, *, is_refused: bool) -> None:
        """Count the judgement of a job that begins, which considered `jobs` other jobs."""
        self.judgements -= jobs / JOBS_A_LOOK / self._looks
        self.judgements -= JUDGED_PLANS if is_refused else 1
