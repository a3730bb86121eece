"""Jobs of the year: logs replayed week by week, as bags of tasks, and the result of each."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from zoneinfo import ZoneInfo

from federation.clocks import UtcS
from policies.placement.asks import Objective
from simulations.year.facts import BEGIN_S, WEEK_S, Log
from simulations.year.scenario import Manners

MONDAY: datetime = datetime(2022, 12, 26)  # noqa: DTZ001 - by the clocks of a place, given later


@dataclass(slots=True, eq=False)
class YearJob:
    """A job: `tasks` of `task_s` each.

    Attributes:
        at_s: when it is submitted, from the beginning.
        run_s: its duration with all the processors of its log at once.
        starts_s: when tasks began, in order, each start counted; production's alone.
        done: tasks whose results its owner has.
        elsewhere: tasks that its owner took back, and ran in the cloud.
    """

    key: int
    owner: str
    user: str
    at_s: float
    run_s: float
    tasks: int
    task_s: float
    objective: Objective
    patience_s: float
    function: bytes
    is_production: bool = False
    first_start_s: float | None = None
    end_s: float | None = None
    done: int = 0
    elsewhere: int = 0
    starts_s: list[float] = field(default_factory=list)

    @property
    def payload(self) -> bytes:
        """The arguments of each of its tasks, by which a worker identifies the job."""
        return b"%d" % self.key

    @property
    def wait_s(self) -> float:
        """How much later it was done than with all its processors at once."""
        assert self.end_s is not None
        return max(0.0, self.end_s - self.at_s - self.run_s)

    @property
    def begin_wait_s(self) -> float:
        """How long it waited for the start of its first task."""
        assert self.first_start_s is not None
        return self.first_start_s - self.at_s


def replay(
    name: str,
    log: Log,
    zone: str,
    manners: Manners,
    begin_s: UtcS,
    length_s: float,
    first_key: int,
    weeks_in: int = 0,
) -> Iterator[YearJob]:
    """Replay a log repeatedly, each week in step with the weeks of the year, by local clocks.

    Work of a Tuesday at ten comes on a Tuesday at ten, summer and winter. The year begins
    `weeks_in` weeks into the log.
    """
    clocks = ZoneInfo(zone)
    cycle_s = log.weeks * WEEK_S
    # Times by the wall clock of the place, in seconds from Monday, December 26th 2022, 00:00.
    offset_s = log.begins_s % WEEK_S - cycle_s - weeks_in * WEEK_S
    key = first_key
    while offset_s < begin_s - BEGIN_S + length_s + 2 * WEEK_S:
        for entry in log.entries:
            local = MONDAY + timedelta(seconds=offset_s + entry.at_s)
            at_s = local.replace(tzinfo=clocks).astimezone(UTC).timestamp() - float(begin_s)
            if 0 <= at_s < length_s:
                yield _work(key, name, entry.user, at_s, entry.run_s, entry.slots, manners)
                key += 1
        offset_s += cycle_s


def _work(
    key: int, owner: str, user: str, at_s: float, run_s: float, slots: int, manners: Manners
) -> YearJob:
    slices = math.ceil(run_s / manners.slice_s)
    is_short = run_s < manners.short_s
    lot = sha256(f"{owner} {user}".encode()).digest()[0]
    objective = manners.objectives[lot % len(manners.objectives)]
    # A user's program at one of its usual sizes: a factor of two wide.
    size = math.floor(math.log2(run_s / slices))
    return YearJob(
        key=key,
        owner=owner,
        user=f"u{user}",
        at_s=at_s,
        run_s=run_s,
        tasks=slots * slices,
        task_s=run_s / slices,
        objective=manners.objective if is_short else objective,
        patience_s=manners.patience_s if is_short else manners.patience_long_s,
        function=sha256(f"{owner} {user} {size}".encode()).digest(),
    )
