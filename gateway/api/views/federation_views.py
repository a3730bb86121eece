"""Views of the federation: sites, pools, deals, and the placement of jobs. Pure.

The keys are an interface (`--json`, Client.explain): they are only ever added to.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import Any, Final

from federation.clocks import UtcS
from federation.messages.adverts import Outlook, SiteAdvert
from federation.money import format_money
from gateway.api.views.job_limits import limits_of_job, why_not
from gateway.api.views.pool_loads import note_waits, with_causes
from gateway.api.views.work_views import notes
from gateway.base.tags import PROBE_TAG
from gateway.contracts.exchange import Exchange
from gateway.ledger.db.contracts.records import DealTotal
from gateway.ledger.db.settlement.records import DisputeRow
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.jobs import Job, Worker
from gateway.scheduler.tasks.job_control import held_text
from policies.placement.market import Market
from policies.placement.placement import show_tag

WORKERS_SHOWN: Final = 10  # of each pool, in an explanation


def sites(
    market: Market,
    own: SiteAdvert,
    states: Mapping[str, str],
    utc_s: UtcS,
    expelled_by: Collection[str] = (),
) -> list[Any]:
    """Every site: up, draining, suspect or gone, its capacity, and the age of that information.

    Args:
        market: the adverts of the others.
        own: ours.
        states: what gossip says of each site.
        utc_s: now.
        expelled_by: the sites that have expelled ours, and don't answer it any more.
    """
    adverts = {own.site: own, **{advert.site: advert for advert in market.adverts}}
    adverts[own.site] = own
    rows = []
    for site in sorted({*adverts, *states}):
        advert = adverts.get(site)
        pools = advert.pools if advert else ()
        rows.append(
            {
                "site": site,
                "state": _state(site, own, states, draining=advert is not None and advert.draining),
                "draining": advert is not None and advert.draining,
                "has_expelled_us": site in expelled_by,
                "pools": len(pools),
                "slots_free": sum(pool.slots_free for pool in pools),
                "slots_total": sum(pool.slots_total for pool in pools),
                "tasks_queued": sum(pool.tasks_queued for pool in pools),
                "regions": sorted({pool.region for pool in pools if pool.region}),
                "age_s": max(0.0, round(utc_s - advert.issued_s, 1)) if advert else None,
            }
        )
    return rows


def pools(market: Market, own: SiteAdvert, states: Mapping[str, str], utc_s: UtcS) -> list[Any]:
    """Every pool of every site, from its advert."""
    rows = []
    for advert in (own, *(each for each in market.adverts if each.site != own.site)):
        for pool in advert.pools:
            change = pool.next_price
            rows.append(
                {
                    "site": advert.site,
                    "pool": pool.pool,
                    "state": _state(advert.site, own, states, draining=pool.draining),
                    "draining": pool.draining,
                    "slots_free": pool.slots_free,
                    "slots_total": pool.slots_total,
                    "slots_cold": pool.slots_cold,
                    "tasks_queued": pool.tasks_queued,
                    "load_slot_s": pool.load_slot_s,
                    "price": format_money(pool.price_nanos, pool.currency),
                    "price_nanos": pool.price_nanos,
                    "currency": pool.currency,
                    "next_price": format_money(change.price_nanos, pool.currency) if change else "",
                    "next_price_at_s": change.at_s if change else None,
                    "tags": [
                        show_tag(name, value)
                        for name, value in sorted(pool.tags.items())
                        if not PROBE_TAG.fullmatch(name)
                    ],
                    "pythons": list(pool.pythons),
                    "region": pool.region,
                    "jurisdiction": pool.jurisdiction,
                    "carbon_g_per_kwh": pool.carbon_g_per_kwh,
                    "carbon_ahead": _outlook(pool.carbon_ahead),
                    "age_s": max(0.0, round(utc_s - advert.issued_s, 1)),
                }
            )
    return sorted(rows, key=lambda row: (row["site"], row["pool"]))


def _state(site: str, own: SiteAdvert, states: Mapping[str, str], *, draining: bool) -> str:
    """Return the state of a site, or of a pool of it; a site that is not up can't say it drains."""
    if site == own.site:
        return "here"
    state = states.get(site, "unknown")
    return "draining" if draining and state == "up" else state


