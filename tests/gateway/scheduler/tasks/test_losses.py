"""The tasks of lost workers: tried again, given up, booked, charged."""

from dataclasses import replace
from math import inf
from types import SimpleNamespace

import pytest
from support.pure.windows import PRICE, WindowsWorld, orders, spec

from federation.messages import messages
from gateway.ledger.db import records
from gateway.ledger.db.usage.records import UsedRun
from gateway.runtime.recovery import history_of, recovered
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import Expel, SendToClient, Write
from gateway.scheduler.model.job_grants import JobGrant
from gateway.scheduler.model.jobs import QueuedBundle
from gateway.scheduler.model.loss_suspects import SEEN_S
from gateway.scheduler.model.paid_time import PaidTime, PaidTimes
from gateway.scheduler.quotas.accounts import ClientLimits
from gateway.scheduler.tasks.losses import LATE_TIMES
from gateway.scheduler.tasks.overdue import OVERDUE_S, STALLED_S
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore

PRICE_NS = 1_000  # nanoseconds of a slot for a nano-unit, by the pool of windows_support


class Grid(WindowsWorld):
    """Workers that come, report begun tasks, and are lost."""

    def __init__(self, losses_max=5):
        super().__init__(slots=())
        tariffs = dict(self.broker.tariffs)
        self.broker = Broker(tariffs, limits=ClientLimits(tasks_max=10_000, losses_max=losses_max))
        self.turn()
        self.handles = 10
        self.effects = []

    def do(self, *happened):
        effects = super().do(*happened)
        if hasattr(self, "effects"):
            self.effects += effects
        return effects

    def join(self, name="w", slots=1, **about):
        self.handles += 1
        about = {"tells_begun": True} | about
        self.do(events.WorkerJoined(self.handles, name, "fast", slots, {}, "3.11", **about))
        return self.handles

    def pass_time(self, seconds):
        self.now_s += seconds
        return self.do(events.Ticked())

    def held(self, worker):
        return list(self.broker.workers[worker].assignments.values())

    def begin(self, worker):
        """All that a worker has begins."""
        rows = [(each.id, task, 0.0) for each in self.held(worker) for pair in each.left
                for task in range(*pair)]  # fmt: skip
        return self.do(events.TasksBegun(worker, tuple(rows)))

    def lose(self, worker, after_s=0.0, **how):
        self.now_s += after_s
        return self.do(events.WorkerGone(worker, "its lease ran out", **how))

    def finish(self, worker, wall_s=None, failures=()):
        """Everything that a worker has ends well, unless `failures` says otherwise."""
        for each in self.held(worker):
            for first, stop in list(each.left):
                passed_s = self.now_s - each.given_at_s if wall_s is None else wall_s
                self.do(
                    events.Reported(
                        worker, each.id, first, [b"r"] * (stop - first), list(failures),
                        wall_ns=round(passed_s * 1e9),
                    )
                )  # fmt: skip

    def written(self, state=None):
        found = [e.record for e in self.effects if isinstance(e, Write)]
        used = [each for each in found if isinstance(each, records.UsageRecord)]
        return [each for each in used if state in (None, each.state)]

    def told(self, kind):
        found = [e.message for e in self.effects if isinstance(e, SendToClient)]
        return [each for each in found if isinstance(each, kind)]

    def failures(self):
        """The failures of tasks, by number."""
        told = self.told(messages.Results)
        found = {
            each.first + at: (kind, text) for each in told for at, kind, text, _ in each.failures
        }
        for each in self.told(messages.Dropped):
            found |= {
                at: (each.failure, each.reason) for pair in each.ranges for at in range(*pair)
            }
        return found

    def done(self):
        return self.broker.tasks_done


def test_tasks_that_never_began_go_back_for_ever():
    grid = Grid()
    grid.submit("j", 6)
    for number in range(30):
        worker = grid.join(f"w{number}", slots=8)
        grid.pass_time(100)
        assert grid.held(worker)
        grid.lose(worker)
        grid.pass_time(100)
    assert grid.failures() == {}
    assert grid.written() == []
    last = grid.join("last", slots=8)
    grid.pass_time(100)
    while grid.held(last):
        grid.finish(last, 0.1)
    assert grid.done() == 6


def test_what_had_begun_is_given_up_after_so_many_losses_which_the_error_lists():
    grid = Grid(losses_max=3)
    grid.submit("j", 1)
    for number in range(3):
        worker = grid.join(f"w{number}")
        grid.begin(worker)
        grid.lose(worker, after_s=2)
    kind, text = grid.failures()[0]
    assert kind == "lost"
    assert "lost 3 times" in text
    for number in range(3):
        assert f"w{number} at 1970-01-01 12:00:0" in text
    assert "its lease ran out" in text


@pytest.mark.parametrize("tells_begun", [True, False])
def test_losses_that_a_late_gateway_may_have_caused_do_not_count(tells_begun):
    world = Grid()
    world.submit("j", 1)
    for number in range(12):
        worker = world.join(f"w{number}", tells_begun=tells_begun)
        if tells_begun:
            world.begin(worker)
        assert world.held(worker)
        world.lose(worker, 10.0, was_late=True)
    job = world.broker.jobs["j"]
    assert (job.failed, job.waiting) == (0, 1)
    assert not any(each.losses for each in job.strikes.values())
    if tells_begun:
        assert "not counted, as this gateway was late" in job.notes[-1][1]
        # It is paid once, as ever: no user is taken to have ended these workers.
        assert sum(each.charged_nanos > 0 for each in world.written("wasted")) == 1
    for number in range(5):
        assert not world.failures()
        worker = world.join(f"v{number}", tells_begun=tells_begun)
        world.pass_time(300.0)
        if tells_begun:
            world.begin(worker)
        world.lose(worker, 10.0)
    assert [kind for kind, _ in world.failures().values()] == ["lost"]


@pytest.mark.parametrize("tells_begun", [True, False])
@pytest.mark.parametrize("sold", [True, False])
def test_a_task_is_given_up_when_a_late_gateway_has_lost_it_too_often(tells_begun, sold):
    world, times = Grid(losses_max=3), 3 * LATE_TIMES
    about = {"price": PRICE, "path": ("paris",)} if sold else {}
    world.submit("j", 2, **about)
    for number in range(times):
        assert not world.failures()
        worker = world.join(f"w{number}", tells_begun=tells_begun)
        if tells_begun:
            world.begin(worker)
        world.lose(worker, 10.0, was_late=True)
    found = world.failures()
    kind, text = found[0 if 0 in found else 1]
    assert kind == "lost"
    assert text == (
        f"its worker was lost {times} times when this gateway was late, which is 4 times "
        f"task_losses (3): the last one was w{times - 1}"
    )


