"""The measured duration of a function's tasks. Pure.

A module of its own, since agents use it too: without the rest they start in two thirds of the time.
"""

from collections import OrderedDict
from typing import Final

# A sample of this many tasks moves the estimate half way.
HALF_WAY_TASKS: Final = 20
# A site's durations are told apart only above this duration, and with this relative difference.
TELLING_S: Final = 0.001
TELLING_SHARE: Final = 0.2
FUNCTIONS_REMEMBERED: Final = 10_000
# The largest share of failed tasks in a report whose time still counts for successes.
FAILED_SHARE_MAX: Final = 0.1


class Durations:
    """Measured seconds per task, by function: an average that follows changes.

    It covers tasks that ended well. A task that raises at once, or is stopped, says nothing of the
    duration of the others; the time of failed tasks is kept apart, for `pace`.
    """

    def __init__(self) -> None:
        self._seconds: OrderedDict[bytes, float] = OrderedDict()
        self._at: dict[bytes, dict[str, float]] = {}  # and by site
        self._failed: OrderedDict[bytes, float] = OrderedDict()

    def learn(
        self, function: bytes, tasks: int, wall_ns: int, site: str = "", failed: int = 0
    ) -> None:
        """Take a sample: `tasks` tasks, `failed` of them failed, took `wall_ns` at a site."""
        if failed > tasks * FAILED_SHARE_MAX:
            _follow(self._failed, function, tasks, wall_ns)
            return
        sample_s = max(1, wall_ns) / tasks / 1e9  # no task takes zero time
        known = self._seconds.get(function, sample_s)
        weight = tasks / (tasks + HALF_WAY_TASKS)
        self._seconds[function] = known + (sample_s - known) * weight
        self._seconds.move_to_end(function)
        # A site with few samples counts as being as fast as all others.
        sites = self._at.setdefault(function, {})
        there = sites.get(site, known)
        sites[site] = there + (sample_s - there) * weight
        if len(self._seconds) > FUNCTIONS_REMEMBERED:
            forgotten, _ = self._seconds.popitem(last=False)
            del self._at[forgotten]

    def by_site(self, function: bytes) -> dict[str, float]:
        """The estimates in seconds of each site that ran it, if they tell the sites apart.

        Very short tasks are mostly overhead, which says nothing about a site.
        """
        sites = self._at.get(function, {})
        least, most = min(sites.values(), default=0.0), max(sites.values(), default=0.0)
        is_telling = most > TELLING_S and most - least > TELLING_SHARE * least
        return dict(sites) if is_telling else {}

    def of(self, function: bytes) -> float | None:
        """The estimate in seconds, or None when no task of the function has ended well."""
        return self._seconds.get(function)

    def pace(self, function: bytes) -> float | None:
        """The time that a task keeps its slot: the estimate, or else that of failed tasks.

        It is for handing out work, so that a job whose tasks all fail does not go out task by task.
        Promises, quotes and holds use `of`.
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
