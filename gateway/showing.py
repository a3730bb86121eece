"""What a site says of its pools: from the broker's picture to an advert. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from math import inf
from typing import Final, NamedTuple

from federation.adverts import START_MAX_S, WINDOWS_MAX, PoolAdvert, SiteAdvert, TagPrice, Window
from gateway import dispatch
from gateway.broker import Broker
from gateway.jobs import Job, Worker
from policies.butler import NO_GROWTH
from policies.carbon import Emissions
from policies.entitlements import Work
from policies.parties import ANOTHER_SITE
from policies.placement import Tags
from policies.pricelist import PriceNow
from policies.tariffs import MILLION, Extras
from policies.weeks import DAY_S, HORIZON_DAYS
from policies.windows import Allowed, allowed

ADVERT_VALID_S: Final = 90.0
SHOWN_MAX: Final = 64  # windows of a pool as different people see them, that are kept
# Tasks that wait, and their slot-seconds where it is known how long one takes.
Queue = tuple[int, float]


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What the configuration says of a pool, that its workers can't tell."""

    tags: Tags = field(default_factory=dict)
    region: str = ""
    jurisdiction: str = ""


class Aside(NamedTuple):
    """Slots of a pool that are for somebody else.

    Attributes:
        held: for contracts that are not committed yet.
        promised: yet to be started, for contracts of either kind.
    """

    held: int = 0
    promised: int = 0


NOTHING: Final = Aside()
EMPTY: Final[Queue] = (0, 0.0)


class Stock(NamedTuple):
    """What a site has at a time, whoever asks: many are shown a part of it each.

    Attributes:
        pools: whole, as if nothing waited for them.
        aside: slots of pools that are for somebody else.
        queue: what waits.
    """

    utc_s: float
    pools: tuple[PoolAdvert, ...]
    aside: Mapping[str, Aside]
    queue: Queue


def take_stock(
    broker: Broker,
    facts: Mapping[str, PoolFacts],
    aside: Mapping[str, Aside],
    utc_s: float,
    *,
    for_others: bool = False,
) -> Stock:
    """Look at all workers and at all that waits, of which there may be thousands.

    Args:
        for_others: only what takes work of other sites, as it is not shut in everywhere.
    """
    pools = (
        _show_pool(name, broker, each, aside.get(name, NOTHING).held, utc_s, for_others=for_others)
        for name, each in facts.items()
        if not for_others or _takes_others(broker, name)
    )
    return Stock(utc_s, tuple(pools), aside, waiting(broker))


def show_site(
    site: str, broker: Broker, stock: Stock, *, version: int, work: Work, own: Queue = EMPTY
) -> SiteAdvert:
    """Everything that there is to be said of a site now; policies.disclosure may hide some of it.

    Args:
        stock: what there is.
        work: it is shown what this may have; of ANOTHER_SITE, what some other site may.
        own: what waits of it, which is no load in front of it.
    """
    queue = stock.queue[0] - own[0], max(0.0, stock.queue[1] - own[1])
    pools = tuple(_for_whom(each, broker, work, stock, queue) for each in stock.pools)
    return SiteAdvert(site, version, stock.utc_s, ADVERT_VALID_S, pools)


def waiting(broker: Broker, jobs: Iterable[Job] | None = None) -> Queue:
    """What waits at a site of these jobs, or of all, for any of its pools."""
    tasks, load_s = 0, 0.0
    for job in broker.jobs.values() if jobs is None else jobs:
        if job.waiting:
            tasks += job.waiting
            task_s = dispatch.known_s(job, broker.durations.of(job.spec.function))
            load_s += job.waiting * (task_s or 0.0)
    return tasks, load_s


def _takes_others(broker: Broker, pool: str) -> bool:
    """Whether a pool takes work of other sites: by its configuration, or as its workers say."""
    promised = broker.offers.get(f"pool {pool}")
    if promised is not None and promised.takes_others:
        return True
    workers = [each.offer for each in broker.workers.values() if each.offer.pool == pool]
    return any(each.takes_others for each in workers) or (promised is None and not workers)


def _show_pool(
    name: str, broker: Broker, facts: PoolFacts, held: int, utc_s: float, *, for_others: bool
) -> PoolAdvert:
    workers = [
        each
        for each in broker.workers.values()
        if each.offer.pool == name
        and not each.job
        and not each.draining
        and (each.offer.takes_others or not for_others)
    ]
    emissions = broker.emissions.get(name, Emissions())
    machine, intensity = emissions.machine, emissions.intensity
    tariff, prices = broker.tariffs[name], broker.prices.get(name)
    extras = prices.prices.extras if prices is not None else Extras()
    total = busy = 0
    load_s = 0.0
    for each in workers:
        total += each.slots
        if each.in_flight:
            busy += min(each.slots, each.in_flight)
            load_s += each.left_s(utc_s)
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
    )


