"""A pool's price list and the prices it gives: the public one at a time, and one buyer's. Pure.

    list price ─┐
    or spot ────┴─ band of the week ─ window ─► public price ─ contract or volume ─ tags ─ class ─►

Adverts carry the public price. A contract or a volume tier can only lower it: its buyer pays the
lower of the two. `policies.tariffs` computes the charge for a time.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final
from zoneinfo import ZoneInfo

from federation.clocks import UtcS
from federation.messages.adverts import PriceChange
from federation.money import check_currency
from policies.access.windows import NO_WINDOWS, Window, WindowPlan
from policies.calendar.periods import UTC_ZONE
from policies.calendar.weeks import DAY_S, HORIZON_DAYS, WeekSpan, changes, check_apart, week_second
from policies.costs.spot import Spot
from policies.tariffs import HOUR_NS, MILLION, Extras, Tariff, Wanted, round_half_up

# A slot-hour dearer than this, in any currency, is a mistake: ten million units.
PRICE_NANOS_MAX: Final = 10**7 * 10**9
FACTOR_MAX: Final = 1_000 * MILLION


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A fixed price, or a factor on the price that it replaces, in millionths."""

    nanos: int | None = None
    factor: int = MILLION

    def of(self, price_nanos: int) -> int:
        """Return the adjusted price."""
        if self.nanos is not None:
            return self.nanos
        return round_half_up(Fraction(price_nanos * self.factor, MILLION))


@dataclass(frozen=True, slots=True)
class Band:
    """A span of the week with a name and its own prices."""

    name: str
    span: WeekSpan
    adjust: Adjustment


@dataclass(frozen=True, slots=True)
class Tier:
    """The adjustment from a number of slot-hours on, of one buyer in one calendar month."""

    from_slot_hours: int
    adjust: Adjustment


