"""Plain pools, markets and asks for the tests of placement; a test changes the one it is about."""

from typing import Any

from federation.messages.adverts import PoolAdvert, SiteAdvert
from policies.placement.asks import Demand, Objective, Preferences
from policies.placement.feasibility import PlacementTerms
from policies.placement.market import Market, NetworkLink
from policies.placement.placement import Need
from policies.placement.ranking import Chance, tie_break

NOW_S = 1_000.0
INSTANT = NetworkLink(0.0, float("inf"))
CENT = 10**7  # nano-units


class Tags(dict):
    """Tags that can be hashed."""

    def __hash__(self):
        return hash(frozenset(self.items()))


def make_pool(name="main", **changes: Any) -> PoolAdvert:
    """An idle pool of 100 slots at 4 cents a slot-hour."""
    values = {"slots_total": 100, "price_nanos": 4 * CENT, "currency": "USD", "pythons": ("3.11",)}
    values |= changes
    values.setdefault("slots_free", values["slots_total"])
    return PoolAdvert(name, **values)


def make_advert(site, *pools: PoolAdvert, version=1, issued_s=NOW_S, valid_s=60.0) -> SiteAdvert:
    return SiteAdvert(site, version, issued_s, valid_s, pools or (make_pool(),))


def make_market(sites=None, *, own="home", link=INSTANT, **pools: PoolAdvert) -> Market:
    """A market of sites that are no time away: their pools as lists, or one pool a keyword."""
    market = Market(own, link)
    found = dict(sites or {}) | {name: [pool] for name, pool in pools.items()}
    for site, offered in found.items():
        market.learn(SiteAdvert(site, 1, NOW_S, 60.0, tuple(offered)), NOW_S)
    return market


def make_terms(**changes: Any) -> PlacementTerms:
    """No tags, no limits, every site called a … z, or s0 … s99, trusted."""
    tags = Tags(changes.pop("tags", {}))
    need = Need(tags, changes.pop("python", "3.11"), changes.pop("currency", None))
    names = frozenset("abcdefghijklmnopqrstuvwxyz") | {f"s{n}" for n in range(100)}
    return PlacementTerms(need, **{"project": "risk", "trusted": names} | changes)


def make_ask(objective=None, tasks=100, task_s=10.0, **changes: Any) -> Demand:
    """A hundred tasks of ten seconds, as cheap as can be; a budget implies its currency."""
    terms = changes.pop("terms", None)
    if terms is None:
        terms = make_terms(currency="USD" if changes.get("budget_nanos") is not None else None)
    return Demand(terms, objective or Objective(money=1.0), tasks, task_s, **changes)


def make_preferences(**changes: Any) -> Preferences:
    return Preferences(**changes)


def seeded(seed=1) -> Chance:
    return tie_break(str(seed))
