"""How much planning there may be in a while, for all jobs together. Pure.

Counted are looks at a candidate: a user may have fifty thousand jobs, and a federation a thousand
sites. What a round has too many is taken off the next.
"""

from math import inf
from typing import Final

# In each `plan_s`: about a tenth of a second of a core.
LOOKS_MAX: Final = 8_000
# A plan begins with a look at our own pools, as they are for its job: it takes as long as so many,
# and is most of a plan where there are few candidates.
PLAN_LOOKS: Final = 16
# A tenth more is for judging jobs that begin. To find what one that can't keep its limits could be
# offered takes as long as so many plans; to add up what waits of so many jobs as long as a look.
JUDGED_PART: Final = 0.1
JUDGED_PLANS: Final = 12
JOBS_A_LOOK: Final = 50


class Looks:
    """Counts plans, of which each looks at our own pools and at all candidates.

    Args:
        round_s: how long a round is.
    """

    def __init__(self, round_s: float) -> None:
        self._round_s = round_s
        self._begun_s = -inf
        self._looks = 1 + PLAN_LOOKS  # of a plan
        self.plans = 0.0  # that are left
        self.judgements = 0.0  # the same, of jobs that begin, in plans

    def begin(self, now_s: float, candidates: int) -> None:
        """Begin a round, if the last is over; `now_s` is monotonic."""
        rounds = (now_s - self._begun_s) / self._round_s
        if rounds < 1:
            return
        self._begun_s, self._looks = now_s, candidates + PLAN_LOOKS
        plans = max(1.0, LOOKS_MAX / self._looks)
        most = JUDGED_PART * plans
        self.plans = min(plans, self.plans + rounds * plans)
        self.judgements = min(most, self.judgements + rounds * most)

    def judged(self, jobs: int, *, is_refused: bool) -> None:
        """A job that begins was judged, beside so many others."""
        self.judgements -= jobs / JOBS_A_LOOK / self._looks
        self.judgements -= JUDGED_PLANS if is_refused else 1
