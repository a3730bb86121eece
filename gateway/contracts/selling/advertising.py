"""Adverts of a site's pools, made from the broker's state. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice, pairwise
from math import inf
from typing import Final, NamedTuple

from federation.clocks import UtcS
from federation.messages.adverts import (
    OBJECTS_TAG,
    PULLS_TAG,
    START_MAX_S,
    WINDOWS_MAX,
    AdvertisedWindow,
    PoolAdvert,
    SiteAdvert,
    TagPrice,
)
from gateway.config.pools import PoolFacts
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import matching
from gateway.scheduler.model.jobs import Job, Worker
from gateway.scheduler.model.present_slots import busy_slots
from policies.access.entitlements import Work
from policies.access.windows import Allowed, allowed
from policies.calendar.weeks import DAY_S, HORIZON_DAYS
from policies.costs.carbon import Emissions
from policies.costs.moving import MovePrices
from policies.costs.pricelist import PriceNow
from policies.parties import ANOTHER_SITE
from policies.placement.autoscaling import NO_GROWTH
from policies.placement.placement import CapacityOffer, Tags
from policies.tariffs import MILLION, Extras

ADVERT_VALID_S: Final = 90.0
SHOWN_MAX: Final = 64  # cached windows of a pool, as different parties see them
# Queued tasks, and their slot-seconds where the duration of a task is known.
Queue = tuple[int, float]


class Aside(NamedTuple):
    """Slots of a pool that are set aside for others.

    Attributes:
        held: for contracts that are not committed yet.
        promised: yet to be started, for contracts of either kind.
    """

    held: int = 0
    promised: int = 0


NOTHING: Final = Aside()
EMPTY: Final[Queue] = (0, 0.0)


class Stock(NamedTuple):
    """The state of a site at a time, for any receiver: many receivers are shown a part of it each.

    Attributes:
        pools: whole, as if nothing was queued for them.
        aside: slots of pools that are set aside for others.
        queue: the queued work.
    """

    utc_s: UtcS
    pools: tuple[PoolAdvert, ...]
    aside: Mapping[str, Aside]
    queue: Queue


def take_stock(
    broker: Broker,
    facts: Mapping[str, PoolFacts],
    aside: Mapping[str, Aside],
    utc_s: UtcS,
    *,
    for_others: bool = False,
    moves: MovePrices | None = None,
) -> Stock:
    """Look at all workers and all queued work, of which there may be thousands.

    Args:
        for_others: only workers that take other sites' work, as not every worker is sandboxed.
        moves: the prices of objects that move; None: this site fetches no objects of buyers.
    """
    pools = [
        _show_pool(name, broker, each, aside.get(name, NOTHING).held, utc_s, for_others=for_others)
        for name, each in facts.items()
        if not for_others or _takes_others(broker, name)
    ]
    if moves is not None:
        pools = [_with_moves(each, moves) if OBJECTS_TAG in each.tags else each for each in pools]
    return Stock(utc_s, tuple(pools), aside, waiting(broker))


def _with_moves(pool: PoolAdvert, moves: MovePrices) -> PoolAdvert:
    """Return the advert of a pool whose calls may refer to objects of other sites."""
    is_priced = moves.currency == pool.currency
    return replace(
        pool,
        tags={**pool.tags, PULLS_TAG: True},
        receive_nanos=moves.receive_nanos if is_priced else 0,
        send_nanos=moves.send_nanos if is_priced else 0,
    )


def show_site(
    site: str, broker: Broker, stock: Stock, *, version: int, work: Work, own: Queue = EMPTY
) -> SiteAdvert:
    """Return all that an advert can say of a site now; policies.disclosure may hide some of it.

    Args:
        stock: the state of the site.
        work: the work whose limits apply; with ANOTHER_SITE, those of some other site's work.
        own: the receiver's own queued work, which is no load in front of it.
    """
    queue = stock.queue[0] - own[0], max(0.0, stock.queue[1] - own[1])
    pools = tuple(_for_whom(each, broker, work, stock, queue) for each in stock.pools)
    return SiteAdvert(site, version, stock.utc_s, ADVERT_VALID_S, pools)


def waiting(broker: Broker, jobs: Iterable[Job] | None = None) -> Queue:
    """Return the queued work of these jobs, or of all, for any of the site's pools."""
    tasks, load_s = 0, 0.0
    for job in broker.jobs.values() if jobs is None else jobs:
        if job.waiting:
            tasks += job.waiting
            task_s = matching.known_s(job, broker.durations.of(job.spec.function))
            load_s += job.waiting * (task_s or 0.0)
    return tasks, load_s


