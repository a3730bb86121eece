"""Draws a random world: one or more sites, workers, users, their jobs, and faults.

Some worlds are a federation: sites of different prices and sizes that deal with each other.
"""

from dataclasses import replace
from random import Random
from typing import Any, Final

from federation.money import parse_money
from gateway.config.books import BookRules
from gateway.config.contracts import DealRules
from gateway.config.limits import ListenerLimits
from policies.access.claims import EVERYTHING, Amount, Claim, Claims
from policies.access.entitlements import EntitlementRule, Entitlements
from policies.access.shares import FairShare, Share
from policies.access.windows import Window, WindowPlan
from policies.calendar.hours import Hours
from policies.calendar.weeks import DAY_S
from policies.costs.budgets import SLOT_TIME, Budget, Running, Waiting
from policies.parties import OTHERS, OURS, Party, PartyKind
from policies.placement.asks import Preferences
from policies.reservations.reservations import ReservationRules
from policies.tariffs import MILLION
from simulations.world.clock import EPOCH_S
from simulations.world.network import Weather
from simulations.world.plan import (
    ClientPlan,
    Crash,
    DrainWorkers,
    Fault,
    JobPlan,
    NetworkCut,
    OperatorPlan,
    Pause,
    PoolPlan,
    ReservePlan,
    Reset,
    SitePlan,
    SlowStore,
    WorkerPlan,
    WorldPlan,
)

CALM_S: Final = 30.0
SETTLE_S: Final = 900.0
QUESTION_S: Final = 3.0  # to request a part of another site's budget, and until that is used
SITES: Final = ("london", "paris", "tokyo", "zurich")
FEDERATED: Final = 0.4  # the share of federations among worlds
WINDOWS_EACH: Final = 5  # one world in this many has windows, if it is a federation
ENTITLED_EACH: Final = 9  # one world in this many has entitlements
RESERVES_EACH: Final = 6  # one world in this many has reservations, if it is a federation
BESIDE_EACH: Final = 18  # also one world in this many, with entitlements or shares as well
SHARES_EACH: Final = 8  # one world in this many has fair shares
BUDGETS_EACH: Final = 7  # one world in this many has budgets
STOPS_EACH: Final = 10  # one world in this many stops long tasks, if it is a federation
# In one world in this many, gateways restart with long tasks out, if it is a federation with
# budgets.
RESTARTS_EACH: Final = 3 * BUDGETS_EACH
GRAPHS_EACH: Final = 13  # one world in this many has a graph
LABELS_EACH: Final = 17  # one world in this many has labelled data, if it is a federation
IMPATIENT_EACH: Final = 4  # in one world in this many, users do not wait until a job is kept
IN_A_ROW: Final = 0.5  # the share of rows among federations of three
PRICES: Final = ("3.6 USD", "12 USD", "12 USD", "36 USD", "72 USD")
WEATHERS: Final = (Weather(0.0003, 0.0005), Weather(0.01, 0.02), Weather(0.05, 0.2, 2e6))


def draw_plan(seed: int) -> WorldPlan:
    """Draw the world of a seed."""
    plan = _draw_world(seed)
    # Drawn separately, so that all other worlds stay as they were.
    if seed % ENTITLED_EACH == 6:
        plan = _with_entitlements(plan, Random(f"entitlements {seed}"))
    if seed % STOPS_EACH == 8:
        plan = _with_stops(plan, Random(f"stops {seed}"))
    if seed % SHARES_EACH == 2:
        plan = _with_shares(plan, Random(f"shares {seed}"))
    if seed % BUDGETS_EACH == 5:
        limits_s: tuple[float, ...] = (1.0, 2.0, 10.0)
        if seed % RESTARTS_EACH == 5 and any(site.others for site in plan.sites):
            plan, limits_s = _with_restarts(plan, Random(f"restarts {seed}")), (10.0,)
        plan = _with_budgets(plan, Random(f"budgets {seed}"), limits_s)
    if seed % RESERVES_EACH == 1 or seed % BESIDE_EACH == 6:
        plan = _with_reservations(plan, Random(f"reservations {seed}"))
    if seed % IMPATIENT_EACH == 3:
        plan = _impatient(plan)
    if seed % GRAPHS_EACH == 9 and not any(site.budgets for site in plan.sites):
        plan = _with_graphs(plan, Random(f"graphs {seed}"))
    # Where there are budgets each job has a time limit.
    is_labelled = seed % LABELS_EACH == 8 and any(site.others for site in plan.sites)
    if is_labelled and not any(site.budgets for site in plan.sites):
        plan = _with_labels(plan, Random(f"labels {seed}"))
    return plan


