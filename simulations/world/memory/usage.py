"""Usage of tasks, and the capacity that pools offered."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain
from operator import attrgetter

from federation.clocks import UtcS
from gateway.ledger.db.usage.queries import hours_between
from gateway.ledger.db.usage.records import (
    CapacityRecord,
    CapacityTotal,
    Dimension,
    JobPlace,
    UsageRecord,
    UsageTotal,
    UsedRun,
)
from gateway.ledger.db.usage.store import NOTHING, PLACE_TERMS, PLACES_MAX
from gateway.ledger.db.usage.tables import SUMMED
from gateway.ledger.db.usage.taken_back import TakenBack, taken_off, totals_taken_back
from simulations.world.memory.tables import Tables


class MemoryUsage:
    """The UsageStore of a disk in memory."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def charged_ranges(self, job: str) -> list[tuple[int, int]]:
        """See UsageStore."""
        found = [each for each in self._tables().usage_of(job) if each.is_charge]
        found.sort(key=lambda each: (each.first, each.attempt))
        return [(each.first, each.tasks) for each in found]

    def runs_since_wasted(self, job: str) -> list[UsedRun]:
        """See UsageStore."""
        found = sorted(self._tables().usage_of(job), key=lambda each: (each.attempt, each.first))
        since = min((each.attempt for each in found if each.state == "wasted"), default=None)
        return [
            UsedRun(*(getattr(each, field.name) for field in fields(UsedRun)))
            for each in found
            if since is not None and each.attempt >= since
        ]

    def places_of(self, job: str) -> list[JobPlace]:
        """See UsageStore."""
        found: dict[tuple[object, ...], list[UsageRecord]] = {}
        for each in self._tables().usage_of(job):
            key = (*(getattr(each, name) for name in PLACE_TERMS), each.list_price_nanos)
            found.setdefault(key, []).append(each)
        places = [
            JobPlace(
                **{name: getattr(runs[0], name) for name in PLACE_TERMS},
                list_price_nanos=runs[0].list_price_nanos or 0,
                tasks=sum(each.tasks for each in runs),
                wall_ns=sum(each.wall_ns for each in runs),
                cost_nanos=sum(each.cost_nanos for each in runs),
                first_at_s=min(each.started_at_s for each in runs),
                last_at_s=max(each.ended_at_s for each in runs),
            )
            for runs in found.values()
        ]
        order = attrgetter("first_at_s", *PLACE_TERMS)
        return sorted(places, key=order)[:PLACES_MAX]

    def rules_of(self, job: str) -> list[int]:
        """See UsageStore."""
        return sorted({each.rules for each in self._tables().usage_of(job) if each.rules})

    def totals(
        self,
        by: Sequence[Dimension],
        start_at_s: UtcS | None = None,
        end_at_s: UtcS | None = None,
        only: Mapping[Dimension, str | int] = NOTHING,
    ) -> list[UsageTotal]:
        """See UsageStore."""
        totals: dict[tuple[tuple[str | int, ...], str], UsageTotal] = {}
        for each in chain.from_iterable(map(dict.values, self._tables().usage.values())):
            if start_at_s is not None and each.ended_at_s < start_at_s:
                continue
            if end_at_s is not None and each.ended_at_s >= end_at_s:
                continue
            if any(_value(each, dimension) != value for dimension, value in only.items()):
                continue
            key = tuple(_value(each, dimension) for dimension in by)
            total = totals.get((key, each.currency))
            total = total or UsageTotal(key, each.currency, 0, 0, 0, 0, 0, 0)
            peak = max(total.peak_memory_bytes, each.peak_memory_bytes)
            sums = {
                name: getattr(total, name) + getattr(each, name) for name in ("records", *SUMMED)
            }
            totals[key, each.currency] = replace(total, peak_memory_bytes=peak, **sums)
        return [totals[key] for key in sorted(totals)]

    def held_since(self, start_at_s: UtcS) -> dict[int, UtcS]:
        """See UsageStore."""
        found = chain.from_iterable(map(dict.values, self._tables().usage.values()))
        return {
            each.first: each.ended_at_s
            for each in found
            if each.kind == "held" and each.ended_at_s >= start_at_s
        }

    def taken_back(
        self,
        by: Sequence[Dimension],
        start_at_s: UtcS | None = None,
        end_at_s: UtcS | None = None,
        only: Mapping[Dimension, str | int] = NOTHING,
    ) -> list[UsageTotal]:
        """See UsageStore."""
        tables = self._tables()
        voids: dict[str, list[tuple[UtcS, int]]] = {}
        for key, each in tables.postings.items():
            contract, answer = tables.contracts[key[:2]], tables.answers.get(key)
            is_refunded = answer is not None and answer.state == "accepted"
            is_taken_back = tables.verdicts.get(key) == "void" or is_refunded
            if contract.side == "sell" and is_taken_back and each.cost_nanos:
                sender = f"{contract.site}:"
                job = sender + contract.job.removeprefix(sender)
                voids.setdefault(job, []).append((each.posted_at_s, each.cost_nanos))
        found: list[TakenBack] = []
        for job, deliveries in voids.items():
            runs = [each for each in tables.usage_of(job) if each.cost_nanos]
            found += taken_off(runs, sorted(deliveries))
        return totals_taken_back(found, by, start_at_s, end_at_s, only)

    def capacity_totals(self, start_at_s: UtcS, end_at_s: UtcS) -> list[CapacityTotal]:
        """See UsageStore."""
        start, end = hours_between(start_at_s, end_at_s)
        found: Counter[tuple[str, int]] = Counter()
        for each in self._tables().capacity.values():
            if start <= each.hour < end:
                found[each.pool, each.hour] += each.slot_ns
        return [CapacityTotal(*key, slot_ns) for key, slot_ns in sorted(found.items())]

    def capacity_of(self, pool: str, hour: int) -> list[CapacityRecord]:
        """See UsageStore."""
        found = (each for each in self._tables().capacity.values() if each.hour == hour)
        return sorted((each for each in found if each.pool == pool), key=attrgetter("since_s"))


def _value(record: UsageRecord, dimension: Dimension) -> str | int:
    if dimension is Dimension.DAY:
        return record.hour // 24
    value: str | int = getattr(record, dimension.value)
    return value
