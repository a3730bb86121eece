"""One contract under which this site runs another site's tasks, as its seller has it. Pure.

The buyer numbers the tasks of its job; the broker has them by this site's own numbers, in order of
arrival. This module translates between the two, keeps track of the tasks that are in flight, kept
and owed under the contract, and adds up their cost. gateway.contracts.selling.sales moves contracts
through their life.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from federation.clocks import MonoS, UtcS
from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.contracts import ContractPhase, Delivery, Lease, Out, Tab
from federation.messages.messages import Results
from federation.messages.printed import joined, parted
from federation.ranges import Range
from gateway.contracts.model.moved import MOVE_EPOCH, NO_PROOFS, MoveProof
from gateway.contracts.model.quotations import booked_tariff
from gateway.ledger.db.contracts.records import ContractEnd, ContractRow, PostingRow
from gateway.scheduler.model.effects import Charge
from gateway.scheduler.model.job_grants import GrantTerms
from gateway.scheduler.model.terms import JobSpec
from policies.costs.pricelist import PriceNow
from policies.tariffs import Tariff


@dataclass(slots=True)
class SaleBundle:
    """A forward under own numbers: `base` stands for task `first`; `left` are in flight."""

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
    spec: JobSpec | None  # None: of an earlier run of the gateway, of which nothing runs
    pool: str
    price: Tariff
    slots: int
    phase: ContractPhase
    until_s: MonoS  # of the quote, then of the hold
    job: str = ""
    handle: int = 0
    lease: Lease = field(default_factory=lambda: Lease(0.0, MonoS(0.0)))
    held_at_s: MonoS = MonoS(0.0)  # when slots were set aside for it
    idle_s: float = 0.0  # how long they were, until it was committed to
    asked_at_s: MonoS = MonoS(0.0)  # when the last renewal was asked for
    out: Out = field(default_factory=Out)
    tab: Tab = field(default_factory=Tab)
    spent_nanos: int = 0  # of its grant's cost limit
    owed_nanos: int = 0  # of tasks that were reported together, and are delivered one by one
    next_number: int = 0
    bundles: dict[int, SaleBundle] = field(default_factory=dict)  # by epoch
    order: list[SaleBundle] = field(default_factory=list)  # by own numbers, and so by epoch too
    kept: dict[tuple[int, int], deals.Deliver] = field(default_factory=dict)
    unbilled: list[Delivery] = field(default_factory=list)
    # Paid moves of objects: their numbers; and the proofs of those that have no verdict yet, which
    # go with each bill.
    moves: set[int] = field(default_factory=set)
    proofs: dict[tuple[int, int], MoveProof] = field(default_factory=dict)
    # Request → the epoch that its buyer asked for; None if the buyer did not ask.
    reclaims: dict[int, int | None] = field(default_factory=dict)
    # Objects of its buyer to which its calls refer: here, or on their way.
    objects: set[bytes] = field(default_factory=set)
    coming: int = 0  # how many requests for them are under way: its tasks wait
    ended_as: ContractEnd = "settled"  # as it is booked when it has ended
    ending: tuple[str, str] | None = None  # code and reason: it ends once nothing of it runs
    # Since when nothing runs under it any more, while its buyer fetches results.
    quiet_since_s: MonoS | None = None
    is_overrun: bool = False  # its tasks were stopped: its grant pays for no more
    was_told: bool = False  # all holdings, at its buyer's request, in this session
    lapsed_at_s: MonoS = MonoS(0.0)  # when it lapsed, or when this run of the gateway began
    priced_by: PriceNow | None = None  # the price list that its price was last compared with
    dearer_since_s: MonoS | None = None  # since when the price list asks for more
    stuck_since_s: MonoS | None = None  # since when no worker takes its queued tasks
    is_awaited: bool = False  # its first tasks are on their way: it was just committed

    @property
    def is_live(self) -> bool:
        """Whether its tasks may run."""
        return self.phase in (ContractPhase.OPEN, ContractPhase.CLOSING)

    def agrees(self, commit: deals.Commit) -> bool:
        """Whether a commit of its buyer has the quoted terms."""
        price = self.price
        quoted = (self.pool, price.price_nanos, price.currency, price.version)
        given = (commit.pool, commit.price_nanos, commit.currency, commit.tariff)
        rounding = (price.minimum_nanos, price.step_ns)
        moves = (price.receive_nanos, price.send_nanos)
        return (quoted, rounding, moves) == (
            given,
            (commit.minimum_nanos, commit.step_ns),
            (commit.receive_nanos, commit.send_nanos),
        )

    # --- the limits of its grant ---------------------------------------------------------------

    @property
    def grant_terms(self) -> GrantTerms | None:
        """The terms that its buyer has granted; None where nothing of it runs."""
        given = self.spec.given if self.spec else None
        return given.grant_terms if given is not None else None

    @property
    def max_cost_nanos(self) -> int | None:
        """The cost limit of its grant; None: no limit."""
        return self.grant_terms.max_cost_nanos if self.grant_terms is not None else None

    @property
    def is_spent(self) -> bool:
        """Whether its cost has reached its grant's limit."""
        return self.is_spent_by(0)

    def is_spent_by(self, cost_nanos: int) -> bool:
        """Whether a further delivery at this cost uses up its grant."""
        most = self.max_cost_nanos
        return most is not None and self.spent_nanos + cost_nanos >= most

    def is_over(self, utc_s: UtcS) -> bool:
        """Whether its grant has expired."""
        grant_terms = self.grant_terms
        return grant_terms is not None and utc_s >= grant_terms.expires_s

    def bill_again(self) -> None:
        """Put all unsettled deliveries on the next bill: earlier messages may be lost."""
        self.unbilled = list(self.tab.pending.values())

    # --- own numbers and its buyer's -----------------------------------------------------------

    def add(self, epoch: int, first: int, count: int) -> SaleBundle:
        """Give the next own numbers to the tasks of a forward."""
        bundle = SaleBundle(self.next_number, epoch, first, count, count)
        self.next_number += count
        self.bundles[epoch] = bundle
        self.order.append(bundle)
        return bundle

    def bundle_of(self, number: int) -> SaleBundle | None:
        """Return the bundle that has an own number."""
        at = bisect_right(self.order, number, key=lambda each: each.base) - 1
        bundle = self.order[at] if at >= 0 else None
        return bundle if bundle and number < bundle.base + bundle.count else None

    def parts(self, first: int, stop: int) -> Iterator[tuple[SaleBundle, int, int]]:
        """Yield the own numbers [first, stop) by bundle, as numbers still."""
        while first < stop:
            bundle = self.bundle_of(first)
            if bundle is None:
                return
            end = min(stop, bundle.base + bundle.count)
            yield bundle, first, end
            first = end

    def numbers(self, epoch: int, first: int, stop: int) -> tuple[Range, ...]:
        """Return the own numbers of the tasks of a forward that are still out."""
        forward = self.out.forwards.get(epoch)
        bundle = self.bundles.get(epoch)
        if forward is None or bundle is None:
            return ()
        shift = bundle.base - bundle.first
        return tuple((low + shift, high + shift) for low, high in forward.left.within(first, stop))

    def take(self, bundle: SaleBundle, low: int, high: int) -> Range | None:
        """Count the own numbers [low, high) of a bundle as back; return its buyer's task numbers.

        None when they are not out any more.
        """
        first = bundle.first + low - bundle.base
        stop = first + high - low
        if not self.out.take(bundle.epoch, first, stop):
            return None
        self._forget(bundle, high - low)
        return first, stop

    def _forget(self, bundle: SaleBundle, count: int) -> None:
        """Note that so many of a bundle's tasks are no longer in flight."""
        bundle.left -= count
        if bundle.left <= 0:
            del self.bundles[bundle.epoch]
            del self.order[bisect_left(self.order, bundle.base, key=lambda each: each.base)]

    # --- messages about it ---------------------------------------------------------------------

    def delivery(
        self,
        epoch: int,
        first: int,
        results: Results,
        part: Range,
        charge: Charge,
        at_ms: int,
    ) -> deals.Deliver:
        """Return a part of the received results, as tasks from `first` on."""
        at, end = part
        prints, streams = parted(_cut(joined(results.prints, results.streams), at, end))
        return deals.Deliver(
            contract=self.contract,
            epoch=epoch,
            first=first,
            values=results.values[at:end],
            failures=_cut(results.failures, at, end),
            prints=prints,
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
            streams=streams,
            left=results.left,
        )

    def holding(self) -> deals.Holding:
        """Return all tasks that are out under it, or delivered and not settled."""
        rows = [
            [epoch, low, high]
            for epoch, forward in self.out.forwards.items()
            for low, high in forward.left
        ]
        rows += [
            [epoch, first, first + len(each.values)] for (epoch, first), each in self.kept.items()
        ]
        return deals.Holding(self.contract, rows)