def _with_labels(plan: WorldPlan, dice: Random) -> WorldPlan:
    """Let each user have two more jobs, of more work than the own site has slots for, with labels.

    A label allows the own site, and forbids at least one of those that would run it. The own
    gateway dies while some of the work is left.
    """
    clients, faults = [], list(plan.faults)
    for client in plan.clients:
        others = sorted({site.name for site in plan.sites} - {client.site})
        jobs = []
        for _ in range(2):
            away = dice.sample(others, dice.randint(1, len(others)))
            label = tuple(f"not-site:{each}" for each in sorted(away))
            if dice.random() < 0.5:
                near = sorted({client.site, *others} - set(away))
                label = tuple(f"site:{each}" for each in near)
            jobs.append(
                JobPlan(
                    at_s=round(dice.uniform(0, 15), 3),
                    tasks=dice.choice((40, 200)),
                    batch=dice.choice((20, 200)),
                    task_s=dice.choice((0.1, 0.5)),
                    retries=dice.choice((0, 2)),
                    flaky=dice.choice((0, 50)),
                    detached=dice.random() < 0.6,
                    label=label,
                )
            )
        clients.append(replace(client, jobs=(*client.jobs, *jobs)))
        at_s = round(jobs[0].at_s + dice.uniform(0.5, 4), 3)
        faults.append(Crash(at_s, client.site, back_after_s=1.0))
    return replace(plan, clients=tuple(clients), faults=tuple(faults))


def _with_graphs(plan: WorldPlan, dice: Random) -> WorldPlan:
    """Let calls of one more job of each user wait for others, of that job."""
    clients = []
    for client in plan.clients:
        graph = JobPlan(
            at_s=round(dice.uniform(0, 12), 3),
            tasks=dice.choice((20, 60, 200)),
            batch=dice.choice((1, 20, 200)),
            every_s=dice.choice((0.001, 0.05)),
            task_s=dice.choice((0.0005, 0.002, 0.05)),
            retries=dice.choice((0, 2)),
            errors=dice.choice((0, 0, 20)),
            flaky=dice.choice((0, 0, 50)),
            poison=dice.choice((0, 0, 15)),
            cancel_at_s=round(dice.uniform(1, 20), 3) if dice.random() < 0.2 else None,
            kill=dice.random() < 0.5,
            chain=dice.choice((2, 5, 40)),
            fan_in=dice.choice((0, 1, 3)),
        )
        clients.append(replace(client, jobs=(*client.jobs, graph)))
    workers = tuple(replace(each, graphs=True) for each in plan.workers)
    return replace(plan, clients=tuple(clients), workers=workers)


def _draw_world(seed: int) -> WorldPlan:
    dice = Random(seed)
    if dice.random() >= FEDERATED:
        return _draw_sites(dice)
    plan = _draw_federation(dice)
    if len(plan.sites) == 3 and dice.random() < IN_A_ROW:
        plan = _in_a_row(plan)
    plan = _with_books(plan, dice)
    # Drawn separately, so that all other worlds stay as they were.
    return _with_windows(plan, Random(f"windows {seed}")) if seed % WINDOWS_EACH == 4 else plan


def _with_reservations(plan: WorldPlan, dice: Random) -> WorldPlan:
    """Let users reserve slots at several sites at once, for some seconds.

    Unused slots cost nothing there: other tests cover bills without tasks.
    """
    if not any(site.others for site in plan.sites):
        return plan
    rules = ReservationRules(
        EVERYTHING, unused_factor=0, cancel_factor=0, hold_s=dice.choice((3.0, 8.0)), grace_s=0.5
    )
    most = max((worker.slots for worker in plan.workers), default=1)
    sites = []
    for site in plan.sites:
        near = (site.name, *site.others)
        wishes = tuple(
            ReservePlan(
                at_s=dice.uniform(2.0, 15.0),
                sites=tuple(dice.sample(near, dice.randint(1, len(near)))),
                slots=dice.randint(1, most),
                in_s=dice.choice((0.0, 1.0, 4.0, 2_000.0, 2_000.0)),
                lasts_s=dice.choice((2.0, 6.0, 15.0)),
            )
            for _ in range(dice.randint(1, 4))
        )
        sites.append(replace(site, reservations=rules, reserves=wishes))
    settle_s = plan.settle_s
    if any(site.budgets for site in sites):
        # Work may wait for the money that is held for a reservation, until that is over.
        settle_s += max(
            each.at_s + each.in_s + each.lasts_s for site in sites for each in site.reserves
        )
    return replace(plan, sites=tuple(sites), settle_s=settle_s)