def _outlook(ahead: Outlook | None) -> Any:
    """The expected emissions of a pool's electricity, as far as its site knows."""
    if ahead is None:
        return None
    steps = [each / 10 for each in ahead.dg_per_kwh]
    return {"from_s": ahead.from_s, "step_s": ahead.step_s, "g_per_kwh": steps}


def deals(totals: Iterable[DealTotal], disputes: Iterable[DisputeRow] = ()) -> list[Any]:
    """The purchases from and sales to each site, by state.

    States are pending, settled (`post` in the database) and void. `reversed_nanos` is the reversed
    part of a row: only settled amounts can be reversed.
    """
    reversed_nanos: Counter[tuple[str, str, str, str]] = Counter()
    for dispute in disputes:
        if dispute.state == "accepted":
            key = (dispute.site, dispute.side, dispute.currency, "post")
            reversed_nanos[key] += dispute.cost_nanos
    return [
        {
            "site": each.site,
            "side": each.side,
            "state": "settled" if each.state == "post" else each.state,
            "tasks": each.tasks,
            "wall_ns": each.wall_ns,
            "cost_nanos": each.cost_nanos,
            "currency": each.currency,
            "cost": format_money(each.cost_nanos, each.currency),
            "reversed_nanos": reversed_nanos[each.site, each.side, each.currency, each.state],
        }
        for each in totals
    ]


def explain_job(
    job: Job,
    exchange: Exchange,
    broker: Broker,
    utc_s: UtcS,
    approved: Collection[str] | None = None,
) -> Generator[None, None, dict[str, Any]]:
    """Where a job's tasks are and may go, and the verdict on every known pool, in parts.

    Args:
        job: the job.
        exchange: what this site buys and sells.
        broker: this site's.
        utc_s: now.
        approved: the sites that are approved here; None for a single site.
    """
    left = max(1, job.waiting or job.in_flight or (job.total or 0) - len(job.ended))
    decision = with_causes(
        exchange.deciding.decide_for(job, left, utc_s), job.spec, broker, exchange.site, utc_s
    )
    found = decision.to_plain()
    yield
    note_waits(found, broker, exchange.site, without=job)
    yield
    found |= limits_of_job(job, decision, exchange, utc_s)
    found["job"] = job.id
    found["held"] = held_text(job)
    found["waiting"] = job.waiting
    found["in_flight"] = job.in_flight
    found["places"], found["places_left_off"] = _workers_of(
        job, broker, lambda each: why_not(broker, job, each, decision, exchange, approved, utc_s)
    )
    found["notes"] = notes(job)
    found["ended"] = [list(pair) for pair in job.ended][:100]
    return found


def _workers_of(
    job: Job, broker: Broker, why: Callable[[Worker], str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The first workers of each pool as a job sees them, and the number of further ones.

    Workers with its tasks come first. A pool of thousands would say the same thousands of times.
    """
    tasks = Counter[int]()
    for assignment in job.assignments.values():
        tasks[assignment.worker.handle] += len(assignment.left)
    pools: dict[str, list[Worker]] = {}
    for worker in broker.workers.values():
        if not worker.job or worker.job == job.id:
            pools.setdefault(worker.offer.pool, []).append(worker)
    shown, left_off = [], []
    for pool, workers in pools.items():
        workers.sort(key=lambda each: not tasks[each.handle])
        shown += workers[:WORKERS_SHOWN]
        rest = workers[WORKERS_SHOWN:]
        if rest:
            in_flight = sum(tasks[each.handle] for each in rest)
            left_off.append({"pool": pool, "workers": len(rest), "in_flight": in_flight})
    rows = [
        {
            "worker": worker.title,
            "pool": worker.offer.pool,
            "slots": worker.slots,
            "in_flight": tasks[worker.handle],
            "why_not": why(worker),
        }
        for worker in shown
    ]
    return rows, left_off
