"""The order of service, by the order of assignments: no client starves, however busy another is."""

import pytest

from federation.messages import messages
from gateway.ledger.db.usage.records import UsageRecord
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.durations import Durations
from gateway.scheduler.model.effects import Effect, SendToWorker, Write
from gateway.scheduler.model.jobs import Worker
from gateway.scheduler.model.matching import ends_too_soon, in_time
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import ClientLimits
from policies.placement.placement import CapacityOffer
from policies.tariffs import Tariff

CLIENT, WORKER = 1, 2
FLOOD, OTHER = b"f" * 32, b"g" * 32


class Flooded:
    """A worker kept busy by a client with a hundred thousand tasks of a millisecond."""

    def __init__(self, *, slots: int = 2, task_s: float = 0.001) -> None:
        self.now_s = 1000.0
        self.task_s = task_s
        self.broker = Broker({"p": Tariff(1, "USD", "v")}, limits=ClientLimits(10**9, 1 << 40))
        self.queue: list[tuple[messages.Assign, int]] = []  # the next task of each
        self.ordered: list[messages.Assign] = []
        self.recalls: list[messages.Recall] = []
        self.do(events.ClientJoined(CLIENT, "ann"))
        self.do(events.WorkerJoined(WORKER, "w", "p", slots, {"gpu": slots}, "3.11"))
        self.submit("flood", 100_000)
        for _ in range(50):
            self.work()

    def do(self, event: events.Event) -> None:
        self.take(self.broker.handle(event, self.now_s))
        self.take(self.broker.settle(self.now_s))

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendToWorker(_, messages.Assign() as assign):
                    self.ordered.append(assign)
                    self.queue.append((assign, assign.first))
                case SendToWorker(_, messages.Recall() as recall):
                    self.recalls.append(recall)

    def submit(self, job: str, tasks: int, function: bytes = FLOOD, **changes: object) -> None:
        terms: dict[str, object] = {
            "name": "f", "function": function, "detached": False, "user": "ann", "project": "p",
            "priority": 0.0, "tags": {}, "timeout_s": None, "retries": 0, "max_cost_nanos": None,
            "currency": None, "python": "3.11", "prints": False,
        }  # fmt: skip
        spec = JobSpec(**(terms | changes))  # type: ignore[arg-type]
        self.do(events.JobOpened(CLIENT, job, spec))
        for first in range(0, tasks, 1000):
            count = min(1000, tasks - first)
            self.do(events.TasksArrived(CLIENT, job, first, [b"x"] * count))

    def work(self) -> str:
        """Report a task of the assignment that came first; return its owner."""
        assign, at = self.queue.pop(0)
        stop = assign.first + len(assign.arguments)
        if at + 1 < stop:
            self.queue.insert(0, (assign, at + 1))
        task_s = self.task_s if assign.function == FLOOD else 1.0
        self.now_s += task_s / 2
        wall_ns = round(task_s * 1e9)
        self.do(events.Reported(WORKER, assign.assignment, at, [b""], wall_ns=wall_ns))
        return assign.job


@pytest.mark.parametrize("priority", [0.0, 100.0])
@pytest.mark.parametrize("kind", ["new", "long", "counted"])
def test_a_flood_of_short_tasks_gets_nothing_ahead_of_who_waits_for_an_idle_slot(
    kind: str, priority: float
) -> None:
    site = Flooded()
    if kind == "long":
        site.broker.durations.learn(OTHER, 1, 1_000_000_000)
    if kind == "counted":
        site.broker.durations.learn(OTHER, 1000, 1_000_000_000)
    tags = {"gpu": 1} if kind == "counted" else {}
    held = site.broker.workers[WORKER].in_flight
    assert held > 10, "the flood is queued ahead"
    site.ordered.clear()
    site.submit("other", 1, OTHER, priority=priority, tags=tags)
    for _ in range(held):
        if site.ordered:
            break
        site.work()
    assert site.ordered[0].job == "other"


