"""Usage of tasks, and the capacity that pools offered."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final, Protocol

from sqlalchemy import func, select, text, union_all

from federation.clocks import UtcS
from gateway.ledger.db.database import OpenReader, ranges
from gateway.ledger.db.exact import exact_sums, joined
from gateway.ledger.db.usage.queries import (
    hours_between,
    sold_and_taken_back,
    totals_query,
    usage_total,
)
from gateway.ledger.db.usage.records import (
    CapacityRecord,
    CapacityTotal,
    Dimension,
    JobPlace,
    UsageTotal,
    UsedRun,
)
from gateway.ledger.db.usage.tables import IS_CHARGE, capacity, usage, usage_ranges
from gateway.ledger.db.usage.taken_back import TakenBack, taken_off, totals_taken_back

PLACES_MAX: Final = 100
# The terms by which the runs of a job are told apart: columns, and fields of JobPlace.
PLACE_TERMS: Final = (
    *("pool", "window", "tariff", "price_class", "price_nanos", "currency", "group", "rules"),
)
_OF_PLACES: Final = (
    *("list_price_nanos", "first_at_s", "last_at_s", "tasks", "wall_ns", "cost_nanos"),
)
NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class UsageStore(Protocol):
    """What tasks used, and the slot time that pools offered."""

    def charged_ranges(self, job: str) -> list[tuple[int, int]]:
        """Return (first, tasks) of every charged range, in task order; ranges may overlap."""

    def runs_since_wasted(self, job: str) -> list[UsedRun]:
        """Return a job's runs from its first wasted attempt on, by attempt; empty without one."""

    def places_of(self, job: str) -> list[JobPlace]:
        """Return where a job's tasks ran and on which terms, in time; PLACES_MAX at most."""

    def rules_of(self, job: str) -> list[int]:
        """Return the versions of this site's rules that a job's runs name, in order."""

    def totals(
        self,
        by: Sequence[Dimension],
        start_at_s: UtcS | None = None,
        end_at_s: UtcS | None = None,
        only: Mapping[Dimension, str | int] = NOTHING,
    ) -> list[UsageTotal]:
        """Sum up the usage that ended in [start, end) by dimensions and currency, in order.

        `only` selects usage by these values. Whole hours are fast.
        """

    def held_since(self, start_at_s: UtcS) -> dict[int, UtcS]:
        """Return when each record of held bytes that ended since then did, by its `first`."""

    def taken_back(
        self,
        by: Sequence[Dimension],
        start_at_s: UtcS | None = None,
        end_at_s: UtcS | None = None,
        only: Mapping[Dimension, str | int] = NOTHING,
    ) -> list[UsageTotal]:
        """Return the part of `totals` that other sites do not pay.

        Their deliveries were voided by their buyer, or refunded after a dispute. Of a run that was
        taken back in part, only amounts of money count.
        """

    def capacity_totals(self, start_at_s: UtcS, end_at_s: UtcS) -> list[CapacityTotal]:
        """Sum up the slot time of the hours that begin in [start_at_s, end_at_s), in order."""

    def capacity_of(self, pool: str, hour: int) -> list[CapacityRecord]:
        """Return the written capacity of a pool in an hour, counted from 1970-01-01T00."""