def _with_stops(plan: WorldPlan, dice: Random) -> WorldPlan:
    """Give the first job of each user long tasks, and stop it half way."""
    if not any(site.others for site in plan.sites):
        return plan
    clients = []
    for client in plan.clients:
        first, *more = client.jobs
        stop_s = first.at_s + dice.uniform(2.0, 8.0)
        long = replace(
            first, tasks=40, batch=40, task_s=20.0, spread=1.0, deadline_s=None, kill=True
        )
        clients.append(replace(client, jobs=(replace(long, cancel_at_s=round(stop_s, 3)), *more)))
    return replace(plan, clients=tuple(clients))


def _impatient(plan: WorldPlan) -> WorldPlan:
    """Let users ask for results of detached jobs before these are known to be kept."""
    clients = tuple(
        replace(each, jobs=tuple(replace(job, is_impatient=job.detached) for job in each.jobs))
        for each in plan.clients
    )
    return replace(plan, clients=clients)


def _with_shares(plan: WorldPlan, dice: Random) -> WorldPlan:
    """Add fair shares."""
    sites = []
    for site in plan.sites:
        written = (
            Share("others", dice.randint(1, 3), who=OTHERS, each=PartyKind.SITE),
            Share("user0", dice.randint(1, 3), who=Party(PartyKind.USER, "user0")),
        )
        rules = FairShare(
            dice.choice((1.0, 60.0)), dice.choice((0.5, 20.0)), PartyKind.USER, written
        )
        sites.append(replace(site, fair_share=rules))
    return replace(plan, sites=tuple(sites))


def _with_entitlements(plan: WorldPlan, dice: Random) -> WorldPlan:
    """Limit the slots of users: for this site's users, enough to finish.

    No user is in two allowing rules. Where work must pass through a site, the plan stays as it is.
    """
    if any(site.beyond for site in plan.sites):
        return plan
    sites = []
    for site in plan.sites:
        queued = dice.choice((None, None, None, 150))
        rules = [
            EntitlementRule(True, (OURS,), slots_max=dice.choice((2, 3, 5)), queued_max=queued),
            EntitlementRule(True, (OTHERS,), slots_max=dice.choice((0, 1, 2, 4))),
        ]
        if any(pool.windows.windows for pool in site.pools) and dice.random() < 0.5:
            rules.append(EntitlementRule(False, (OTHERS,), windows=frozenset({"run"})))
        if site.others and dice.random() < 0.3:
            denied = Party(PartyKind.SITE, dice.choice(site.others))
            rules.append(
                EntitlementRule(False, (denied,), frozenset({dice.choice(site.pools).name}))
            )
        sites.append(replace(site, entitlements=Entitlements(tuple(rules), "site.toml")))
    return replace(plan, sites=tuple(sites))


def _with_restarts(plan: WorldPlan, dice: Random) -> WorldPlan:
    """Give the first job of each user long tasks, and restart its gateway."""
    clients, crashes = [], []
    for client in plan.clients:
        first, *more = client.jobs
        long = replace(first, tasks=40, batch=40, task_s=8.0, spread=1.0, detached=True)
        long = replace(long, objective="fastest", deadline_s=None, cancel_at_s=None, stuck=0)
        clients.append(replace(client, jobs=(long, *more)))
        at_s = round(first.at_s + dice.uniform(3.0, 8.0), 3)
        crashes.append(Crash(at_s, client.site, dice.choice((0.3, 1.0))))
    return replace(plan, clients=tuple(clients), faults=(*plan.faults, *crashes))


