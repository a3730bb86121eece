"""Reads the books of a site after its gateway has stopped: the stored rows, without judgement."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from gateway.ledger.db.contracts.tables import contracts, postings
from gateway.ledger.db.database import snapshot
from gateway.ledger.db.jobs.tables import jobs
from gateway.ledger.db.usage.tables import usage


@dataclass(frozen=True, slots=True)
class Usage:
    """A usage record; see gateway.ledger.db.records.UsageRecord."""

    job: str
    first: int
    attempt: int
    tasks: int
    name: str
    pool: str
    state: str
    wall_ns: int
    cost_nanos: int
    price_class: str
    site: str
    origin: str

    @property
    def stop(self) -> int:
        """The task after its last."""
        return self.first + self.tasks


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery under a contract, as one side has it."""

    side: str
    site: str
    contract: str
    epoch: int
    first: int
    tasks: int
    wall_ns: int
    cost_nanos: int
    state: str
    job: str  # as the site has it whose row it is
    opened_at_s: float = 0.0  # when its contract was opened, UTC

    @property
    def key(self) -> tuple[str, int, int]:
        """The fields that both sides of a delivery have in common."""
        return self.contract, self.epoch, self.first

    @property
    def is_paid(self) -> bool:
        """Whether its buyer has taken it."""
        return self.state == "post"


@dataclass(frozen=True, slots=True)
class Job:
    """A job's row."""

    job: str
    name: str
    detached: bool
    state: str
    total: int | None
    done: int
    failed: int
    cancelled: int


@dataclass(slots=True)
class ChaosBooks:
    """The bookings of one site.

    Attributes:
        bought: by seller, nano-units: the amounts of its cost report and of its statements. The
            module that asks the gateway fills them in (collecting.py).
    """

    site: str
    usage: list[Usage] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    reported_nanos: dict[str, int] = field(default_factory=dict)
    stated_nanos: dict[str, int] = field(default_factory=dict)


def read_books(site: str, url: str) -> ChaosBooks:
    """All that is compared of a site's books, as of one moment."""
    with snapshot(url) as connection:
        return ChaosBooks(
            site,
            [Usage(*row) for row in _rows(connection, usage, Usage)],
            list(_deliveries(connection)),
            [Job(*row) for row in _rows(connection, jobs, Job)],
        )


def _rows(connection: Connection, table: Any, kind: Any) -> Iterable[Any]:
    return connection.execute(select(*(table.c[name] for name in kind.__slots__)))


def _deliveries(connection: Connection) -> Iterable[Delivery]:
    same = (contracts.c.contract == postings.c.contract) & (contracts.c.side == postings.c.side)
    theirs = {"site": "", "job": "", "opened_at_s": 0.0}  # without a contract, these
    names = [name for name in Delivery.__slots__ if name not in theirs]
    query = select(
        *(postings.c[name] for name in names), *(contracts.c[name] for name in theirs)
    ).select_from(postings.outerjoin(contracts, same))
    for row in connection.execute(query).mappings():
        yield Delivery(**{**row, **{name: row[name] or none for name, none in theirs.items()}})
