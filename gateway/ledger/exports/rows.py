"""What is exported: hours of usage, runs, and corrections, as the books have them. Pure."""

from dataclasses import dataclass

from gateway.ledger.records import HOUR_S


@dataclass(frozen=True, slots=True)
class Hour:
    """What runs of one kind that ended in one UTC hour sum up to: a row of `usage_hours`.

    Attributes:
        hour: counted from 1970-01-01T00.
        site: that it was bought from; empty: it ran here.
        origin: the site that sent it; empty: its user is ours.
        records: how many runs.
    """

    hour: int
    user: str
    group: str
    project: str
    name: str
    site: str
    origin: str
    pool: str
    window: str
    tags: str
    price_class: str
    state: str
    tariff: str
    currency: str
    records: int
    peak_memory_bytes: int
    tasks: int
    wall_ns: int
    cpu_ns: int
    cost_nanos: int
    list_cost_nanos: int
    energy_uj: int
    carbon_ng: int
    embodied_ng: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run of tasks [first, first + tasks) of a job: a row of `usage`.

    Attributes:
        records: how many runs it stands for; more than one where old ones were rolled up.
    """

    job: str
    first: int
    attempt: int
    tasks: int
    user: str
    group: str
    project: str
    name: str
    site: str
    origin: str
    pool: str
    worker: str
    window: str
    tags: str
    price_class: str
    state: str
    tariff: str
    currency: str
    started_at_s: float
    ended_at_s: float
    wall_ns: int
    cpu_ns: int
    peak_memory_bytes: int
    cost_nanos: int
    list_cost_nanos: int
    records: int


@dataclass(frozen=True, slots=True)
class Correction:
    """A charge that was taken back: a transfer of the kind "reversal" of one that was an entry.

    Attributes:
        number: of the reversal in the books.
        key: of the reversal; `corrects` is that of the charge.
        user: what the charge was booked on: a user with his project, or
        origin: the site that had sent it.
        pool: what was paid with it: a pool of ours, or
        site: the site that it was bought from.
        run: what was charged; None when old records have been rolled up.
    """

    number: int
    key: str
    corrects: str
    at_s: float
    corrected_at_s: float
    amount_nanos: int
    currency: str
    user: str
    project: str
    origin: str
    pool: str
    site: str
    run: Run | None

    @property
    def hour(self) -> int:
        """The UTC hour of the charge."""
        return int(self.corrected_at_s // HOUR_S)