def _with_budgets(plan: WorldPlan, dice: Random, limits_s: tuple[float, ...]) -> WorldPlan:
    """Add budgets that run out, or nearly; all sites of a federation share one.

    They are not periodic, as nothing here waits for midnight, so work that can't be paid ends.
    """
    limit_s = dice.choice(limits_s)
    clients = tuple(
        replace(each, jobs=tuple(replace(job, timeout_s=limit_s) for job in each.jobs))
        for each in plan.clients
    )
    work_s = {
        site.name: sum(
            job.tasks * min(limit_s, job.task_s)
            for each in clients
            for job in each.jobs
            if each.site == site.name
        )
        for site in plan.sites
    }
    prices = {pool.price for site in plan.sites for pool in site.pools}
    price_nanos = max(parse_money(price)[0] for price in prices)
    # In a row, the site in the middle: only that one is reached by all others.
    owner = next((site.name for site in plan.sites if len(site.others) == len(plan.sites) - 1), "")
    # In a row some work can run at only one site, and must not wait for its money for ever.
    is_row = any(site.beyond for site in plan.sites)
    slice_part, slice_s = dice.choice((0.05, 0.3)), dice.choice((5.0, 60.0))
    shared = _budget("shared", OURS, sum(work_s.values()), limit_s, price_nanos, dice)
    sites = []
    for site in plan.sites:
        budgets = []
        if site.others and site.name == owner:
            budgets.append(replace(shared, sites=frozenset(site.others), slice_s=slice_s))
        elif site.others:
            nanos = max(1, round(shared.amount_nanos * slice_part))
            budgets.append(replace(shared, owner=owner, amount_nanos=nanos))
        if dice.random() < 0.4:
            user = Party(PartyKind.USER, f"user{dice.randint(0, 1)}")
            own = _budget("own", user, work_s[site.name], limit_s, price_nanos, dice)
            budgets.append(replace(own, is_hard=dice.random() < 0.8))
        if site.others and not is_row and dice.random() < 0.3:
            lent = _budget("lent", OTHERS, sum(work_s.values()), limit_s, price_nanos, dice)
            budgets.append(replace(lent, waiting=Waiting.WAIT))
        sites.append(replace(site, budgets=tuple(budgets)))
    # A slice may be less than the cost of one task: then there is a request before each.
    tasks = sum(job.tasks for each in clients for job in each.jobs)
    settle_s = plan.settle_s + QUESTION_S * tasks
    return replace(plan, sites=tuple(sites), clients=clients, settle_s=settle_s)


def _budget(
    name: str, party: Party, work_s: float, limit_s: float, price_nanos: int, dice: Random
) -> Budget:
    """Return a budget for some part of the work, and for some tasks at least."""
    amount_s = work_s * dice.choice((0.1, 0.5, 2.0)) + dice.randint(1, 8) * (limit_s + 1.0)
    unit = dice.choice(("USD", SLOT_TIME))
    nanos = amount_s * 1e9 if unit == SLOT_TIME else amount_s * price_nanos / 3_600
    running = dice.choice(tuple(Running))
    return Budget(name, party, unit, round(nanos), span=None, running=running, waiting=Waiting.END)


def _draw_sites(dice: Random) -> WorldPlan:
    """Draw one site, or two that know nothing of each other."""
    is_long = dice.random() < 0.2
    names = SITES[: 1 if dice.random() < 0.8 else 2]
    sites = tuple(_site(name, dice) for name in names)
    workers = tuple(
        _worker(f"{site.name}-w{number}", site, dice)
        for site in sites
        for number in range(dice.randint(1, 4))
    )
    clients = tuple(
        _client(f"user{number}", dice.choice(sites), workers, dice, is_long=is_long)
        for number in range(dice.randint(1, 3))
    )
    faults: list[Fault] = []
    for _ in range(dice.choice((0, 1, 2, 3, 5, 8))):
        faults.append(_fault(dice, sites, workers, clients))
    if is_long:
        cut_off = dice.choice(workers)
        at_s, one_way = round(dice.uniform(2, 10), 3), dice.random() < 0.5
        faults.append(NetworkCut(at_s, cut_off.name, cut_off.site, 14.0, one_way=one_way))
    weather = dice.choice(WEATHERS)
    return WorldPlan(sites, workers, clients, tuple(faults), weather, CALM_S, SETTLE_S)