def test_a_flood_goes_on_in_the_slots_that_another_job_leaves() -> None:
    site = Flooded(slots=4)
    site.broker.durations.learn(OTHER, 1, 1_000_000_000)
    site.submit("other", 1, OTHER)
    while "other" not in [order.job for order in site.ordered]:
        site.work()
    site.ordered.clear()
    assert sum(site.work() == "flood" for _ in range(200)) >= 199
    assert sum(len(order.arguments) for order in site.ordered) > 100


def test_a_job_of_long_tasks_and_a_flood_are_served_in_turn() -> None:
    site = Flooded(slots=4)
    site.broker.durations.learn(OTHER, 1, 1_000_000_000)
    site.submit("other", 100, OTHER)
    for _ in range(5):
        site.ordered.clear()
        site.queue.sort(key=lambda each: each[0].job)  # a long task ends after many of the flood
        served = [site.work() for _ in range(1000)]
        assert served.count("flood") > 900
        site.queue.sort(key=lambda each: each[0].job, reverse=True)
        site.work()
        assert {order.job for order in site.ordered} == {"flood", "other"}


def test_a_flood_that_is_alone_is_not_held_back() -> None:
    site = Flooded()
    site.ordered.clear()
    for _ in range(1000):
        site.work()
        assert site.broker.workers[WORKER].in_flight > 100
    assert not site.broker.is_uneven


def test_work_that_takes_longer_than_was_thought_is_recalled_for_who_waits_for_a_slot() -> None:
    site = Flooded()
    site.submit("other", 1, OTHER, priority=100.0)
    assert site.recalls == []
    assert site.broker.is_uneven
    site.now_s += 1.0
    site.take(site.broker.settle(site.now_s))
    assert {recall.assignment for recall in site.recalls} == {
        each.id for each in site.broker.workers[WORKER].assignments.values()
    }
    site.ordered.clear()
    for recall in site.recalls:
        left = list(site.broker.workers[WORKER].assignments[recall.assignment].left)
        site.do(events.HandedBack(WORKER, recall.assignment, tuple(left)))
    assert site.ordered[0].job == "other"


def test_a_worker_without_a_counted_tag_is_passed_over() -> None:
    site = Flooded()
    site.do(events.WorkerJoined(3, "w3", "p", 1, {"fpga": 1}, "3.11"))
    site.submit("other", 1, OTHER, tags={"fpga": 1})
    assert site.work() == "flood"
    assert site.broker.jobs["other"].waiting == 1


def test_a_site_that_takes_longer_is_told_apart_from_the_others() -> None:
    durations = Durations()
    for _ in range(10):
        durations.learn(FLOOD, 100, 100 * 10_000_000)
        durations.learn(FLOOD, 100, 100 * 40_000_000, "paris")
    assert durations.by_site(FLOOD) == pytest.approx({"": 0.010, "paris": 0.040}, rel=0.01)
    assert durations.by_site(OTHER) == {}


def test_one_slow_task_and_tasks_of_no_length_tell_nothing_of_a_site() -> None:
    durations = Durations()
    durations.learn(FLOOD, 1000, 1000 * 10_000_000)
    durations.learn(FLOOD, 1, 20_000_000, "paris")
    durations.learn(OTHER, 1000, 1_000_000)
    durations.learn(OTHER, 1000, 9_000_000, "paris")
    assert durations.by_site(FLOOD) == durations.by_site(OTHER) == {}


NOW_S = 1_000.0


def pilot(ends_in_s: float | None, slots: int = 2, ahead_s: float = 0.0) -> Worker:
    worker = Worker(1, "w", CapacityOffer("worker w", "p", {}, "3.11", "USD"), slots, None, {})
    worker.ends_at_s = None if ends_in_s is None else NOW_S + ends_in_s
    worker.ahead_s = ahead_s
    return worker


