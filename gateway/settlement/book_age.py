"""Are our books older than another site's, as after a restore? What comparisons show of it."""

from typing import Any, Final

from federation.messages.reconciliation import (
    Tally,
    sums_of,
)
from gateway.settlement.comparing import (
    ComparisonSpan,
)
from gateway.settlement.context import SettlementContext

SUSPECTED_MAX: Final = 100  # windows of one site in which our books may lack entries


class BookAge:
    """Notes the sites whose books have entries that ours lack, in SettlementContext.older."""

    def __init__(self, context: SettlementContext) -> None:
        self._context = context
        self.compared: set[tuple[str, str]] = set()  # sides and sites, in this run of the gateway
        # Where ours lack entries, the oldest first.
        self.suspected: dict[tuple[str, str, ComparisonSpan], None] = {}

    def judge(
        self, side: str, site: str, window: ComparisonSpan, ours: Tally, theirs: dict[str, Any]
    ) -> bool:
        """Note whether a comparison shows that our books are older; the log says it once.

        Deliveries and payments between the two sites' looks are no sign of it, so the same window
        is compared twice: returns whether it must be compared again.
        """
        self.compared.add((side, site))
        older, sums = self._context.older, sums_of(theirs)
        if not older.lacks(ours.sums, sums):
            self.suspected.pop((side, site, window), None)
        elif (side, site, window) in self.suspected:
            del self.suspected[side, site, window]
            if older.judge(side, site, ours.sums, sums):
                self._context.say(
                    f"books: {older.why_not(site)}. No new contracts are made with it"
                )
        elif site not in older.behind:
            self.suspected[side, site, window] = None
            of_site = [each for each in self.suspected if each[:2] == (side, site)]
            if len(of_site) > SUSPECTED_MAX:
                del self.suspected[of_site[0]]
            return True
        return False
