"""What our pools charge as time passes and slots fill up: price lists followed. Pure.

`renew` looks at the clock and at what is busy, and says when the broker has to be told. It is asked
at every tick, and seldom has anything to say: a list without bands and without a spot price never.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gateway.broker import Broker
from gateway.config import PoolConfig
from gateway.events import PricesChanged
from gateway.ledger.records import earns_volume
from gateway.ledger.rows import Dimension
from gateway.ledger.store import Store
from policies.pricelist import PriceList, PriceNow
from policies.spot import SpotState, follow
from policies.volumes import Buyer, month_start_s

LOOK_S: Final = 1.0  # how often utilisation is looked at
AHEAD_S: Final = 86_400.0  # and the calendar, when nothing is known to come


class Prices:
    """The price lists of our pools.

    Args:
        pools: in which they are configured.
        utc_s: now.
    """

    def __init__(self, pools: Iterable[PoolConfig], utc_s: float) -> None:
        self._lists: dict[str, PriceList] = {pool.name: pool.prices for pool in pools}
        self._spots: dict[str, SpotState] = {}
        self._looked_s: float | None = None
        self.now: dict[str, PriceNow] = {
            name: prices.at(utc_s) for name, prices in self._lists.items()
        }
        self._asked_s = utc_s
        self._due_s = self._next_s(utc_s)

    def renew(self, broker: Broker, utc_s: float) -> PricesChanged | None:
        """What the broker must know, if any price is another than it was told."""
        levels = self._levels(broker, utc_s)
        # A clock that was set back is where it was before the last change, or before two.
        is_due = utc_s >= self._due_s or utc_s < self._asked_s
        if not levels and not is_due:
            return None
        changed = {
            name: prices.at(utc_s, self._level(name))
            for name, prices in self._lists.items()
            if is_due or name in levels
        }
        self._asked_s, self._due_s = utc_s, self._next_s(utc_s)
        changed = {name: each for name, each in changed.items() if each != self.now[name]}
        self.now |= changed
        return PricesChanged(changed) if changed else None

    def replace(self, pools: Iterable[PoolConfig]) -> None:
        """From now on these price lists count, of the same pools; told with the next `renew`."""
        self._lists = {pool.name: pool.prices for pool in pools}
        self._due_s = 0.0

    def reprice(self, pool: PoolConfig) -> None:
        """From now on this list counts for one of the pools; told with the next `renew`."""
        self._lists[pool.name] = pool.prices
        self._due_s = 0.0

    def had_ns(self, store: Store, utc_s: float) -> Mapping[Buyer, int]:
        """The slot time that each buyer has paid for of a pool with volume prices this month."""
        pools = {name for name, prices in self._lists.items() if prices.volume}
        if not pools:
            return {}
        by = (
            *(Dimension.POOL, Dimension.ORIGIN, Dimension.USER),
            *(Dimension.STATE, Dimension.PRICE_CLASS),
        )
        found: dict[Buyer, int] = {}
        for total in store.usage_totals(by, month_start_s(utc_s)):
            pool, origin, user, *how = map(str, total.key)
            if pool in pools and earns_volume(*how):
                buyer = Buyer(pool, origin, "" if origin else user)
                found[buyer] = found.get(buyer, 0) + total.wall_ns
        return found

    def _levels(self, broker: Broker, utc_s: float) -> set[str]:
        """Follow utilisation; the pools whose spot price is at another level now."""
        since_s = None if self._looked_s is None else utc_s - self._looked_s
        if since_s is not None and 0 <= since_s < LOOK_S:
            return set()
        self._looked_s = utc_s
        moved = set()
        for name, prices in self._lists.items():
            busy, slots = _load(broker, name) if prices.spot is not None else (0, 0)
            if prices.spot is None or not slots:
                continue  # nobody is there: as it was
            before = self._level(name)
            state = self._spots.get(name, SpotState())
            self._spots[name] = follow(prices.spot, state, busy / slots, utc_s)
            if self._level(name) != before:
                moved.add(name)
        return moved

    def _level(self, name: str) -> int:
        return self._spots.get(name, SpotState()).level

    def _next_s(self, utc_s: float) -> float:
        """When to look at the calendar again."""
        found = [prices.next_change_s(utc_s) for prices in self._lists.values()]
        return min((at_s for at_s in found if at_s is not None), default=utc_s + AHEAD_S)


def _load(broker: Broker, pool: str) -> tuple[int, int]:
    """Busy slots of a pool, and all of them."""
    workers = [each for each in broker.workers.values() if each.offer.pool == pool]
    return (
        sum(min(each.slots, each.in_flight) for each in workers),
        sum(each.slots for each in workers),
    )
