"""Whether our books are older than those of the sites we deal with, as after a restored copy. Pure.

A copy of yesterday's database lacks what was delivered since. Each partner has its half of it:
a seller has deliveries with our verdict that we have not, for a verdict is on the buyer's disk
before it is told; a buyer has deliveries that we have not, for a seller books before it delivers.
"""

from collections.abc import Mapping
from typing import Final

from federation.money import format_money
from federation.reconciliation import Sums

REMEDY: Final = (
    "restore the newest copy of the database, or go on with these books: "
    "`gridfed reconcile {} --accept`"
)


class OlderBooks:
    """The sites whose books show that ours are an older copy.

    `behind` says of each, by name, what we lack. Nothing new is bought of these sites or sold to
    them. It is the word of the other site alone, so it stops no dealings with anybody else.
    """

    def __init__(self) -> None:
        self.behind: dict[str, str] = {}

    def judge(
        self, side: str, site: str, ours: Mapping[str, Sums], theirs: Mapping[str, Sums]
    ) -> bool:
        """Compare the sums of one time; return whether the site is news: it was not known as such.

        Args:
            side: "buy" where the site delivered to us, "sell" where we delivered to it.
            site: its name.
            ours: what our books come to, by currency.
            theirs: what its books come to.
        """
        lacks = self.lacks(ours, theirs)
        if not lacks:
            return False
        known = site in self.behind
        dealt = "we bought of it" if side == "buy" else "we sold to it"
        self.behind[site] = f"our books lack what {dealt}: {', '.join(lacks)}"
        return not known

    def lacks(self, ours: Mapping[str, Sums], theirs: Mapping[str, Sums]) -> list[str]:
        """What ours lack, for people, by currency; nothing when they are no older."""
        return [
            text
            for currency, their in sorted(theirs.items())
            if (text := _lacking(ours.get(currency, Sums()), their, currency))
        ]

    def forget(self, site: str) -> None:
        """Our books agree with the site's again, or an operator accepted that they don't."""
        self.behind.pop(site, None)

    def why_not(self, site: str) -> str:
        """Why nothing new is bought of a site or sold to it; empty when it may be."""
        lacks = self.behind.get(site)
        return f"{site} has newer books: {lacks}; {REMEDY.format(site)}" if lacks else ""


def _lacking(ours: Sums, theirs: Sums, currency: str) -> str:
    # What is pending here was delivered: its verdict may have been given since.
    missing = theirs.deliveries - ours.deliveries - ours.pending
    if missing <= 0:
        return ""
    cost_nanos = max(0, theirs.cost_nanos - ours.cost_nanos)
    deliveries = "1 delivery" if missing == 1 else f"{missing:,} deliveries"
    return f"{deliveries} of {format_money(cost_nanos, currency)}"
