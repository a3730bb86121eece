"""Sites that deal with each other, and lose each other."""

from random import Random

from gateway.config.contracts import DealRules
from gateway.config.limits import ListenerLimits
from simulations.world.plan import (
    ClientPlan,
    Crash,
    Fault,
    JobPlan,
    NetworkCut,
    Pause,
    PoolPlan,
    Reset,
    SitePlan,
    WorkerPlan,
    WorldPlan,
)

NAMES = ("london", "paris", "tokyo")
PRICES = ("36 USD", "12 USD", "24 USD")
RULES = ListenerLimits(heartbeat_s=0.5, grace_s=3.0)
DEALS = DealRules(lease_s=8.0, grace_s=3.0)
LONG = JobPlan(tasks=300, task_s=0.3, spread=5.0, objective="fastest")
KEPT = JobPlan(tasks=200, task_s=0.3, detached=True)


def _three_sites(*faults: Fault) -> WorldPlan:
    """Return a plan of three sites: one small and dear, with the user; two larger and cheaper."""
    sites = tuple(
        SitePlan(
            name,
            (PoolPlan(price=price),),
            RULES,
            others=tuple(other for other in NAMES if other != name),
            deals=DEALS,
        )
        for name, price in zip(NAMES, PRICES, strict=True)
    )
    workers = tuple(
        WorkerPlan(f"{name}-w{number}", name)
        for name, count in zip(NAMES, (1, 3, 2), strict=True)
        for number in range(count)
    )
    return WorldPlan(sites, workers, (ClientPlan("ann", jobs=(LONG, KEPT)),), faults, calm_s=40.0)


def lost_site(seed: int) -> WorldPlan:
    """A site dies with tasks of another, and comes back when they have run elsewhere."""
    at_s = Random(seed).uniform(1.0, 6)
    return _three_sites(Crash(at_s, "paris", 20.0, power=seed % 2 == 0))


def paused_site(seed: int) -> WorldPlan:
    """A site with tasks of another is stopped for longer than its leases, and goes on."""
    at_s = Random(seed).uniform(1.0, 6)
    return _three_sites(Pause(at_s, "paris", 14.0))


def partitioned_sites(seed: int) -> WorldPlan:
    """Two sites are cut off from each other, first both ways, then one way."""
    at_s = Random(seed).uniform(1.0, 6)
    ways = ("london", "paris") if seed % 2 else ("paris", "london")
    return _three_sites(
        NetworkCut(at_s, "london", "paris", 12.0), NetworkCut(at_s + 16, *ways, 12.0, one_way=True)
    )


def restarted_buyer(seed: int) -> WorldPlan:
    """The site that has tasks at others dies twice, and takes its jobs up again."""
    at_s = Random(seed).uniform(1.0, 6)
    return _three_sites(Crash(at_s, "london", 2.0), Crash(at_s + 10, "london", 2.0, power=True))


def slow_site(_seed: int) -> WorldPlan:
    """Of two sites at the same price one turns out to be twenty times slower than the other."""
    names = ("london", "paris", "tokyo")
    sites = tuple(
        SitePlan(
            name,
            (PoolPlan(price="12 USD"),),
            RULES,
            others=tuple(other for other in names if other != name),
            deals=DEALS,
        )
        for name in names
    )
    workers = (
        WorkerPlan("paris-w0", "paris", slots=4),
        WorkerPlan("tokyo-w0", "tokyo", slots=4, slower=20.0),
    )
    job = JobPlan(tasks=2000, batch=2000, task_s=0.05, objective="fastest")
    return WorldPlan(sites, workers, (ClientPlan("ann", jobs=(job,)),), calm_s=10.0, settle_s=300.0)


def flapping_link(seed: int) -> WorldPlan:
    """The connections between two sites break many times a second."""
    at_s = Random(seed).uniform(0.5, 3)
    return _three_sites(Reset(at_s, "london", "paris", 40, 0.3))