def _for_whom(
    pool: PoolAdvert, broker: Broker, work: Work, stock: Stock, queue: Queue
) -> PoolAdvert:
    """A pool as somebody's work may use it: by its rules now, and when they are others."""
    name, utc_s = pool.pool, stock.utc_s
    ahead = _allowed_ahead(broker, name, work, pool.slots_total, utc_s)
    slots = ahead[0].slots if ahead else 0
    free = min(pool.slots_free, _free(broker, work, name, pool.slots_free))
    windows: tuple[Window, ...] = ()
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


def cold_slots(broker: Broker, pool: str, work: Work, promised: int, utc_s: float) -> int:
    """The slots of a pool that could be started for somebody's work, by the rules of now.

    Args:
        promised: of those that could be started, as many as others have contracts for.
    """
    growth = broker.growth.get(pool, NO_GROWTH)
    if not growth.slots or broker.draining:
        return 0
    warm = broker.occupancy.slots(pool)
    ahead = _allowed_ahead(broker, pool, work, warm + growth.slots, utc_s)
    return _cold(ahead[0].slots if ahead else 0, warm, growth.slots, promised)


def _allowed_ahead(
    broker: Broker, pool: str, work: Work, total: int, utc_s: float
) -> tuple[Allowed, ...]:
    """How many of so many slots of a pool somebody's work may have, now and later.

    By the pool's rules and by entitlements, whether the slots are there or would be started.
    """
    entitling, ruled = broker.entitling, broker.occupancy.pools.get(pool)
    if ruled is None:
        return (Allowed(-inf, inf, int(min(total, entitling.slots_max(work, pool))), MILLION),)
    found = allowed(
        *(ruled.rules.spans, work.whose, total),
        lambda each: entitling.slots_max(work, pool, each.named),
    )
    return tuple(each for each in found if each.until_s > utc_s)


def _cold(slots: int, warm: int, growing: int, promised: int) -> int:
    """Of so many slots that somebody may have, those that would be started: warm ones go first."""
    return max(0, min(slots - warm, growing - promised))


def _free(broker: Broker, work: Work, pool: str, slots: int) -> int:
    """How many of so many slots somebody may have in addition; a site's own it learns by asking."""
    if work.whose is ANOTHER_SITE:
        return slots
    return int(min(slots, broker.entitling.slots_left(work, pool)))


def _windows_shown(
    pool: PoolAdvert, broker: Broker, ahead: tuple[Allowed, ...], utc_s: float
) -> tuple[Window, ...]:
    """The windows of an advert, kept while rules and prices are the same: each plan looks."""
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
    ahead: Iterable[Allowed], prices: PriceNow | None, now_nanos: int, utc_s: float = -inf
) -> Iterator[Window]:
    """The times from now on in which there are slots, each with its price; as many as an advert
    may have.
    """
    left = WINDOWS_MAX
    changes: list[float] = []
    known_s = -inf  # as far as they are looked for
    for each in ahead:
        if not left:
            return
        if not each.slots:
            continue
        while prices is not None and known_s < each.until_s:
            # What its window makes of the price is the same all the while. Of bands a list knows
            # to the end of its last day: the day before that is sure.
            start_s = max(known_s, each.from_s)
            known_s = start_s + (HORIZON_DAYS - 1) * DAY_S
            changes += [at_s for at_s in prices.prices.band_changes(start_s) if at_s <= known_s]
        edges = [at_s for at_s in changes if each.from_s < at_s < each.until_s]
        parts = pairwise((each.from_s, *edges, each.until_s))
        for from_s, until_s in islice((part for part in parts if part[1] > utc_s), left):
            nanos = now_nanos
            if prices is not None:
                nanos = prices.prices.public_nanos(from_s, prices.level)
            yield Window(from_s, until_s, each.slots, nanos)
            left -= 1


def _largest(own: Tags, workers: Iterable[Worker]) -> dict[str, bool | int | float]:
    """Each tag with the most that one worker has: a sum would promise what fits nowhere."""
    found: dict[str, bool | int | float] = dict(own)
    for worker in workers:
        for name, value in worker.offer.tags.items():
            found[name] = value if value is True else max(found.get(name, 0), value)
    return found
