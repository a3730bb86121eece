"""What a site says of its pools: from the broker's picture to an advert. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from federation.adverts import PoolAdvert, SiteAdvert, TagPrice
from gateway.broker import Broker
from gateway.jobs import Job, Worker
from policies.carbon import Emissions
from policies.placement import Tags
from policies.tariffs import Extras

# Tasks that wait, and their slot-seconds where it is known how long one takes.
Queue = tuple[int, float]


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What the configuration says of a pool, that its workers can't tell."""

    tags: Tags = field(default_factory=dict)
    region: str = ""
    jurisdiction: str = ""


def show_site(
    site: str,
    broker: Broker,
    facts: Mapping[str, PoolFacts],
    *,
    held: Mapping[str, int],
    utc_s: float,
    version: int,
    valid_s: float,
    queue: Queue,
) -> SiteAdvert:
    """Everything that there is to be said of a site now; policies.disclosure may hide some of it.

    Args:
        held: slots of a pool that are set aside.
        queue: what waits.
    """
    pools = tuple(
        _show_pool(name, broker, each, held.get(name, 0), queue) for name, each in facts.items()
    )
    return SiteAdvert(site, version, utc_s, valid_s, pools)


def waiting(broker: Broker, jobs: Iterable[Job] | None = None) -> Queue:
    """What waits at a site of these jobs, or of all, for any of its pools."""
    tasks, load_s = 0, 0.0
    for job in broker.jobs.values() if jobs is None else jobs:
        if job.waiting:
            tasks += job.waiting
            load_s += job.waiting * (broker.durations.of(job.spec.function) or 0.0)
    return tasks, load_s


def _show_pool(name: str, broker: Broker, facts: PoolFacts, held: int, queue: Queue) -> PoolAdvert:
    workers = [
        each
        for each in broker.workers.values()
        if each.offer.pool == name and not each.job and not each.draining
    ]
    emissions = broker.emissions.get(name, Emissions())
    machine, intensity = emissions.machine, emissions.intensity
    tariff, prices = broker.tariffs[name], broker.prices.get(name)
    extras = prices.prices.extras if prices is not None else Extras()
    total = 0 if broker.draining else sum(each.slots for each in workers)
    busy = sum(min(each.slots, each.in_flight) for each in workers)
    return PoolAdvert(
        pool=name,
        slots_total=total,
        price_nanos=tariff.price_nanos,
        currency=tariff.currency,
        slots_free=max(0, total - busy - held),
        tasks_queued=queue[0],
        load_slot_s=sum(each.load_s for each in workers) + queue[1],
        tags=_largest(facts.tags, workers),
        pythons=tuple(sorted({each.offer.python for each in workers})),
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
    )


def _largest(own: Tags, workers: Iterable[Worker]) -> dict[str, bool | int | float]:
    """Each tag with the most that one worker has: a sum would promise what fits nowhere."""
    found: dict[str, bool | int | float] = dict(own)
    for worker in workers:
        for name, value in worker.offer.tags.items():
            found[name] = value if value is True else max(found.get(name, 0), value)
    return found
