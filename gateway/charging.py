"""What our pools charge now, and what ended tasks have used of them. Pure.

A pool has a tariff for everybody, or a price list by which it depends on who buys, what and how
much of it he has had. What a report used becomes usage records, counted to its job and its buyer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gateway.events import JobSpec, PricesChanged, Reported
from gateway.jobs import Assignment
from gateway.ledger.records import UsageRecord, UsageState, earns_volume
from gateway.outcomes import is_nothing, usage_records
from policies.carbon import Emissions
from policies.claims import Seats
from policies.pricelist import PriceNow
from policies.tariffs import Tariff, Wanted
from policies.volumes import Buyer, Volumes


class Charging:
    """What the pools of a site charge, and emit.

    Args:
        tariffs: what each pool charges everybody now, by its name; `changed` renews it.
    """

    def __init__(self, tariffs: Mapping[str, Tariff]) -> None:
        self.tariffs = dict(tariffs)
        self.prices: dict[str, PriceNow] = {}  # of pools with a price list
        self.emissions: dict[str, Emissions] = {}  # of our pools, as they are now
        self.volumes = Volumes()

    def changed(self, event: PricesChanged) -> None:
        """From now on these pools charge so."""
        self.prices |= event.prices
        self.tariffs |= {pool: each.tariff for pool, each in event.prices.items()}

    def tariff_for(self, pool: str, spec: JobSpec, site: str, utc_s: float) -> Tariff:
        """What a pool of ours charges now for such a job of a site's, or of a user of ours."""
        prices = self.prices.get(pool)
        if prices is None:
            return replace(self.tariffs[pool], price_class=spec.price_class)
        buyer = Buyer(pool, site, "" if site else spec.user)
        had_ns = self.volumes.had_ns(buyer, utc_s) if prices.prices.volume else 0
        return prices.tariff_for(Wanted(site, spec.price_class, spec.tags, had_ns))

    def tariff_in(self, pool: str, seats: Seats, spec: JobSpec) -> Tariff:
        """What such a job is charged in a reservation: as it was booked, and what tags add.

        Slots that are kept have the price of guaranteed work, also for a job of the class
        preemptible: nothing makes it stop for others there, and what it uses is taken off the bill.
        They are paid for as long as they are reserved, so that neither steps nor a minimum count:
        with them tasks and bill together would come to more than what was booked.
        """
        nanos, prices = seats.tariff.price_nanos, self.prices.get(pool)
        # Another site is quoted for the class that it asks for, or it does not take the quote.
        price_class = spec.price_class if spec.path else seats.tariff.price_class
        tariff = seats.tariff
        if prices is not None:
            extras = prices.prices.extras
            tariff = extras.tariff(tariff, nanos, nanos, Wanted("", "guaranteed", spec.tags))
        return replace(tariff, price_class=price_class, minimum_nanos=0, step_ns=0)

    def own_tariffs(self, spec: JobSpec, pools: Iterable[str], utc_s: float) -> list[Tariff]:
        """What some of our own pools charge now for a job of our users."""
        return [self.tariff_for(pool, spec, "", utc_s) for pool in pools]

    def used(self, assignment: Assignment, event: Reported, now_s: float) -> list[UsageRecord]:
        """What a report used, for the books; counted to its job, and to what its buyer has had."""
        # Of what was stopped before it did anything the owner may want another, and pays that one.
        if assignment.is_stopped and is_nothing(event):
            return []
        return self._booked(assignment, event, now_s)

    def lost(self, assignment: Assignment, event: Reported, now_s: float) -> list[UsageRecord]:
        """What a run used that ended with its worker: for the books, at no cost to anybody."""
        return self._booked(assignment, event, now_s, "lost")

    def wasted(
        self, assignment: Assignment, event: Reported, now_s: float, *, in_full: bool
    ) -> list[UsageRecord]:
        """The same, charged; unless `in_full` less what its task has paid for runs before."""
        return self._booked(assignment, event, now_s, "wasted", in_full=in_full)

    def _booked(
        self,
        assignment: Assignment,
        event: Reported,
        now_s: float,
        state: UsageState | None = None,
        *,
        in_full: bool = False,
    ) -> list[UsageRecord]:
        job, emissions = assignment.job, self.emissions.get(assignment.worker.offer.pool)
        used = usage_records(job, assignment, event, now_s, emissions, state, in_full=in_full)
        for record in used:
            job.charge(record)
            self._count_volume(record, now_s)
        return used

    def _count_volume(self, record: UsageRecord, now_s: float) -> None:
        """Count what a buyer had of a pool whose price depends on that; not what was free."""
        prices = self.prices.get(record.pool)
        earns = earns_volume(record.state, record.price_class)
        if prices is not None and prices.prices.volume and earns:
            buyer = Buyer(record.pool, record.origin, "" if record.origin else record.user)
            self.volumes.add(buyer, record.wall_ns, now_s)
