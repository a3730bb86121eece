"""The figures of a year: of the sites alone, of the federation, and their comparison.

Everything is counted: at slots (use, losses), in the sites' own usage records (money, energy,
carbon), by the owners of jobs (waits). No expected value enters.
"""

from collections.abc import Sequence
from typing import Any, Final

from simulations.year.facts import HOUR_S
from simulations.year.member import ELASTIC, OWNED
from simulations.year.work import YearJob
from simulations.year.world import YearOutcome

# For each: its place in the totals, and whether more of it is better.
PROMISES: Final = {
    "utilisation": ("utilisation", True),
    "wait, median": ("wait_median_s", False),
    "wait, p95": ("wait_p95_s", False),
    "spend": ("spend_usd", False),
    "carbon": ("carbon_kg", False),
}

Figures = dict[str, Any]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the least value that at least this share of the values does not exceed; 0 of none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def figures_of(outcome: YearOutcome) -> Figures:
    """Return the figures of one run."""
    own = [work for work in outcome.works if not work.is_production]
    owners = [site.department for site in outcome.scenario.sites if site.department]
    sites = {name: _site(outcome, name) for name in outcome.members}
    return {
        "sites": sites,
        "departments": {
            owner: _waits([work for work in own if work.owner == owner]) for owner in owners
        },
        "production": _production(outcome),
        "total": _total(outcome, sites, own),
        "use_by_day": {
            name: [round(each / 86_400 / member.slots[OWNED].total, 4) for each in
                   member.slots[OWNED].days[: outcome.scenario.days]]
            for name, member in outcome.members.items()
        },
        "spent_by_day": _spent_by_day(outcome),
        "waits_s": {owner: _curve([work for work in own if work.owner == owner])
                    for owner in owners},
        "events": outcome.events,
    }  # fmt: skip


def _site(outcome: YearOutcome, name: str) -> Figures:
    member, money = outcome.members[name], outcome.money[name]
    used, total = member.slots[OWNED].used, member.slots[OWNED].total
    elastic = member.slots.get(ELASTIC)
    capacity_s = total * outcome.scenario.length_s
    return {
        "slots": total,
        "utilisation": used.done_s / capacity_s,
        "busy": (used.done_s + used.lost_s) / capacity_s,
        "done_slot_h": used.done_s / HOUR_S,
        "lost_slot_h": used.lost_s / HOUR_S,
        "preempted_tasks": used.stopped,
        "cloud_slot_h": elastic.used.done_s / HOUR_S if elastic is not None else 0.0,
        "lent_slot_h": money.lent_s / HOUR_S,
        "cloud_usd": money.cloud,
        "power_usd": money.power,
        "paid_usd": money.paid,
        "earned_usd": money.earned,
        "net_usd": money.cloud + money.power + money.paid - money.earned,
        "carbon_kg": money.carbon_g / 1000,
    }


def _waits(works: Sequence[YearJob]) -> Figures:
    ended = [work for work in works if work.end_s is not None]
    waits, begins = [each.wait_s for each in ended], [each.begin_wait_s for each in ended]
    tasks = sum(work.tasks for work in works)
    return {
        "jobs": len(works),
        "tasks": tasks,
        "slot_h": sum(work.tasks * work.task_s for work in works) / HOUR_S,
        "wait_median_s": quantile(waits, 0.5),
        "wait_p95_s": quantile(waits, 0.95),
        "wait_mean_s": sum(waits) / max(1, len(waits)),
        "begin_median_s": quantile(begins, 0.5),
        "begin_p95_s": quantile(begins, 0.95),
        "cloud_tasks": sum(work.elsewhere for work in works),
    }


def _curve(works: Sequence[YearJob]) -> list[float]:
    """Return the waits at each whole percent, to be drawn."""
    waits = [work.wait_s for work in works if work.end_s is not None]
    return [round(quantile(waits, percent / 100), 1) for percent in range(1, 100)]


