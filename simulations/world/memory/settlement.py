"""What two sites must agree on: deliveries, disputes, statements and payments."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

from federation.messages.reconciliation import BookEntry, EntryState, Sums, tally_of
from gateway.ledger.db.settlement.records import DisputeRow, PaymentRow, PaymentsTold, StatementKept
from simulations.world.memory.tables import Tables


class MemorySettlement:
    """The SettlementStore of a disk in memory."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def entries(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
    ) -> Iterator[BookEntry]:
        """See SettlementStore."""
        tables, found = self._tables(), []
        for key, each in tables.postings.items():
            if (each.side, each.site) != (side, site) or contract not in ("", each.contract):
                continue
            delivery, verdict = each.delivery, tables.verdicts.get(key, "pending")
            if verdict != "void" and first_ms <= delivery.at_ms < stop_ms:
                state = EntryState.POSTED if verdict == "post" else EntryState.PENDING
                found.append(BookEntry(each.contract, each.currency, delivery, state))
            answer = tables.answers.get(key)
            if answer is not None and answer.state == "accepted":
                at_ms = round(answer.settled_at_s * 1000)
                if first_ms <= at_ms < stop_ms:
                    back = replace(delivery, at_ms=at_ms)
                    found.append(BookEntry(each.contract, each.currency, back, EntryState.REVERSAL))
        yield from sorted(found, key=lambda each: (each.contract, each.row[:2], each.state))

    def entry_sums(self, side: str, site: str, first_ms: int, stop_ms: int) -> dict[str, Sums]:
        """See SettlementStore."""
        return tally_of(self.entries(side, site, first_ms, stop_ms)).sums

    def verdict_sums(
        self, side: str, site: str, first_ms: int, stop_ms: int
    ) -> tuple[dict[str, Sums], dict[str, Sums]]:
        """See SettlementStore."""
        void: dict[str, Sums] = {}
        for each in self.voids(side, site, first_ms, stop_ms):
            void.setdefault(each.currency, Sums()).add(replace(each, state=EntryState.POSTED))
        return self.entry_sums(side, site, first_ms, stop_ms), void

    def voids(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
    ) -> Iterator[BookEntry]:
        """See SettlementStore."""
        tables = self._tables()
        found = [
            BookEntry(each.contract, each.currency, each.delivery, EntryState.VOID)
            for key, each in tables.postings.items()
            if (each.side, each.site) == (side, site) and contract in ("", each.contract)
            if tables.verdicts.get(key) == "void" and first_ms <= each.delivery.at_ms < stop_ms
        ]
        yield from sorted(found, key=lambda each: (each.contract, each.row[:2]))

    def next_delivery_ms(self, side: str, site: str, since_ms: int) -> int | None:
        """See SettlementStore."""
        tables = self._tables()
        times = [
            each.posted_at_s
            for each in tables.postings.values()
            if (each.side, each.site) == (side, site)
        ]
        times += [
            each.settled_at_s
            for each in tables.answers.values()
            if (each.side, each.site, each.state) == (side, site, "accepted")
        ]
        found = (round(at_s * 1000) for at_s in times)
        return min((at_ms for at_ms in found if at_ms >= since_ms), default=None)

    def disputes(self, contract: str = "", is_open: bool = False) -> list[DisputeRow]:
        """See SettlementStore."""
        tables, found = self._tables(), []
        for key, each in tables.disputes.items():
            posted, answer = tables.postings[key], tables.answers.get(key)
            if contract not in ("", each.contract) or (is_open and answer is not None):
                continue
            found.append(
                DisputeRow(
                    **asdict(each),
                    job=tables.contracts[key[:2]].job,
                    state=answer.state if answer is not None else "open",
                    answer=answer.answer if answer is not None else "",
                    settled_at_s=answer.settled_at_s if answer is not None else None,
                    tasks=posted.tasks,
                    cost_nanos=posted.cost_nanos,
                    currency=posted.currency,
                )
            )
        return sorted(found, key=lambda each: (each.disputed_at_s, each.contract, each.epoch))

    def statements(self, side: str = "", site: str = "") -> list[StatementKept]:
        """See SettlementStore."""
        found = (each for _, each in sorted(self._tables().statements.items()))
        return [each for each in found if side in ("", each.side) and site in ("", each.site)]

    def payments(self, site: str = "") -> list[PaymentRow]:
        """See SettlementStore."""
        found = (each for each in self._tables().payments.values() if site in ("", each.site))
        return sorted(found, key=lambda each: each.paid_at_s)

    def payments_told(self, site: str = "") -> list[PaymentsTold]:
        """See SettlementStore."""
        found = sorted(self._tables().payments_told.items())
        return [each for name, each in found if site in ("", name)]
