"""The exported rows: hours of usage, runs, and corrections, as in the books. Pure."""

from dataclasses import dataclass
from typing import Final

from federation.clocks import UtcS
from gateway.ledger.db.checks import HOUR_S

REFUND: Final = "refund"  # the state of a record that is of no run, but takes a charge back


@dataclass(frozen=True, slots=True)
class Hour:
    """The sums of runs of one kind that ended in one UTC hour: a row of `usage_hours`.

    Attributes:
        hour: counted from 1970-01-01T00.
        site: the site that it was bought from; empty: it ran here.
        origin: the site that sent it; empty: its user is local.
        footprint: the known part of its emissions: "carbon", "energy" alone, or empty.
        kind: "time" of slots; data, which no run used: "held" or "moved".
        records: the number of runs.
        price_nanos, list_price_nanos: of a slot-hour, GB-month or GB, where all runs had one price;
            None: several, or unknown.
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
    footprint: str
    kind: str
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
    held_byte_s: int
    moved_bytes: int
    price_nanos: int | None = None
    list_price_nanos: int | None = None

    @property
    def is_fee(self) -> bool:
        """Whether these are no runs, but fees for reserved time that was not used."""
        return self.kind == "time" and not self.tasks


@dataclass(frozen=True, slots=True)
class UsageRun:
    """One run of tasks [first, first + tasks) of a job: a row of `usage`. Or else a refund.

    Attributes:
        records: the number of runs that it stands for; more than one where old runs were rolled up.
        corrects: of a refund, the delivery that is taken back; a refund has a cost below zero, no
            time, and the state REFUND.
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
    started_at_s: UtcS
    ended_at_s: UtcS
    wall_ns: int
    cpu_ns: int
    peak_memory_bytes: int
    cost_nanos: int
    list_cost_nanos: int
    records: int
    corrects: str = ""

    @property
    def is_fee(self) -> bool:
        """Whether it is no run, but a fee for reserved time that was not used."""
        return not self.tasks and not self.corrects


@dataclass(frozen=True, slots=True)
class Correction:
    """A reversed charge between two sites.

    It reverses a delivery whose dispute was accepted, or which its buyer has voided. The charges of
    our own users stay: a refund belongs to the site.

    Attributes:
        corrects: the key of the delivery in the books.
        at_s: when it was reversed; `corrected_at_s` when it was delivered.
        origin: the site that had sent the work, where we ran it; else empty.
        site: the site that it was bought from, where we did not; else empty.
        pool: the pool that ran it, as in a run.
        job: the job of the delivery, as in a run.
        kind: "time" of slots, or "moved" bytes.
    """

    corrects: str
    at_s: UtcS
    corrected_at_s: UtcS
    amount_nanos: int
    currency: str
    origin: str
    site: str
    pool: str
    job: str
    kind: str = "time"

    @property
    def hour(self) -> int:
        """The UTC hour of the charge."""
        return int(self.corrected_at_s // HOUR_S)

    @property
    def refund(self) -> UsageRun:
        """The same as a record among those of runs."""
        return UsageRun(
            job=self.job,
            first=0,
            attempt=0,
            tasks=0,
            # Which sites it is between is all that is known of it; the rest is empty.
            **dict.fromkeys(("user", "group", "project", "name", "worker"), ""),
            **dict.fromkeys(("window", "tags", "price_class", "tariff"), ""),
            site=self.site,
            origin=self.origin,
            pool=self.pool,
            state=REFUND,
            currency=self.currency,
            started_at_s=self.at_s,
            ended_at_s=self.at_s,
            wall_ns=0,
            cpu_ns=0,
            peak_memory_bytes=0,
            cost_nanos=-self.amount_nanos,
            list_cost_nanos=-self.amount_nanos,
            records=1,
            corrects=self.corrects,
        )
