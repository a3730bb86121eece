"""How long a task of a function takes, as measured. Pure.

Agents count by it as brokers do, and start in two thirds of the time without all the rest.
"""

from collections import OrderedDict
from typing import Final

# A sample of so many tasks moves the estimate half way.
HALF_WAY_TASKS: Final = 20
# What a site takes for a task tells it apart only if it takes so long, and so much more or less.
TELLING_S: Final = 0.001
TELLING_SHARE: Final = 0.2
FUNCTIONS_REMEMBERED: Final = 10_000
# Of tasks that were reported together so many may have failed for the time to be of successes.
FAILED_SHARE_MAX: Final = 0.1


class Durations:
    """Measured seconds per task, by function: an average that follows changes.

    It is of tasks that ended well. One that raises at once, or is stopped, says nothing of how long
    the others take; what failed tasks took is kept apart, for `pace`.
    """

    def __init__(self) -> None:
        self._seconds: OrderedDict[bytes, float] = OrderedDict()
        self._at: dict[bytes, dict[str, float]] = {}  # and by site
        self._failed: OrderedDict[bytes, float] = OrderedDict()

    def learn(
        self, function: bytes, tasks: int, wall_ns: int, site: str = "", failed: int = 0
    ) -> None:
        """Take a sample: so many tasks took so long together, `failed` of them, at a site."""
        if failed > tasks * FAILED_SHARE_MAX:
            _follow(self._failed, function, tasks, wall_ns)
            return
        sample_s = max(1, wall_ns) / tasks / 1e9  # nothing takes no time at all
        known = self._seconds.get(function, sample_s)
        weight = tasks / (tasks + HALF_WAY_TASKS)
        self._seconds[function] = known + (sample_s - known) * weight
        self._seconds.move_to_end(function)
        # A site of which little is known is as fast as all others.
        sites = self._at.setdefault(function, {})
        there = sites.get(site, known)
        sites[site] = there + (sample_s - there) * weight
        if len(self._seconds) > FUNCTIONS_REMEMBERED:
            forgotten, _ = self._seconds.popitem(last=False)
            del self._at[forgotten]

    def by_site(self, function: bytes) -> dict[str, float]:
        """The estimates in seconds of each site that ran it, if they tell the sites apart.

        Of very short tasks most is overhead, which says nothing about a site.
        """
        sites = self._at.get(function, {})
        least, most = min(sites.values(), default=0.0), max(sites.values(), default=0.0)
        is_telling = most > TELLING_S and most - least > TELLING_SHARE * least
        return dict(sites) if is_telling else {}

    def of(self, function: bytes) -> float | None:
        """The estimate in seconds, or None when no task of the function has ended well."""
        return self._seconds.get(function)

    def pace(self, function: bytes) -> float | None:
        """How long a task keeps its slot: the estimate, or else what failed ones took.

        For handing out, where a job of which everything fails is not to go out task by task; what
        is promised, quoted or held goes by `of`.
        """
        known = self._seconds.get(function)
        return self._failed.get(function) if known is None else known


def _follow(averages: OrderedDict[bytes, float], function: bytes, tasks: int, wall_ns: int) -> None:
    """Move an average towards a sample."""
    sample_s = max(1, wall_ns) / tasks / 1e9
    known = averages.get(function, sample_s)
    averages[function] = known + (sample_s - known) * tasks / (tasks + HALF_WAY_TASKS)
    averages.move_to_end(function)
    if len(averages) > FUNCTIONS_REMEMBERED:
        averages.popitem(last=False)