def test_of_a_worker_that_does_not_say_what_begins_all_counts():
    grid = Grid(losses_max=3)
    grid.submit("j", 1)
    for _ in range(3):
        grid.lose(grid.join(tells_begun=False))
        grid.pass_time(100)
    assert grid.failures()[0] == ("lost", "its worker was lost 3 times, the last one was w")


@pytest.mark.parametrize(("losses", "earlier"), [(10, ""), (12, "2 earlier; ")])
def test_of_many_losses_the_error_counts_the_earlier_ones_and_lists_ten(losses, earlier):
    grid = Grid(losses_max=losses)
    grid.submit("j", 1)
    for number in range(losses):
        worker = grid.join(f"w{number}")
        grid.pass_time(3_000)  # it may have been out of service
        grid.begin(worker)
        grid.lose(worker, after_s=2)
    first = f"its worker was lost {losses} times while it ran: {earlier}w{losses - 10} at "
    _, text = grid.failures()[0]
    assert text.startswith(first)
    assert text.count(" at ") == 10


def test_of_an_assignment_with_gaps_each_task_that_had_begun_is_counted_once():
    grid = Grid()
    worker = grid.join()
    grid.learn(0.01)
    grid.submit("j", 3)
    [each] = grid.held(worker)
    grid.do(events.Reported(worker, each.id, 1, [b"r"]))
    grid.begin(worker)
    grid.lose(worker, after_s=6)
    assert [used.first for used in grid.written("wasted")] == [2, 0]
    job = grid.broker.jobs["j"]
    assert {task: len(strikes.losses) for task, strikes in job.strikes.items()} == {0: 1, 2: 1}


def test_a_run_that_its_owner_withdrew_is_charged_when_its_worker_is_lost():
    """Its cancel waited for the worker to say whether the task had begun."""
    grid = Grid()
    worker = grid.join()
    grid.submit("j", 1)
    grid.begin(worker)
    grid.do(events.CancelAsked(grid.clients, 7, "j", ((0, 1),), False))
    grid.lose(worker, after_s=6)
    assert [each.value["taken"] for each in grid.told(messages.Answer)] == [[[0, 1]]]
    assert [each.wall_ns for each in grid.written("wasted")] == [6 * S_NS]


def test_the_notes_of_a_job_name_the_task_and_the_worker_that_was_lost():
    grid = Grid()
    worker = grid.join("w7")
    grid.submit("j", 1)
    grid.begin(worker)
    grid.lose(worker, after_s=6)
    [(_, text)] = grid.broker.jobs["j"].notes
    assert text.startswith("task 0 had started when its worker was lost: w7 at 1970-01-01 12:00:06")


def test_what_others_had_begun_with_is_counted_by_task():
    grid = Grid(losses_max=2)
    grid.submit("j", 8)
    for _ in range(2):
        worker = grid.join(slots=8)
        grid.pass_time(100)
        [first, *_] = grid.held(worker)
        task = next(iter(first.left))[0]
        grid.do(events.TasksBegun(worker, ((first.id, task, 0.0),)))
        grid.lose(worker, after_s=1)
        grid.pass_time(100)
    assert len(grid.failures()) == 1
    last = grid.join("last", slots=8)
    grid.pass_time(100)
    while grid.held(last):
        grid.finish(last, 0.1)
    assert grid.done() == 7


def test_what_a_worker_says_of_tasks_that_it_does_not_have_is_nothing():
    grid = Grid()
    worker = grid.join()
    grid.submit("j", 1)
    [each] = grid.held(worker)
    grid.do(events.TasksBegun(worker, ((each.id, 7, 0.0), (each.id + 9, 0, 0.0))))
    grid.do(events.TasksBegun(99, ((each.id, 0, 0.0),)))
    assert each.begun == {}
    grid.do(events.TasksBegun(worker, ((each.id, 0, 1e9),)))
    assert each.begun == {0: each.given_at_s}, "nothing begins before it is handed out"


# --- where it goes -----------------------------------------------------------------------------


def test_a_task_that_was_lost_goes_to_another_worker_that_can_take_it():
    grid = Grid()
    flapping = grid.join("flapping")
    grid.submit("j", 1)
    grid.begin(flapping)
    grid.lose(flapping, after_s=1)
    grid.do(events.ClientReading(grid.clients, False))  # nothing is handed out meanwhile
    flapping, honest = grid.join("flapping"), grid.join("honest")
    grid.do(events.ClientReading(grid.clients, True))
    assert (len(grid.held(flapping)), len(grid.held(honest))) == (0, 1)


def test_it_goes_back_to_the_same_one_where_there_is_no_other():
    grid = Grid()
    worker = grid.join()
    grid.submit("j", 1)
    grid.begin(worker)
    grid.lose(worker, after_s=1)
    assert len(grid.held(grid.join())) == 1


def test_it_does_not_wait_for_ever_for_another_that_is_busy():
    grid = Grid()
    lost = grid.join("a")
    grid.submit("j", 1)
    grid.begin(lost)
    busy = grid.join("b")
    grid.submit("k", 1, name="other")
    grid.lose(lost, after_s=1)
    back = grid.join("a")
    assert [each.job.id for each in grid.held(busy)] == ["k"]
    assert grid.held(back) == []
    grid.pass_time(301)
    assert [each.job.id for each in grid.held(back)] == ["j"]


def test_other_tasks_of_the_job_do_not_wait_for_it():
    grid = Grid()
    lost = grid.join("a")
    grid.submit("j", 20)
    grid.begin(lost)
    busy = grid.join("b")
    assert grid.held(busy)
    grid.lose(lost, after_s=1)
    back = grid.join("a")
    assert [list(each.left) for each in grid.held(back)] == [[(2, 3)]]


def queued_behind_short_ones():
    """A job with a task that was lost with "a", behind another; and "b", which has two of k's."""
    grid = Grid()
    grid.learn(0.01)
    grid.submit("k", 2)
    busy = grid.join("b")
    [of_k] = grid.held(busy)
    assert len(of_k.left) == 2
    grid.submit("j", 0)
    job = grid.broker.jobs["j"]
    job.enqueue(QueuedBundle(1, [b"x"], 1))
    job.enqueue(QueuedBundle(0, [b"x"], 1, 2, alone=True, shuns=frozenset("a"), shuns_until_s=inf))
    job.is_shunning = True
    return grid, job, busy


def test_a_task_that_was_lost_is_not_queued_ahead_though_others_of_its_job_are():
    grid, job, busy = queued_behind_short_ones()
    grid.broker._dispatcher.mark_ready(job)
    grid.pass_time(0)
    assert [each.job.id for each in grid.held(busy)] == ["k"]
    grid.finish(busy, 0.01)
    assert grid.held(busy)[0].run.alone, "it is first as soon as the slot is idle"


