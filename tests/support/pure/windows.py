"""A broker whose pool has windows, reservations or both, for tests of the share of slots."""

from dataclasses import replace

from support.pure.broker import after_its_time

from federation.messages import messages
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import SendToWorker
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import ClientLimits
from policies.access.claims import NOTHING, Claim, Claims
from policies.access.windows import EVERYBODY, WindowPlan, rules_at
from policies.parties import OTHERS, read_party
from policies.tariffs import Tariff

PRICE = Tariff(3_600_000_000, "USD", "1")
DAY_S = 86_400.0
NOON = 12 * 3600.0  # of the first of January 1970
RISK = read_party("project:risk")
NO_OTHERS = Claims((Claim(OTHERS, borrows=NOTHING),))


def spec(name="pricing", site="", **changes):
    made = JobSpec(
        name, name.encode() * 8, False, f"{name}@{site}" if site else "ann", name, 0.0, {}, None,
        0, None, None, "3.11", False,
    )  # fmt: skip
    sold = {"path": (site,), "price": PRICE} if site else {}
    return replace(made, **(sold | changes))


class WindowsWorld:
    """A broker, its pool "fast" (and "slow", without workers), and a client for each job."""

    def __init__(self, *windows, base=EVERYBODY, slots=(4,), at_s=NOON):
        self.now_s = at_s
        self.broker = Broker({"fast": PRICE, "slow": PRICE}, limits=ClientLimits(tasks_max=10_000))
        self.turn(*windows, base=base)
        for number, each in enumerate(slots, 1):
            self.do(events.WorkerJoined(number, f"w{number}", "fast", each, {}, "3.11"))
        self.clients = 100

    def turn(self, *windows, base=EVERYBODY):
        self.plan = WindowPlan(windows, base)
        return self.do(events.RulesTurned({"fast": rules_at(self.plan, self.now_s)}))

    def pass_to(self, at_s):
        self.now_s = at_s
        return self.do(events.RulesTurned({"fast": rules_at(self.plan, at_s)}))

    def do(self, *happened):
        effects = []
        for event in happened:
            effects += self.broker.handle(event, self.now_s)
        return effects + self.broker.settle(self.now_s)

    def submit(self, job, tasks, **about):
        self.clients += 1
        return self.do(
            events.ClientJoined(self.clients, "ann"),
            events.JobOpened(self.clients, job, spec(**about)),
            events.TasksArrived(self.clients, job, 0, [b"x"] * tasks),
        )

    def learn(self, task_s, name="pricing"):
        self.broker.durations.learn(name.encode() * 8, 1_000, round(task_s * 1e12))

    def running(self, job):
        return self.broker.jobs[job].in_flight

    def why(self, job):
        job = self.broker.jobs[job]
        found = [
            self.broker.refusal(job, each, self.now_s) for each in self.broker.workers.values()
        ]
        return {each.reason for each in found if each}, [each.text for each in found if each]

    def report(self, order, *, kind="", wall_s=1.0, worker=1):
        tasks = len(order.arguments)
        failures = [[at, kind, "", b""] for at in range(tasks)] if kind else []
        report = events.Reported(
            worker, order.assignment, order.first, [b""] * tasks, failures,
            wall_ns=round(wall_s * 1e9),
        )  # fmt: skip
        return self.do(after_its_time(self.broker, report))


def orders(effects, kind=messages.Assign):
    return [
        e.message for e in effects if isinstance(e, SendToWorker) and isinstance(e.message, kind)
    ]


def assigned(effects):
    return sum(len(each.arguments) for each in orders(effects))
