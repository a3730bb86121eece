"""A budget for planning, shared by all jobs. Pure.

The unit is a look at a candidate: a user may have fifty thousand jobs, and a federation a thousand
sites. Looks above a round's budget are taken off the next round's.
"""

from math import inf
from typing import Final

from federation.clocks import MonoS

# Per `plan_s`: about a tenth of a second of a core.
LOOKS_MAX: Final = 8_000
# A plan begins with a look at our own pools for its job. That takes as long as this many looks, and
# is most of a plan with few candidates.
PLAN_LOOKS: Final = 16
# A tenth more is for judging jobs that begin. To find offers for a job that can't meet its limits
# takes as long as JUDGED_PLANS plans; to sum up the waiting work of JOBS_A_LOOK jobs takes a look.
JUDGED_PART: Final = 0.1
JUDGED_PLANS: Final = 12
JOBS_A_LOOK: Final = 50


class PlanningRateLimit:
    """Counts plans, each of which looks at our own pools and at all candidates.

    Args:
        round_s: the length of a round.
    """

    def __init__(self, round_s: float) -> None:
        self._round_s = round_s
        self._begun_at_s = MonoS(-inf)
        self._looks = 1 + PLAN_LOOKS  # of one plan
        self.plans = 0.0  # left in this round
        self.judgements = 0.0  # left in this round for jobs that begin, in plans

    def begin(self, mono_s: MonoS, candidates: int) -> None:
        """Begin a round, if the last is over."""
        rounds = (mono_s - self._begun_at_s) / self._round_s
        if rounds < 1:
            return
        self._begun_at_s, self._looks = mono_s, candidates + PLAN_LOOKS
        plans = max(1.0, LOOKS_MAX / self._looks)
        most = JUDGED_PART * plans
        self.plans = min(plans, self.plans + rounds * plans)
        self.judgements = min(most, self.judgements + rounds * most)

    def judged(self, jobs: int, *, is_refused: bool) -> None:
        """Count the judgement of a job that begins, which considered `jobs` other jobs."""
        self.judgements -= jobs / JOBS_A_LOOK / self._looks
        self.judgements -= JUDGED_PLANS if is_refused else 1
