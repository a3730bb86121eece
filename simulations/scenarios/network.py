"""Connections that break, stall and crawl."""

from random import Random

from simulations.world.network import Weather
from simulations.world.plan import ClientPlan, Cut, JobPlan, Plan, Reset, WorkerPlan

WORKERS = tuple(WorkerPlan(f"w{number}") for number in range(3))
LONG = JobPlan(tasks=300, task_s=0.1, spread=5.0)


def flapping_connection(seed: int) -> Plan:
    """Connections of a client and a worker break many times a second."""
    at_s = Random(seed).uniform(0.2, 3)
    faults = (Reset(at_s, "ann", "london", 30, 0.3), Reset(at_s, "w0", "london", 30, 0.25))
    return Plan(workers=WORKERS, clients=(ClientPlan("ann", jobs=(LONG,)),), faults=faults)


def partition(seed: int) -> Plan:
    """A worker is cut off for longer than its lease, and comes back."""
    at_s = Random(seed).uniform(0.5, 5)
    ann = ClientPlan("ann", jobs=(LONG,))
    return Plan(workers=WORKERS, clients=(ann,), faults=(Cut(at_s, "w0", "london", 14.0),))


def one_way_cut(seed: int) -> Plan:
    """A worker hears its gateway, which does not hear the worker."""
    at_s = Random(seed).uniform(0.5, 5)
    cut = Cut(at_s, "w0", "london", 25.0, one_way=True)
    ann = ClientPlan("ann", jobs=(JobPlan(tasks=5, task_s=30.0),))
    return Plan(workers=WORKERS, clients=(ann,), faults=(cut,), calm_s=40.0, settle_s=900.0)


def far_away(seed: int) -> Plan:
    """Everything is a quarter of a second away, at two megabytes a second."""
    far = Weather(0.25, 0.05, 2e6)
    return Plan(workers=WORKERS, clients=(ClientPlan("ann", jobs=(LONG,)),), weather=far)
