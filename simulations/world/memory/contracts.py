"""Contracts with other sites, and the deliveries under them."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, astuple, replace
from itertools import chain

from federation.clocks import UtcS
from gateway.ledger.db.contracts.overhead import DeliveryKey, Part, apart, overhead
from gateway.ledger.db.contracts.records import (
    ContractOpened,
    ContractRow,
    DealTotal,
    PendingDeliveries,
    Posted,
    PostingRow,
    RelayedTotal,
    UnsettledDeliveries,
)
from gateway.ledger.db.contracts.store import OF_JOB_MAX
from simulations.world.memory.tables import DeliveryId, KeptJob, Tables


class MemoryContracts:
    """The ContractStore of a disk in memory."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def open(self) -> list[ContractRow]:
        """See ContractStore."""
        tables = self._tables()
        found = [each for key, each in tables.contracts.items() if key not in tables.ended]
        return [
            ContractRow(**asdict(each)) for each in sorted(found, key=lambda row: row.opened_at_s)
        ]

    def get(self, side: str, contract: str) -> ContractRow | None:
        """See ContractStore."""
        tables = self._tables()
        row = tables.contracts.get((side, contract))
        state = tables.ended.get((side, contract), "open")
        return ContractRow(**asdict(row), state=state) if row is not None else None

    def of_job(self, side: str, job: str) -> list[ContractRow]:
        """See ContractStore."""
        tables = self._tables()
        found = [
            ContractRow(**asdict(row), state=tables.ended.get(key, "open"))
            for key, row in tables.contracts.items()
            if (row.side, row.job) == (side, job)
        ]
        return sorted(found, key=lambda row: (row.opened_at_s, row.contract))[:OF_JOB_MAX]

    def newest(self, side: str) -> list[tuple[str, str]]:
        """See ContractStore."""
        return [(row.site, row.contract) for key, row in self._tables().contracts.items()
                if key[0] == side]  # fmt: skip

    def partners(self, side: str | None = None) -> list[str]:
        """See ContractStore."""
        found = self._tables().contracts.values()
        return sorted({each.site for each in found if side in (None, each.side)})

    def postings(self, side: str, contract: str) -> list[PostingRow]:
        """See ContractStore."""
        tables = self._tables()
        return [
            PostingRow(
                *key[2:],
                each.tasks,
                each.cost_nanos,
                tables.verdicts.get(key, "pending"),
                each.wall_ns,
                each.posted_at_s,
            )
            for key, each in sorted(tables.postings.items())
            if key[:2] == (side, contract)
        ]

    def postings_of(
        self, side: str, contract: str, keys: Iterable[tuple[int, int]]
    ) -> list[PostingRow]:
        """See ContractStore."""
        asked = set(keys)
        rows = self.postings(side, contract)
        return [each for each in rows if (each.epoch, each.first) in asked]

    def proofs(self, side: str, contract: str) -> dict[tuple[int, int], tuple[bytes, bytes]]:
        """See ContractStore."""
        found = self._tables().proofs.items()
        return {key[2:]: each for key, each in found if key[:2] == (side, contract)}

    def totals(self) -> list[DealTotal]:
        """See ContractStore."""
        tables = self._tables()
        totals: dict[tuple[str, str, str, str], DealTotal] = {}
        for key, each in tables.postings.items():
            contract = tables.contracts[key[:2]]
            state = tables.verdicts.get(key, "pending")
            group = (contract.site, contract.side, contract.currency, state)
            total = totals.get(group) or DealTotal(*group, 0, 0, 0)
            totals[group] = replace(
                total,
                tasks=total.tasks + each.tasks,
                wall_ns=total.wall_ns + each.wall_ns,
                cost_nanos=total.cost_nanos + each.cost_nanos,
            )
        return [totals[group] for group in sorted(totals)]

    def pending(self, start_at_s: UtcS, end_at_s: UtcS) -> list[PendingDeliveries]:
        """See ContractStore."""
        verdicts = self._tables().verdicts
        return self._by_contract(lambda key: key not in verdicts, start_at_s, end_at_s)

    def unsettled(self, until_s: UtcS, records_max: int) -> list[UnsettledDeliveries]:
        """See ContractStore."""
        tables = self._tables()
        waiting = (
            (each.posted_at_s, key)
            for key, each in tables.postings.items()
            if key not in tables.verdicts and each.posted_at_s < until_s
        )
        oldest = sorted(waiting)[:records_max]
        counts = Counter((tables.contracts[key[:2]].site, key[0]) for _, key in oldest)
        return [UnsettledDeliveries(*key, counts[key]) for key in sorted(counts)]

    def rules_used(self, start_at_s: UtcS, end_at_s: UtcS) -> dict[tuple[str, str], list[int]]:
        """See ContractStore."""
        tables = self._tables()
        found: dict[tuple[str, str], set[int]] = {}
        for key, each in tables.postings.items():
            contract = tables.contracts[key[:2]]
            if start_at_s <= each.posted_at_s < end_at_s and contract.rules > 0:
                found.setdefault((contract.site, contract.currency), set()).add(contract.rules)
        return {key: sorted(found[key]) for key in sorted(found)}

    def reversed(self, start_at_s: UtcS, end_at_s: UtcS) -> list[PendingDeliveries]:
        """See ContractStore."""
        answers = self._tables().answers
        return self._by_contract(
            lambda key: key in answers and answers[key].state == "accepted", start_at_s, end_at_s
        )

    def voided(self, start_at_s: UtcS, end_at_s: UtcS) -> list[PendingDeliveries]:
        """See ContractStore."""
        verdicts = self._tables().verdicts
        return self._by_contract(lambda key: verdicts.get(key) == "void", start_at_s, end_at_s)

    def relayed(self, start_at_s: UtcS, end_at_s: UtcS) -> list[RelayedTotal]:
        """See ContractStore."""
        tables = self._tables()
        passed_on = {each.job for each in tables.contracts.values() if _is_passed_on(each)}
        totals: dict[tuple[str, ...], RelayedTotal] = {}
        for key, each in tables.postings.items():
            contract, answer = tables.contracts[key[:2]], tables.answers.get(key)
            if contract.job not in passed_on:  # no sold job without a colon is passed on
                continue
            moments = [(tables.verdicts.get(key, "pending"), each.posted_at_s)]
            if answer is not None and answer.state == "accepted":
                moments.append(("reversed", answer.settled_at_s))
            for state, at_s in moments:
                if start_at_s <= at_s < end_at_s:
                    group = contract.side, contract.site, contract.job, contract.currency, state
                    total = totals.get(group) or RelayedTotal(*group, 0, 0)
                    totals[group] = replace(
                        total,
                        tasks=total.tasks + each.tasks,
                        cost_nanos=total.cost_nanos + each.cost_nanos,
                    )
        return sorted(totals.values(), key=astuple)

    def _by_contract(
        self, counts: Callable[[DeliveryId], bool], start_at_s: UtcS, end_at_s: UtcS
    ) -> list[PendingDeliveries]:
        found: dict[tuple[str, str], PendingDeliveries] = {}
        parts: dict[tuple[str, str], dict[DeliveryKey, Part]] = {}
        tables = self._tables()
        for key, posted in tables.postings.items():
            contract = tables.contracts.get(key[:2])
            if contract is None or not counts(key):
                continue
            if not start_at_s <= posted.posted_at_s < end_at_s:
                continue
            known = found.get(key[:2])
            if known is None:
                known = _nothing_pending(contract, tables.jobs.get(contract.job))
                used = tables.usage.get(contract.job, {}).values()
                groups = (each.group for each in used if not each.is_overhead)
                known = replace(known, group=min(groups, default=""))
            found[key[:2]] = replace(
                known,
                records=known.records + 1,
                oldest_s=min(known.oldest_s, posted.posted_at_s),
                tasks=known.tasks + posted.tasks,
                cost_nanos=known.cost_nanos + posted.cost_nanos,
            )
            parts.setdefault(key[:2], {})[key[1:]] = _part(posted)
        rows = chain.from_iterable(
            apart(each, parts[key], self._overhead(each)) for key, each in found.items()
        )
        return sorted(rows, key=astuple)

    def _overhead(self, pending: PendingDeliveries) -> dict[DeliveryKey, tuple[int, int]]:
        """The overhead in all that its site delivered for its job, by delivery."""
        tables = self._tables()
        used = [
            Part(each.first, each.tasks, each.cost_nanos, each.ended_at_s)
            for each in tables.usage.get(pending.job, {}).values()
            if each.is_overhead and each.site == pending.site and pending.side == "buy"
        ]
        theirs = {
            key: each
            for key, each in tables.contracts.items()
            if (each.side, each.site, each.job) == ("buy", pending.site, pending.job)
        }
        delivered = (each for each in tables.postings.items() if each[0][:2] in theirs)
        return overhead({key[1:]: _part(posted) for key, posted in delivered}, used) if used else {}


def _is_passed_on(contract: ContractOpened) -> bool:
    return contract.side == "buy" and ":" in contract.job


def _nothing_pending(contract: ContractOpened, job: KeptJob | None) -> PendingDeliveries:
    who = (job.opened.user, job.opened.project, job.opened.name) if job else ("", "", "")
    where = (contract.side, contract.site, contract.pool, contract.job)
    return PendingDeliveries(*where, *who, contract.currency, 0, UtcS(math.inf), 0, 0)


def _part(posted: Posted) -> Part:
    return Part(posted.first, posted.tasks, posted.cost_nanos, posted.posted_at_s)
