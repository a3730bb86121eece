"""Hosts that die, stop and come back."""

from random import Random

from simulations.world.plan import (
    ClientPlan,
    Crash,
    DrainWorkers,
    Fault,
    JobPlan,
    Pause,
    WorkerPlan,
    WorldPlan,
)

WORKERS = tuple(WorkerPlan(f"w{number}") for number in range(3))
LONG = JobPlan(tasks=300, task_s=0.1, spread=5.0)
KEPT = JobPlan(tasks=200, task_s=0.1, detached=True)


def lost_worker(seed: int) -> WorldPlan:
    """A worker dies with tasks, and comes back."""
    at_s = Random(seed).uniform(0.5, 6)
    ann = ClientPlan("ann", jobs=(LONG,))
    return WorldPlan(workers=WORKERS, clients=(ann,), faults=(Crash(at_s, "w1", 5.0),))


def lost_workers(seed: int) -> WorldPlan:
    """Workers lose their power one after the other, again and again."""
    dice = Random(seed)
    faults = tuple(
        Crash(dice.uniform(0.5, 15), dice.choice(WORKERS).name, 1.0, power=True) for _ in range(6)
    )
    return WorldPlan(
        workers=WORKERS, clients=(ClientPlan("ann", jobs=(LONG, KEPT)),), faults=faults
    )


def flapping_worker(seed: int) -> WorldPlan:
    """One of three workers dies again and again, a moment after it has connected and has tasks."""
    dice = Random(seed)
    faults, at_s = [], dice.uniform(0.3, 1.0)
    for _ in range(15):
        faults.append(Crash(at_s, "w1", 0.2, power=dice.random() < 0.5))
        at_s += dice.uniform(0.6, 2.0)
    ann = ClientPlan("ann", jobs=(LONG, KEPT))
    return WorldPlan(workers=WORKERS, clients=(ann,), faults=tuple(faults))


def lost_gateway(seed: int) -> WorldPlan:
    """The gateway dies in the middle of attached and detached jobs, and comes back."""
    at_s = Random(seed).uniform(0.3, 5)
    ann = ClientPlan("ann", jobs=(LONG, KEPT))
    return WorldPlan(workers=WORKERS, clients=(ann,), faults=(Crash(at_s, "london", 3.0),))


def power_cut(seed: int) -> WorldPlan:
    """The gateway's machine loses its power: unsynced data are gone."""
    at_s = Random(seed).uniform(0.3, 5)
    ann = ClientPlan("ann", jobs=(LONG, KEPT))
    return WorldPlan(
        workers=WORKERS, clients=(ann,), faults=(Crash(at_s, "london", 3.0, power=True),)
    )


def client_gone_and_back(seed: int) -> WorldPlan:
    """A user's process dies; the next one fetches the detached job."""
    at_s = Random(seed).uniform(0.5, 5)
    ann = ClientPlan("ann", jobs=(KEPT, LONG))
    bob = ClientPlan("bob", jobs=(LONG,))
    return WorldPlan(workers=WORKERS, clients=(ann, bob), faults=(Crash(at_s, "ann", 4.0),))


def pause(seed: int) -> WorldPlan:
    """A worker, and later the gateway, are stopped for longer than the lease, and go on."""
    at_s = Random(seed).uniform(0.5, 4)
    faults = (Pause(at_s, "w0", 14.0), Pause(at_s + 1, "london", 2.0), Pause(at_s + 2, "ann", 12.0))
    bob = ClientPlan("bob", jobs=(LONG,))
    return WorldPlan(workers=WORKERS, clients=(ClientPlan("ann", jobs=(LONG,)), bob), faults=faults)


def lost_unnoticed(seed: int) -> WorldPlan:
    """Workers die in the middle of their tasks while the gateway is stopped."""
    dice = Random(seed)
    at_s = dice.uniform(2.0, 4.0)
    job = JobPlan(tasks=6, task_s=4.0, max_cost_nanos=400_000_000)
    faults: list[Fault] = [Pause(at_s, "london", 7.0)]
    for worker in WORKERS:
        crash_s, power = at_s + dice.uniform(0.2, 1.5), dice.random() < 0.5
        faults.append(Crash(crash_s, worker.name, 12.0, power=power))
    return WorldPlan(
        workers=WORKERS, clients=(ClientPlan("ann", jobs=(job,)),), faults=tuple(faults)
    )


def draining(seed: int) -> WorldPlan:
    """All workers are drained for a while, in the middle of everything."""
    at_s = Random(seed).uniform(0.2, 3)
    ann = ClientPlan("ann", jobs=(LONG,))
    return WorldPlan(workers=WORKERS, clients=(ann,), faults=(DrainWorkers(at_s, "london", 4.0),))
