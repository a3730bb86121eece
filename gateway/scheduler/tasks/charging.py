"""The current charges of our pools, and the usage of ended tasks. Pure.

A pool has one tariff for everybody, or a price list: then the price depends on the buyer, the work
and the volume the buyer has had. A worker's report becomes usage records, which count for its job
and its buyer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from federation.clocks import UtcS
from gateway.ledger.db.usage.records import UsageRecord, UsageState, earns_volume
from gateway.scheduler.model.events import PricesChanged, ReportUsage
from gateway.scheduler.model.jobs import Assignment
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.tasks.task_usage import is_nothing, usage_records
from policies.access.claims import ReservedSlots
from policies.costs.carbon import Emissions
from policies.costs.pricelist import PriceNow
from policies.costs.volumes import Buyer, Volumes
from policies.tariffs import Tariff, Wanted


class Charging:
    """The charges and emissions of a site's pools.

    Args:
        tariffs: the current standard tariff of each pool by name; `changed` updates it.
        prices: the current prices of the pools with a price list; `changed` updates them.
        emissions: the current emissions of our pools.
        rules: the version of the site's rules that is in force; `changed` updates it.
    """

    def __init__(
        self,
        tariffs: Mapping[str, Tariff],
        prices: Mapping[str, PriceNow],
        emissions: Mapping[str, Emissions],
        rules: int,
    ) -> None:
        self.tariffs = dict(tariffs)
        self.prices = dict(prices)  # of pools with a price list
        self.emissions = dict(emissions)  # the current emissions of our pools
        self.volumes = Volumes()
        self.rules = rules  # the version of the site's rules that is in force

    def changed(self, event: PricesChanged) -> None:
        """Apply new prices of pools."""
        self.rules = event.rules
        self.prices |= event.prices
        self.tariffs |= {pool: each.tariff for pool, each in event.prices.items()}

    def tariff_for(self, pool: str, spec: JobSpec, site: str, utc_s: UtcS) -> Tariff:
        """The current tariff of our pool for a job of another site or, without one, of our user."""
        prices = self.prices.get(pool)
        if prices is None:
            return replace(self.tariffs[pool], price_class=spec.price_class)
        buyer = Buyer(pool, site, "" if site else spec.user)
        had_ns = self.volumes.had_ns(buyer, utc_s) if prices.prices.volume else 0
        return prices.tariff_for(Wanted(site, spec.price_class, spec.tags, had_ns))

    def tariff_in(self, pool: str, seats: ReservedSlots, spec: JobSpec) -> Tariff:
        """The tariff of a job inside a reservation: the booked price, and surcharges by tags.

        Reserved slots are of the class guaranteed, and cost as much, also for a job of the class
        preemptible, here and for another site: no other work preempts it there, so whatever stops
        it all the same is free, and its usage is deducted from the bill. They are paid for as
        long as they are reserved, so neither steps nor a minimum apply: with them, tasks and bill
        together would exceed the booked price.
        """
        nanos, prices = seats.tariff.price_nanos, self.prices.get(pool)
        tariff = seats.tariff
        if prices is not None:
            extras = prices.prices.extras
            tariff = extras.tariff(tariff, nanos, nanos, Wanted("", "guaranteed", spec.tags))
        return replace(tariff, minimum_nanos=0, step_ns=0)

    def own_tariffs(self, spec: JobSpec, pools: Iterable[str], utc_s: UtcS) -> list[Tariff]:
        """The current tariffs of some of our own pools for a job of our users."""
        return [self.tariff_for(pool, spec, "", utc_s) for pool in pools]

    def used(self, assignment: Assignment, usage: ReportUsage, utc_s: UtcS) -> list[UsageRecord]:
        """Make usage records of a report; count them for its job and for its buyer's volume."""
        # If a task was stopped before it used anything, its owner may submit it again, and pays for
        # that run.
        if assignment.is_stopped and is_nothing(usage):
            return []
        return self._booked(assignment, usage, utc_s)

    def lost(self, assignment: Assignment, usage: ReportUsage, utc_s: UtcS) -> list[UsageRecord]:
        """Make usage records of a run that ended with its worker: free of charge."""
        return self._booked(assignment, usage, utc_s, "lost")

    def wasted(
        self, assignment: Assignment, usage: ReportUsage, utc_s: UtcS, *, in_full: bool
    ) -> list[UsageRecord]:
        """Make charged records of such a run, less its task's paid time unless `in_full`."""
        return self._booked(assignment, usage, utc_s, "wasted", in_full=in_full)

    def _booked(
        self,
        assignment: Assignment,
        usage: ReportUsage,
        utc_s: UtcS,
        state: UsageState | None = None,
        *,
        in_full: bool = False,
    ) -> list[UsageRecord]:
        job, emissions = assignment.job, self.emissions.get(assignment.worker.offer.pool)
        used = usage_records(job, assignment, usage, utc_s, emissions, state, in_full=in_full)
        for record in used:
            job.charge(record)
            self._count_volume(record, utc_s)
        return used

    def _count_volume(self, record: UsageRecord, utc_s: UtcS) -> None:
        """Count a buyer's charged volume in a pool whose price depends on volume."""
        prices = self.prices.get(record.pool)
        earns = earns_volume(record.state, record.price_class)
        if prices is not None and prices.prices.volume and earns:
            buyer = Buyer(record.pool, record.origin, "" if record.origin else record.user)
            self.volumes.add(buyer, record.wall_ns, utc_s)