def former_sale(
    row: ContractRow,
    postings: Iterable[PostingRow],
    proofs: Mapping[tuple[int, int], MoveProof] = NO_PROOFS,
) -> Sale:
    """Return a contract of an earlier run: nothing of it runs, deliveries are owed."""
    price = booked_tariff(row)
    sale = Sale(
        row.contract, row.site, None, row.pool, price, row.slots, ContractPhase.LAPSED, MonoS(0.0)
    )
    sale.ended_as = "interrupted"
    for each in postings:
        if each.epoch == MOVE_EPOCH:
            sale.moves.add(each.first)
        if each.state == "pending":
            sale.tab.deliver(each.delivery)
            if (key := (each.epoch, each.first)) in proofs:
                sale.proofs[key] = proofs[key]
    sale.bill_again()
    return sale


def number_of(buyer: str, contract: str) -> tuple[int, int]:
    """Return the boot of its buyer in which a contract was named, and its number in that boot.

    So no two buyers share a name, and none uses one twice. Raises ProtocolError.
    """
    found = re.fullmatch(rf"{re.escape(buyer)}-(\d{{1,18}})-(\d{{1,18}})", contract, re.ASCII)
    if found is None:
        raise ProtocolError(
            f"the name of contract {contract[:80]!r} does not begin with its buyer, {buyer}"
        )
    return int(found[1]), int(found[2])


def _cut(rows: list[list[Any]], first: int, stop: int) -> list[list[Any]]:
    """Return the rows whose offset lies in [first, stop), counted from `first`."""
    return [[row[0] - first, *row[1:]] for row in rows if first <= row[0] < stop]
