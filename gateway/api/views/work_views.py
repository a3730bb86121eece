"""Views of a site for people: plain maps and lists, made from the broker and the store. Pure.

The keys are an interface (`--json`, Client.jobs): they are only ever added to.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from federation.clocks import UtcS
from federation.money import format_money
from federation.offers import show_time
from federation.ranges import Range, RangeSet
from federation.reasons import Reason
from federation.words import count, duration_text
from gateway.api.views.estimates import estimates
from gateway.api.views.wait_reasons import of_workers
from gateway.base.job_states import REJECTED, ended_state
from gateway.ledger.db.checks import NUMBER_LIMIT
from gateway.ledger.db.jobs.records import JobRow, may_return
from gateway.scheduler.broker import Broker
from gateway.scheduler.lifecycle.refusals import RefusedJob
from gateway.scheduler.model import matching
from gateway.scheduler.model.jobs import Job, Worker
from gateway.scheduler.model.ports import PortKind
from gateway.scheduler.model.present_slots import busy_slots
from gateway.scheduler.model.stored_terms import spec_of
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.fair_shares import FairShares
from gateway.scheduler.tasks.job_control import held_text
from policies.access.fairness import ShareNode, ShareStanding
from policies.costs.carbon import Emissions
from policies.parties import Party
from policies.placement.environments import SANDBOX_TAG, is_sandbox

NO_WORKER: Final = (
    "this site has no worker now: its operator adds one with `gridfed worker` or a [[pool]], and "
    "`gridfed status` says what happened to those of its pools"
)
RUNNING_COST: Final = (
    "the running tasks may use up the job's cost limit (max_cost): others begin once these have "
    "ended and cost less"
)
WHOLE: Final = (Reason.BUDGET_EXHAUSTED, Reason.COST_LIMIT)  # of which the texts are sentences
RUNNING_MAX: Final = 10_000  # ranges of running tasks in one answer


def live_job(job: Job, as_of_s: UtcS) -> dict[str, Any]:
    """Return a job that has not ended, from the broker, at a moment, UTC."""
    view = {
        "id": job.id,
        "name": job.spec.name,
        "user": job.spec.user,
        "project": job.spec.project,
        "detached": job.spec.detached,
        "state": live_state(job),
        "reason": job.reason,
        "first_error": job.first_error,
        "submitted_at_s": job.opened_at_s,
        "ended_at_s": None,
        "total": job.total,
        "tasks": len(job.known),
        "done": job.done,
        "failed": job.failed,
        "cancelled": job.cancelled,
        "waiting": job.waiting,
        "blocked": job.blocked,
        "in_flight": job.in_flight,
        "running": running_count(job),
        "wall_ns": job.wall_ns,
        "cpu_ns": job.cpu_ns,
        **_money(job.costs_nanos, job.prices_nanos, estimates(job, as_of_s)),
        "as_of_s": as_of_s,
        "tags": dict(job.spec.tags),
        "forgotten": False,
        **_orders(job.spec),
    }
    narrowed: dict[str, Any] = narrow(view)
    return narrowed


def _orders_in_books(row: JobRow) -> dict[str, Any]:
    """Return the orders about a job that has ended: they count if its client may return."""
    if not may_return(row):
        return {"held": "", "held_by": "", "priority": None, "priority_by": ""}
    return _orders(spec_of(row))


def _orders(spec: JobSpec) -> dict[str, Any]:
    """Return the hold on a job, and its priority, with who ordered them."""
    hold, given = spec.hold, spec.given_priority
    return {
        "held": "" if hold is None else str(hold),
        "held_by": "" if hold is None else hold.by,
        "priority": spec.rank_priority,
        "priority_by": "" if given is None else given.by,
    }


def live_state(job: Job) -> str:
    """Return the state of a job that has not ended.

    An open one has nothing to run, and may get more. One that was cancelled or abandoned ends with
    the last of its begun tasks: until then its cost is not final.
    """
    if job.leaving:
        return "cancelling" if job.leaving == "cancelled" else "ending"
    if job.in_flight:
        return "running"
    return "waiting" if job.waiting or job.blocked else "open"


def why_not_forgotten(job: Job) -> str:
    """Return why a job that has not ended keeps its results and its output."""
    if not job.leaving:
        return f"job {job.id!r} has not ended: cancel it first"
    still = f"{count(job.in_flight, 'task')} of it still {'runs' if job.in_flight == 1 else 'run'}"
    if job.awaits_sellers and not job.in_flight:
        still = "other sites have yet to say whether tasks of it still run there"
    return (
        f"job {job.id!r} is {live_state(job)}: {still}. Forget it once it has ended; "
        "`gridfed cancel --stop` ends it at once"
    )


def why_no_results(row: JobRow, keep_s: float) -> str:
    """Return why there are no results of a job in the books; empty if there may be.

    Args:
        row: the job.
        keep_s: for how long the site keeps results of a job that has ended; 0: for ever.
    """
    if not row.detached:
        return (
            f"job {row.job!r} is attached: its results went to the client that submitted it, and "
            "are not kept. Those of `submit_job` are"
        )
    if not row.forgotten:
        return ""
    ended = f"it ended {show_time(row.ended_at_s)}, " if row.ended_at_s is not None else ""
    kept = f"after {duration_text(keep_s)}, or by `gridfed forget`" if keep_s else ""
    return (
        f"the results of job {row.job!r} were deleted: {ended}and results are deleted "
        f"{kept or 'by `gridfed forget`'}. Its cost stays: `gridfed job {row.job}`"
    )


def running_count(job: Job) -> int:
    """Return how many tasks of a job run now: see `running`.

    A worker reports a task only after it has run for a moment, and a delegate none: while nothing
    is reported of an assignment, it is taken to have those slots that no reported task has.
    """
    found = 0
    free: dict[int, int] = {}
    for each in job.assignments.values():
        worker = each.worker
        if worker.port is PortKind.PEER:
            found += len(each.left)
            continue
        begun = sum(task in each.left for task in each.begun)
        if not begun:
            if worker.handle not in free:
                taken = sum(len(other.begun) for other in worker.assignments.values())
                free[worker.handle] = max(0, worker.slots - taken)
            begun = min(len(each.left), free[worker.handle])
            free[worker.handle] -= begun
        found += begun
    return min(found, job.in_flight)


def running(job: Job) -> list[Range]:
    """Return the tasks of a job that run now, as ranges; at most RUNNING_MAX, the first ones.

    A worker has reported that they have begun, or another site has them for its slots.
    """
    found = RangeSet()
    for each in job.assignments.values():
        if each.worker.port is PortKind.PEER:
            for first, stop in each.left:
                found.add(first, stop)
        else:
            for task in each.begun:
                if task in each.left:
                    found.add(task, task + 1)
    return list(found)[:RUNNING_MAX]


def stored_job(row: JobRow) -> dict[str, Any]:
    """Return a job that has ended, from the store."""
    tasks = row.done + row.failed + row.cancelled
    # The books say "done" of every job that is closed, for any end of its tasks, and the first
    # error as its reason; people understand something else by it.
    has_failed = row.state == "done" and row.failed > 0
    view = {
        "id": row.job,
        "name": row.name,
        "user": row.user,
        "project": row.project,
        "detached": row.detached,
        "state": ended_state(row.state, row.done, row.failed, row.cancelled),
        "reason": "" if has_failed else row.reason,
        "first_error": row.reason if has_failed else "",
        "submitted_at_s": row.submitted_at_s,
        "ended_at_s": row.ended_at_s,
        "total": row.total if row.total is not None else tasks,
        "tasks": tasks,
        "done": row.done,
        "failed": row.failed,
        "cancelled": row.cancelled,
        **dict.fromkeys(("waiting", "blocked", "in_flight", "running"), 0),
        "wall_ns": row.wall_ns,
        "cpu_ns": row.cpu_ns,
        **_money(row.costs_nanos, row.prices_nanos, {}),
        "as_of_s": row.ended_at_s,
        "tags": {},
        "forgotten": row.forgotten,
        **_orders_in_books(row),
    }
    narrowed: dict[str, Any] = narrow(view)
    return narrowed


def refused_job(refused: RefusedJob) -> dict[str, Any]:
    """Return a job that was refused, with the keys of one that has ended."""
    at_s = refused.refused_at_s
    view = {
        "id": refused.job,
        "name": refused.name,
        "user": refused.user,
        "project": refused.project,
        "detached": refused.detached,
        "state": REJECTED,
        "reason": refused.reason,
        "code": refused.code,
        "first_error": "",
        "submitted_at_s": at_s,
        "ended_at_s": at_s,
        "total": refused.tasks if refused.tasks is not None else 0,
        **dict.fromkeys(("tasks", "done", "failed", "cancelled"), 0),
        **dict.fromkeys(("waiting", "blocked", "in_flight", "running"), 0),
        **dict.fromkeys(("wall_ns", "cpu_ns"), 0),
        **_money({}, {}, {}),
        "as_of_s": at_s,
        "tags": {},
        "forgotten": False,
        "held": "",
        "held_by": "",
        "priority": None,
        "priority_by": "",
    }
    narrowed: dict[str, Any] = narrow(view)
    return narrowed


def shares(
    broker: Broker, shares: FairShares, utc_s: UtcS, is_shown: Callable[[Party], bool]
) -> dict[str, Any]:
    """Return the tree of shares, as its owner wrote it, with the standing of each at a moment, UTC.

    The shares of a party are left out unless it `is_shown`.
    """
    waiting: Counter[ShareNode] = Counter()
    for job in broker.waiting_jobs:
        for node in job.leaf.path if job.leaf is not None else ():
            waiting[node] += job.waiting
    rules = shares.tree.rules
    return {
        "half_life_s": rules.half_life_s,
        "max_wait_s": rules.max_wait_s,
        "as_of_s": utc_s,
        "shares": [
            _share(each, waiting[each.node])
            for each in shares.look(utc_s)
            if _is_shown(each.node, is_shown)
        ],
    }


def share_of(
    job: Job, shares: FairShares, utc_s: UtcS, is_shown: Callable[[Party], bool]
) -> dict[str, Any]:
    """Return the standing of a job's share, its place in the queue, and the next share in turn.

    The next share is left out unless its party `is_shown`.
    """
    standings = shares.look(utc_s)
    (own,) = (each for each in standings if each.node is job.leaf)
    turns = sorted(
        ((each.place, each.node) for each in standings if each.place is not None),
        key=lambda turn: (turn[0], turn[1].title),
    )
    is_told = bool(turns) and (turns[0][1] is job.leaf or _is_shown(turns[0][1], is_shown))
    return {
        **_share(own, job.waiting),
        "places": len(turns),
        "next": turns[0][1].title if is_told else "",
    }


def _is_shown(node: ShareNode, is_shown: Callable[[Party], bool]) -> bool:
    return all(each.party is None or is_shown(each.party) for each in node.path)


def _share(standing: ShareStanding, waiting: int) -> dict[str, Any]:
    node = standing.node
    return {
        "share": node.title,
        "who": "" if node.who is None else str(node.who),
        "shares": node.shares,
        "is_leaf": not node.children,
        "target": standing.target,
        "used_slot_s": standing.used_s,
        "part": standing.part,
        "under_way_slot_s": standing.held_s,
        "jobs": node.jobs,
        "waiting": waiting,
        "wait_s": standing.wait_s,
        "is_late": standing.is_late,
        "place": standing.place,
    }


def _money(
    costs_nanos: Mapping[str, int], prices_nanos: Mapping[str, int], estimated: Mapping[str, int]
) -> dict[str, Any]:
    """Return the cost of a job. Amounts of different currencies are never added up.

    The estimated cost of its running tasks is separate. `currency`, and the two figures in it, are
    the first by its code where there are several.
    """
    costs = dict(sorted(costs_nanos.items()))
    currency = next(iter(costs), "")
    return {
        "cost_nanos": costs.get(currency, 0),
        "currency": currency,
        "price_nanos": prices_nanos.get(currency, 0),
        "costs_nanos": costs,
        "cost": ", ".join(format_money(nanos, code) for code, nanos in costs.items()),
        "estimated_costs_nanos": dict(estimated),
        "estimated_cost": ", ".join(format_money(each, code) for code, each in estimated.items()),
    }


def latest(jobs: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Return the jobs that were submitted last, the last first; of equal moments the least id."""
    return sorted(jobs, key=lambda job: (-job["submitted_at_s"], job["id"]))[:limit]


