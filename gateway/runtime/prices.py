"""Follows the price lists of our pools over time and utilisation. Pure.

`renew` checks the clock and the utilisation, and reports price changes for the broker. It is called
at every tick and rarely reports any: for a list without bands and without a spot price never.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from federation.clocks import UtcS
from gateway.config.site import PoolConfig
from gateway.ledger.db.usage.records import Dimension, UsageTotal, earns_volume
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.events import PricesChanged
from gateway.scheduler.model.present_slots import busy_slots
from policies.costs.pricelist import PriceList, PriceNow
from policies.costs.spot import SpotState, follow
from policies.costs.volumes import Buyer, month_start_at_s

LOOK_S: Final = 1.0  # how often utilisation is checked
AHEAD_S: Final = 86_400.0  # and the calendar, when no change is known ahead


class UsageBooks(Protocol):
    """What is asked of the books, which a UsageStore answers."""

    def totals(self, by: Sequence[Dimension], start_at_s: UtcS, /) -> list[UsageTotal]:
        """The usage that ended from then on, summed up by dimensions."""


class Prices:
    """The price lists of our pools.

    Args:
        pools: the pools with their configured prices.
        utc_s: now.
        rules: the version of the site's rules that they are by.
    """

    def __init__(self, pools: Iterable[PoolConfig], utc_s: UtcS, rules: int = 0) -> None:
        self._rules = rules
        self._lists: dict[str, PriceList] = {pool.name: pool.prices for pool in pools}
        self._spots: dict[str, SpotState] = {}
        self._looked_at_s: UtcS | None = None
        self.now: dict[str, PriceNow] = {
            name: self._at(prices, utc_s, 0) for name, prices in self._lists.items()
        }
        self._asked_at_s = utc_s
        self._due_at_s = self._next_at_s(utc_s)

    def renew(self, broker: Broker, utc_s: UtcS) -> PricesChanged | None:
        """Return the price changes that the broker must know, if any."""
        levels = self._levels(broker, utc_s)
        # A clock that was set back is before the last change, or before several.
        is_due = utc_s >= self._due_at_s or utc_s < self._asked_at_s
        if not levels and not is_due:
            return None
        changed = {
            name: self._at(prices, utc_s, self._level(name))
            for name, prices in self._lists.items()
            if is_due or name in levels
        }
        self._asked_at_s, self._due_at_s = utc_s, self._next_at_s(utc_s)
        changed = {name: each for name, each in changed.items() if each != self.now[name]}
        self.now |= changed
        return PricesChanged(changed, self._rules) if changed else None

    def _at(self, prices: PriceList, utc_s: UtcS, level: int) -> PriceNow:
        found = prices.at(utc_s, level)
        return replace(found, tariff=replace(found.tariff, rules=self._rules))

    def replace(self, pools: Iterable[PoolConfig], rules: int = 0) -> None:
        """Use new price lists for the same pools; the next `renew` reports them."""
        self._rules = rules
        self._lists = {pool.name: pool.prices for pool in pools}
        self._due_at_s = UtcS(0.0)

    def reprice(self, pool: PoolConfig) -> None:
        """Use a new price list for one pool; the next `renew` reports it."""
        self._lists[pool.name] = pool.prices
        self._due_at_s = UtcS(0.0)

    def had_ns(self, books: UsageBooks, utc_s: UtcS) -> Mapping[Buyer, int]:
        """Return this month's paid slot time by buyer, for pools with volume prices."""
        pools = {name for name, prices in self._lists.items() if prices.volume}
        if not pools:
            return {}
        by = (
            *(Dimension.POOL, Dimension.ORIGIN, Dimension.USER),
            *(Dimension.STATE, Dimension.PRICE_CLASS),
        )
        found: dict[Buyer, int] = {}
        for total in books.totals(by, month_start_at_s(utc_s)):
            pool, origin, user, *how = map(str, total.key)
            if pool in pools and earns_volume(*how):
                buyer = Buyer(pool, origin, "" if origin else user)
                found[buyer] = found.get(buyer, 0) + total.wall_ns
        return found

    def _levels(self, broker: Broker, utc_s: UtcS) -> set[str]:
        """Follow utilisation; return the pools whose spot price has changed its level."""
        since_s = None if self._looked_at_s is None else utc_s - self._looked_at_s
        if since_s is not None and 0 <= since_s < LOOK_S:
            return set()
        self._looked_at_s = utc_s
        moved = set()
        for name, prices in self._lists.items():
            busy, slots = _load(broker, name) if prices.spot is not None else (0, 0)
            if prices.spot is None or not slots:
                continue  # no workers: keep the level
            before = self._level(name)
            state = self._spots.get(name, SpotState())
            self._spots[name] = follow(prices.spot, state, busy / slots, utc_s)
            if self._level(name) != before:
                moved.add(name)
        return moved

    def _level(self, name: str) -> int:
        return self._spots.get(name, SpotState()).level

    def _next_at_s(self, utc_s: UtcS) -> UtcS:
        """Return when to check the calendar again."""
        found = [prices.next_change_at_s(utc_s) for prices in self._lists.values()]
        return min((at_s for at_s in found if at_s is not None), default=utc_s + AHEAD_S)


def _load(broker: Broker, pool: str) -> tuple[int, int]:
    """Return the busy slots of a pool, and all of them."""
    return busy_slots(each for each in broker.workers.values() if each.offer.pool == pool)
