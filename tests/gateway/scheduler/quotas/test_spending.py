"""The broker with budgets: admission, holds, spending and ends; in any interleaving."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from federation.messages import messages
from federation.ranges import RangeSet
from federation.reasons import Reason
from gateway.api.views import work_views
from gateway.api.views.wait_reasons import wait_reason
from gateway.ledger.db import records
from gateway.runtime.budget_books import spent_between
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.budget_accounts import BudgetAccounts, BudgetSpent
from gateway.scheduler.model.effects import SendToClient, SendToWorker, Write
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import ClientLimits
from gateway.scheduler.quotas.spending import used_of
from gateway.scheduler.tasks import provisional
from policies.calendar.periods import PeriodLength
from policies.costs.budgets import KILL_S, SLOT_TIME, Budget, Running, Waiting
from policies.parties import read_party
from policies.tariffs import Tariff
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore

# A slot-second costs a unit.
UNIT = 10**9
PRICE = Tariff(3_600 * UNIT, "USD", "test")
CLIENT, WORKER = 1, 2
NOON_S = 1_700_049_600.0
DAY_S = 86_400.0


def budget(amount=100, party="user:ann", unit="USD", name="b", **changes):
    fields = {"span": PeriodLength.DAY, **changes}
    return Budget(name, read_party(party), unit, amount * UNIT, **fields)


def spec(**changes):
    terms = {
        "name": "f", "function": b"f" * 32, "detached": False, "user": "ann", "project": "risk",
        "priority": 0.0, "tags": {}, "timeout_s": None, "retries": 0, "max_cost_nanos": None,
        "currency": None, "python": "3.11", "prints": False,
    }  # fmt: skip
    return JobSpec(**(terms | changes))


class World:
    """A broker with budgets, a client and a worker; its writes and messages are kept."""

    def __init__(self, *budgets, slots=4, credit=None, tariffs=None):
        self.now_s = NOON_S
        budget_accounts = BudgetAccounts(budgets, credit or {}, self.now_s)
        self.broker = Broker(
            tariffs or {"local": PRICE}, limits=ClientLimits(10**6), budget_accounts=budget_accounts
        )
        self.orders, self.recalls, self.books, self.told = [], [], [], []
        self.do(events.ClientJoined(CLIENT, "ann"))
        if slots:
            self.join(WORKER, slots)

    def __getitem__(self, name):
        return self.broker.budget_accounts.own[name]

    def do(self, event):
        effects = self.broker.handle(event, self.now_s) + self.broker.settle(self.now_s)
        for each in effects:
            match each:
                case SendToWorker(worker, messages.Assign() as order):
                    self.orders.append((worker, order))
                case SendToWorker(worker, messages.Recall() as recall):
                    self.recalls.append((worker, recall))
                case Write(record):
                    self.books.append(record)
                case SendToClient(_, message):
                    self.told.append(message)

    def join(self, worker, slots):
        self.do(events.WorkerJoined(worker, f"w{worker}", "local", slots, {}, "3.11"))

    def submit(self, tasks, job="j", **changes):
        self.do(events.JobOpened(CLIENT, job, spec(**changes)))
        if job in self.broker.jobs:
            self.do(events.TasksArrived(CLIENT, job, 0, [b""] * tasks))
            self.do(events.JobClosed(CLIENT, job, tasks))

    def report(self, seconds, tasks=1):
        """So many tasks of the oldest order were done; each took so long."""
        worker, order = self.orders.pop(0)
        wall_ns = round(seconds * tasks * 1e9)
        self.now_s += seconds
        if tasks < len(order.arguments):
            self.orders.insert(0, (worker, rest_of(order, tasks)))
        values = [b"r"] * tasks
        self.do(events.Reported(worker, order.assignment, order.first, values, wall_ns=wall_ns))

    def tick(self, seconds=1.0):
        self.now_s += seconds
        self.do(events.Ticked())

    @property
    def out(self):
        """Tasks that workers have."""
        return sum(len(order.arguments) for _, order in self.orders)

    @property
    def refusals(self):
        return [each for each in self.told if isinstance(each, messages.RejectJob)]

    @property
    def dropped(self):
        found = [each for each in self.told if isinstance(each, messages.Dropped)]
        return [(each.failure, sum(stop - first for first, stop in each.ranges)) for each in found]

    def waits_for(self, job="j"):
        found, of = (
            work_views.why_waiting(self.broker, self.broker.jobs[job], self.now_s),
            self.broker,
        )
        return wait_reason(of, of.jobs[job], found, self.now_s, is_nested=False)

    def text(self, job="j"):
        found = work_views.why_waiting(self.broker, self.broker.jobs[job], self.now_s)
        return [each["text"] for each in found]


def rest_of(order, done):
    """The rest of an order when so many of its tasks are done."""
    return messages.Assign(
        order.assignment, order.job, order.function, order.first + done, order.arguments[done:],
        order.timeout_s, order.prints,
    )  # fmt: skip


# --- what is held, and spent ---------------------------------------------------------------------


def test_what_tasks_may_cost_is_held_while_they_run_and_then_what_they_cost_is_spent():
    world = World(budget(100))
    world.submit(2, timeout_s=9.0)
    assert world["b"].held_nanos == 2 * 10 * UNIT
    world.report(3.0)
    assert (world["b"].held_nanos, world["b"].spent_nanos) == (10 * UNIT, 3 * UNIT)
    world.report(4.0)
    assert (world["b"].held_nanos, world["b"].spent_nanos) == (0, 7 * UNIT)


@pytest.mark.parametrize("has_worker", [True, False])
def test_a_cheaper_pool_that_can_not_run_a_job_keeps_it_from_neither_ending_nor_being_refused(
    has_worker,
):
    cheap = Tariff(PRICE.price_nanos // 10, "USD", "cheap")
    ends = budget(25, span=None, waiting=Waiting.END)
    world = World(ends, slots=0, tariffs={"local": PRICE, "cheap": cheap})
    world.do(events.WorkerJoined(WORKER, "w", "local", 1, {"gpu": 1}, "3.11"))
    if has_worker:
        world.do(events.WorkerJoined(WORKER + 1, "v", "cheap", 1, {}, "3.11"))
    world.tick()
    world.tick(provisional.SETTLE_S)
    world.submit(4, timeout_s=9.0, tags={"gpu": 1})
    world.report(9.0)
    world.report(9.0)  # 7 are left: at the cheap pool, 1 would do for a task, and here it takes 10
    world.tick()
    assert world.dropped == [("budget", 2)]
    world.submit(1, "k", timeout_s=9.0, tags={"gpu": 1})
    assert [each.code for each in world.refusals] == [Reason.BUDGET_EXHAUSTED]
    if has_worker:
        world.submit(1, "l", timeout_s=9.0)
        assert "l" in world.broker.jobs


def test_just_after_a_start_a_cheaper_pool_may_still_turn_out_to_be_able_to_run_a_job():
    cheap = Tariff(PRICE.price_nanos // 10, "USD", "cheap")
    ends = budget(5, span=None, waiting=Waiting.END)
    world = World(ends, slots=0, tariffs={"local": PRICE, "cheap": cheap})
    world.do(events.WorkerJoined(WORKER, "w", "local", 1, {"gpu": 1}, "3.11"))
    world.submit(1, timeout_s=9.0, tags={"gpu": 1})
    world.tick()
    assert world.dropped == [] == world.refusals
    world.do(events.WorkerJoined(WORKER + 1, "v", "cheap", 1, {"gpu": 1}, "3.11"))
    assert world.out == 1


FREE = Tariff(0, "USD", "1")


@pytest.mark.parametrize("tariff", [PRICE, FREE], ids=["priced", "free"])
@pytest.mark.parametrize(
    ("lost_s", "last_s", "spent_s"),
    [
        ((), 8.0, 8.0),
        ((10.0,), 8.0, 10.0),
        ((10.0,), 12.0, 12.0),
        ((10.0,), None, 10.0),
        ((10.0, 15.0), 20.0, 10.0 + 15.0 + 5.0),  # the second loss is taken for its own doing
    ],
)
def test_slot_time_of_a_lost_run_and_the_next_counts_as_it_is_charged(
    tariff, lost_s, last_s, spent_s
):
    world = World(budget(100, unit=SLOT_TIME), slots=0, tariffs={"local": tariff})
    world.submit(1)
    for number, seconds in enumerate(lost_s):
        world.join(20 + number, 1)
        worker, order = world.orders.pop()
        world.do(events.TasksBegun(worker, ((order.assignment, 0, 0.0),)))
        world.now_s += seconds
        world.do(events.WorkerGone(worker, "its lease ran out"))
    if last_s is not None:
        world.join(WORKER, 1)
        world.report(last_s)
    assert world["b"].spent_nanos == spent_s * 1e9
    used = [each for each in world.books if isinstance(each, records.UsageRecord)]
    disk = Disk()
    disk.commit([replace(each, free_ns=0) for each in used], durable=True)
    known_ns = spent_between(MemoryStore(disk).usage, world["b"].budget, NOON_S, NOON_S + DAY_S)
    is_known = tariff is PRICE or len(lost_s) < 2  # else nothing tells that it was charged in full
    assert known_ns == (spent_s if is_known else spent_s - 10.0) * 1e9


def test_no_more_is_handed_out_than_there_is_room_for():
    world = World(budget(35), slots=8)
    world.submit(8, timeout_s=9.0)
    assert world.out == 3
    [why] = [each for each in world.text() if "has no room now: 0 USD of 35 USD is spent" in each]
    assert "; the next period begins 2023-11-16 00:00 UTC" in why
    world.report(5.0)
    assert world.out == 3, "the five that it did not take are free again"
    for _ in range(8):
        if world.orders:
            world.report(9.0)
    assert world["b"].spent_nanos <= 35 * UNIT


@pytest.mark.parametrize(
    ("fate", "spent"), [("lost", 0), ("handed back", 0), ("cancelled", 0), ("client gone", 0)]
)
def test_what_comes_back_is_not_held_any_more(fate, spent):
    world = World(budget(100))
    world.submit(1, timeout_s=9.0)
    assert world["b"].held_nanos == 10 * UNIT
    (worker, order) = world.orders.pop()
    match fate:
        case "lost":
            world.do(events.WorkerGone(worker, "lost"))
        case "handed back":
            world.do(events.DrainAsked(worker, on=True))
            world.do(events.HandedBack(worker, order.assignment, ((0, 1),)))
        case "cancelled":
            world.do(events.CancelAsked(CLIENT, 1, "j", (), False))
            world.do(events.HandedBack(worker, order.assignment, ((0, 1),)))
        case "client gone":
            world.do(events.ClientGone(CLIENT))
            failure = [[0, "cancelled", "stopped", b""]]
            world.do(events.Reported(worker, order.assignment, 0, [b""], failure))
    assert (world["b"].held_nanos, world["b"].spent_nanos) == (0, spent)


def test_without_a_time_limit_a_multiple_of_the_usual_time_is_held():
    world = World(budget(1000))
    world.submit(3)
    assert world["b"].held_nanos == 3 * 60 * UNIT, "nobody knows how long it takes"
    for _ in range(3):
        world.report(2.0)
    world.submit(1, "k")
    assert world["b"].held_nanos == 2 * 2 * UNIT


def test_what_outruns_its_hold_is_held_by_what_it_has_run():
    world = World(budget(1000))
    world.submit(1)
    world.tick(50.0)
    assert world["b"].held_nanos == 60 * UNIT
    world.tick(50.0)
    assert world["b"].held_nanos == 100 * UNIT
    world.report(20.0)
    assert (world["b"].held_nanos, world["b"].spent_nanos) == (0, 20 * UNIT)


def test_all_budgets_of_somebody_have_to_have_room():
    world = World(
        budget(30, name="hers"),
        budget(1000, "project:risk", name="risk"),
        budget(25, "ours", SLOT_TIME, name="slots"),
        budget(1, "ours", name="soft", is_hard=False),
        budget(1, "user:bob", name="bobs"),
    )
    world.submit(4, timeout_s=9.0)
    assert world.out == 2
    assert [world[name].held_nanos // UNIT for name in ("hers", "risk", "slots", "soft")] == [
        20
    ] * 4
    assert world["bobs"].held_nanos == 0
    world.report(9.0)
    assert [world[name].spent_nanos // UNIT for name in ("hers", "risk", "slots", "soft")] == [
        9
    ] * 4


def test_what_ran_again_through_nobodys_fault_uses_up_no_quota():
    world = World(budget(100, unit=SLOT_TIME))
    world.submit(1, timeout_s=9.0)
    world.report(2.0)
    (used,) = [each for each in world.books if isinstance(each, records.UsageRecord)]
    assert used_of(world["b"], used) == 2 * UNIT
    repeat = records.UsageRecord(**{**_fields(used), "state": "repeat", "cost_nanos": 0})
    assert used_of(world["b"], repeat) == 0


@pytest.mark.parametrize(("price_class", "used"), [("guaranteed", 0), ("preemptible", 2)])
def test_what_had_to_make_room_uses_up_no_quota_unless_its_price_says_that_it_may(
    price_class, used
):
    world = World(budget(100, unit=SLOT_TIME), budget(100, name="money"))
    world.submit(1, timeout_s=9.0, price_class=price_class)
    worker, order = world.orders.pop()
    failures, wall_ns = [(0, "preempted", "make room", b"")], 2 * 10**9
    world.now_s += 2.0
    world.do(
        events.Reported(worker, order.assignment, 0, [b""], failures=failures, wall_ns=wall_ns)
    )
    assert [each.wall_ns for each in world.books if isinstance(each, records.UsageRecord)] == [
        wall_ns
    ]
    assert [world[name].spent_nanos for name in ("b", "money")] == [used * UNIT] * 2
    assert world["b"].held_nanos == 10 * UNIT  # it runs again


def _fields(record):
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def test_after_a_restart_spent_is_what_the_books_have():
    world = World(budget(100))
    world.do(events.SpendingKnown({"b": BudgetSpent(500 * UNIT, 95 * UNIT)}, {}))
    world.submit(4, timeout_s=1.0)
    assert world.out == 2
    assert world["b"].total_nanos == 500 * UNIT


def test_a_job_that_is_free_runs_whatever_was_spent():
    world = World(budget(1), tariffs={"local": Tariff(0, "USD", "v")})
    world["b"].spent_nanos = UNIT - 1
    world.submit(4, timeout_s=100.0)
    assert world.out == 4


def test_without_budgets_nothing_is_counted():
    world = World()
    world.submit(2, timeout_s=9.0)
    (job,) = world.broker.jobs.values()
    assert (job.budget_accounts, [each.holds for each in job.assignments.values()]) == ((), [()])


# --- who may not begin ---------------------------------------------------------------------------


def test_new_work_is_refused_with_the_figure_when_all_is_spent():
    world = World(budget(10))
    world.submit(1, timeout_s=9.0)
    world.report(9.5)
    world.submit(1, "k", timeout_s=9.0)
    (refusal,) = world.refusals
    assert refusal.code == Reason.BUDGET_EXHAUSTED
    assert refusal.reason == (
        "the budget 'b' (user:ann) has too little left for a task: 9.5 USD of 10 USD is spent in "
        "2023-11-15; a task may cost up to 10 USD; the next period begins 2023-11-16 00:00 UTC"
    )
    assert world.broker.spending.news() == []
    world["b"].spent_nanos = 10 * UNIT
    assert "is exhausted: 10 USD of 10 USD is spent" in world.broker.spending.news()[0]
    assert world.broker.spending.news() == [], "it was told"


def test_what_is_only_held_refuses_nobody():
    world = World(budget(10))
    world.submit(1, timeout_s=9.0)
    world.submit(1, "k", timeout_s=9.0)
    assert not world.refusals
    assert any("10 USD is held for running work" in each for each in world.text("k"))


def test_a_task_that_may_cost_more_than_the_whole_budget_is_refused():
    world = World(budget(10))
    world.submit(1, timeout_s=9.5)
    assert world.refusals[0].reason.endswith(
        "a task may cost up to 10.5 USD; the next period begins 2023-11-16 00:00 UTC"
    )


def test_a_soft_budget_refuses_nobody():
    world = World(budget(1, is_hard=False))
    world.submit(1, timeout_s=9.0)
    world.report(9.0)
    world.submit(1, "k", timeout_s=9.0)
    assert not world.refusals
    assert world["b"].spent_nanos == 9 * UNIT
    assert len(world.broker.spending.news()) == 1


def test_a_new_period_takes_up_what_waits():
    world = World(budget(10))
    world.submit(2, timeout_s=9.0)
    world.report(9.0)
    world.tick()
    assert world.out == 0
    assert any("has too little left for a task" in each for each in world.text())
    world.tick(DAY_S)
    assert world.out == 1


def test_work_is_paid_in_the_currency_of_its_budget_alone():
    euro = Tariff(UNIT, "EUR", "v")
    world = World(budget(10, unit="EUR"), tariffs={"local": PRICE, "far": euro}, slots=0)
    world.do(events.WorkerJoined(3, "w3", "far", 1, {}, "3.11"))
    world.join(WORKER, 1)
    world.submit(4, timeout_s=9.0)
    assert world.broker.jobs["j"].spec.currency == "EUR"
    assert {worker for worker, _ in world.orders} == {3}
    world.submit(1, "k", currency="USD", max_cost_nanos=UNIT)
    assert world.refusals[0].code == Reason.CURRENCY_DIFFERS
    assert "the budget 'b' (user:ann) is in EUR, and can't pay for work in USD" in (
        world.refusals[0].reason
    )


def test_a_budget_in_money_that_nobody_charges_in_is_told():
    world = World(budget(10, unit="GBP"))
    world.submit(1)
    assert world.refusals[0].reason.startswith(
        "no pool here can ever run it" if world.refusals[0].code == "tag-missing" else "no "
    )
    assert "GBP" in world.refusals[0].reason


def test_two_hard_budgets_in_different_money_can_not_both_pay():
    world = World(budget(10), budget(10, "project:risk", "EUR", "other"))
    world.submit(1)
    assert world.refusals[0].code == Reason.CURRENCY_DIFFERS


# --- what has to end -----------------------------------------------------------------------------


def test_what_waits_ends_when_its_budget_says_so_and_no_task_more_can_be_paid():
    world = World(budget(10, waiting=Waiting.END), slots=1)
    world.submit(3, timeout_s=9.0)
    world.tick()
    assert not world.dropped, "what is held may come back"
    world.report(9.0)
    world.tick()
    assert world.dropped == [("budget", 2)]
    assert not world.broker.jobs


def test_a_bar_says_until_when_a_budget_is_used_up():
    world = World(budget(10, waiting=Waiting.WAIT), slots=1)
    world.submit(3, timeout_s=9.0)
    world.report(10.0)
    assert world.broker.jobs["j"].waiting == 2
    assert world.waits_for() == "budget 'b' (user:ann) is used up until 2023-11-16 00:00 UTC"
    world.now_s += DAY_S
    world.tick()
    assert world.orders
    assert "used up" not in world.waits_for()


def test_a_bar_says_what_a_budget_holds_for_running_work():
    world = World(budget(10, waiting=Waiting.WAIT), slots=2)
    world.submit(2, timeout_s=9.0)
    assert "10 USD is held for running work" in world.waits_for()


def test_a_budget_without_a_period_is_used_up_for_good():
    world = World(budget(10, span=None, waiting=Waiting.WAIT), slots=1)
    world.submit(3, timeout_s=9.0)
    world.report(10.0)
    assert world.waits_for() == (
        "budget 'b' (user:ann) is used up for good, as it has no period: "
        "an operator of this site can raise its amount"
    )


def test_what_waits_waits_when_its_budget_says_so():
    world = World(budget(10), slots=1)
    world.submit(3, timeout_s=9.0)
    world.report(9.0)
    world.tick()
    assert not world.dropped
    assert world.broker.jobs["j"].waiting == 2


def test_what_runs_is_stopped_when_its_budget_says_so_and_it_has_used_it_up():
    world = World(budget(150, running=Running.STOP), slots=2)
    world.submit(2)
    world.tick(74.0)
    assert not world.recalls
    world.tick(2.0)
    assert [(each.kill, each.first, each.stop) for _, each in world.recalls] == [(True, 0, 2)]
    assert world.dropped == [("budget", 2)]
    world.tick()
    assert len(world.recalls) == 1, "they are being stopped"
    ((worker, order),) = world.orders
    failures = [[at, "cancelled", "stopped", b""] for at in range(2)]
    report = events.Reported(
        worker, order.assignment, 0, [b""] * 2, failures, wall_ns=2 * 77 * UNIT
    )
    world.do(report)
    assert not world.broker.jobs
    assert (world["b"].spent_nanos, world["b"].held_nanos) == (154 * UNIT, 0), "and it is told so"


def test_what_runs_on_a_slice_is_stopped_only_when_its_owner_gives_no_more():
    world = World(budget(150, owner="london", running=Running.STOP), slots=2)
    world["b"].allotted_nanos, world["b"].is_open = 150 * UNIT, True
    world.submit(2)
    world.tick(80.0)
    assert not world.recalls
    assert world["b"].room_nanos < 0, "which is asked for"
    world["b"].refused = "all is spent"
    world.tick()
    assert len(world.recalls) == 1


def test_what_runs_may_end_when_its_budget_says_so():
    world = World(budget(100), slots=2)
    world.submit(2)
    world.tick(80.0)
    world.tick(80.0)
    assert not world.recalls
    assert world["b"].room_nanos < 0
    world.report(0.0)
    assert not world.dropped


def test_what_keeps_to_its_time_limit_is_never_stopped_for_money():
    world = World(budget(100, running=Running.STOP), slots=4)
    world.submit(4, timeout_s=24.0)
    world.tick(23.0)
    assert not world.recalls


# --- what others owe -----------------------------------------------------------------------------

OWED = {"paris": ((100 * UNIT, "USD"), (5 * UNIT, "EUR")), "*": ((UNIT, "USD"),)}


def sold(world, job="paris:c", site="paris", client=-1, tasks=4, **changes):
    """A job that another site sent, at our price."""
    if client not in world.broker.clients:
        world.do(events.ClientJoined(client, f"bob@{site}", site))
    fields = {"price": PRICE, "path": (site,), "user": f"bob@{site}", "timeout_s": 9.0, **changes}
    world.do(events.JobOpened(client, job, spec(**fields)))
    if job in world.broker.jobs:
        world.do(events.TasksArrived(client, job, 0, [b""] * tasks))


def owing(world, site="paris", currency="USD"):
    found = [
        each
        for each in world.broker.budget_accounts.credit_of(site)
        if each.budget.unit == currency
    ]
    return found[0]


def test_a_site_owes_what_its_tasks_have_cost_and_may_cost():
    world = World(credit=OWED, slots=20)
    world.do(events.SpendingKnown({}, {("paris", "USD"): 75 * UNIT}))
    sold(world)
    assert world.out == 2
    assert owing(world).held_nanos == 20 * UNIT
    world.report(3.0)
    assert owing(world).spent_nanos == 78 * UNIT
    assert world.out == 2
    world.do(events.JobOpened(-1, "paris:d", spec(price=PRICE, path=("paris",), timeout_s=50.0)))
    refusal = world.refusals[0]
    assert refusal.code == Reason.CREDIT_LIMIT
    assert "paris owes 78 USD, of a credit limit of 100 USD, 20 USD is held" in refusal.reason


def test_a_site_without_a_limit_of_its_own_has_that_of_all():
    world = World(credit=OWED)
    sold(world, site="lyon", job="lyon:c")
    assert world.refusals[0].code == Reason.CREDIT_LIMIT
    assert not World(credit={"paris": OWED["paris"]}).broker.budget_accounts.credit_of("lyon")


def test_a_site_has_credit_in_each_currency_by_itself():
    world = World(credit=OWED, slots=8)
    world.broker.budget_accounts.credit_of("paris")
    owing(world, currency="EUR").spent_nanos = 5 * UNIT
    sold(world)
    assert world.out == 4
    euros = Tariff(UNIT, "EUR", "v")
    sold(world, "paris:e", price=euros)
    assert world.refusals[0].code == Reason.CREDIT_LIMIT
    assert "paris owes 5 EUR, of a credit limit of 5 EUR" in world.refusals[0].reason
    sold(world, "paris:g", price=Tariff(UNIT, "GBP", "v"))
    assert world.refusals[1].reason == "paris has credit in USD, EUR at this site, not in GBP"


def test_another_site_is_told_the_figures_of_its_own_budget_alone():
    for party, is_told in (("site:paris", True), ("others", False)):
        world = World(budget(1, party))
        sold(world)
        refusal = world.refusals[0]
        assert refusal.code == Reason.BUDGET_EXHAUSTED
        assert ("1 USD" in refusal.reason) is is_told


def posted(side="sell", nanos=UNIT, **changes):
    fields = {"epoch": 1, "first": 0, "tasks": 1, "wall_ns": 1, "posted_at_s": NOON_S, **changes}
    return records.Posted(
        contract="c", side=side, site="paris", cost_nanos=nanos, currency="USD", **fields
    )


def settled(side, state, nanos=UNIT):
    return records.PostingSettled("c", side, "paris", 1, 0, state, nanos, "USD", NOON_S)


def reversed_(side, state="accepted"):
    return records.DisputeSettled(
        side, "c", 1, 0, "paris", state, "so", NOON_S, cost_nanos=UNIT, currency="USD"
    )


def paid(direction):
    return records.Payment("paris", "r", "USD", direction, "bank", UNIT, "", NOON_S)


@pytest.mark.parametrize(
    ("record", "change"),
    [
        (posted(), 0),  # it was spent when it was reported
        (settled("sell", "post"), 0),
        (settled("sell", "void"), -1),
        (reversed_("sell"), -1),
        (reversed_("sell", "rejected"), 0),
        (posted("buy"), 0),
        (settled("buy", "post"), -1),
        (settled("buy", "void"), 0),
        (reversed_("buy"), 1),
        (paid("received"), -1),
        (paid("paid"), 1),
        (records.PaymentUndone("paris", "r", "USD", 0, "received", "bank", UNIT, "", NOON_S), 1),
    ],
)
def test_what_is_booked_changes_what_a_site_owes(record, change):
    budget_accounts = BudgetAccounts((), OWED)
    budget_accounts.take_up({}, {("paris", "USD"): 50 * UNIT}, NOON_S)
    budget_accounts.note(record)
    (found, _) = budget_accounts.credit_of("paris")
    assert found.spent_nanos == (50 + change) * UNIT


def test_what_is_owed_is_put_right_by_the_books():
    budget_accounts = BudgetAccounts((), OWED)
    budget_accounts.take_up({}, {("paris", "USD"): 50 * UNIT}, NOON_S)
    found, _ = budget_accounts.credit_of("paris")
    found.spend(5 * UNIT, NOON_S)  # which was stopped, and is not owed
    before = budget_accounts.owing()
    found.spend(3 * UNIT, NOON_S)  # while the books were read
    budget_accounts.true_up(before, {("paris", "USD"): 51 * UNIT, ("lyon", "USD"): UNIT // 2})
    assert found.spent_nanos == 54 * UNIT
    assert budget_accounts.credit_of("lyon")[0].spent_nanos == UNIT // 2


# --- any interleaving ----------------------------------------------------------------------------

AMOUNTS = {"hers": 27, "risk": 48, "slots": 333, "all": 62}
CREDIT = 31
LIMIT_S = 4.0


class Spending(RuleBasedStateMachine):
    """Users and another site on one grid: reports, losses, recalls, cancels, midnights, restarts.

    Every task has a time limit, and none takes longer than that and the time of stopping it.
    """

    @initialize(running=st.sampled_from(Running), waiting=st.sampled_from(Waiting))
    def start(self, running, waiting):
        rules = {"running": running, "waiting": waiting}
        self.budgets = [
            budget(AMOUNTS["hers"], name="hers", **rules),
            budget(AMOUNTS["risk"], "project:risk", name="risk", **rules),
            budget(AMOUNTS["slots"], "ours", SLOT_TIME, name="slots", span=None, **rules),
            budget(AMOUNTS["all"], "all", name="all", **rules),
        ]
        self.numbers, self.books, self.now_s = 10, [], NOON_S
        self.live()

    def live(self):
        """A life of the gateway: it knows the content of the books alone."""
        self.world = World(*self.budgets, slots=0, credit={"paris": ((CREDIT * UNIT, "USD"),)})
        self.world.now_s = self.now_s
        self.world.books = self.books
        spent = {}
        for each in self.budgets:
            by_period = self.spent(each)
            period = each.period_at(self.now_s)
            now = by_period[period.key if period else ""]
            spent[each.name] = BudgetSpent(sum(by_period.values()), now)
        owed = sum(each.cost_nanos for each in self.sold())
        self.world.do(events.SpendingKnown(spent, {("paris", "USD"): owed}))

    def usage(self):
        return [each for each in self.books if isinstance(each, records.UsageRecord)]

    def sold(self):
        return [each for each in self.usage() if each.origin]

    def spent(self, budget):
        found = Counter()
        for each in self.usage():
            parties = {"hers": each.user == "ann", "all": True}
            is_ours = not each.origin
            is_covered = parties.get(budget.name, is_ours)
            if is_covered:
                period = budget.period_at(each.ended_at_s)
                nanos = each.cost_nanos if budget.is_money else each.wall_ns
                if budget.is_money or each.state != "repeat":
                    found[period.key if period else ""] += nanos
        return found

    @rule(tasks=st.integers(1, 12), user=st.sampled_from(["ann", "bob"]), retries=st.integers(0, 1))
    def submit(self, tasks, user, retries):
        self.numbers += 1
        self.world.do(events.ClientJoined(self.numbers, user))
        job = spec(user=user, timeout_s=LIMIT_S, retries=retries)
        self.world.do(events.JobOpened(self.numbers, f"j{self.numbers}", job))
        if f"j{self.numbers}" in self.world.broker.jobs:
            arguments = [b""] * tasks
            self.world.do(events.TasksArrived(self.numbers, f"j{self.numbers}", 0, arguments))

    @rule(tasks=st.integers(1, 12))
    def sell(self, tasks):
        self.numbers += 1
        job, client = f"paris:c{self.numbers}", -self.numbers
        sold(self.world, job, client=client, tasks=tasks, timeout_s=LIMIT_S)

    @rule(slots=st.integers(1, 8))
    def join(self, slots):
        self.numbers += 1
        self.world.join(self.numbers, slots)

    @rule(tasks=st.integers(1, 12), is_late=st.booleans())
    def rush(self, tasks, is_late):
        """All submit at once, there are slots for all, and every task takes as long as it may.

        Late: running tasks end in the next day.
        """
        self.join(20)
        self.submit(tasks, "ann", 0)
        self.sell(tasks)
        self.submit(tasks, "bob", 0)
        if is_late:
            self.world.now_s = max(
                self.world.now_s, self.budgets[0].period_at(self.world.now_s).end_at_s
            )
        while self.world.orders:
            self.report_one(0, len(self.world.orders[0][1].arguments), 1.0, "")
            self.nothing_is_overrun()

    @precondition(lambda self: self.world.orders)
    @rule(data=st.data(), share=st.floats(0, 1), kind=st.sampled_from(["", "", "error", "timeout"]))
    def report(self, data, share, kind):
        at = data.draw(st.integers(0, len(self.world.orders) - 1))
        count = data.draw(st.integers(1, len(self.world.orders[at][1].arguments)))
        self.report_one(at, count, share, kind)

    def report_one(self, at, count, share, kind):
        worker, order = self.world.orders.pop(at)
        wall_ns = round(count * share * (LIMIT_S + KILL_S) * 1e9)
        self.world.now_s += share * (LIMIT_S + KILL_S)
        failures = [[0, kind, "text", b""]] if kind else []
        if count < len(order.arguments):
            self.world.orders.append((worker, rest_of(order, count)))
        values = [b""] * count
        self.world.do(
            events.Reported(
                worker, order.assignment, order.first, values, failures, wall_ns=wall_ns
            )
        )

    @precondition(lambda self: self.world.orders)
    @rule(data=st.data())
    def lose_worker(self, data):
        worker = data.draw(st.sampled_from(sorted({each for each, _ in self.world.orders})))
        self.world.orders = [each for each in self.world.orders if each[0] != worker]
        self.world.do(events.WorkerGone(worker, "lost"))

    @precondition(lambda self: self.world.recalls)
    @rule(data=st.data())
    def answer_recall(self, data):
        at = data.draw(st.integers(0, len(self.world.recalls) - 1))
        worker, recall = self.world.recalls.pop(at)
        found = [
            each
            for each in self.world.orders
            if each[0] == worker and each[1].assignment == recall.assignment
        ]
        ranges = []
        for each in found:
            order = each[1]
            left = RangeSet([(order.first, order.first + len(order.arguments))])
            ranges += left.within(recall.first, recall.stop)
            if ranges == [(order.first, order.first + len(order.arguments))]:
                self.world.orders.remove(each)
            else:
                ranges = []  # as if all of it had started
        if worker in self.world.broker.workers:
            self.world.do(events.HandedBack(worker, recall.assignment, tuple(ranges)))

    @precondition(lambda self: self.world.broker.jobs)
    @rule(data=st.data())
    def cancel(self, data):
        job = data.draw(st.sampled_from(sorted(self.world.broker.jobs)))
        client = self.world.broker.jobs[job].client
        self.world.do(events.CancelAsked(client, 0, job, (), False))

    @rule(seconds=st.sampled_from([0.1, 1.0, 60.0, 11 * 3600.0, DAY_S]))
    def pass_time(self, seconds):
        self.world.tick(seconds)

    @rule()
    def restart(self):
        self.now_s = self.world.now_s
        self.live()

    @invariant()
    def nothing_is_overrun(self):
        if not hasattr(self, "world"):
            return
        for each in self.budgets:
            for key, nanos in self.spent(each).items():
                assert nanos <= each.amount_nanos, (each.name, key, nanos)
        assert sum(each.cost_nanos for each in self.sold()) <= CREDIT * UNIT

    @invariant()
    def what_is_held_is_for_what_is_out(self):
        if not hasattr(self, "world"):
            return
        held = Counter()
        for job in self.world.broker.jobs.values():
            for assignment in job.assignments.values():
                for budget_account, nanos in assignment.holds:
                    held[budget_account] += nanos * len(assignment.left)
        for budget_account in self.world.broker.budget_accounts:
            assert budget_account.held_nanos == held[budget_account]


TestSpending = pytest.mark.thorough(Spending.TestCase)
TestSpending.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