def _takes_others(broker: Broker, pool: str) -> bool:
    """Whether a pool takes work of other sites, by its configuration or its workers."""
    promised = broker.offers.get(f"pool {pool}")
    if promised is not None and promised.takes_others:
        return True
    workers = [each.offer for each in broker.workers.values() if each.offer.pool == pool]
    return any(each.takes_others for each in workers) or (promised is None and not workers)


def _show_pool(
    name: str, broker: Broker, facts: PoolFacts, held: int, utc_s: UtcS, *, for_others: bool
) -> PoolAdvert:
    members = [
        each
        for each in broker.workers.values()
        if each.offer.pool == name and not each.job and (each.offer.takes_others or not for_others)
    ]
    workers = [each for each in members if not each.draining]
    emissions = broker.emissions.get(name, Emissions())
    machine, intensity = emissions.machine, emissions.intensity
    tariff, prices = broker.tariffs[name], broker.prices.get(name)
    extras = prices.prices.extras if prices is not None else Extras()
    busy, total = busy_slots(workers)
    load_s = sum(each.left_s(utc_s) for each in workers if each.in_flight)
    total = 0 if broker.draining else total
    growth = NO_GROWTH if broker.draining else broker.growth.get(name, NO_GROWTH)
    pythons = {each.offer.python for each in workers}
    tags, promised = facts.tags, broker.offers.get(f"pool {name}")
    if name in broker.growth and promised is not None:
        tags = promised.tags  # as far as its workers were seen to carry them
        if growth.slots:
            pythons.add(promised.python)
    return PoolAdvert(
        pool=name,
        slots_total=total + growth.slots,
        price_nanos=tariff.price_nanos,
        currency=tariff.currency,
        slots_free=max(0, total - busy - held),
        load_slot_s=load_s,
        tags=_largest(tags, workers),
        pythons=tuple(sorted(pythons)),
        region=facts.region,
        jurisdiction=facts.jurisdiction,
        carbon_g_per_kwh=intensity.mg_per_kwh / 1_000 if intensity else None,
        slot_watts=machine.busy_watts if machine else None,
        next_price=prices.next_price if prices is not None else None,
        tag_prices={
            tag: TagPrice(each.add_nanos, each.factor) for tag, each in extras.surcharges.items()
        },
        preemptible=extras.preemptible,
        minimum_nanos=extras.minimum_nanos,
        step_ns=extras.step_ns,
        carbon_ahead=emissions.ahead,
        slots_cold=growth.slots,
        start_s=min(growth.start_s, START_MAX_S) if growth.slots else 0.0,
        slot_work_s=growth.slot_work_s if growth.slots else 0.0,
        draining=broker.draining or (bool(members) and not workers and not growth.slots),
        inputs=_takes_inputs(workers, promised, slots_cold=growth.slots),
        labels=True,
    )


def _takes_inputs(
    workers: Iterable[Worker], promised: CapacityOffer | None, *, slots_cold: int
) -> bool:
    """Whether a pool takes calls with inputs: all its workers do, and those that would start."""
    known = [each.offer.takes_inputs for each in workers]
    if slots_cold and promised is not None:
        known.append(promised.takes_inputs)
    return bool(known) and all(known)


def _for_whom(
    pool: PoolAdvert, broker: Broker, work: Work, stock: Stock, queue: Queue
) -> PoolAdvert:
    """Return a pool as some work may use it: by its rules now, and by later ones."""
    name, utc_s = pool.pool, stock.utc_s
    ahead = _allowed_ahead(broker, name, work, pool.slots_total, utc_s)
    slots = ahead[0].slots if ahead else 0
    free = min(pool.slots_free, _free(broker, work, name, pool.slots_free))
    windows: tuple[AdvertisedWindow, ...] = ()
    if name in broker.occupancy.pools:
        free = min(free, broker.occupancy.slots_free(name, work.whose))
        windows = () if len(ahead) == 1 else _windows_shown(pool, broker, ahead, utc_s)
    warm = min(slots, pool.slots_warm)
    promised = stock.aside.get(name, NOTHING).promised
    cold = _cold(slots, pool.slots_warm, pool.slots_cold, promised)
    return replace(
        pool,
        tasks_queued=queue[0],
        load_slot_s=pool.load_slot_s + queue[1],
        slots_total=warm + cold,
        slots_free=min(free, warm),
        slots_cold=cold,
        windows=windows,
    )