def test_a_job_is_filed_by_the_task_that_was_brought_forward():
    """Else it is not noticed, when others are late, that it waits for an idle slot."""
    grid, job, _ = queued_behind_short_ones()
    assert not grid.broker.is_uneven
    grid.broker._dispatcher.mark_ready(job)
    grid.pass_time(0)
    assert job.queue[0].alone
    assert grid.broker.is_uneven


def test_a_worker_that_flaps_fails_nobodys_tasks():
    """64 slots that come, take tasks, report that they have begun, and go; again and again."""
    grid = Grid()
    honest = grid.join("honest", slots=2)
    grid.submit("j", 40)
    flaps = 0
    while grid.done() < 40:
        flapping = grid.join("flapping", slots=64)
        grid.pass_time(0.2)
        grid.begin(flapping)
        grid.lose(flapping, after_s=0.05)
        grid.pass_time(0.25)
        grid.finish(honest, 0.2)
        flaps += 1
        assert flaps < 200
    assert grid.failures() == {}


def test_new_names_again_and_again_fail_nobodys_tasks():
    grid = Grid()
    honest = grid.join("honest", slots=2)
    grid.submit("j", 40)
    names = 0
    while grid.done() < 40:
        stranger = grid.join(f"stranger-{names}", slots=64)
        grid.pass_time(0.2)
        grid.begin(stranger)
        grid.lose(stranger, after_s=0.05)
        grid.pass_time(0.25)
        grid.finish(honest, 0.2)
        names += 1
        assert names < 200
    assert grid.failures() == {}


def test_sessions_of_one_token_that_had_all_joined_before_fail_nobodys_tasks():
    grid = Grid()
    strangers = [grid.join(f"stranger-{n}", slots=64, token="t") for n in range(14)]
    honest = grid.join("honest", slots=2)
    grid.submit("j", 60)
    for stranger in strangers:
        grid.begin(stranger)
        grid.lose(stranger, after_s=0.05)
        grid.pass_time(0.25)
    for _ in range(100):
        grid.pass_time(1)
        grid.finish(honest, 0.2)
    assert (grid.done(), grid.failures()) == (60, {})


# --- what it costs -----------------------------------------------------------------------------


S_NS = 10**9
COST_S = S_NS // PRICE_NS  # of a second of a slot


def test_what_has_to_be_done_again_after_a_loss_is_paid_once():
    grid = Grid()
    worker = grid.join("w", slots=2)
    grid.submit("j", 2)
    grid.begin(worker)
    grid.lose(worker, after_s=10, silent_s=4.0)
    wasted = grid.written("wasted")
    assert [(each.first, each.wall_ns, each.cost_nanos) for each in wasted] == [
        (1, 6 * S_NS, 6 * COST_S),
        (0, 6 * S_NS, 6 * COST_S),
    ]
    assert not any(each.is_charge for each in wasted)
    again = grid.join("w", slots=2)
    while grid.held(again):
        grid.now_s += 20
        grid.finish(again, 8)
    ok = grid.written("ok")
    assert [(each.first, each.attempt, each.wall_ns, each.cost_nanos) for each in ok] == [
        (0, 2, 8 * S_NS, 2 * COST_S),
        (1, 2, 8 * S_NS, 2 * COST_S),
    ]


def test_what_a_grant_leaves_uncharged_is_no_discount():
    """A seller that may bill four of ten seconds, and its buyer, at half of the list price."""
    dear = replace(PRICE, list_nanos=2 * PRICE.price_nanos)
    seller, buyer = Grid(), Grid()
    given = JobGrant(SimpleNamespace(max_cost_nanos=4 * COST_S), ("paris",), b"")
    worker = seller.join()
    seller.submit("paris:c.1", 1, site="paris", price=dear, given=given)
    seller.now_s += 10
    seller.finish(worker, 10)
    worker = buyer.join()
    buyer.submit("j", 1)
    [each] = buyer.held(worker)
    each.tariff = dear
    buyer.now_s += 10
    buyer.do(
        events.Reported(worker, each.id, 0, [b"r"], [], wall_ns=10 * S_NS, cost_nanos=4 * COST_S)
    )
    for grid in (seller, buyer):
        [record] = grid.written()
        assert (record.wall_ns, record.cost_nanos) == (10 * S_NS, 4 * COST_S)
        assert record.list_cost_nanos == 8 * COST_S


@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        (("cancelled", "cancelled"), "cancelled"),
        (("cancelled", "preempted"), "cancelled"),
        (("preempted", "preempted"), "preempted"),
        (("cancelled", "error"), "failed"),
        (("error", "timeout"), "failed"),
        (("cancelled",), "ok"),
    ],
)
def test_stopped_work_is_not_booked_as_failed(kinds, state):
    grid = Grid()
    worker = grid.join("w", slots=2)
    grid.learn(1.0)
    grid.submit("j", 2)
    grid.now_s += 5
    grid.finish(worker, 5, [[at, kind, "", b""] for at, kind in enumerate(kinds)])
    [record] = grid.written()
    assert (record.state, record.tasks, record.wall_ns) == (state, 2, 5 * S_NS)
    assert record.cost_nanos == (0 if state == "preempted" else 5 * COST_S)
    assert record.is_charge


def test_a_lost_run_had_no_more_time_than_its_limit():
    """Its worker was heard for longer, and can't say any more that it had stopped the task."""
    grid = Grid()
    worker = grid.join()
    grid.submit("j", 1, timeout_s=5.0)
    grid.begin(worker)
    grid.lose(worker, after_s=20)
    [wasted] = grid.written("wasted")
    assert (wasted.wall_ns, wasted.cost_nanos) == (5 * S_NS, 5 * COST_S)


def test_a_seller_is_owed_no_more_for_a_lost_run_than_its_limit():
    grid = Grid()
    worker = grid.join()
    grid.submit("paris:c.1", 1, site="paris", timeout_s=5.0)
    grid.begin(worker)
    grid.lose(worker, after_s=20)
    again = grid.join("again")
    grid.now_s += 4
    grid.finish(again, 2)
    [tell] = [
        e
        for e in grid.effects
        if isinstance(e, SendToClient) and isinstance(e.message, messages.Results)
    ]
    assert (tell.charge.wall_ns, tell.charge.cost_nanos) == (5 * S_NS, 5 * COST_S)


def test_a_worker_that_fell_silent_before_its_task_began_ran_nothing_of_it():
    grid = Grid()
    worker = grid.join()
    grid.submit("j", 1)
    grid.begin(worker)
    grid.lose(worker, after_s=10, silent_s=11.0)
    assert [(each.state, each.wall_ns, each.cost_nanos) for each in grid.written()] == [
        ("wasted", 0, 0)
    ]


