"""One contract under which we run another site's tasks, as its seller has it. Pure.

The buyer numbers the tasks of its job; the broker has them by our own numbers, in the order in
which they came. Here is how the two translate, what is out, kept and owed under the contract, and
what that comes to. gateway.sales moves contracts through their life.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from federation import deals
from federation.contracts import Delivery, Lease, Out, Phase, Tab
from federation.errors import ProtocolError
from federation.messages import Results
from federation.ranges import Range
from gateway.effects import Charge
from gateway.errands import Errand
from gateway.events import JobSpec
from gateway.ledger.rows import ContractRow, PostingRow
from gateway.quotations import booked_tariff
from policies.pricelist import PriceNow
from policies.tariffs import Tariff


@dataclass(slots=True)
class Bundle:
    """A forward under our own numbers: `base` stands for task `first`; `left` are under way."""

    base: int
    epoch: int
    first: int
    count: int
    left: int


@dataclass(slots=True)
class Sale:
    """One contract, as the seller has it."""

    contract: str
    buyer: str
    spec: JobSpec | None  # None: of a former life, of which nothing runs
    pool: str
    price: Tariff
    slots: int
    phase: Phase
    until_s: float  # of the quote, then of the hold
    job: str = ""
    handle: int = 0
    lease: Lease = field(default_factory=lambda: Lease(0.0, 0.0))
    held_s: float = 0.0  # when slots were set aside for it
    idle_s: float = 0.0  # how long they were, until it was committed to
    asked_s: float = 0.0  # when the last renewal was asked for
    out: Out = field(default_factory=Out)
    tab: Tab = field(default_factory=Tab)
    spent_nanos: int = 0  # of what its grant allows
    owed_nanos: int = 0  # of tasks that were reported together, and are delivered one by one
    next_number: int = 0
    bundles: dict[int, Bundle] = field(default_factory=dict)  # by epoch
    order: list[Bundle] = field(default_factory=list)  # by our numbers, and so by epoch too
    kept: dict[tuple[int, int], deals.Deliver] = field(default_factory=dict)
    unbilled: list[Delivery] = field(default_factory=list)
    # Request → the epoch that its buyer asked for; None when nobody did.
    reclaims: dict[int, int | None] = field(default_factory=dict)
    ending: tuple[str, str] | None = None  # code and reason: it ends once nothing of it runs
    is_overrun: bool = False  # what ran under it was stopped: its grant does not pay for more
    was_told: bool = False  # all that is held, at its buyer's request, in this session
    lapsed_s: float = 0.0  # when it did, or when this life of ours began
    priced_by: PriceNow | None = None  # the price list, when its price was compared with that last
    dearer_s: float | None = None  # since when that asks for more
    stuck_s: float | None = None  # since when nobody takes what waits under it
    is_awaited: bool = False  # its first tasks are on their way: it was just committed

    @property
    def is_live(self) -> bool:
        """Whether its tasks may run."""
        return self.phase in (Phase.OPEN, Phase.CLOSING)

    def agrees(self, commit: deals.Commit) -> bool:
        """Whether its buyer commits to what was quoted."""
        price = self.price
        quoted = (self.pool, price.price_nanos, price.currency, price.version)
        given = (commit.pool, commit.price_nanos, commit.currency, commit.tariff)
        rounding = (price.minimum_nanos, price.step_ns)
        return quoted == given and rounding == (commit.minimum_nanos, commit.step_ns)

    # --- what its grant allows -----------------------------------------------------------------

    @property
    def errand(self) -> Errand | None:
        """What its buyer may let us do; None where nothing of it runs."""
        given = self.spec.given if self.spec else None
        return given.errand if given is not None else None

    @property
    def max_cost_nanos(self) -> int | None:
        """What its grant allows it to cost; None: no limit."""
        return self.errand.max_cost_nanos if self.errand is not None else None

    @property
    def is_spent(self) -> bool:
        """Whether it has cost what its grant allows."""
        most = self.max_cost_nanos
        return most is not None and self.spent_nanos >= most

    def is_over(self, utc_s: float) -> bool:
        """Whether its grant has expired."""
        errand = self.errand
        return errand is not None and utc_s >= errand.expires_s

    def bill_again(self) -> None:
        """Put all that is not settled on the next bill: what was said of it may be lost."""
        self.unbilled = list(self.tab.pending.values())

    # --- our numbers and its buyer's -----------------------------------------------------------

    def add(self, epoch: int, first: int, count: int) -> Bundle:
        """Give our next numbers to the tasks of a forward."""
        bundle = Bundle(self.next_number, epoch, first, count, count)
        self.next_number += count
        self.bundles[epoch] = bundle
        self.order.append(bundle)
        return bundle

    def bundle_of(self, number: int) -> Bundle | None:
        """The bundle that one of our numbers lies in."""
        at = bisect_right(self.order, number, key=lambda each: each.base) - 1
        bundle = self.order[at] if at >= 0 else None
        return bundle if bundle and number < bundle.base + bundle.count else None

    def parts(self, first: int, stop: int) -> Iterator[tuple[Bundle, int, int]]:
        """Our numbers [first, stop) by bundle, as numbers still."""
        while first < stop:
            bundle = self.bundle_of(first)
            if bundle is None:
                return
            end = min(stop, bundle.base + bundle.count)
            yield bundle, first, end
            first = end

    def numbers(self, epoch: int, first: int, stop: int) -> tuple[Range, ...]:
        """Our numbers of those tasks of a forward that are still out."""
        forward = self.out.forwards.get(epoch)
        bundle = self.bundles.get(epoch)
        if forward is None or bundle is None:
            return ()
        shift = bundle.base - bundle.first
        return tuple((low + shift, high + shift) for low, high in forward.left.within(first, stop))

    def take(self, bundle: Bundle, low: int, high: int) -> Range | None:
        """Count our numbers [low, high) of a bundle as back: which tasks of its buyer's they are.

        None when they are not out any more.
        """
        first = bundle.first + low - bundle.base
        stop = first + high - low
        if not self.out.take(bundle.epoch, first, stop):
            return None
        self._forget(bundle, high - low)
        return first, stop

    def _forget(self, bundle: Bundle, count: int) -> None:
        """So many of a bundle's tasks are not under way any more."""
        bundle.left -= count
        if bundle.left <= 0:
            del self.bundles[bundle.epoch]
            del self.order[bisect_left(self.order, bundle.base, key=lambda each: each.base)]

    # --- what is said of it --------------------------------------------------------------------

    def delivery(
        self,
        epoch: int,
        first: int,
        results: Results,
        part: Range,
        charge: Charge,
        at_ms: int,
    ) -> deals.Deliver:
        """A part of the results that came, as tasks from `first` on."""
        at, end = part
        return deals.Deliver(
            contract=self.contract,
            epoch=epoch,
            first=first,
            values=results.values[at:end],
            failures=_cut(results.failures, at, end),
            prints=_cut(results.prints, at, end),
            wall_ns=charge.wall_ns,
            cpu_ns=charge.cpu_ns,
            peak_memory_bytes=charge.peak_memory_bytes,
            cost_nanos=charge.cost_nanos,
            at_ms=at_ms,
            sites=results.sites,
            energy_uj=charge.footprint.energy_uj,
            carbon_ng=charge.footprint.carbon_ng,
            embodied_ng=charge.footprint.embodied_ng,
            intensity_mg_per_kwh=charge.footprint.intensity_mg_per_kwh,
            carbon_source=charge.footprint.source,
        )

    def holding(self) -> deals.Holding:
        """All that is out under it, or delivered and not settled."""
        rows = [
            [epoch, low, high]
            for epoch, forward in self.out.forwards.items()
            for low, high in forward.left
        ]
        rows += [
            [epoch, first, first + len(each.values)] for (epoch, first), each in self.kept.items()
        ]
        return deals.Holding(self.contract, rows)


def former_sale(row: ContractRow, postings: Iterable[PostingRow]) -> Sale:
    """A contract of a former life: nothing of it runs, what was delivered is owed."""
    price = booked_tariff(row)
    sale = Sale(row.contract, row.site, None, row.pool, price, row.slots, Phase.LAPSED, 0.0)
    for each in postings:
        if each.state == "pending":
            sale.tab.deliver(each.delivery)
    sale.bill_again()
    return sale


def number_of(buyer: str, contract: str) -> tuple[int, int]:
    """A contract's place among its buyer's: which life of it, and which of that life.

    So no two buyers have one name, and none has one twice. Raises ProtocolError.
    """
    found = re.fullmatch(rf"{re.escape(buyer)}-(\d{{1,18}})-(\d{{1,18}})", contract, re.ASCII)
    if found is None:
        raise ProtocolError(f"contract {contract[:80]!r} is not named after {buyer}")
    return int(found[1]), int(found[2])


def _cut(rows: list[list[Any]], first: int, stop: int) -> list[list[Any]]:
    """Those rows whose offset lies in [first, stop), counted from there."""
    return [[row[0] - first, *row[1:]] for row in rows if first <= row[0] < stop]
