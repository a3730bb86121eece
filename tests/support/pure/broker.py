"""A broker that tests drive by hand, and its effects."""

from collections.abc import Set
from typing import Any

from federation.messages import messages
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import Effect, SendToClient, SendToWorker, Write
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.peer_queries import PeerQueries
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import ClientLimits
from policies.tariffs import Tariff

PRICE = Tariff(3_600_000_000_000, "USD", "test")  # a thousandth of a unit per slot-nanosecond
CLIENT, WORKER = 1, 2


def spec(**changes: object) -> JobSpec:
    terms: dict[str, object] = {
        "name": "f",
        "function": b"f" * 32,
        "detached": False,
        "user": "ann",
        "project": "risk",
        "priority": 0.0,
        "tags": {},
        "timeout_s": None,
        "retries": 0,
        "max_cost_nanos": None,
        "currency": None,
        "python": "3.11",
        "prints": False,
    }
    return JobSpec(**(terms | changes))  # type: ignore[arg-type]


class Peers(PeerQueries):
    """Other sites, as a test says that they are."""

    runs = False  # whether one may run any job
    makes = ""  # the site that offers the environment of any job, if one does
    charges: Set[str] = frozenset()

    def may_run(self, spec: JobSpec) -> bool:
        return self.runs

    def may_be_made(self, job: Job) -> bool:
        return bool(self.makes)

    def currencies(self) -> Set[str]:
        return self.charges


class BrokerWorld:
    """A broker with a client and a worker, and short ways to push it."""

    def __init__(
        self,
        *,
        slots: int = 1,
        tags: dict[str, object] | None = None,
        peers: PeerQueries | None = None,
        keeps_output: bool = False,
        limits: ClientLimits | None = None,
    ) -> None:
        self.now_s = 1000.0
        limits = limits or ClientLimits(tasks_max=10_000)
        self.broker = Broker(
            {"local": PRICE}, limits=limits, peers=peers, keeps_output=keeps_output
        )
        self.do(events.ClientJoined(CLIENT, "ann"))
        if slots:
            self.join(WORKER, slots, tags)

    def do(self, event: events.Event) -> list[Effect]:
        effects = self.broker.handle(event, self.now_s)
        return effects + self.broker.settle(self.now_s)

    def join(self, worker: int, slots: int = 1, tags: dict[str, object] | None = None):
        return self.do(
            events.WorkerJoined(worker, f"w{worker}", "local", slots, tags or {}, "3.11")
        )

    def submit(self, tasks: int, job: str = "j", **changes: object) -> list[Effect]:
        effects = self.do(events.JobOpened(CLIENT, job, spec(**changes)))
        return effects + self.do(
            events.TasksArrived(CLIENT, job, 0, [b"%d" % at for at in range(tasks)])
        )

    def report(self, order: messages.Assign, tasks: int = 0, worker: int = WORKER, **changes):
        count = tasks or len(order.arguments)
        values = [b"r%d" % (order.first + at) for at in range(count)]
        fields = {"wall_ns": 1_000_000 * count, "cpu_ns": 900_000 * count} | changes
        self.now_s += 10.0
        return self.do(
            events.Reported(worker, order.assignment, order.first, values, **fields)  # type: ignore[arg-type]
        )


def orders(effects: list[Effect], kind: type = messages.Assign) -> list:
    return [
        e.message for e in effects if isinstance(e, SendToWorker) and isinstance(e.message, kind)
    ]


def told(effects: list[Effect], kind: type) -> list:
    return [
        e.message for e in effects if isinstance(e, SendToClient) and isinstance(e.message, kind)
    ]


def written(effects: list[Effect], kind: type) -> list:
    return [e.record for e in effects if isinstance(e, Write) and isinstance(e.record, kind)]


def after_its_time(broker: Broker, report: events.Reported) -> events.Reported:
    """A report, of tasks that were handed out as long ago as it says that they took.

    No worker is believed to have used more time than has passed; in most tests none passes.
    """
    worker: Any = broker.workers.get(report.worker)
    assignment = worker.assignments.get(report.assignment) if worker else None
    if assignment is not None:
        at_once = max(1, min(len(report.values), worker.slots))
        ago_s = report.wall_ns / 1e9 / at_once
        assignment.given_at_s -= ago_s
        if assignment.task_s >= worker.ahead_max_s:
            worker.given_s -= ago_s * len(assignment.left)
    return report