class SqlUsage:
    """The UsageStore of a database."""

    def __init__(self, reading: OpenReader) -> None:
        self._reading = reading

    def charged_ranges(self, job: str) -> list[tuple[int, int]]:
        """See UsageStore."""
        written = select(usage.c.first, usage.c.tasks, usage.c.attempt).where(
            usage.c.job == job, usage.c.records == 1, usage.c.tasks > 0, IS_CHARGE
        )
        rolled_up = select(
            usage_ranges.c.first, usage_ranges.c.tasks, usage_ranges.c.attempt
        ).where(usage_ranges.c.job == job, usage_ranges.c.is_charge)
        both = union_all(written, rolled_up).subquery()
        with self._reading() as connection:
            query = select(both.c.first, both.c.tasks).order_by(both.c.first, both.c.attempt)
            return ranges(connection, query)

    def runs_since_wasted(self, job: str) -> list[UsedRun]:
        """See UsageStore."""
        wasted = select(func.min(usage.c.attempt)).where(
            usage.c.job == job, usage.c.state == text("'wasted'")
        )
        query = (
            select(*(usage.c[field.name] for field in fields(UsedRun)))
            .where(usage.c.job == job, usage.c.records == 1, usage.c.tasks > 0)
            .where(usage.c.attempt >= wasted.scalar_subquery())
            .order_by(usage.c.attempt, usage.c.first)
        )
        with self._reading() as connection:
            return [UsedRun(*row) for row in connection.execute(query)]

    def places_of(self, job: str) -> list[JobPlace]:
        """See UsageStore."""
        terms = [usage.c[name] for name in PLACE_TERMS]
        listed = func.coalesce(usage.c.list_price_nanos, usage.c.price_nanos)
        sums = exact_sums(usage.c.tasks, usage.c.wall_ns, usage.c.cost_nanos)
        first, last = func.min(usage.c.started_at_s), func.max(usage.c.ended_at_s)
        query = (
            select(*terms, listed, first, last, *sums)
            .where(usage.c.job == job)
            .group_by(*terms, listed)
            .order_by(first, *terms)
            .limit(PLACES_MAX)
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()
        size = len(PLACE_TERMS)
        names = (*PLACE_TERMS, *_OF_PLACES)
        return [
            JobPlace(**dict(zip(names, (*row[: size + 3], *joined(row[size + 3 :])), strict=True)))
            for row in rows
        ]

    def rules_of(self, job: str) -> list[int]:
        """See UsageStore."""
        query = select(usage.c.rules).where(usage.c.job == job, usage.c.rules > 0).distinct()
        with self._reading() as connection:
            return sorted(connection.execute(query).scalars())

    def totals(
        self,
        by: Sequence[Dimension],
        start_at_s: UtcS | None = None,
        end_at_s: UtcS | None = None,
        only: Mapping[Dimension, str | int] = NOTHING,
    ) -> list[UsageTotal]:
        """See UsageStore."""
        query = totals_query(by, start_at_s, end_at_s, only)
        with self._reading() as connection:
            return [usage_total(len(by), row) for row in connection.execute(query)]

    def held_since(self, start_at_s: UtcS) -> dict[int, UtcS]:
        """See UsageStore."""
        query = select(usage.c.first, usage.c.ended_at_s).where(
            usage.c.ended_at_s >= start_at_s, usage.c.kind == "held", usage.c.records == 1
        )
        with self._reading() as connection:
            return {row.first: row.ended_at_s for row in connection.execute(query)}

    def taken_back(
        self,
        by: Sequence[Dimension],
        start_at_s: UtcS | None = None,
        end_at_s: UtcS | None = None,
        only: Mapping[Dimension, str | int] = NOTHING,
    ) -> list[UsageTotal]:
        """See UsageStore."""
        found: list[TakenBack] = []
        with self._reading() as connection:
            for job, voids in sold_and_taken_back(connection).items():
                query = select(usage).where(usage.c.job == job, usage.c.cost_nanos > 0)
                found += taken_off(connection.execute(query).all(), voids)
        return totals_taken_back(found, by, start_at_s, end_at_s, only)

    def capacity_totals(self, start_at_s: UtcS, end_at_s: UtcS) -> list[CapacityTotal]:
        """See UsageStore."""
        start, end = hours_between(start_at_s, end_at_s)
        query = (
            select(capacity.c.pool, capacity.c.hour, *exact_sums(capacity.c.slot_ns))
            .where(capacity.c.hour >= start, capacity.c.hour < end)
            .group_by(capacity.c.pool, capacity.c.hour)
            .order_by(capacity.c.pool, capacity.c.hour)
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return [CapacityTotal(*row[:2], *joined(row[2:])) for row in rows]

    def capacity_of(self, pool: str, hour: int) -> list[CapacityRecord]:
        """See UsageStore."""
        kept = [capacity.c[field.name] for field in fields(CapacityRecord)]
        query = select(*kept).where(capacity.c.pool == pool, capacity.c.hour == hour)
        with self._reading() as connection:
            rows = connection.execute(query.order_by(capacity.c.since_s)).all()
            return [CapacityRecord(*row) for row in rows]
