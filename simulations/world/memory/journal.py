"""The journal of double entry."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, islice

from gateway.ledger.accounting.journal import Booked
from gateway.ledger.accounting.postings import Balance, LedgerAccount
from simulations.world.memory.tables import Tables


class MemoryJournal:
    """The JournalStore of a disk in memory."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def balances(self) -> dict[LedgerAccount, Balance]:
        """See JournalStore."""
        return {account: replace(each) for account, each in self._tables().balances.items()}

    def booked(self, after: int, limit: int) -> list[Booked]:
        """See JournalStore."""
        return list(islice(self._tables().booked.values(), after, after + limit))

    def unlike(self, site: str, limit: int) -> list[str]:
        """See JournalStore."""
        charged, delivered = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        dealt = set()
        for each in chain.from_iterable(map(dict.values, self._tables().usage.values())):
            if site in (each.origin, each.site):
                charged["sell" if each.origin else "buy", each.job] += each.cost_nanos
        for (side, contract, *_), posted in self._tables().postings.items():
            opened = self._tables().contracts[side, contract]
            if opened.site == site:
                delivered[side, opened.job] += posted.cost_nanos
                dealt.add((side, opened.job))
        found = (each for each in sorted(dealt) if charged[each] != delivered[each])
        return [f"job {job} ({side})" for side, job in islice(found, limit)]
