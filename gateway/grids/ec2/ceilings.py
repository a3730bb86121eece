"""Selects the instances to release because running ones exceed the ceilings. Pure.

A launch keeps to the ceilings at the prices of that moment. Spot prices rise later, and an owner
may lower a ceiling: then the most expensive instances are released, and of equals the youngest,
which have the least to lose, until the rest is within. Instances that are ending count for a launch
until they are gone, but not here: otherwise a slow one would make all others go.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from federation.clocks import UtcS
from gateway.grids.contract import PilotState, Sighting
from gateway.grids.ec2.prices import PriceBook
from gateway.grids.ec2.seen import Ec2Instance
from gateway.grids.ec2.settings import Ec2Config


@dataclass(frozen=True, slots=True)
class InstanceRelease:
    """The release of an instance: `why`, and when it is terminated in any case (UTC)."""

    why: str
    until_s: UtcS

    def over(self, sighting: Sighting) -> Sighting:
        """Return the sighting of a released instance: its pilot gets no more tasks."""
        if sighting.state not in (PilotState.STARTING, PilotState.RUNNING):
            return sighting
        ends_at_s = (
            self.until_s if sighting.ends_at_s is None else min(sighting.ends_at_s, self.until_s)
        )
        return replace(sighting, state=PilotState.ENDING, ends_at_s=ends_at_s, fault=self.why)


def surplus(
    config: Ec2Config,
    shown: Iterable[Ec2Instance],
    leaving: Collection[str],
    slots: Mapping[str, int],
    book: PriceBook,
) -> dict[str, str]:
    """Return why instances are to be released, by id.

    An instance without a known price is not released for its price, and counts as zero beside the
    others; then none is started.

    Args:
        leaving: those that are released already.
        slots: of each instance type.
    """
    staying = [e for e in shown if e.state in ("pending", "running") and e.id not in leaving]
    costs: dict[str, int] = {}  # of those with a price: an hour of all, …
    prices: dict[str, int] = {}  # … and of a slot
    for each in staying:
        nanos = book.price_nanos(each.kind, each.zone, is_spot=each.is_spot)
        if nanos is not None:
            costs[each.id] = nanos
            prices[each.id] = -(-nanos // max(1, slots.get(each.kind, 1)))
    found: dict[str, str] = {}
    if config.max_price_nanos is not None:
        for each in staying:
            if prices.get(each.id, 0) > config.max_price_nanos:
                price = f"{prices[each.id] / 1e9:.4f} {book.currency}"
                found[each.id] = f"the price of a slot-hour is {price}, which exceeds max_price"
    # The last is the first to go.
    rest = sorted(
        (each for each in staying if each.id not in found),
        key=lambda each: (prices.get(each.id, 0), each.launched_at_s, each.id),
    )
    while len(rest) > config.max_instances:
        found[rest.pop().id] = f"max_instances is {config.max_instances}, and more instances exist"
    if config.max_spend_nanos is not None:
        known = [each.id for each in rest if each.id in costs]
        spend_nanos = sum(costs[each] for each in known)
        while known and spend_nanos > config.max_spend_nanos:
            gone = known.pop()
            spend_nanos -= costs[gone]
            found[gone] = "the running instances exceed max_spend_per_hour at current prices"
    return found