def _draw_federation(dice: Random) -> WorldPlan:
    """Draw two to four sites that deal with each other, with users at some of them."""
    names = SITES[: dice.choice((2, 2, 3, 4))]
    sites = tuple(_member(name, names, dice) for name in names)
    workers = tuple(
        _worker(f"{site.name}-w{number}", site, dice)
        for at, site in enumerate(sites)
        for number in range(dice.randint(1, 2) if at == 0 else dice.randint(1, 4))
    )
    clients = tuple(
        _roaming(_client(f"user{number}", site, workers, dice, is_long=False), names, dice)
        for number, site in enumerate(dice.sample(sites, dice.randint(1, 2)))
    )
    homes = [client.site for client in clients]
    faults: list[Fault] = []
    for _ in range(dice.choice((0, 1, 2, 3, 5))):
        if dice.random() < 0.7:
            faults.append(_rift(dice, names, homes))
        else:
            faults.append(_fault(dice, sites, workers, clients))
    return WorldPlan(
        sites, workers, clients, tuple(faults), dice.choice(WEATHERS), CALM_S, SETTLE_S
    )


def _in_a_row(plan: WorldPlan) -> WorldPlan:
    """Connect three sites in a row, each of which deals only with its neighbours.

    Only the last has a vault, and the first user of the first site needs it. The site between them
    forwards that work, because it knows both. Nothing else is forbidden, so there is a way.
    """
    names = [site.name for site in plan.sites]
    first, last = names[0], names[-1]
    vault = PoolPlan("vault", plan.sites[-1].pools[0].price, {"linux": True, "vault": True})
    sites = []
    for at, site in enumerate(plan.sites):
        near = (*names[max(0, at - 1) : at], *names[at + 1 : at + 2])
        far = tuple(name for name in names if name not in (site.name, *near))
        skew_s = min(site.skew_s, 1.0)  # sites don't deal with one that is far ahead
        site = replace(site, others=near, beyond=far, runs_not=(), takes_not=(), skew_s=skew_s)
        sites.append(replace(site, pools=(*site.pools, vault)) if site.name == last else site)
    guard = WorkerPlan(f"{last}-guard", last, "vault")
    one, *more = plan.clients
    jobs = [replace(job, only=(), never=(), tags={"linux": True}) for job in one.jobs]
    jobs[0] = replace(jobs[0], tags={"linux": True, "vault": True})
    clients = (replace(one, site=first, jobs=tuple(jobs)), *more)
    return replace(plan, sites=tuple(sites), workers=(*plan.workers, guard), clients=clients)


def _with_books(plan: WorldPlan, dice: Random) -> WorldPlan:
    """Add days of a few seconds, and operators of the books."""
    day_ms = dice.choice((2_000, 5_000))
    sites = []
    for site in plan.sites:
        books = BookRules(
            reconcile_s=dice.choice((0.5, 1.0)),
            # The longest outlasts the clock skew, as a real one does.
            settle_s=dice.choice((1.0, 4.0, 12.0)),
            dispute_days=dice.choice((4.0, 60.0)) / 86_400,
            period=dice.choice(("day", "week")),
            detail_days=0.0,
            day_ms=day_ms,
        )
        operator = OperatorPlan(
            every_s=dice.choice((0.5, 2.0)),
            disputes=dice.choice((0.0, 0.05, 0.3)),
            answers=dice.choice((1.0, 1.0, 0.7)),
            accepts=dice.random(),
            pays=dice.choice((0.0, 0.2)),
        )
        sites.append(replace(site, books=books, operator=operator))
    return replace(plan, sites=tuple(sites))


def _with_windows(plan: WorldPlan, dice: Random) -> WorldPlan:
    """Add windows of some seconds in which others may have few slots of a pool, or none."""
    sites = []
    for site in plan.sites:
        pools = []
        for pool in site.pools:
            begins_s = dice.choice((2, 6, 10))
            lasts_s = dice.choice((4, 8, 15))
            first_s = int(EPOCH_S) % DAY_S + begins_s
            most = Amount(dice.choice((0, 0, 0, 1, 2)))
            window = Window(
                "run",
                Hours(first_s, first_s + lasts_s),
                Claims((Claim(OTHERS, borrows=most),)),
                price_factor=dice.choice((MILLION, 2 * MILLION)),
                preempts=dice.random() < 0.8,
                drain_lead_s=dice.choice((0.0, 1.0, 5.0)),
                grace_s=dice.choice((0.0, 0.5)),
                spill_s=dice.choice((0.0, 0.0, 1.0)),
                stops_per_minute=dice.choice((0, 0, 0, 2)),
            )
            has_windows = dice.random() < 0.7
            pools.append(replace(pool, windows=WindowPlan((window,))) if has_windows else pool)
        sites.append(replace(site, pools=tuple(pools)))
    return replace(plan, sites=tuple(sites))