def notes(job: Job) -> list[dict[str, Any]]:
    """Return the notes on a job's events, the earliest first."""
    return [{"at_s": at_s, "text": text} for at_s, text in job.notes]


def why_waiting(broker: Broker, job: Job, utc_s: UtcS) -> list[dict[str, Any]]:
    """Return why a job's tasks are queued: a reason of the job, or workers' refusals by reason.

    `text` is a sentence, or, where there are `workers` that refuse for it, what one of them does;
    `sentence` is a sentence always.
    """
    if job.spec.hold is not None:
        return _of_job(Reason.HELD, held_text(job))
    unpayable = broker.admission.unpayable(job.spec)
    if unpayable:
        return _of_job(Reason.CURRENCY_DIFFERS, unpayable)
    if job.unmet:
        return _of_job(Reason.LIMITS_UNMET, job.unmet)
    client = broker.clients.get(job.client)
    if job.lacks_function_since_s is not None:
        text = "its client has not sent its function yet"
        return _of_job(Reason.FUNCTION_MISSING, text)
    if client is not None and not client.ready:
        text = "its client does not read its results"
        return _of_job(Reason.CLIENT_NOT_READING, text)
    counts: Counter[tuple[str, str, str]] = Counter()
    nouns = Counter("contract" if each.job else "worker" for each in broker.workers.values())
    short = broker.spending.why_waiting(job) if job.budget_accounts else {}
    for text in short.values():
        counts[Reason.BUDGET_EXHAUSTED, text, "worker"] = 0
    for worker in broker.workers.values():
        noun = "contract" if worker.job else "worker"
        refusal = broker.refusal(job, worker, utc_s)
        if refusal is not None:
            counts[refusal.reason, refusal.text, noun] += 1
        elif not _is_affordable(broker, job, worker):
            counts[Reason.COST_LIMIT, RUNNING_COST, "worker"] += 1
        elif short:
            counts.update((Reason.BUDGET_EXHAUSTED, text, "worker") for text in short.values())
        else:
            counts[Reason.BUSY, "has no free slot", noun] += 1
    if not broker.workers:
        grown = ", ".join(sorted(broker.growth))
        text = (
            f"no worker now: the workers of {grown} are started on demand (`gridfed scale --why`)"
        )
        counts[Reason.NO_WORKER, text if grown else NO_WORKER, "worker"] = 0
    return [
        {
            "reason": str(reason),
            "text": text,
            "workers": number,
            "sentence": text if reason in WHOLE else of_workers(number, text, nouns[noun], noun),
        }
        for (reason, text, noun), number in counts.most_common()
    ]