def _production(outcome: YearOutcome) -> Figures:
    """Return when production had its whole grid: as many task starts as the grid has slots."""
    runs = [work for work in outcome.works if work.is_production]
    slots = outcome.members[outcome.scenario.production.site].slots[OWNED].total
    lateness = [_whole_s(work, slots) for work in runs]
    ended = [work.end_s - work.at_s for work in runs if work.end_s is not None]
    late = [each for each in lateness if each is None or each > outcome.scenario.late_s]
    return {
        "runs": len(runs),
        "late_starts": len(late),
        "latest_s": max((each for each in lateness if each is not None), default=0.0),
        "unfinished": len(runs) - len(ended),
        "took_mean_h": sum(ended) / max(1, len(ended)) / HOUR_S,
    }


def _whole_s(work: YearJob, slots: int) -> float | None:
    """Return how long after its submission a run had all slots; None: never."""
    starts_s = sorted(work.starts_s)
    return starts_s[slots - 1] - work.at_s if len(starts_s) >= slots else None


def _total(outcome: YearOutcome, sites: Figures, own: Sequence[YearJob]) -> Figures:
    length_h = outcome.scenario.length_s / HOUR_S
    capacity_h = sum(site["slots"] for site in sites.values()) * length_h
    done_h = sum(site["done_slot_h"] for site in sites.values())
    lost_h = sum(site["lost_slot_h"] for site in sites.values())
    cloud_usd = sum(site["cloud_usd"] for site in sites.values())
    power_usd = sum(site["power_usd"] for site in sites.values())
    waits = _waits(own)
    return {
        "utilisation": done_h / capacity_h,
        "wait_median_s": waits["wait_median_s"],
        "wait_p95_s": waits["wait_p95_s"],
        "wait_mean_s": waits["wait_mean_s"],
        "spend_usd": cloud_usd + power_usd,
        "cloud_usd": cloud_usd,
        "power_usd": power_usd,
        "carbon_kg": sum(site["carbon_kg"] for site in sites.values()),
        "preempted_tasks": sum(site["preempted_tasks"] for site in sites.values()),
        "lost_slot_h": lost_h,
        "lost_share": lost_h / max(1e-9, lost_h + done_h),
        "cloud_slot_h": sum(site["cloud_slot_h"] for site in sites.values()),
        "unfinished": outcome.unfinished,
        "late_starts": _production(outcome)["late_starts"],
    }


def _spent_by_day(outcome: YearOutcome) -> Figures:
    """Return the daily figures of all sites together; those after the end are in its last day."""
    days = outcome.scenario.days
    spent, grams = [0.0] * days, [0.0] * days
    for money in outcome.money.values():
        for day, (usd, g) in money.days.items():
            spent[min(day, days - 1)] += usd
            grams[min(day, days - 1)] += g
    return {
        "spend_usd": [round(each, 2) for each in spent],
        "carbon_kg": [round(each / 1000, 3) for each in grams],
    }


def compare(alone: Figures, federated: Figures) -> Figures:
    """Return by how much the federation is better at each promise, and whether it is."""
    found = {}
    for name, (key, is_more) in PROMISES.items():
        before, after = alone["total"][key], federated["total"][key]
        gain = after - before if is_more else before - after
        found[name] = {
            "alone": before,
            "federated": after,
            "better_by": gain / before if before else 0.0,
            "is_better": gain > 0,
        }
    return found


def owner_of(figures: Figures, alone: Figures, site: str) -> Figures:
    """Return the effect on the owner of the production grid, compared with being alone."""
    now, then = figures["sites"][site], alone["sites"][site]
    return {
        "earned_usd": now["earned_usd"],
        "power_usd": now["power_usd"] - then["power_usd"],
        "net_usd": then["net_usd"] - now["net_usd"],
        "lent_slot_h": now["lent_slot_h"],
        "lost_slot_h": now["lost_slot_h"],
        "carbon_kg": now["carbon_kg"] - then["carbon_kg"],
        "late_starts": figures["production"]["late_starts"],
        "latest_s": figures["production"]["latest_s"],
        "took_longer_h": (
            figures["production"]["took_mean_h"] - alone["production"]["took_mean_h"]
        ),
    }