def _member(name: str, names: tuple[str, ...], dice: Random) -> SitePlan:
    site = _site(name, dice)
    grace_s = site.rules.grace_s
    lease_s = 30.0 if grace_s > 3.0 else 8.0
    price = dice.choice(PRICES)
    pools = tuple(replace(pool, price=price) for pool in site.pools)
    others = tuple(other for other in names if other != name)
    return replace(
        site,
        pools=pools,
        # An advert from over 2 s ahead is ignored, an envelope from over 30 s is refused.
        skew_s=dice.choice((0.0, 0.0, -0.9, 0.9, 10.0)),
        others=others,
        runs_not=tuple(other for other in others if dice.random() < 0.1),
        takes_not=tuple(other for other in others if dice.random() < 0.1),
        deals=DealRules(lease_s=lease_s, grace_s=grace_s),
        preferences=Preferences(prefer_own_s=dice.choice((0.0, 0.0, 0.5, 5.0))),
    )


def _roaming(client: ClientPlan, names: tuple[str, ...], dice: Random) -> ClientPlan:
    """Restrict the sites of some of a user's jobs: they can always run somewhere, and at home."""
    others = tuple(name for name in names if name != client.site)
    jobs = []
    for job in client.jobs:
        never = (dice.choice(others),) if dice.random() < 0.15 else ()
        only = (client.site, dice.choice(others)) if not never and dice.random() < 0.1 else ()
        objective = dice.choice(("", "", "fastest", "cheapest"))
        deadline_s = dice.choice((0.5, 4.0, 15.0)) if dice.random() < 0.1 else None
        most = 10**8 if dice.random() < 0.1 else job.max_cost_nanos
        roamed = replace(
            job,
            never=never,
            only=only,
            objective=objective,
            deadline_s=deadline_s,
            max_cost_nanos=most,
        )
        if dice.random() < 0.5:  # enough to keep others busy when a fault hits them
            roamed = replace(roamed, tasks=200, batch=100, task_s=dice.choice((0.1, 0.4)))
        jobs.append(roamed)
    return replace(client, jobs=tuple(jobs))


def _rift(dice: Random, names: tuple[str, ...], homes: list[str]) -> Fault:
    """Draw a fault of a site, or of the link between two."""
    one = dice.choice(homes if dice.random() < 0.4 else names)
    other = dice.choice([name for name in names if name != one])
    at_s = round(dice.uniform(0.2, CALM_S - 12), 3)
    for_s = dice.choice((0.1, 1.0, 3.0, 9.0, 14.0, 25.0))
    kinds: tuple[Fault, ...] = (
        Crash(at_s, one, for_s),
        Crash(at_s, one, for_s, power=True),
        Pause(at_s, one, for_s),
        NetworkCut(at_s, one, other, for_s),
        NetworkCut(at_s, one, other, for_s, one_way=True),
        Reset(at_s, one, other, dice.choice((1, 1, 8, 30)), dice.choice((0.02, 0.3, 2.0))),
        # The longest outlasts a hold: the buyer's commit comes too late.
        SlowStore(at_s, one, dice.choice((0.05, 0.5, 3.0, 8.0)), for_s),
    )
    return dice.choice(kinds)


def _site(name: str, dice: Random) -> SitePlan:
    pools = [PoolPlan("farm", "36 USD", {"linux": True})]
    if dice.random() < 0.5:
        tags: dict[str, Any] = {"linux": True, "gpu": dice.randint(1, 3), "licence": 0.5}
        pools.append(PoolPlan("cards", "72 USD", tags))
    heartbeat_s, grace_s = dice.choice(((2.0, 10.0), (0.5, 3.0), (0.5, 3.0)))
    rules = ListenerLimits(
        site=name,
        heartbeat_s=heartbeat_s,
        grace_s=grace_s,
        tasks_max=dice.choice((200_000, 200_000, 1000)),
    )
    return SitePlan(
        name,
        tuple(pools),
        rules,
        commit_s=dice.choice((0.0, 0.0, 0.0005, 0.02)),
        sync_s=dice.choice((0.001, 0.005, 0.1)),
        skew_s=dice.choice((0.0, 0.0, -400.0, 400.0)),
        drift=dice.uniform(-0.0002, 0.0002),
    )