def _of_job(reason: Reason, text: str) -> list[dict[str, Any]]:
    return [{"reason": reason.value, "text": text, "workers": 0, "sentence": text}]


def _is_affordable(broker: Broker, job: Job, worker: Worker) -> bool:
    task_s = broker.durations.of(job.spec.function)
    return matching.fits_cost(job, broker.tariff_at(job, worker), task_s, 1) > 0


def _carbon(emissions: Emissions) -> dict[str, Any]:
    """Return the carbon intensity of a pool's electricity and its source; None if unknown."""
    intensity, machine = emissions.intensity, emissions.machine
    return {
        "carbon_g_per_kwh": intensity.mg_per_kwh / 1_000 if intensity else None,
        "carbon_source": intensity.source if intensity else "",
        "slot_watts": machine.busy_watts if machine else None,
    }


def _others_work(members: Iterable[Worker]) -> list[str]:
    """Return how a pool's workers isolate other sites' work, as in policies.placement.environments;
    sorted.

    "none": there is no sandbox, and the owner has accepted that; "refused": such work is not taken.
    """
    found = set()
    for each in members:
        tags = filter(is_sandbox, each.offer.tags)
        levels = [tag.removeprefix(SANDBOX_TAG) for tag in tags] or ["its grid's"]
        found.add(levels[0] if each.offer.takes_others else "refused")
    return sorted(found)


