"""Ranking of candidates by an objective, and a draw among near-equals. Pure.

The utility, lower is better:

    U = (w_m·C/C_ref + w_t·T/T_ref + w_c·G/G_ref) / (w_m + w_t + w_c)

with C the cost, T the seconds until all is done and G the grams of CO2e, as if all went to one
candidate. A reference is the median of the positive values among the candidates themselves, so that
1 is the usual value today, and a free or a hopeless pool does not stretch the scale. A candidate of
unknown carbon counts as the worst known one.

All sites rank by the same adverts: if each took the best, all would meet there. Among near-equals
(U ≤ (1 + band)·U_best) the order is drawn with weights e^(-U/τ - V), τ = band·U_best: a candidate
at the edge of the band is e times less likely to come first than the best. V breaks ties by
measures that the objective does not weigh: the sum of such measures, each over its mean among the
near-equals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from heapq import nlargest, nsmallest
from itertools import takewhile
from math import log
from statistics import median
from typing import Final, NamedTuple, overload

from federation.clocks import UtcS
from policies.placement.asks import Demand, Objective, Preferences
from policies.placement.estimates import Estimate, fits
from policies.placement.market import Candidate, Key

# Utilities this close are equal: they differ by rounding.
SAME: Final = 1e-9


# Returns a number from 0 to 1 for a place; the caller chooses its source.
Chance = Callable[[Key], float]


def tie_break(name: str) -> Chance:
    """Return a source of one fixed number for each place, determined by a name.

    So a job that is placed again and again prefers the same of the near-equals each time, however
    their figures change within the band: it does not move around, and different jobs spread.
    """
    seed = sha256(name.encode()).digest()[:16]

    def number(place: Key) -> float:
        drawn = blake2b("/".join(place).encode(), digest_size=6, key=seed).digest()
        return int.from_bytes(drawn) / (1 << 48)

    return number


class Ranked(NamedTuple):
    """A candidate with its utility, and the measures behind it."""

    utility: float
    money: float  # nano-units of this site's currency
    time: float  # seconds
    carbon: float  # grams
    candidate: Candidate
    estimate: Estimate

    @property
    def key(self) -> Key:
        """Site and pool."""
        return self.candidate.key


@dataclass(frozen=True, slots=True)
class UtilityScale:
    """The scale of utilities, kept so that later quotes are judged alike.

    The factors turn a measure into its part of the utility.
    """

    money: float
    time: float
    carbon: float

    def utility(self, money: float, time: float, carbon: float) -> float:
        """Return the weighted sum."""
        return self.money * money + self.time * time + self.carbon * carbon

    def parts(self, one: Ranked) -> dict[str, float]:
        """Return the summands of a utility."""
        return {
            "money": self.money * one.money,
            "time": self.time * one.time,
            "carbon": self.carbon * one.carbon,
        }


class Ranking(Sequence[Ranked]):
    """Candidates by utility, best first; equals stay in the given order.

    Stored by columns: of thousands of candidates only a few are ever looked at one by one.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        estimates: Sequence[Estimate],
        objective: Objective,
        preferences: Preferences,
        utc_s: UtcS,
    ) -> None:
        self._candidates = candidates
        self._estimates = estimates
        worst_g = max((each.carbon_g for each in estimates if each.carbon_g is not None), default=0)
        self._money = [
            (each.price_nanos * each.slot_s / 3600 + each.moves_nanos)
            * (preferences.rate(candidate.advert.currency) or 0.0)
            for candidate, each in zip(candidates, estimates, strict=True)
        ]
        self._time = [each.finish_at_s - utc_s for each in estimates]
        self._carbon = [worst_g if (g := each.carbon_g) is None else g for each in estimates]
        self.scale = _scale(objective, self._money, self._time, self._carbon)
        columns = zip(self._money, self._time, self._carbon, strict=True)
        by_money, by_time, by_carbon = self.scale.money, self.scale.time, self.scale.carbon
        self._utilities = [by_money * m + by_time * t + by_carbon * g for m, t, g in columns]
        self._order = sorted(range(len(estimates)), key=self._utilities.__getitem__)

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, at: int) -> Ranked: ...

    @overload
    def __getitem__(self, at: slice) -> list[Ranked]: ...

    def __getitem__(self, at: int | slice) -> Ranked | list[Ranked]:
        if isinstance(at, slice):
            return [self._row(row) for row in self._order[at]]
        return self._row(self._order[at])

    def _row(self, row: int) -> Ranked:
        return Ranked(
            self._utilities[row],
            self._money[row],
            self._time[row],
            self._carbon[row],
            self._candidates[row],
            self._estimates[row],
        )

    def of(self, key: Key) -> Ranked | None:
        """Return the candidate of a site's pool."""
        for row, candidate in enumerate(self._candidates):
            if candidate.key == key:
                return self._row(row)
        return None

    def own(self) -> list[Ranked]:
        """Return this site's own pools, best first."""
        candidates = self._candidates
        return [self._row(row) for row in self._order if candidates[row].is_own]

    def roomiest(self, count: int, ask: Demand) -> list[Ranked]:
        """Return the candidates that can do most of an ask within its limits."""
        estimates = self._estimates
        most = nlargest(count, self._order, key=lambda row: fits(ask, estimates[row]))
        return [self._row(row) for row in most]

    def cheapest(self, count: int) -> list[Ranked]:
        """Return the cheapest candidates, of equals the soonest first."""
        money, time = self._money, self._time
        least = nsmallest(count, self._order, key=lambda row: (money[row], time[row]))
        return [self._row(row) for row in least]

    def promising(self, count: int) -> list[Ranked]:
        """Return those that would serve the objective best in their greenest known hours."""
        candidates, estimates, by_carbon = self._candidates, self._estimates, self.scale.carbon

        def utility(row: int) -> float:
            ahead = candidates[row].carbon_ahead
            if ahead is None:
                return self._utilities[row]
            gain_g = self._carbon[row] - ahead.least * estimates[row].slot_s
            return self._utilities[row] - by_carbon * max(0.0, gain_g)

        return [self._row(row) for row in nsmallest(count, self._order, key=utility)]

    def near_equals(self, band: float) -> list[Ranked]:
        """Return the candidates within a share of the best."""
        if not self._order:
            return []
        limit = self._utilities[self._order[0]] * (1 + band) + SAME
        utilities = self._utilities
        return [self._row(row) for row in takewhile(lambda at: utilities[at] <= limit, self._order)]


