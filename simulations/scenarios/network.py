"""Connections that break, stall and crawl."""

from random import Random

from simulations.world.network import Weather
from simulations.world.plan import ClientPlan, JobPlan, NetworkCut, Reset, WorkerPlan, WorldPlan

WORKERS = tuple(WorkerPlan(f"w{number}") for number in range(3))
LONG = JobPlan(tasks=300, task_s=0.1, spread=5.0)


def flapping_connection(seed: int) -> WorldPlan:
    """Connections of a client and a worker break many times a second."""
    at_s = Random(seed).uniform(0.2, 3)
    faults = (Reset(at_s, "ann", "london", 30, 0.3), Reset(at_s, "w0", "london", 30, 0.25))
    return WorldPlan(workers=WORKERS, clients=(ClientPlan("ann", jobs=(LONG,)),), faults=faults)


def partition(seed: int) -> WorldPlan:
    """A worker is cut off for longer than its lease, and comes back."""
    at_s = Random(seed).uniform(0.5, 5)
    ann = ClientPlan("ann", jobs=(LONG,))
    return WorldPlan(
        workers=WORKERS, clients=(ann,), faults=(NetworkCut(at_s, "w0", "london", 14.0),)
    )


def one_way_cut(seed: int) -> WorldPlan:
    """A worker hears its gateway, which does not hear the worker."""
    at_s = Random(seed).uniform(0.5, 5)
    cut = NetworkCut(at_s, "w0", "london", 25.0, one_way=True)
    ann = ClientPlan("ann", jobs=(JobPlan(tasks=5, task_s=30.0),))
    return WorldPlan(workers=WORKERS, clients=(ann,), faults=(cut,), calm_s=40.0, settle_s=900.0)


def far_away(seed: int) -> WorldPlan:
    """Everything is a quarter of a second away, at two megabytes a second."""
    far = Weather(0.25, 0.05, 2e6)
    return WorldPlan(workers=WORKERS, clients=(ClientPlan("ann", jobs=(LONG,)),), weather=far)