@dataclass(frozen=True, slots=True)
class PriceList:
    """The owner's price configuration of a pool.

    Attributes:
        price_nanos: the list price of a slot-hour.
        version: names this list on every quote and usage record.
        zone: of the bands.
        spot: replaces the list price, if set.
        volume: in order, from the least.
        contracts: prices of buyers, by site.
        plan: the pool's windows, with a factor each.

    Raises:
        ValueError: the prices are impossible, or clearly unintended.
    """

    price_nanos: int
    currency: str
    version: str
    zone: ZoneInfo = UTC_ZONE
    bands: tuple[Band, ...] = ()
    spot: Spot | None = None
    extras: Extras = field(default_factory=Extras)
    volume: tuple[Tier, ...] = ()
    contracts: Mapping[str, Adjustment] = field(default_factory=dict)
    plan: WindowPlan = NO_WINDOWS

    def __post_init__(self) -> None:
        check_currency(self.currency)
        names = [band.name for band in self.bands]
        if len(set(names)) != len(names):
            raise ValueError("two bands have the same name")
        check_apart((band.name, band.span) for band in self.bands)
        starts = [tier.from_slot_hours for tier in self.volume]
        if starts != sorted(set(starts)):
            raise ValueError(
                "volume: each tier must begin at more slot-hours than the tier before it"
            )
        for band in self.bands:
            nanos = band.adjust.nanos
            if self.spot is not None and nanos is not None and self.spot.within(nanos) != nanos:
                raise ValueError(f"band {band.name!r}: the price is not between floor and ceiling")
        full = self.spot.steps if self.spot is not None else 0
        windows = (None, *self.plan.windows)
        dearest = max(
            self._public_nanos(band, window, full)
            for band in (None, *self.bands)
            for window in windows
        )
        if max(dearest, self.price_nanos) > PRICE_NANOS_MAX:
            raise ValueError("the price of a slot-hour exceeds ten million units")
        if self.extras.minimum_nanos > dearest:
            raise ValueError("the minimum charge of a task exceeds the price of a slot-hour")

    def at(self, utc_s: UtcS, level: int = 0) -> "PriceNow":
        """Return the list at a time, at this level of the spot price, if it has one."""
        holds = self._holds(utc_s)
        public_nanos = self._public_nanos(*holds, level)
        tariff = Tariff(
            public_nanos,
            self.currency,
            self.version,
            window=next((each.name for each in reversed(holds) if each is not None), ""),
            list_nanos=public_nanos,
            minimum_nanos=min(self.extras.minimum_nanos, public_nanos),
            step_ns=self.extras.step_ns,
        )
        return PriceNow(self, tariff, self._next(utc_s, level, public_nanos), level)

    def public_nanos(self, utc_s: UtcS, level: int = 0) -> int:
        """Return the public price of a slot-hour at a time, at this level of the spot price."""
        return self._public_nanos(*self._holds(utc_s), level)

    def next_change_at_s(self, utc_s: UtcS) -> UtcS | None:
        """Return when band or window will change, UTC; None if not within eight days."""
        now = self._holds(utc_s)
        return next((at_s for at_s, *holds in self._ahead(utc_s) if tuple(holds) != now), None)

    def band_changes(self, utc_s: UtcS) -> list[UtcS]:
        """Return the times at which the band may change, in the coming eight days, in order."""
        if not self.bands:
            return []
        return list(changes(utc_s, self.zone, (band.span for band in self.bands)))

    def _ahead(self, utc_s: UtcS) -> Iterator[tuple[UtcS, Band | None, Window | None]]:
        """Yield the times at which band or window may change in the next eight days, with both."""
        spans = list(self.plan.spans(utc_s, utc_s + HORIZON_DAYS * DAY_S))
        begin_s = [span.from_s for span in spans]
        for at_s in sorted({*self.band_changes(utc_s), *begin_s[1:]}):
            yield at_s, self._band(at_s), spans[bisect_right(begin_s, at_s) - 1].window

    def _holds(self, utc_s: UtcS) -> tuple[Band | None, Window | None]:
        return self._band(utc_s), self.plan.at(utc_s)

    def _band(self, utc_s: UtcS) -> Band | None:
        if not self.bands:
            return None
        week_s = week_second(utc_s, self.zone)
        return next((band for band in self.bands if band.span.covers(week_s)), None)

    def _public_nanos(self, band: Band | None, window: Window | None, level: int) -> int:
        price_nanos = self.price_nanos if self.spot is None else self.spot.price_nanos(level)
        if band is not None:
            price_nanos = band.adjust.of(price_nanos)
        if window is not None:
            price_nanos = Adjustment(factor=window.price_factor).of(price_nanos)
        return price_nanos if self.spot is None else self.spot.within(price_nanos)

    def _next(self, utc_s: UtcS, level: int, public_nanos: int) -> PriceChange | None:
        for at_s, band, window in self._ahead(utc_s):
            price_nanos = self._public_nanos(band, window, level)
            if price_nanos != public_nanos:
                return PriceChange(price_nanos, at_s)
        return None


@dataclass(frozen=True, slots=True)
class PriceNow:
    """A price list at a time: the public tariff, and its next known change."""

    prices: PriceList
    tariff: Tariff
    next_price: PriceChange | None = None
    level: int = 0  # of the spot price

    def tariff_for(self, wanted: Wanted) -> Tariff:
        """Return the tariff of one buyer for one kind of job."""
        prices, public_nanos = self.prices, self.tariff.price_nanos
        own_nanos = public_nanos
        adjust = prices.contracts.get(wanted.site) if wanted.site else None
        if adjust is None:
            bought_h = wanted.bought_ns // HOUR_NS
            reached = [tier for tier in prices.volume if tier.from_slot_hours <= bought_h]
            adjust = reached[-1].adjust if reached else None
        surcharges = prices.extras.surcharges
        is_usual = wanted.price_class == "guaranteed" and not surcharges.keys() & wanted.tags.keys()
        if adjust is None and is_usual:
            return self.tariff
        if adjust is not None:
            own_nanos = min(public_nanos, adjust.of(public_nanos))
        return prices.extras.tariff(self.tariff, own_nanos, public_nanos, wanted)
