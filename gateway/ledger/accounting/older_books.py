"""Detects that our books are older than our partners', as after a restored backup. Pure.

A copy of yesterday's database lacks the deliveries made since. Each partner has its half of them. A
seller has deliveries with our verdict that we lack, because a buyer stores a verdict before it
sends it. A buyer has deliveries that we lack, because a seller books before it delivers.
"""

from collections.abc import Mapping
from typing import Final

from federation.messages.reconciliation import Sums
from federation.money import format_money

REMEDY: Final = (
    "restore the newest copy of the database, or continue with these books: `gridfed "
    "reconcile {} --accept`"
)


class OlderBooks:
    """The sites whose books show that ours are an older copy.

    `behind` describes, by site name, the deliveries that we lack. Nothing new is bought from these
    sites or sold to them. This rests on the other site's word alone, so dealings with others
    continue.
    """

    def __init__(self) -> None:
        self.behind: dict[str, str] = {}

    def judge(
        self, side: str, site: str, ours: Mapping[str, Sums], theirs: Mapping[str, Sums]
    ) -> bool:
        """Compare the sums of one time; return whether the site is newly found to be ahead.

        Args:
            side: "buy" where the site delivered to us, "sell" where we delivered to it.
            site: its name.
            ours: the sums of our books, by currency.
            theirs: the sums of its books.
        """
        lacks = self.lacks(ours, theirs)
        if not lacks:
            return False
        known = site in self.behind
        dealt = "purchases from it" if side == "buy" else "sales to it"
        self.behind[site] = f"our books lack {dealt}: {', '.join(lacks)}"
        return not known

    def lacks(self, ours: Mapping[str, Sums], theirs: Mapping[str, Sums]) -> list[str]:
        """Describe the entries that our books lack, by currency; empty if they are no older."""
        return [
            text
            for currency, their in sorted(theirs.items())
            if (text := _lacking(ours.get(currency, Sums()), their, currency))
        ]

    def forget(self, site: str) -> None:
        """Forget a site whose books agree again, or whose difference an operator accepted."""
        self.behind.pop(site, None)

    def why_not(self, site: str) -> str:
        """Return why nothing new is bought from or sold to a site; empty if it may be."""
        lacks = self.behind.get(site)
        return f"{site} has newer books: {lacks}; {REMEDY.format(site)}" if lacks else ""


def _lacking(ours: Sums, theirs: Sums, currency: str) -> str:
    # Our pending deliveries were made: they may have got their verdicts since.
    missing = theirs.deliveries - ours.deliveries - ours.pending
    if missing <= 0:
        return ""
    cost_nanos = max(0, theirs.cost_nanos - ours.cost_nanos)
    deliveries = "1 delivery" if missing == 1 else f"{missing:,} deliveries"
    return f"{deliveries} of {format_money(cost_nanos, currency)}"