@pytest.mark.parametrize(
    ("ends_in_s", "ahead_s", "task_s", "fitting"),
    [
        (None, 0.0, 60.0, 9),
        (100.0, 0.0, 60.0, 2),
        (120.0, 0.0, 60.0, 4),
        (119.0, 0.0, 60.0, 2),
        (59.0, 0.0, 60.0, 0),
        (120.0, 2.0, 60.0, 2),
        (1_000.0, 0.0, 60.0, 9),
        (1.0, 0.0, None, 9),
        (0.0, 0.0, None, 0),
        (-5.0, 0.0, 60.0, 0),
    ],
    ids=[
        "no end", "one round", "two, to the second", "a second short", "too long", "what is ahead",
        "all", "who knows", "over", "long over",
    ],
)  # fmt: skip
def test_a_pilot_has_what_it_can_end(
    ends_in_s: float | None, ahead_s: float, task_s: float | None, fitting: int
) -> None:
    assert in_time(pilot(ends_in_s, ahead_s=ahead_s), task_s, 9, NOW_S) == fitting


@pytest.mark.parametrize(
    ("ends_in_s", "task_s", "text"),
    [
        (None, 60.0, None),
        (61.0, 60.0, None),
        (60.0, 60.0, "is stopped by its grid in 1 min, and a task has a duration of 1 min"),
        (1.0, None, None),
        (0.0, None, "is stopped by its grid in 0 s, and a task has an unknown duration"),
    ],
)
def test_why_nothing_begins_at_a_pilot_that_ends_is_told(
    ends_in_s: float | None, task_s: float | None, text: str | None
) -> None:
    found = ends_too_soon(pilot(ends_in_s), task_s, NOW_S)
    assert (found and found.text) == text


@pytest.mark.parametrize("is_measured", [True, False], ids=["as measured", "as its client says"])
def test_nothing_begins_that_cannot_end_before_a_pilot_does(is_measured: bool) -> None:
    broker, now_s = Broker({"p": Tariff(3_600 * 10**9, "USD", "v")}), NOW_S
    if is_measured:
        broker.durations.learn(FLOOD, 100, 100 * 60 * 10**9)
    said = {} if is_measured else {"task_s": 60.0}
    terms = {
        "name": "f", "function": FLOOD, "detached": False, "user": "ann", "project": "p",
        "priority": 0.0, "tags": {}, "timeout_s": None, "retries": 0, "max_cost_nanos": None,
        "currency": None, "python": "3.11", "prints": False,
    }  # fmt: skip

    def do(*happened: events.Event) -> list[Effect]:
        effects = [each for event in happened for each in broker.handle(event, now_s)]
        return effects + broker.settle(now_s)

    def given(effects: list[Effect]) -> list[messages.Assign]:
        orders = [each.message for each in effects if isinstance(each, SendToWorker)]
        return [each for each in orders if isinstance(each, messages.Assign)]

    effects = do(
        events.ClientJoined(CLIENT, "ann"),
        events.WorkerJoined(1, "p-1-0", "p", 2, {}, "3.11"),
        events.PilotSeen(1, "4711_0", now_s + 59.0),
        events.JobOpened(CLIENT, "j", JobSpec(**(terms | said))),  # type: ignore[arg-type]
        events.TasksArrived(CLIENT, "j", 0, [b"x"] * 5),
    )
    assert given(effects) == []
    refusal = broker.refusal(broker.jobs["j"], broker.workers[1], now_s)
    assert "is stopped by its grid in 59 s" in str(refusal and refusal.text)
    order, *_ = given(do(events.PilotSeen(1, "4711_0", now_s + 90.0)))
    wall_ns = 60 * 10**9
    effects = do(events.Reported(1, order.assignment, order.first, [b""], wall_ns=wall_ns))
    used = [e.record for e in effects if isinstance(e, Write) and type(e.record) is UsageRecord]
    assert [each.worker for each in used] == ["p-1-0 = 4711_0"]