def _worker(name: str, site: SitePlan, dice: Random) -> WorkerPlan:
    return WorkerPlan(
        name,
        site.name,
        dice.choice(site.pools).name,
        slots=dice.randint(1, 4),
        from_s=dice.choice((0.0, 0.0, dice.uniform(0, 10))),
        skew_s=dice.choice((0.0, 100.0)),
        drift=dice.uniform(-0.0002, 0.0002),
    )


def _client(
    name: str, site: SitePlan, workers: tuple[WorkerPlan, ...], dice: Random, *, is_long: bool
) -> ClientPlan:
    # A job that no worker could run would wait for ever.
    has_cards = any(each.site == site.name and each.pool == "cards" for each in workers)
    jobs = tuple(
        _job(dice, has_cards=has_cards, is_long=is_long) for _ in range(dice.randint(1, 3))
    )
    return ClientPlan(name, site.name, jobs, skew_s=dice.choice((0.0, -50.0)))


def _job(dice: Random, *, has_cards: bool, is_long: bool) -> JobPlan:
    tags: dict[str, Any] = {"linux": True} if dice.random() < 0.3 else {}
    if has_cards and dice.random() < 0.4:
        tags = {"gpu": 1} if dice.random() < 0.6 else {"licence": 0.1}
    tasks = dice.choice((1, 10, 60, 60, 200, 400))
    task_s = dice.choice((0.0005, 0.005, 0.03, 0.2, 1.0 if tasks <= 60 else 0.05))
    if is_long:  # tasks that outlast a lease
        tasks, task_s = dice.choice((1, 3, 6)), dice.choice((6.0, 15.0))
    trouble = dice.random()
    stuck = 30 if trouble > 0.9 else 0
    return JobPlan(
        at_s=round(dice.uniform(0, 12), 3),
        tasks=tasks,
        batch=dice.choice((1 if tasks <= 60 else 20, 50, 400)),
        every_s=dice.choice((0.001, 0.05, 0.4)),
        task_s=task_s,
        spread=dice.choice((1.0, 1.0, 20.0)),
        tags=tags,
        detached=dice.random() < 0.3,
        retries=dice.choice((0, 0, 2)),
        timeout_s=1.0 if stuck else None,
        priority=dice.choice((0.0, 0.0, 1.0)),
        errors=dice.choice((0, 0, 50)),
        flaky=100 if trouble < 0.15 else 0,
        poison=15 if 0.2 < trouble < 0.3 else 0,
        stuck=stuck,
        cancel_at_s=round(dice.uniform(1, 20), 3) if dice.random() < 0.25 else None,
        kill=dice.random() < 0.5,
        max_cost_nanos=10**8 if dice.random() < 0.05 else None,
    )


def _fault(
    dice: Random,
    sites: tuple[SitePlan, ...],
    workers: tuple[WorkerPlan, ...],
    clients: tuple[ClientPlan, ...],
) -> Fault:
    site = dice.choice(sites).name
    callers: list[WorkerPlan | ClientPlan] = [*workers, *clients]
    caller = dice.choice(callers)
    host = dice.choice((site, dice.choice(workers).name, dice.choice(workers).name, caller.name))
    at_s = round(dice.uniform(0.2, CALM_S - 12), 3)
    for_s = dice.choice((0.1, 1.0, 3.0, 9.0, 14.0))
    user = dice.choice(clients)
    kinds: tuple[Fault, ...] = (
        Crash(at_s, site, for_s, power=dice.random() < 0.3),
        NetworkCut(at_s, user.site, user.name, for_s, one_way=dice.random() < 0.4),
        Crash(at_s, host, for_s, power=dice.random() < 0.3),
        Pause(at_s, host, for_s),
        NetworkCut(at_s, caller.name, caller.site, for_s, one_way=dice.random() < 0.4),
        NetworkCut(at_s, caller.site, caller.name, for_s, one_way=dice.random() < 0.4),
        Reset(
            at_s, caller.name, caller.site, dice.choice((1, 1, 8)), dice.choice((0.02, 0.3, 2.0))
        ),
        SlowStore(at_s, site, dice.choice((0.05, 0.5, 3.0)), for_s),
        DrainWorkers(at_s, site, for_s),
    )
    return dice.choice(kinds)
