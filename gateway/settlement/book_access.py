"""The deliveries in our books, read for comparisons, and the results of these."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from federation.messages.reconciliation import (
    BookEntry,
    Tally,
    by_contract,
    tally_of,
)
from federation.messages.wire import pack
from gateway.ledger.db.contracts.records import ContractSide
from gateway.ledger.db.settlement.records import StatementKept
from gateway.ledger.store import owed
from gateway.settlement.comparing import (
    DETAILS_CHARS_MAX,
    ComparisonSpan,
)
from gateway.settlement.context import SettlementContext

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """The outcome of a comparison: state, differences, and the signed envelopes that prove them."""

    tally: Tally
    state: str
    details: str
    ours: bytes
    theirs: bytes = b""


class BookAccess:
    """Reads deliveries after all pending writes, and keeps the results of comparisons.

    Other sites are told what is read, and book by it, so a power cut must not lose any of it.
    """

    def __init__(self, context: SettlementContext) -> None:
        self._context = context
        self._day_ms = context.rules.day_ms

    async def tally(self, side: str, site: str, window: ComparisonSpan) -> Tally:
        """Return our sums of a window of one side's deliveries with a site."""
        entries = self._context.store.settlement.entries
        return await self._read(
            lambda: tally_of(entries(side, site, window.first_ms, window.stop_ms))
        )

    async def digests(self, side: str, site: str, window: ComparisonSpan) -> dict[str, bytes]:
        """Return the digest of each contract's deliveries in a window."""
        entries = self._context.store.settlement.entries
        return await self._read(
            lambda: by_contract(entries(side, site, window.first_ms, window.stop_ms))
        )

    async def entries(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str, limit: int = 0
    ) -> list[BookEntry]:
        """Return the deliveries of a contract in a window; at most `limit` of them, 0: all."""
        entries = self._context.store.settlement.entries

        def find() -> list[BookEntry]:
            found = entries(side, site, first_ms, stop_ms, contract)
            return list(islice(found, limit or None))

        return await self._read(find)

    async def closed_until_ms(self, side: str, site: str, *, is_final: bool = True) -> int:
        """The moment up to which one side's deliveries are closed, or else agreed."""
        store = self._context.store.settlement

        def find() -> int:
            kept = store.statements(side, site)
            return owed.agreed_until_ms(store, kept, side, site, is_final=is_final)

        until_ms: int = await self._context.read(find)
        return until_ms

    async def keep(
        self, side: ContractSide, site: str, window: ComparisonSpan, found: ComparisonResult
    ) -> None:
        """Keep the result of a whole day or period; nothing is booked into one that is agreed."""
        if window.is_kept(self._day_ms):
            await self._context.write(
                StatementKept(
                    side,
                    site,
                    window.first_ms,
                    window.stop_ms,
                    window.is_final,
                    found.state,
                    pack(found.tally.plain),
                    found.tally.digest,
                    found.details[:DETAILS_CHARS_MAX],
                    found.ours,
                    found.theirs,
                    self._context.utc_s(),
                )
            )
            if found.state == "agreed":
                self._context.note_settled(side, site, window.stop_ms)

    async def _read(self, query: Callable[[], T]) -> T:
        await self._context.write()
        found: T = await self._context.read(query)
        return found