def draw(
    near: Sequence[Ranked], objective: Objective, band: float, count: int, chance: Chance
) -> list[Ranked]:
    """Draw some of the near-equals, given best first; the better tend to come sooner.

    Drawing without replacement by weights w is taking the least -ln(u)/w (Efraimidis and Spirakis
    2006); here in logarithms, so that no weight is too small.
    """
    if len(near) < 2:
        return list(near)
    best, spread = near[0].utility, band * near[0].utility
    steep = 1 / spread if spread else 0.0
    money, time, carbon = (
        0.0 if weight else 1 / (sum(column) / len(near) or 1.0)
        for weight, column in (
            (objective.money, [one.money for one in near]),
            (objective.time, [one.time for one in near]),
            (objective.carbon, [one.carbon for one in near]),
        )
    )
    keys = [
        log(1e-300 - log(1.0 - chance(one.key)))
        + steep * (one.utility - best)
        + money * one.money
        + time * one.time
        + carbon * one.carbon
        for one in near
    ]
    return [near[at] for at in nsmallest(count, range(len(near)), key=keys.__getitem__)]


def _scale(objective: Objective, *columns: Sequence[float]) -> UtilityScale:
    weights = (objective.money, objective.time, objective.carbon)
    money, time, carbon = (
        weight / (sum(weights) * median([value for value in column if value > 0] or [1.0]))
        if weight
        else 0.0
        for weight, column in zip(weights, columns, strict=True)
    )
    return UtilityScale(money, time, carbon)