def cold_slots(broker: Broker, pool: str, work: Work, promised: int, utc_s: UtcS) -> int:
    """Return how many slots of a pool could be started for some work, by the present rules.

    Args:
        promised: how many of them are under contract to others.
    """
    growth = broker.growth.get(pool, NO_GROWTH)
    if not growth.slots or broker.draining:
        return 0
    warm = broker.occupancy.slots(pool)
    ahead = _allowed_ahead(broker, pool, work, warm + growth.slots, utc_s)
    return _cold(ahead[0].slots if ahead else 0, warm, growth.slots, promised)


def _allowed_ahead(
    broker: Broker, pool: str, work: Work, total: int, utc_s: UtcS
) -> tuple[Allowed, ...]:
    """Return how many of `total` slots of a pool some work may have, now and later.

    By the pool's rules and by entitlements, whether the slots are there or would be started.
    """
    entitling, ruled = broker.entitling, broker.occupancy.pools.get(pool)
    if ruled is None:
        return (
            Allowed(
                UtcS(-inf), UtcS(inf), int(min(total, entitling.slots_max(work, pool))), MILLION
            ),
        )
    found = allowed(
        *(ruled.rules.spans, work.whose, total),
        lambda each: entitling.slots_max(work, pool, each.named),
    )
    return tuple(each for each in found if each.until_s > utc_s)


def _cold(slots: int, warm: int, growing: int, promised: int) -> int:
    """Return how many of a limit of `slots` would be started: warm ones are used first."""
    return max(0, min(slots - warm, growing - promised))


def _free(broker: Broker, work: Work, pool: str, slots: int) -> int:
    """Return how many of `slots` some work may have in addition; another site learns by asking."""
    if work.whose is ANOTHER_SITE:
        return slots
    return int(min(slots, broker.entitling.slots_left(work, pool)))


def _windows_shown(
    pool: PoolAdvert, broker: Broker, ahead: tuple[Allowed, ...], utc_s: UtcS
) -> tuple[AdvertisedWindow, ...]:
    """Return the windows of an advert, cached while rules and prices stay: each plan asks."""
    prices, shown = broker.prices.get(pool.pool), broker.occupancy.pools[pool.pool].shown
    key = ahead, pool.price_nanos
    known = shown.get(key)
    if known is not None and known[0] is prices:
        return known[1]
    found = tuple(_windows(ahead, prices, pool.price_nanos, utc_s))
    if len(shown) >= SHOWN_MAX:
        shown.clear()
    shown[key] = prices, found
    return found


def _windows(
    ahead: Iterable[Allowed], prices: PriceNow | None, now_nanos: int, utc_s: UtcS = UtcS(-inf)
) -> Iterator[AdvertisedWindow]:
    """Yield the future times with slots, each with its price; as many as an advert may have."""
    left = WINDOWS_MAX
    changes: list[UtcS] = []
    known_s = UtcS(-inf)  # the end of the search for them so far
    for each in ahead:
        if not left:
            return
        if not each.slots:
            continue
        while prices is not None and known_s < each.until_s:
            # A window's effect on the price is the same all the while. A list knows its bands to
            # the end of its last day: the day before that is sure.
            start_at_s = max(known_s, each.from_s)
            known_s = start_at_s + (HORIZON_DAYS - 1) * DAY_S
            changes += [at_s for at_s in prices.prices.band_changes(start_at_s) if at_s <= known_s]
        edges = [at_s for at_s in changes if each.from_s < at_s < each.until_s]
        parts = pairwise((each.from_s, *edges, each.until_s))
        for from_s, until_s in islice((part for part in parts if part[1] > utc_s), left):
            nanos = now_nanos
            if prices is not None:
                nanos = prices.prices.public_nanos(from_s, prices.level)
            yield AdvertisedWindow(from_s, until_s, each.slots, nanos)
            left -= 1


def _largest(own: Tags, workers: Iterable[Worker]) -> dict[str, bool | int | float]:
    """Return each tag with the most that one worker has: no task could use their sum."""
    found: dict[str, bool | int | float] = dict(own)
    for worker in workers:
        for name, value in worker.offer.tags.items():
            found[name] = value if value is True else max(found.get(name, 0), value)
    return found
