"""How final costs are at a moment: settled, held, or only estimated. Pure.

*Booked* is the cost in the report: of work that ran, and was charged. Of it *held* is work
delivered by other sites that we have not settled, and may still refuse; *due* is work that we
delivered to other sites and they have not settled; *voided* is work that we delivered and they
refused, which is not paid. The rest is *settled*: its charge is final. Settled work may later be
*reversed*: the site that delivered it accepted our dispute, and takes no payment; or *refunded*: we
accepted a dispute of the site that it was delivered to. Beside the report stands the *estimate* for
the tasks that run now: their expected time (gateway.api.views.estimates), at their slot's price.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from federation.clocks import UtcS
from federation.money import format_money
from gateway.ledger.db.contracts.records import PendingDeliveries
from gateway.ledger.db.usage.records import Dimension
from gateway.ledger.reports.question import OURS, UsageQuestion
from gateway.ledger.reports.report import ReportTable


@dataclass(frozen=True, slots=True)
class OpenClaim:
    """An amount that is not final, with its known dimensions."""

    facts: Mapping[Dimension, str]
    currency: str
    cost_nanos: int


@dataclass(frozen=True, slots=True)
class OpenAmounts:
    """Amounts by currency; None where the conditions of the question do not allow an answer."""

    as_of_s: UtcS
    booked_nanos: Mapping[str, int]
    held_nanos: Mapping[str, int] | None  # of the booked amount: we may have to pay it
    reversed_nanos: Mapping[str, int] | None  # of the settled amount: we need not pay it after all
    due_nanos: Mapping[str, int] | None  # of the booked amount: others may have to pay it
    voided_nanos: Mapping[str, int] | None  # of the booked amount: others refused it
    refunded_nanos: Mapping[str, int] | None  # others need not pay it after all
    estimated_nanos: Mapping[str, int] | None

    @property
    def settled_nanos(self) -> dict[str, int] | None:
        """The booked amount less held, due and voided amounts; never below zero."""
        if self.held_nanos is None or self.due_nanos is None or self.voided_nanos is None:
            return None
        booked, open_nanos = self.booked_nanos, Counter(self.held_nanos)
        open_nanos.update(self.due_nanos)
        open_nanos.update(self.voided_nanos)
        # A delivery is held by its seller's clock and booked by ours: at an edge of the period it
        # may be in one of the two, which settles nothing.
        currencies = sorted({*booked, *open_nanos})
        return {each: max(0, booked.get(each, 0) - open_nanos[each]) for each in currencies}


@dataclass(frozen=True, slots=True)
class DeliveryAmounts:
    """Deliveries between sites in a period other than plainly paid ones, by contract."""

    pending: Sequence[PendingDeliveries] = ()
    reversed: Sequence[PendingDeliveries] = ()
    voided: Sequence[PendingDeliveries] = ()


def claim_of(pending: PendingDeliveries) -> OpenClaim:
    """Return the claim for the deliveries under a contract."""
    is_bought = pending.side == "buy"
    return OpenClaim(
        {
            Dimension.SITE: pending.site if is_bought else "",
            Dimension.ORIGIN: pending.origin if is_bought else pending.site,
            Dimension.POOL: f"{pending.site}/{pending.pool}" if is_bought else pending.pool,
            Dimension.JOB: pending.job,
            Dimension.USER: pending.user,
            Dimension.GROUP: pending.group,
            Dimension.PROJECT: pending.project,
            Dimension.NAME: pending.name,
            Dimension.KIND: "time",
        },
        pending.currency,
        pending.cost_nanos,
    )


def find_standing(
    question: UsageQuestion,
    report: ReportTable,
    deliveries: DeliveryAmounts,
    running: Iterable[OpenClaim],
    utc_s: UtcS,
) -> OpenAmounts:
    """Return how final a report's costs are; `deliveries` are of its period."""
    at = report.columns.index("currency"), report.columns.index("cost_nanos")
    booked = {str(row[at[0]]): int(row[at[1]] or 0) for row in report.totals}
    is_over = question.end_at_s is not None and question.end_at_s <= utc_s
    return OpenAmounts(
        utc_s,
        booked,
        _sums(question, _claims(deliveries.pending, "buy")),
        _sums(question, _claims(deliveries.reversed, "buy")),
        _sums(question, _claims(deliveries.pending, "sell")),
        _sums(question, _claims(deliveries.voided, "sell")),
        _sums(question, _claims(deliveries.reversed, "sell")),
        {} if is_over else _sums(question, running),
    )


def _claims(found: Iterable[PendingDeliveries], side: str) -> Iterator[OpenClaim]:
    return (claim_of(each) for each in found if each.side == side)


def _sums(question: UsageQuestion, claims: Iterable[OpenClaim]) -> dict[str, int] | None:
    sums: Counter[str] = Counter()
    for each in claims:
        if question.whose == OURS and each.facts.get(Dimension.ORIGIN):
            continue
        if any(key.dimension not in each.facts for key in question.where):
            return None
        cells = {key: key.show(each.facts[key.dimension], question.site) for key in question.where}
        if question.admits(cells):
            sums[each.currency] += each.cost_nanos
    return dict(sorted(sums.items()))


_NOT_TOLD: Final = "unknown for a filtered report (`--where`)"


def standing_plain(standing: OpenAmounts) -> dict[str, Any]:
    """Return plain data: amounts by currency, and null where the answer is unknown."""
    return {
        "as_of_s": standing.as_of_s,
        "booked_nanos": standing.booked_nanos,
        "settled_nanos": standing.settled_nanos,
        "held_nanos": standing.held_nanos,
        "reversed_nanos": standing.reversed_nanos,
        "due_nanos": standing.due_nanos,
        "voided_nanos": standing.voided_nanos,
        "refunded_nanos": standing.refunded_nanos,
        "estimated_nanos": standing.estimated_nanos,
    }


def standing_notes(standing: OpenAmounts) -> tuple[str, ...]:
    """Return the same for people, a sentence each."""
    at = datetime.fromtimestamp(float(standing.as_of_s), UTC).strftime("%Y-%m-%d %H:%M:%S")
    notes = [
        f"as of {at} UTC",
        f"settled: {_amounts(standing.settled_nanos)}",
        "estimated, for running work that is not in the table: "
        f"{_amounts(standing.estimated_nanos)}",
    ]
    # Empty amounts are left out: a site that trades with no other has none.
    for words, nanos in (
        ("held, delivered by other sites and not settled", standing.held_nanos),
        (
            "reversed, settled and later cancelled by the site that delivered it",
            standing.reversed_nanos,
        ),
        ("due, delivered to other sites and not settled", standing.due_nanos),
        ("voided, delivered to other sites and refused by them", standing.voided_nanos),
        (
            "refunded, delivered to other sites and later cancelled by this site",
            standing.refunded_nanos,
        ),
    ):
        if nanos != {}:
            notes.append(f"{words}: {_amounts(nanos)}")
    return tuple(notes)


def _amounts(nanos: Mapping[str, int] | None) -> str:
    if nanos is None:
        return _NOT_TOLD
    return ", ".join(format_money(amount, code) for code, amount in nanos.items()) or "nothing"
