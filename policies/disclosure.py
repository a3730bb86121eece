"""Disclosure of pools to other sites: ordered rules, of which the first match decides. Pure.

A price is always shown with a pool: a pool without one can't be ranked, so a site that wants to
hide a price hides the pool. Coarse figures are rounded so that they never promise more than there
is: capacity down, load up, both to a power of two.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from federation.messages.adverts import COUNT_MAX, NUMBER_MAX, PoolAdvert, SiteAdvert


@dataclass(frozen=True, slots=True)
class Disclosure:
    """The view that some readers get of some pools."""

    pools: frozenset[str] | None = None  # None: every pool
    readers: frozenset[str] | None = None  # None: every site, and the advert that is gossiped
    hidden: bool = False  # not shown at all
    coarse: bool = False  # capacity and load as powers of two, no rates
    windows: bool = True  # the calendar ahead, beyond the next window
    members: bool = False  # which projects and sites may use it; else they have to ask


SHOW_ALL: Final = (Disclosure(),)


def readers(rules: Iterable[Disclosure]) -> frozenset[str]:
    """Return the sites that a rule treats differently from others."""
    return frozenset().union(*(rule.readers or () for rule in rules))


def redact(advert: SiteAdvert, rules: Iterable[Disclosure], reader: str = "") -> SiteAdvert:
    """Return the advert as a reader may see it; without a reader, the public advert to pass on.

    A pool that no rule matches is not shown.
    """
    rules = tuple(rules)
    pools = []
    for pool in advert.pools:
        rule = next((rule for rule in rules if _matches(rule, pool.pool, reader)), None)
        if rule is not None and not rule.hidden:
            pools.append(_show(pool, rule))
    return replace(advert, pools=tuple(pools), audience=reader)


def _matches(rule: Disclosure, pool: str, reader: str) -> bool:
    return (rule.pools is None or pool in rule.pools) and (
        rule.readers is None or reader in rule.readers
    )


def _show(pool: PoolAdvert, rule: Disclosure) -> PoolAdvert:
    if rule.coarse:
        pool = replace(
            pool,
            slots_total=_floor(pool.slots_total),
            slots_free=_floor(pool.slots_free),
            tasks_queued=min(_ceil(pool.tasks_queued), COUNT_MAX),
            load_slot_s=min(float(_ceil(pool.load_slot_s)), NUMBER_MAX),
            work_rate=None,
            arrival_rate=None,
            free_tags={},
            windows=tuple(replace(window, slots=_floor(window.slots)) for window in pool.windows),
        )
    if not rule.windows:
        pool = replace(pool, windows=pool.windows[:1])
    if not rule.members:
        pool = replace(pool, projects=None, sites=None)
    return pool


def _floor(count: int) -> int:
    return 1 << count.bit_length() - 1 if count else 0


def _ceil(count: float) -> int:
    whole = int(-(-count // 1))
    return 1 << (whole - 1).bit_length() if whole else 0
