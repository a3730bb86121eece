"""What a relay keeps: the amounts for work that it sold to one site and bought from another. Pure.

    took   = sold to the site that sent the work, less refunds
    gave   = bought from the sites that ran it, less credits
    margin = took - gave, below zero for a loss

All amounts are those of the deliveries that statements are made from, in the same time: so what a
statement has `relayed_sold` with all sites, less `relayed_bought` with all sites, is the margin of
that time. A delivery that is held has no verdict yet and is in no margin. A delivery that the
buyer voided brings nothing, though the site that ran the work may be paid.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.ledger.db.contracts.records import RelayedTotal


@dataclass(frozen=True, slots=True)
class Margin:
    """The amounts of work that was passed on, in one currency; in nano-units.

    Attributes:
        sold_to: the site that sent the work.
        bought_from: the sites that it was bought from in that time, by name, with commas.
        job: the job; empty for the sums of all jobs between these sites.
        tasks: that were delivered to `sold_to` and paid.
        took, gave: without held and void deliveries.
        held_sold, held_bought: delivered, and without a verdict.
        void_sold, void_bought: delivered, and not paid for.
    """

    sold_to: str
    bought_from: str
    job: str
    currency: str
    tasks: int = 0
    took: int = 0
    gave: int = 0
    held_sold: int = 0
    held_bought: int = 0
    void_sold: int = 0
    void_bought: int = 0

    @property
    def margin(self) -> int:
        """The amount that this site keeps."""
        return self.took - self.gave


def margins(rows: Iterable[RelayedTotal], *, by_job: bool = False) -> list[Margin]:
    """Return the margins between each pair of buyer and sellers, or of each job."""
    of_job: dict[str, list[RelayedTotal]] = {}
    for each in rows:
        of_job.setdefault(each.job, []).append(each)
    groups: dict[tuple[str, str, str, str], list[RelayedTotal]] = {}
    for job, found in of_job.items():
        sellers = ", ".join(sorted({each.site for each in found if each.side == "buy"}))
        for each in found:
            key = each.origin, sellers, job if by_job else "", each.currency
            groups.setdefault(key, []).append(each)
    return [_margin(key, groups[key]) for key in sorted(groups)]


def _margin(key: tuple[str, str, str, str], rows: Sequence[RelayedTotal]) -> Margin:
    return Margin(
        *key,
        tasks=sum(each.tasks for each in rows if (each.side, each.state) == ("sell", "post")),
        took=kept(rows, "sell"),
        gave=kept(rows, "buy"),
        held_sold=_sum(rows, "sell", "pending"),
        held_bought=_sum(rows, "buy", "pending"),
        void_sold=_sum(rows, "sell", "void"),
        void_bought=_sum(rows, "buy", "void"),
    )


def kept(rows: Iterable[RelayedTotal], side: str) -> int:
    """Return what was paid on one side and not reversed."""
    rows = list(rows)
    return _sum(rows, side, "post") - _sum(rows, side, "reversed")


def _sum(rows: Iterable[RelayedTotal], side: str, state: str) -> int:
    return sum(each.cost_nanos for each in rows if (each.side, each.state) == (side, state))
