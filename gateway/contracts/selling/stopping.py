"""Reasons to end a sold contract before its buyer does. Pure.

Tasks that have not begun return to the buyer, and running ones may end;
`gateway.contracts.selling.sales` does that.
"""

from collections.abc import Callable
from typing import Final

from federation.clocks import MonoS, UtcS
from federation.messages import deals
from federation.money import format_money
from federation.reasons import Reason
from gateway.config.contracts import DealRules
from gateway.contracts.model.dealing import RELAY
from gateway.contracts.model.sale import Sale
from gateway.scheduler.broker import Broker
from gateway.scheduler.quotas.occupancy import is_reserved
from gateway.scheduler.quotas.overruns import is_beyond

EXPIRED: Final = "expired"
TASK_BYTES: Final = 100  # the memory of a task without arguments


class Stopping:
    """Judges contracts one by one; a reason is its code and a sentence.

    Args:
        site: the name of this site.
        broker: has the present budgets, windows, entitlements and slots.
        rules: the settings.
    """

    def __init__(self, site: str, broker: Broker, rules: DealRules) -> None:
        self._site = site
        self._broker = broker
        self._rules = rules

    def why_over(self, sale: Sale, mono_s: MonoS, utc_s: UtcS) -> tuple[str, str] | None:
        """Return why a contract must end early, if so: its grant, money, its price, or a window."""
        if sale.is_over(utc_s):
            return EXPIRED, "the grant has expired"
        job = self._broker.jobs.get(sale.job)
        if job is not None and job.budget_accounts and job.waiting:
            unpaid = self._broker.spending.given_up(job.budget_accounts, job.spec)
            if unpaid is not None:
                return unpaid
        if sale.spec is None or sale.pool == RELAY:
            return None
        task_s = self._broker.durations.of(sale.spec.function)
        shut = self._broker.occupancy.shut(sale.pool, sale.spec, task_s, utc_s)
        if shut is not None:
            return Reason.WINDOW_CLOSED, f"{self._site} {shut.text}"
        barred = self._broker.entitling.barred(sale.spec, sale.pool)
        if barred is None:
            return self._why_repriced(sale, mono_s, utc_s)
        return (
            barred,
            f"the entitlements of {self._site} allow {sale.buyer} no slots for this job now",
        )

    def is_overrun(self, sale: Sale, utc_s: UtcS) -> bool:
        """Whether to stop the running tasks of a contract, as they cost far more than its grant.

        A task counts once its worker has said that it began. A task that was resold to another site
        is that site's to stop, by the grant that it has.
        """
        job, most = self._broker.jobs.get(sale.job), sale.max_cost_nanos
        if most is None or job is None or not sale.price.price_nanos:
            return False
        running = job.assignments.values()
        return is_beyond(most, sale.spent_nanos, running, utc_s, sale.price)

    def _why_repriced(self, sale: Sale, mono_s: MonoS, utc_s: UtcS) -> tuple[str, str] | None:
        """Return why a contract must end because today's price is higher, if so.

        A contract pays its quoted price, and running tasks pay it to their end. But once the price
        of such work has risen, the contract goes on for one lease at most: then its buyer asks for
        a new quote, or goes elsewhere. The time of the rise is noted on the sale, at each change of
        the price list.
        """
        if sale.spec is None or is_reserved(sale.spec):
            return None
        prices = self._broker.prices.get(sale.pool)
        if prices is not sale.priced_by:
            sale.priced_by = prices
            today = self._broker.charging.tariff_for(sale.pool, sale.spec, sale.buyer, utc_s)
            is_dearer = today.price_nanos > sale.price.price_nanos
            if not is_dearer or today.currency != sale.price.currency:
                sale.dearer_since_s = None
            elif sale.dearer_since_s is None:
                sale.dearer_since_s = mono_s
        lease_s = min(sale.lease.lease_s, self._rules.lease_s)
        if sale.dearer_since_s is None or mono_s - sale.dearer_since_s < lease_s:
            return None
        was = format_money(sale.price.price_nanos, sale.price.currency)
        return (
            EXPIRED,
            f"a slot-hour of pool {sale.pool} now costs more than {was}: ask for a new quote",
        )

    def why_too_much(self, sale: Sale, forward: deals.Forward) -> tuple[str, str] | None:
        """Return why a buyer may not forward these tasks too, if so."""
        if self._held_bytes(sale, forward) > self._rules.buyer_bytes_max:
            most = self._rules.buyer_bytes_max
            return Reason.BUSY, (
                f"the work of {sale.buyer} at {self._site} has reached the limit of {most:,} bytes"
            )
        spec, count = sale.spec, len(forward.arguments)
        if spec is not None and self._broker.entitling.queue_left(spec) < count:
            reason = f"the entitlements of {self._site} allow {sale.buyer} no more tasks"
            return Reason.NO_SLOTS, reason
        return None

    def _held_bytes(self, sale: Sale, forward: deals.Forward) -> int:
        """Return the memory of a buyer's tasks with these; 0 for one that just committed."""
        client = self._broker.clients.get(sale.handle)
        if client is None:
            return 0
        account, arguments = client.account, forward.arguments
        tasks = account.tasks + len(arguments)
        return account.held_bytes + sum(map(len, arguments)) + TASK_BYTES * tasks

    def why_stuck(
        self, sale: Sale, mono_s: MonoS, is_served: Callable[[str], bool]
    ) -> tuple[str, str] | None:
        """Return why no worker takes a contract's tasks, once that has lasted.

        The site that sent them may know others that do.

        It concerns resold work, and work for a pool that has no slots and can't start any now. The
        time since when it lasts is noted on the sale.

        Args:
            sale: the contract.
            mono_s: now.
            is_served: whether this site has bought a contract for a job.
        """
        if not sale.is_live or sale.ending is not None:
            return None
        job = self._broker.jobs.get(sale.job)
        is_idle = job is not None and job.waiting > 0 and not job.in_flight
        if not is_idle or self._is_served(sale, is_served):
            sale.stuck_since_s = None
        elif sale.stuck_since_s is None:
            sale.stuck_since_s = mono_s
        elif mono_s - sale.stuck_since_s >= self._rules.hold_s:
            reason = f"no seller known to {self._site} takes this work any more"
            if sale.pool != RELAY:
                reason = f"pool {sale.pool} of {self._site} can't start slots now"
            return Reason.NO_SLOTS, reason
        return None

    def _is_served(self, sale: Sale, is_served: Callable[[str], bool]) -> bool:
        """Whether a worker or seller takes a contract's tasks, or will."""
        if sale.pool == RELAY:
            return is_served(sale.job)
        growth = self._broker.growth.get(sale.pool)
        if growth is None or growth.slots:
            return True
        return self._broker.occupancy.slots(sale.pool) > 0