def test_what_a_task_has_kept_of_wasted_runs_is_paid():
    grid = Grid()
    grid.submit("j", 1)
    for _ in range(3):
        worker = grid.join()
        grid.pass_time(100)
        grid.begin(worker)
        grid.lose(worker, after_s=6)
    last = grid.join()
    grid.pass_time(100)
    grid.now_s += 1
    grid.finish(last, 0.5)
    assert [each.cost_nanos for each in grid.written("wasted")] == [6 * COST_S] * 3
    [ok] = grid.written("ok")
    assert (ok.wall_ns, ok.cost_nanos) == (S_NS // 2, 0)
    [results] = grid.told(messages.Results)
    assert results.values == [b"r"]


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    ("times", "currency", "second"),
    [(10, "USD", 54), (1, "USD", 0), (0.5, "USD", 0), (10, "EUR", 0)],
)
def test_a_wasted_run_pays_no_more_of_a_dearer_pool_than_it_has_cost(
    times, currency, second, is_restarted
):
    """A task that ends its worker in a cheap pool would run for that price in a dear one."""
    grid = Grid()
    grid.submit("j", 1)
    grid.begin(worker := grid.join())
    grid.lose(worker, after_s=6)
    [lost] = grid.written()
    if is_restarted:
        grid = next_life(grid, is_detached=False)
        come_back(grid)
    tariff = replace(PRICE, price_nanos=int(PRICE.price_nanos * times), currency=currency)
    grid.broker.tariffs["slow"] = tariff
    grid.do(events.WorkerJoined(70, "dear", "slow", 1, {}, "3.11", tells_begun=True))
    grid.pass_time(6)
    grid.finish(70, 6)
    [used] = [each for each in grid.written("ok") if each.first == 0]
    assert (lost.cost_nanos // COST_S, used.cost_nanos // COST_S) == (6, second)
    assert grid.broker.jobs["j"].paid_times.left() == ()


def test_of_two_wasted_runs_the_dearer_one_counts():
    """Ten seconds at the price are paid, then six at its tenfold: in all as much as these six."""
    used = UsedRun(0, 1, "wasted", 10, "guaranteed", "", 100, "USD", 1_000, 0.0)
    paid_times = PaidTimes()
    for wall_ns, price in ((10, 100), (6, 1_000), (7, 100)):
        paid_times.book(replace(used, wall_ns=wall_ns, price_nanos=price))
    assert paid_times.left() == ((0, PaidTime(6, 1_000, "USD")),)
    assert paid_times.of(0, 1, 20, 2_000, "USD") == 3
    paid_times.book(replace(used, state="ok", wall_ns=2, price_nanos=2_000))
    assert paid_times.left() == ((0, PaidTime(2, 1_000, "USD")),)
    paid_times.book(replace(used, wall_ns=9, price_nanos=0))
    free = PaidTimes([(0, PaidTime(9, 0, "USD"))])
    assert (free.of(0, 1, 5, 0, "USD"), free.of(0, 1, 5, 1, "USD")) == (5, 0)
    free.book(replace(used, state="ok", wall_ns=1, price_nanos=1))
    assert free.left() == ()


def come_back(grid, **terms):
    """The client of the job comes, with all its tasks."""
    grid.clients += 1
    grid.do(
        events.ClientJoined(grid.clients, "ann"),
        events.JobOpened(grid.clients, "j", spec(**terms), again=True),
        events.TasksArrived(grid.clients, "j", 0, [b"x"] * 2),
    )


def next_life(grid, is_detached):
    """The same site after a restart, by the content of its books."""
    disk, after = Disk(), Grid()
    disk.commit([e.record for e in grid.effects if isinstance(e, Write)], durable=True)
    store = MemoryStore(disk)
    after.do(*recovered(store) if is_detached else [history_of(store.usage, store.jobs.get("j"))])
    return after


@pytest.mark.parametrize("what", ["stays", "its client leaves", "restart", "detached, restart"])
def test_as_much_is_paid_when_a_client_or_the_gateway_was_gone_meanwhile(what):
    """The first of two tasks runs for six seconds on a worker that is lost; then for eight."""
    before = after = Grid()
    worker = before.join()
    is_detached = what.startswith("detached")
    before.submit("j", 2, detached=is_detached)
    before.begin(worker)
    before.lose(worker, after_s=6)
    assert [each.first for each in before.written("wasted")] == [0]
    if what == "its client leaves":
        before.do(events.ClientGone(before.clients))
        come_back(before)
    elif "restart" in what:
        after = next_life(before, is_detached)
        if not is_detached:
            come_back(after)
    again = after.join("again", slots=2)
    while after.held(again):
        after.now_s += 20
        for each in after.held(again):
            for first, stop in list(each.left):
                report = [b"r"] * (stop - first), []
                wall_ns = 8 * S_NS * (stop - first)
                after.do(events.Reported(again, each.id, first, *report, wall_ns=wall_ns))
    written = {id(each): each for each in before.written() + after.written()}
    assert sum(each.cost_nanos for each in written.values()) == 16 * COST_S
    assert sum(each.wall_ns for each in written.values()) == 22 * S_NS, "each run counts once"
    keys = [(each.first, each.attempt) for each in written.values()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("what", ["stays", "its client leaves", "restart"])
def test_a_task_that_ends_its_workers_pays_each_run_whoever_was_gone_meanwhile(what):
    grid = Grid(losses_max=9)
    grid.submit("j", 2, detached=what == "restart")
    for number in range(4):
        worker = grid.join(f"w{number}")
        grid.pass_time(400)
        grid.begin(worker)
        grid.lose(worker, after_s=6)
        if what == "its client leaves":
            grid.do(events.ClientGone(grid.clients))
            come_back(grid)
        elif what == "restart" and number == 2:
            written, now_s = grid.effects, grid.now_s
            grid = next_life(grid, is_detached=True)
            grid.effects, grid.now_s = written + grid.effects, now_s
    costs = [each.cost_nanos // COST_S for each in grid.written("wasted") if each.first == 0]
    assert costs == [6] * len(costs)
    assert len(grid.written("wasted")) == 4


def test_how_long_a_job_ran_for_nothing_is_known_after_a_restart():
    """Repeats for free are bounded by the paid time, in all lives of a site."""
    grid = Grid()
    worker = grid.join()
    grid.submit("j", 1)
    job = grid.broker.jobs["j"]
    job.charged.add(0, 1)
    job.wall_ns = 6 * S_NS
    grid.now_s += 10
    grid.finish(worker, 6)
    assert [each.state for each in grid.written()] == ["repeat"]
    after = next_life(grid, is_detached=False)
    come_back(after)
    assert after.broker.jobs["j"].repeat_ns == job.repeat_ns == 6 * S_NS


def test_time_that_a_wasted_run_had_paid_does_not_pay_for_repetitions_once_more():
    """Of twelve seconds six were paid: repeats run for 18 seconds, and one."""
    grid = Grid()
    worker = grid.join()
    grid.submit("j", 2, retries=1)
    grid.begin(worker)
    grid.lose(worker, after_s=6)
    again = grid.join()
    grid.now_s += 10
    grid.finish(again, 6)
    for lived in (grid, next_life(grid, is_detached=False)):
        if lived is not grid:
            come_back(lived)
        job = lived.broker.jobs["j"]
        paid_s = (job.wall_ns - job.repeat_ns - job.free_ns) / S_NS
        assert (job.wall_ns / S_NS, paid_s) == (12.0, 6.0)
        assert job.may_repeat_free(19 * S_NS)
        assert not job.may_repeat_free(19 * S_NS + 1)


@pytest.mark.parametrize("preemptible", [False, True])
def test_a_pre_empted_run_pays_for_repetitions_only_if_it_was_paid(preemptible):
    grid = Grid()
    worker = grid.join()
    price_class = "preemptible" if preemptible else "guaranteed"
    grid.submit("j", 1, price_class=price_class)
    grid.now_s += 10
    grid.finish(worker, 6, failures=[[0, "preempted", "", b""]])
    [used] = grid.written()
    assert (used.state, used.cost_nanos > 0) == ("preempted", preemptible)
    for lived in (grid, next_life(grid, is_detached=False)):
        if lived is not grid:
            come_back(lived, price_class=price_class)
        job = lived.broker.jobs["j"]
        assert job.wall_ns == 6 * S_NS
        paid_s = 6 if preemptible else 0
        assert job.may_repeat_free((3 * paid_s + 1) * S_NS)
        assert not job.may_repeat_free((3 * paid_s + 1) * S_NS + 1)


def test_a_try_that_fails_uses_up_what_a_wasted_run_has_paid():
    grid = Grid()
    worker = grid.join()
    grid.submit("j", 1, retries=1)
    grid.begin(worker)
    grid.lose(worker, after_s=6)
    again = grid.join()
    grid.now_s += 10
    grid.finish(again, 6, failures=[[0, "error", "no", b""]])
    grid.now_s += 10
    grid.finish(again, 6)
    costs = [(each.state, each.cost_nanos // COST_S) for each in grid.written()]
    assert costs == [("wasted", 6), ("failed", 0), ("ok", 6)]


def test_what_was_lost_beside_others_work_is_paid_once():
    """It is unknown which of them has kept its result, and ended the worker."""
    grid = Grid()
    worker = grid.join(slots=2)
    grid.submit("j", 1)
    grid.submit("k", 1, user="bob")
    grid.begin(worker)
    grid.lose(worker, after_s=6)
    again = grid.join(slots=2)
    for wall_s in (0.5, 8):
        grid.now_s += 10
        [first, *_] = grid.held(again)
        report = [b"r"], []
        grid.do(events.Reported(again, first.id, 0, *report, wall_ns=round(wall_s * S_NS)))
    costs = sorted((each.state, each.cost_nanos // COST_S) for each in grid.written())
    assert costs == [("ok", 0), ("ok", 2), ("wasted", 6), ("wasted", 6)]


@pytest.mark.parametrize(
    ("terms", "once"), [({"minimum_nanos": 50 * COST_S}, 50), ({"step_ns": 60 * S_NS}, 60)]
)
def test_a_minimum_and_a_step_are_paid_once_as_well(terms, once):
    grid = Grid()
    tariffs = grid.broker.charging.tariffs
    tariffs["fast"] = replace(tariffs["fast"], **terms)
    grid.submit("j", 1)
    grid.submit("k", 1, user="bob")
    for number in range(3):
        worker = grid.join(f"w{number}", slots=2)
        for _ in range(4):
            grid.pass_time(400)
        assert len(grid.held(worker)) == 2
        grid.begin(worker)
        grid.lose(worker, after_s=6)
    last = grid.join("last", slots=2)
    for _ in range(4):
        grid.pass_time(400)
    grid.finish(last, 6)
    assert sum(each.cost_nanos for each in grid.written() if each.job == "j") == once * COST_S


@pytest.mark.parametrize("others", [0, 1])
def test_what_was_charged_costs_nothing_more_when_its_repetition_is_lost(others):
    grid = Grid()
    grid.submit("j", 2)
    worker = grid.join()
    grid.now_s += 10
    grid.do(events.Reported(worker, grid.held(worker)[0].id, 0, [b"r"], [], wall_ns=10 * S_NS))
    grid.do(events.ClientGone(grid.clients))
    grid.do(events.WorkerGone(worker, "bye", is_orderly=True))
    come_back(grid)
    if others:
        grid.submit("k", 1, user="bob", name="bob")
    again = grid.join("again", slots=4)
    for _ in range(4):
        grid.pass_time(100)
    grid.begin(again)
    grid.lose(again, after_s=6)
    last = grid.join("last", slots=4)
    for _ in range(5):
        grid.pass_time(400)
        grid.finish(last, 10)
    first = [each for each in grid.written() if each.job == "j" and each.first == 0]
    assert [each.state for each in first] == ["ok", "repeat", "repeat"]
    assert sum(each.cost_nanos for each in grid.written() if each.job == "j") == 20 * COST_S


def beside(grid, number, user, task, after_s=6):
    """A task of job j works for six seconds beside a fresh one of a user, and ends its worker."""
    worker = grid.join(f"w{number}", slots=4)
    if user:
        grid.submit(f"k{number}", 1, name=f"{user}{number}", user=user)
    for _ in range(4):
        grid.pass_time(100)
    rows = [(each.id, at, 0.0) for each in grid.held(worker) for pair in each.left
            for at in range(*pair) if each.job.id != "j" or at == task]  # fmt: skip
    assert len(rows) == 1 + bool(user)
    grid.do(events.TasksBegun(worker, tuple(rows)))
    grid.lose(worker, after_s=after_s)
    if user:
        grid.do(events.CancelAsked(grid.clients, 1, f"k{number}", (), True))


@pytest.mark.parametrize("others", [["bob", "", "", "", ""], ["bob", "eve", "bob", "eve", "bob"]])
def test_a_task_that_ends_one_worker_after_the_other_is_charged_whoever_was_there(others):
    grid = Grid()
    grid.submit("j", 1)
    job = grid.broker.jobs["j"]
    for number, user in enumerate(others):
        beside(grid, number, user, 0)
    of_j = [(each.state, each.cost_nanos) for each in grid.written() if each.job == "j"]
    assert of_j == [*[("wasted", 6 * COST_S)] * 5, ("failed", 0)]
    assert job.is_struck


def test_long_runs_that_end_their_workers_hours_apart_are_charged_as_well():
    """From one loss to the start of the next run no hour passes."""
    grid, run_s = Grid(), 3 * 3600
    grid.submit("j", 1)
    for number, user in enumerate(["bob", "eve", "bob", "eve", "bob"]):
        beside(grid, number, user, 0, after_s=run_s)
    of_j = [(each.state, each.cost_nanos) for each in grid.written() if each.job == "j"]
    assert of_j == [*[("wasted", run_s * COST_S)] * 5, ("failed", 0)]


def test_a_loss_that_was_long_before_a_run_began_says_nothing_of_it():
    grid = Grid()
    grid.submit("j", 1)
    for number, user in enumerate(["bob", "eve"]):
        beside(grid, number, user, 0)
        grid.now_s += SEEN_S
    of_j = [(each.state, each.cost_nanos) for each in grid.written() if each.job == "j"]
    assert of_j == [("wasted", 6 * COST_S), ("wasted", 0)]


def test_a_payer_is_known_by_the_first_of_its_tasks_that_began_there():
    """Else a task that begins just before the loss would make its payer's losses forgotten."""
    grid = Grid()
    grid.submit("j", 1)
    beside(grid, 0, "bob", 0)
    worker = grid.join("w1", slots=4)
    grid.submit("eve", 1, name="eve", user="eve")
    grid.pass_time(400)
    grid.begin(worker)
    grid.now_s += 2 * SEEN_S
    grid.submit("k", 1, name="late")
    grid.pass_time(1)
    late = [(each.id, 0, 0.0) for each in grid.held(worker) if each.job.id == "k"]
    assert grid.do(events.TasksBegun(worker, tuple(late))) is not None
    assert len(late) == 1
    grid.lose(worker, after_s=6)
    costs = [each.cost_nanos // COST_S for each in grid.written("wasted") if each.job == "j"]
    assert costs == [6, 2 * SEEN_S + 7]


def test_foreign_users_of_one_site_are_one_payer_of_what_they_lose_together():
    """Their site may name as many of them as it likes."""
    grid = Grid()
    grid.submit("j", 1, user="eve@paris")
    for number in range(5):
        beside(grid, number, "joe@paris", 0)
    of_j = [(each.state, each.cost_nanos) for each in grid.written() if each.job == "j"]
    assert of_j == [*[("wasted", 6 * COST_S)] * 5, ("failed", 0)]


@pytest.mark.parametrize("is_sold", [False, True])
def test_who_is_lost_beside_one_that_ends_workers_by_fresh_jobs_pays_as_if_he_were_not(is_sold):
    grid = Grid(losses_max=9)
    grid.submit("k", 1, site="paris" if is_sold else "")
    for number, seconds in enumerate((6, 4, 8)):
        worker = grid.join(f"w{number}", slots=2)
        grid.submit(f"j{number}", 1, user="eve", name=f"eve{number}")
        for _ in range(4):
            grid.pass_time(100)
        assert len(grid.held(worker)) == 2
        grid.begin(worker)
        grid.lose(worker, after_s=seconds)
        grid.do(events.CancelAsked(grid.clients, 1, f"j{number}", (), True))
    last = grid.join("last")
    grid.pass_time(1000)
    grid.now_s += 10
    grid.finish(last, 9)
    costs = {"k": 0, "j": 0}
    for each in grid.written():
        costs[each.job[0]] += each.cost_nanos // COST_S
    assert costs == {"k": 9, "j": 6 + 4 + 8}
    times = [each.wall_ns // S_NS for each in grid.written() if each.job == "k"]
    assert sum(times) == 6 + 4 + 8 + 9, "each second is in the books once"


def test_a_job_is_not_struck_if_half_of_the_losses_of_its_task_are_not_its_own():
    grid = Grid(losses_max=2)
    grid.submit("j", 1)
    job = grid.broker.jobs["j"]
    beside(grid, 0, "bob", 0)
    beside(grid, 1, "", 0)
    assert grid.failures()
    assert not job.is_struck


def test_a_job_whose_tasks_end_a_worker_each_is_charged_for_each():
    grid = Grid()
    grid.submit("j", 3)
    for number, user in enumerate(("bob", "eve", "joe")):
        beside(grid, number, user, number)
    states = [(each.first, each.state) for each in grid.written() if each.job == "j"]
    assert states == [(0, "wasted"), (1, "wasted"), (2, "wasted")]


def test_a_seller_is_owed_for_its_buyers_losses_whatever_is_lost_beside_others():
    grid = Grid()
    grid.submit("paris:c.1", 1, site="paris")
    grid.submit("k", 1, name="k", user="bob")
    worker = grid.join("both", slots=2)
    grid.begin(worker)
    grid.lose(worker, after_s=6)
    for number in range(2):
        worker = grid.join(f"w{number}")
        grid.pass_time(400)
        [first] = grid.held(worker)
        if first.job.id == "k":
            grid.finish(worker, 1)
        grid.begin(worker)
        grid.lose(worker, after_s=6)
    last = grid.join("last")
    grid.pass_time(2000)
    grid.begin(last)
    grid.do(events.CancelAsked(grid.clients - 1, 1, "paris:c.1", ((0, 1),), True))
    grid.lose(last)
    sold = [(each.state, each.cost_nanos) for each in grid.written() if each.job != "k"]
    assert sold == [("cancelled", 18 * COST_S)]


def test_a_task_that_ends_its_workers_is_charged_and_its_job_is_struck():
    """It works for six seconds, keeps the result, and kills its agent."""
    grid = Grid(losses_max=3)
    grid.submit("j", 2)
    for number in range(4):
        worker = grid.join("w")
        grid.pass_time(100)
        grid.begin(worker)
        grid.lose(worker, after_s=6)
        grid.pass_time(100)
        assert len(grid.failures()) == (number >= 2) + (number >= 3), "its next task has one go"
    wasted = [(each.first, each.cost_nanos) for each in grid.written("wasted")]
    assert wasted == [(0, 6 * COST_S)] * 3 + [(1, 6 * COST_S)]
    failed = grid.written("failed")
    assert [(each.first, each.wall_ns, each.cost_nanos) for each in failed] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    keys = [(each.job, each.first, each.attempt) for each in grid.written()]
    assert len(set(keys)) == len(keys)


def test_that_a_task_is_given_up_for_its_losses_costs_nothing_more():
    grid = Grid(losses_max=2)
    grid.submit("j", 1)
    grid.submit("k", 9, user="bob")
    while 0 not in {each.first for each in grid.written("failed") if each.job == "j"}:
        worker = grid.join(slots=2)
        grid.pass_time(100)
        grid.begin(worker)
        grid.lose(worker, after_s=6)
        grid.pass_time(100)
    assert [each.cost_nanos for each in grid.written("failed")] == [0] * len(grid.failures())
    keys = [(each.job, each.first, each.attempt) for each in grid.written()]
    assert len(set(keys)) == len(keys)


def test_a_job_that_reaches_its_cost_limit_by_a_wasted_run_goes_no_further():
    grid = Grid()
    worker = grid.join()
    grid.submit("j", 2, max_cost_nanos=5 * COST_S, currency="USD")
    grid.begin(worker)
    grid.lose(worker, after_s=6)
    assert {kind for kind, _ in grid.failures().values()} == {"budget"}


def test_a_goodbye_in_the_middle_of_a_task_is_a_loss_as_well():
    """A task can tell its agent to stop at once: two signals, and the agent says goodbye."""
    grid = Grid()
    worker = grid.join()
    grid.submit("j", 1)
    grid.begin(worker)
    grid.lose(worker, after_s=6, is_orderly=True)
    assert [each.wall_ns for each in grid.written("wasted")] == [6 * 10**9]


def test_a_lost_run_says_nothing_of_how_long_a_task_takes():
    grid = Grid(losses_max=1)
    worker = grid.join()
    grid.submit("j", 1)
    grid.begin(worker)
    grid.lose(worker, after_s=600)
    assert grid.failures()
    assert grid.broker.durations.of(b"pricing" * 8) is None


# --- a wary assignment -------------------------------------------------------------------------


@pytest.mark.parametrize("tells_begun", [True, False])
@pytest.mark.parametrize("has_begun", [True, False])
def test_what_a_lost_worker_held_is_told_before_it_begins(tells_begun, has_begun):
    grid = Grid()
    worker = grid.join(tells_begun=tells_begun)
    [first] = orders(grid.submit("j", 1))
    if has_begun:
        grid.begin(worker)
    grid.lose(worker)
    assert grid.broker.jobs["j"].queue[0].alone is has_begun
    grid.effects.clear()
    grid.join("another")
    [again] = orders(grid.effects)
    assert (first.wary, again.wary) == (False, True)


# --- across sites ------------------------------------------------------------------------------


def test_a_contract_that_ends_is_no_loss_of_its_tasks():
    grid = Grid(losses_max=2)
    grid.submit("j", 3)
    for number in range(5):
        seller = events.WorkerJoined(
            500 + number,
            "paris/fast",
            "fast",
            4,
            {},
            "3.11",
            job="j",
            tariff=grid.broker.tariffs["fast"],
        )
        grid.do(seller)
        assert grid.held(500 + number)
        grid.do(events.WorkerGone(500 + number, "the contract ended"))
    assert grid.failures() == {}
    assert grid.written() == []


def test_the_seller_of_a_task_that_ends_its_worker_charges_its_buyer():
    grid = Grid(losses_max=2)
    grid.submit("paris:c.1", 1, site="paris")
    for _ in range(2):
        worker = grid.join()
        grid.pass_time(100)
        grid.begin(worker)
        grid.lose(worker, after_s=6)
        grid.pass_time(100)
    [tell] = [
        e
        for e in grid.effects
        if isinstance(e, SendToClient) and isinstance(e.message, messages.Results)
    ]
    assert tell.message.failures[0][1] == "lost"
    assert tell.charge.wall_ns == 12 * 10**9
    assert tell.charge.cost_nanos == 12 * COST_S


def test_a_seller_delivers_what_was_lost_with_the_next_run_and_books_each_second_once():
    grid = Grid()
    grid.submit("paris:c.1", 1, site="paris")
    for _ in range(2):
        worker = grid.join()
        grid.pass_time(100)
        grid.begin(worker)
        grid.lose(worker, after_s=6)
    last = grid.join()
    grid.pass_time(100)
    grid.now_s += 5
    grid.finish(last, 5)
    [tell] = [
        e
        for e in grid.effects
        if isinstance(e, SendToClient) and isinstance(e.message, messages.Results)
    ]
    assert (tell.charge.wall_ns, tell.charge.cost_nanos) == (12 * S_NS, 12 * COST_S)
    used = [(each.state, each.wall_ns, each.cost_nanos) for each in grid.written()]
    assert used == [("lost", 5 * S_NS, 0), ("ok", 12 * S_NS, 12 * COST_S)]


@pytest.mark.parametrize("when", ["waits", "has not begun", "runs, and its worker is lost"])
def test_what_a_seller_is_owed_is_delivered_when_its_buyer_stops_the_task(when):
    """A task of another site works for six seconds, and ends its worker."""
    grid = Grid()
    grid.submit("paris:c.1", 1, site="paris")
    again = worker = grid.join()
    grid.begin(worker)
    if when != "runs, and its worker is lost":
        grid.lose(worker, after_s=6)
        again = 0 if when == "waits" else grid.join()
    grid.do(events.CancelAsked(grid.clients, 1, "paris:c.1", ((0, 1),), True))
    if again:
        grid.lose(again, after_s=6)
    [tell] = [
        e
        for e in grid.effects
        if isinstance(e, SendToClient) and isinstance(e.message, messages.Results)
    ]
    assert tell.message.failures[0][1] == "cancelled"
    assert (tell.charge.wall_ns, tell.charge.cost_nanos) == (6 * S_NS, 6 * COST_S)
    used = [(each.state, each.wall_ns, each.cost_nanos) for each in grid.written()]
    assert used == [("cancelled", 6 * S_NS, 6 * COST_S)]
    taken = [each.value["taken"] for each in grid.told(messages.Answer)]
    assert taken == [[]], "it does not go back as well"
    assert grid.told(messages.Dropped) == []


def test_a_stopped_task_is_not_delivered_with_what_it_owes():
    """Its buyer does not pay for stopped runs; the cost of the earlier run is lost."""
    grid = Grid()
    grid.submit("paris:c.1", 1, site="paris")
    worker = grid.join()
    grid.begin(worker)
    grid.lose(worker, after_s=6)
    again = grid.join("again")
    grid.now_s += 2
    grid.finish(again, 2, [[0, "preempted", "", b""]])
    grid.do(events.JobClosed(grid.clients, "paris:c.1", 1))
    used = [(each.state, each.wall_ns) for each in grid.written()]
    assert used == [("preempted", 2 * S_NS), ("lost", 6 * S_NS)]


def test_what_a_seller_can_deliver_no_more_is_booked_as_lost():
    grid = Grid()
    grid.submit("paris:c.1", 1, site="paris")
    worker = grid.join()
    grid.begin(worker)
    grid.lose(worker, after_s=6)
    grid.do(events.ClientGone(grid.clients))
    assert [(each.state, each.wall_ns) for each in grid.written()] == [("lost", 6 * S_NS)]


# --- workers that do not end what they have ------------------------------------------------------

OVERDUE_ALL_S = OVERDUE_S + ClientLimits().lease_s


def tick(grid, seconds, **about):
    """Time passes in the steps in which a gateway looks."""
    for _ in range(round(seconds / 5)):
        grid.now_s += 5
        grid.do(events.Ticked(**about))


def expelled(grid):
    return [each.peer for each in grid.effects if isinstance(each, Expel)]


def test_a_task_that_its_worker_does_not_end_at_its_time_limit_is_taken_away_and_fails():
    grid = Grid()
    vandal = grid.join("vandal", slots=64, token="t")
    grid.submit("j", 40, timeout_s=2.0)
    grid.begin(vandal)
    tick(grid, OVERDUE_ALL_S)
    assert (expelled(grid), grid.failures()) == ([], {}), "an honest one would answer by now"
    tick(grid, 10)
    assert expelled(grid) == [vandal]
    assert vandal not in grid.broker.workers
    assert {kind for kind, _ in grid.failures().values()} == {"timeout"}
    assert "time limit of 2 s, and worker vandal did not stop it" in grid.failures()[0][1]
    assert len(grid.failures()) == 40
    assert sum(each.wall_ns for each in grid.written()) == 40 * 2 * S_NS
    assert sum(each.cost_nanos for each in grid.written()) == 40 * 2 * COST_S
    assert {each.state for each in grid.written()} == {"failed"}
    grid.lose(vandal)  # as the site reports when it has ended the session
    assert len(grid.written()) == 40
    assert grid.broker.workers[grid.join("vandal", slots=64, token="t")].trial == 1


def test_an_overdue_run_is_charged_up_to_its_limit_though_the_clock_was_set_back():
    grid = Grid()
    worker = grid.join()
    grid.submit("j", 1, timeout_s=2.0)
    grid.begin(worker)
    grid.now_s -= 3_600
    tick(grid, OVERDUE_ALL_S + 20)
    assert [each.wall_ns for each in grid.written("failed")] == [2 * S_NS]


def test_it_goes_to_another_worker_if_it_has_retries():
    grid = Grid()
    vandal = grid.join("vandal")
    grid.submit("j", 1, timeout_s=2.0, retries=1)
    grid.begin(vandal)
    honest = grid.join("honest")
    tick(grid, OVERDUE_ALL_S + 10)
    assert (expelled(grid), grid.failures()) == ([vandal], {})
    assert len(grid.held(honest)) == 1
    grid.finish(honest, 1)
    assert grid.done() == 1


def test_what_lies_beside_an_overdue_task_goes_to_others_and_counts_if_it_had_begun():
    grid = Grid()
    vandal = grid.join("vandal", slots=3)
    grid.submit("j", 1, timeout_s=2.0)
    grid.submit("k", 2, timeout_s=500.0, name="other")
    [of_j, *of_k] = grid.held(vandal)
    begun = of_k[0]
    first = next(iter(begun.left))[0]
    rows = (of_j.id, 0, 0.0), (begun.id, first, 0.0)
    grid.do(events.TasksBegun(vandal, rows))
    tick(grid, OVERDUE_ALL_S + 10)
    job = grid.broker.jobs["k"]
    assert (job.waiting, job.in_flight) == (2, 0)
    assert {task: len(each.losses) for task, each in job.strikes.items()} == {first: 1}
    assert grid.failures()[0][0] == "timeout"
    assert len(grid.failures()) == 1
    honest = grid.join("honest", slots=2)
    assert sum(len(each.left) for each in grid.held(honest)) == 2


def test_a_cancel_that_waits_for_an_overdue_task_is_answered():
    grid = Grid()
    vandal = grid.join("vandal")
    grid.submit("j", 1, timeout_s=2.0)
    grid.begin(vandal)
    grid.do(events.CancelAsked(grid.clients, 7, "j", ((0, 1),), False))
    assert grid.told(messages.Answer) == []
    tick(grid, OVERDUE_ALL_S + 10)
    assert [each.value["taken"] for each in grid.told(messages.Answer)] == [[]]


def test_a_task_without_a_time_limit_or_within_it_is_never_overdue():
    grid = Grid()
    worker = grid.join(slots=2)
    grid.submit("j", 1)
    grid.submit("k", 1, timeout_s=1_000.0, name="other")
    grid.begin(worker)
    tick(grid, 1_000)
    assert expelled(grid) == []


@pytest.mark.parametrize("why", ["the clock is set", "it was stopped", "the store is behind"])
def test_time_in_which_the_gateway_hears_nothing_makes_no_task_overdue(why):
    grid = Grid()
    worker = grid.join()
    grid.submit("j", 1, timeout_s=2.0)
    grid.begin(worker)
    tick(grid, 5)
    if why == "the store is behind":
        tick(grid, 600, is_behind=True)
    else:
        grid.pass_time(3_600)
    tick(grid, 10)
    assert expelled(grid) == []
    grid.finish(worker, 1)
    assert grid.done() == 1


def test_what_a_telling_worker_begins_not_for_long_goes_back_uncounted():
    grid = Grid()
    vandal = grid.join("vandal", slots=64)
    grid.submit("j", 40, timeout_s=2.0)
    tick(grid, STALLED_S + 5)
    assert expelled(grid) == []
    tick(grid, 20)
    assert expelled(grid) == [vandal]
    assert (grid.failures(), grid.written(), grid.broker.jobs["j"].strikes) == ({}, [], {})
    honest = grid.join("honest", slots=64)
    while grid.held(honest):
        grid.finish(honest, 0.1)
    assert grid.done() == 40
    assert grid.broker.workers[grid.join("vandal")].trial == 1


@pytest.mark.parametrize("how", ["prepares", "ends some", "tells nothing", "has no limits"])
def test_a_worker_that_may_be_at_work_has_not_stalled(how):
    grid = Grid()
    worker = grid.join(tells_begun=how != "tells nothing")
    grid.submit("j", 5, timeout_s=None if how == "has no limits" else 2.0)
    if how == "prepares":
        grid.do(events.EnvironmentsPrepared(worker, frozenset([b"f"])))
    for _ in range(4):
        tick(grid, STALLED_S / 2)
        if how == "ends some":
            grid.finish(worker, 0.1)
    assert expelled(grid) == []