def status(broker: Broker, site: str, addresses: list[str], clients: int) -> dict[str, Any]:
    """Return the site at a glance."""
    workers = broker.workers.values()
    pools: dict[str, dict[str, Any]] = {}
    for name, tariff in broker.tariffs.items():
        members = [worker for worker in workers if worker.offer.pool == name]
        busy, slots = busy_slots(members)
        pools[name] = {
            "pool": name,
            "workers": len(members),
            "draining": sum(worker.draining for worker in members),
            "slots": slots,
            "busy": busy,
            "price": f"{format_money(tariff.price_nanos, tariff.currency)} per slot-hour",
            **_carbon(broker.emissions.get(name, Emissions())),
            "tariff": tariff.version,
            "window": tariff.window,
            "others_work": _others_work(members),
        }
    return {
        "site": site,
        "addresses": addresses,
        "state": "draining" if broker.draining else "up",
        "trouble": broker.trouble,
        "clients": clients,
        "jobs": len(broker.jobs),
        "waiting": sum(job.waiting for job in broker.jobs.values()),
        "in_flight": sum(job.in_flight for job in broker.jobs.values()),
        "tasks_done": broker.tasks_done,
        "pools": list(pools.values()),
    }


def narrow(value: Any) -> Any:
    """Return a whole number as text if it is too large for the wire; in maps, too."""
    if isinstance(value, dict):
        return {key: narrow(each) for key, each in value.items()}
    return str(value) if type(value) is int and abs(value) > NUMBER_LIMIT else value
