"""Jobs that wait, in order: the same are chosen as by a look at every one of them."""

import gc
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from federation.messages import messages
from federation.ranges import RangeSet
from gateway.scheduler import broker as brokering
from gateway.scheduler.broker import Broker
from gateway.scheduler.dispatch.dispatcher import Dispatcher
from gateway.scheduler.dispatch.queueing import DispatchTermsBook, Queue
from gateway.scheduler.model import events, matching
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from gateway.scheduler.model.effects import SendToWorker
from gateway.scheduler.model.events import Drainer
from gateway.scheduler.model.jobs import Job, QueuedBundle
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import ClientLimits
from policies.access.claims import Amount, Claim, Claims
from policies.access.entitlements import EntitlementRule, Entitlements
from policies.access.shares import FairShare, Share
from policies.access.windows import Window, WindowPlan, rules_at
from policies.calendar.hours import Hours
from policies.calendar.periods import PeriodLength
from policies.costs.budgets import Budget
from policies.parties import PartyKind, read_party
from policies.placement.asks import Wishes
from policies.placement.placement import CapacityOffer, counted
from policies.tariffs import Tariff

NOON_S = 1_700_049_600.0
UNIT = 10**9
PRICE = Tariff(3_600 * UNIT, "USD", "test")
POOLS = ("fast", "slow")
KEEPS = (0, 0, 1)  # tasks of a recalled range that have started
RECALLED_MAX = 64  # turns until what was placed badly is where it belongs
USERS = ("ann", "bob", "eve")
SPEC = JobSpec("f", b"f", False, "ann", "p", 0.0, {}, None, 0, 10, "USD", "3.11", False)


def job_of(number=1, **changes):
    fields = {
        "client": 7,
        "budget_accounts": (),
        "unfit": set(),
        "places": None,
        "alone": False,
        "cost": 0,
    }
    own = {name: changes.pop(name, value) for name, value in fields.items()}
    spec = replace(SPEC, **changes)
    made = Job(f"j{number}", spec, own["client"], number, 0.0, spec.need, counted(spec.tags))
    made.budget_accounts, made.unfit, made.places = (
        own["budget_accounts"],
        own["unfit"],
        own["places"],
    )
    made.costs_nanos["USD"] = own["cost"]
    made.enqueue(QueuedBundle(0, [b"x"] * 10, 10, alone=own["alone"]))
    return made


def queue_of(*jobs):
    queue = Queue(matching.order, lambda _: None, DispatchTermsBook())
    for job in jobs:
        queue.file(job)
    return queue


@pytest.mark.parametrize(
    "other",
    [
        {"function": b"g"}, {"user": "bob"}, {"project": "q"}, {"priority": 1.0},
        {"python": "3.12"},
        {"tags": {"gpu": 1}}, {"timeout_s": 5.0}, {"price": PRICE}, {"pool": "fast"},
        {"price_class": "preemptible"}, {"task_s": 5.0}, {"group": "g"}, {"path": ("paris",)},
        {"client": 8}, {"budget_accounts": ("budget_account",)}, {"unfit": {"w"}}, {"places": {}},
        {"places": {"fast": 1.0}}, {"alone": True}, {"cost": 11},
    ],
    ids=str,
)  # fmt: skip
def test_jobs_that_a_worker_may_treat_differently_are_in_groups_of_their_own(other):
    jobs = job_of(1), job_of(2), job_of(3, **other)
    queue = queue_of(*jobs)
    waiting = [jobs[0].waiting + jobs[1].waiting, jobs[2].waiting]
    assert sorted(tasks for _, tasks in queue.groups()) == sorted(waiting)
    queue.drop(jobs[1])
    waiting[0] -= jobs[1].waiting
    assert sorted(tasks for _, tasks in queue.groups()) == sorted(waiting)


def test_one_job_of_each_group_is_looked_at_the_best_placed_first():
    many = [job_of(number) for number in range(2, 1000)]
    for job in many:
        job.served = job.number
    urgent = job_of(1000, priority=1.0)
    queue = queue_of(*many, urgent, job_of(1001, pool="fast"))
    assert [job.number for job in queue.walk(lambda _: False)] == [1000, 1001, 2]
    assert [job.number for job in queue.walk(lambda job: not job.spec.pool)] == [1001]
    many[0].served = 2000
    queue.file(many[0])
    queue.drop(urgent)
    assert [job.number for job in queue.walk(lambda _: False)] == [1001, 3]
    assert queue.tasks_beside(many[5]) == 998 * 10


def test_a_queue_keeps_nothing_of_what_has_gone():
    queue, job = queue_of(), job_of()
    for served in range(10_000):
        job.served = served
        queue.file(job)
    (group,) = queue._groups.values()
    assert len(group.heap) < 100
    queue.drop(job)
    queue.drop(job)
    kept = [queue._groups, queue._fits, queue._ranked, queue]
    terms = queue._book
    del job, group
    gc.collect()
    assert [len(each) for each in (*kept, terms._terms, terms._needs)] == [0] * 6


def choice_of_all(dispatcher, worker, now_s):
    """The rule, written as a look at every job: the next assignment of a worker.

    Returns ("give", job, at most so many tasks); ("make way", job) where its tasks are taken
    back for a job; None: neither.
    """
    is_late = matching.has_spare(worker) and matching.is_late(worker, now_s)
    if matching.is_full(worker) and not is_late:
        return None
    jobs = list(dispatcher.ready.values())
    if worker.job:
        jobs = [job for job in jobs if job.id == worker.job]
    best, waiting = None, []
    for job in jobs:
        rank = rank_of(dispatcher, job)
        task_s = dispatcher.durations.pace(job.spec.function)
        tasks = matching.room(job, worker, task_s)
        if tasks <= 0:
            if matching.needs_idle_slot(job, task_s, worker.ahead_max_s):
                waiting.append((rank, job, task_s))
            continue
        tasks = dispatcher._takes(job, worker, task_s, tasks, now_s)
        if tasks > 0 and (best is None or rank < best[0]):
            best = rank, job, tasks
    for rank, job, task_s in sorted(waiting, key=lambda each: each[0]):
        if best is not None and best[0] < rank:
            break
        if dispatcher._takes(job, worker, task_s, 1, now_s) > 0:
            return ("make way", job.id) if is_late else None
    return None if best is None else ("give", best[1].id, best[2])


def rank_of(dispatcher, job):
    if dispatcher._shares is not None:
        next(iter(dispatcher._shares.turns()))  # which finds the places as of now
    return dispatcher._rank(job)


class CheckedHandout(Dispatcher):
    """A dispatcher whose every choice is compared with the rule."""

    choices: Counter[str] = Counter()

    def settle(self, now_s):
        self.visited, is_new = set(), not self._agenda
        self.entitling.look(now_s)
        if self._shares is not None:
            self._shares.begin(self._queues, now_s)
        workers = list(self.workers.values())
        concerned = {each.handle for each in workers if choice_of_all(self, each, now_s)}
        super().settle(now_s)
        if is_new and self.is_settled and self.ready:
            assert concerned <= self.visited

    def _feed(self, worker, now_s):
        self.visited.add(worker.handle)
        expected = choice_of_all(self, worker, now_s)
        self.chosen = None
        was_fed = super()._feed(worker, now_s)
        assert self.chosen == expected
        assert was_fed == (expected is not None and expected[0] == "give")
        self.choices["nothing" if expected is None else expected[0]] += 1
        return was_fed

    def _give(self, job, worker, task_s, tasks, now_s):
        self.chosen = ("give", job.id, tasks)
        super()._give(job, worker, task_s, tasks, now_s)

    def _make_way(self, worker, rank, first):
        self.chosen = ("make way", first.id)
        super()._make_way(worker, rank, first)


class World:
    """A broker with all the rules that there are, now and then, and events at random."""

    def __init__(self, random):
        self.random = random
        self.now_s = NOON_S
        budget = Budget("b", read_party("user:bob"), "USD", 400 * UNIT, span=PeriodLength.DAY)
        prices = dict.fromkeys(POOLS, PRICE)
        offers = {
            each: CapacityOffer(each, each, {"gpu": 9, "big": True}, "3.11", "USD")
            for each in POOLS
        }
        budget_accounts = BudgetAccounts([budget], {}, NOON_S)
        self.broker = Broker(
            prices, offers, ClientLimits(10**6, 1 << 40), budget_accounts=budget_accounts
        )
        self.held = {}  # by worker and assignment: what is left
        self.keeps = KEEPS
        self.recalls = 0
        self.task_s = {}
        self.clients, self.jobs, self.handles = [], [], 100
        self.seen = Counter()
        self.kinds = [self.kind() for _ in range(3)]  # few, so that many jobs are alike
        for user in USERS:
            self.enter(user)
        for _ in range(3):
            self.join()

    def do(self, *happened):
        effects = []
        for event in happened:
            effects += self.broker.handle(event, self.now_s)
            self.seen[type(event).__name__] += 1
        while True:
            effects += self.broker.settle(self.now_s)
            if self.broker.is_settled:
                break
        for effect in effects:
            match effect:
                case SendToWorker(worker, messages.Assign() as each):
                    stop = each.first + len(each.arguments)
                    self.held[worker, each.assignment] = RangeSet([(each.first, stop)])
                case SendToWorker(worker, messages.Recall() as recall):
                    self.recalls += 1
                    self.hand_back(worker, recall)

        self.check_files()

    def rest(self):
        """Obey recalls until there are none; time stands still."""
        self.keeps = (0,)
        for _ in range(RECALLED_MAX):
            self.recalls = 0
            self.do(events.Ticked())
            if not self.recalls:
                break
        assert not self.recalls, "tasks are recalled for ever"
        self.keeps = KEEPS

    def check_files(self):
        """Each job is filed by its present state."""
        dispatcher = self.broker._dispatcher
        for job in dispatcher.ready.values():
            queue = dispatcher._queues[dispatcher._leaf_of(job)]
            filed = queue._filed[job.id]
            assert filed.group.key == queue._keys(job)[1]
            assert filed.entry == (job.in_flight, job.served, job.number)
            assert filed.tasks == job.waiting
        assert sum(map(len, dispatcher._queues.values())) == len(dispatcher.ready)

    def hand_back(self, worker, recall):
        left = self.held.get((worker, recall.assignment))
        parts = () if left is None else left.within(recall.first, recall.stop)
        keeps = 0 if recall.kill else self.random.choice(self.keeps)
        ranges = tuple((low + keeps, high) for low, high in parts if low + keeps < high)
        event = events.HandedBack(worker, recall.assignment, ranges)
        for low, high in ranges:
            left.remove(low, high)
        if left is not None and not left:
            del self.held[worker, recall.assignment]
        effects = self.broker.handle(event, self.now_s)
        assert not [each for each in effects if isinstance(each, SendToWorker)]

    # --- what happens --------------------------------------------------------------------------

    def step(self):
        self.now_s += self.random.choice((0.0, 0.001, 0.05, 0.2, 3.0))
        weights = {
            self.submit: 6, self.report: 10, self.join: 0.5, self.lose: 1, self.drain: 1,
            self.contract: 1, self.leave: 0.5, self.read: 1, self.plan: 2, self.windows: 0.7,
            self.entitle: 0.5, self.share: 0.7, self.prepare: 0.5, self.cancel: 0.7,
            self.tick: 1, self.hold: 0.5,
        }  # fmt: skip
        (chosen,) = self.random.choices(list(weights), list(weights.values()))
        chosen()

    def enter(self, user):
        self.handles += 1
        self.clients.append((self.handles, user))
        self.do(events.ClientJoined(self.handles, user))

    def kind(self):
        """A random description of jobs."""
        random = self.random
        function = random.choice((b"a", b"b", b"c", b"d")) * 4
        self.task_s.setdefault(function, random.choice((1e-5, 0.01, 0.15, 0.19, 0.5, 20.0)))
        tags = random.choice([{}, {}, {}, {"big": True}, {"gpu": 1}, {"gpu": 2}])
        cost_nanos = random.choice((None, None, None, 5 * UNIT, 200 * UNIT))
        return JobSpec(
            "", function, random.random() < 0.2, "", random.choice("pq"),
            float(random.choice((0, 0, 0, 1))), tags, None, random.choice((0, 2)), cost_nanos,
            cost_nanos and "USD", "3.11", False, pool=random.choice(("", "", "", "fast")),
            price_class=random.choice(("guaranteed", "guaranteed", "preemptible")),
        )  # fmt: skip

    def submit(self):
        random = self.random
        handle, user = random.choice(self.clients)
        kind, tasks = random.choice(self.kinds), random.choice((1, 2, 40))
        for _ in range(random.choice((1, 4, 8))):
            name = f"j{len(self.jobs)}"
            spec = replace(
                kind, name=name, user=user,
                timeout_s=random.choice((None, None, None, 30.0)),
                task_s=random.choice((None, None, None, 5.0)),
                wishes=Wishes(deadline_s=random.choice((None, None, None, self.now_s + 5.0))),
            )  # fmt: skip
            self.jobs.append((name, handle))
            arrived = events.TasksArrived(handle, name, 0, [b"x"] * tasks)
            opened = events.JobOpened(handle, name, spec)
            self.do(opened, arrived, events.JobClosed(handle, name, tasks))

    def report(self):
        if not self.held:
            return
        worker, number = key = self.random.choice(list(self.held))
        left = self.held[key]
        first, end = next(iter(left))
        stop = self.random.randint(first + 1, end)
        assignment = self.broker.workers[worker].assignments[number]
        task_s = self.task_s.get(assignment.job.spec.function, 1.0)
        left.remove(first, stop)
        if not left:
            del self.held[key]
        kind = self.random.choice(("", "", "", "", "", "error", "crash", "environment"))
        failures = [[0, kind, "text", b""]] if kind else []
        wall_ns = round((stop - first) * task_s * self.random.uniform(0.5, 2.0) * 1e9)
        values = [b""] * (stop - first)
        self.do(events.Reported(worker, number, first, values, failures, [], wall_ns))

    def join(self):
        self.handles += 1
        tags = self.random.choice([{}, {}, {"big": True}, {"gpu": 2, "big": True}])
        name, pool = f"w{self.handles}", self.random.choice(POOLS)
        slots = self.random.choice((1, 2, 4, 8))
        self.do(events.WorkerJoined(self.handles, name, pool, slots, tags, "3.11"))

    def contract(self):
        open_jobs = [each for each in self.broker.jobs.values() if not each.spec.pool]
        if open_jobs:
            self.handles += 1
            job = self.random.choice(open_jobs)
            joined = events.WorkerJoined(
                self.handles, "c", "paris/p", 4, {"gpu": 4, "big": True}, "3.11", job.id, PRICE,
                self.random.choice((0.0, 0.05)), self.random.random() < 0.5,
            )  # fmt: skip
            self.do(joined)

    def worker(self):
        return self.random.choice(list(self.broker.workers)) if self.broker.workers else None

    def lose(self):
        worker = self.worker()
        if worker is not None:
            for key in [each for each in self.held if each[0] == worker]:
                del self.held[key]
            self.do(events.WorkerGone(worker, "lost", self.random.random() < 0.3))

    def drain(self):
        worker = self.worker()
        if worker is not None:
            on = self.random.random() < 0.4
            self.do(events.DrainAsked(worker, on=on, by=Drainer.OPERATOR))

    def leave(self):
        handle, user = self.clients.pop(self.random.randrange(len(self.clients)))
        self.do(events.ClientGone(handle))
        self.enter(user)

    def read(self):
        handle, _ = self.random.choice(self.clients)
        self.do(events.ClientReading(handle, self.random.random() < 0.6))

    def plan(self):
        if self.broker.jobs:
            job = self.random.choice(list(self.broker.jobs))
            places = {each: float(self.random.choice((0, 1, 3, 100))) for each in POOLS}
            places["paris/p"] = 5.0
            chosen = places if self.random.random() < 0.7 else None
            self.do(events.PlacesChosen(job, chosen))

    def windows(self):
        claims = Claims(
            (
                Claim(read_party("user:ann"), guaranteed=Amount(2)),
                Claim(read_party("user:bob"), borrows=Amount(3)),
            )
        )
        night = Window("night", Hours(12 * 3600 + 600, 18 * 3600), claims)
        plan = self.random.choice((None, WindowPlan((), claims), WindowPlan((night,))))
        at_s = self.now_s + self.random.choice((0.0, 595.0))
        self.now_s = max(self.now_s, at_s)
        self.do(events.RulesTurned({"fast": plan and rules_at(plan, self.now_s)}))

    def entitle(self):
        rules = self.random.choice((
            (),
            (
                EntitlementRule(True, (read_party("user:ann"),)),
                EntitlementRule(True, (read_party("user:bob"),), slots_max=3),
                EntitlementRule(True, (read_party("user:eve"),), frozenset({"slow"})),
            ),
        ))  # fmt: skip
        known = {each: frozenset({"night"}) for each in POOLS}
        rules = tuple(replace(each, line=at) for at, each in enumerate(rules, 1))
        self.do(events.EntitlementsKnown(Entitlements(rules, "site.toml"), known))

    def share(self):
        written = FairShare(3600.0, 10.0, None, (
            Share("a", 2, "", read_party("user:ann"), PartyKind.PROJECT),
            Share("b", 1, "", read_party("user:bob")),
        ))  # fmt: skip
        self.do(events.SharesKnown(self.random.choice((None, written)), {}))

    def prepare(self):
        worker = self.worker()
        if worker is not None:
            functions = self.random.choice((frozenset(), frozenset(list(self.task_s)[:2])))
            self.do(events.EnvironmentsPrepared(worker, functions))

    def cancel(self):
        if self.jobs:
            name, handle = self.random.choice(self.jobs)
            self.do(events.CancelAsked(handle, 0, name, ((0, 3),), self.random.random() < 0.5))

    def hold(self):
        if self.broker.jobs:
            job = self.random.choice(list(self.broker.jobs))
            self.do(events.JobHeld(job, "contract", self.random.random() < 0.5))

    def tick(self):
        self.do(events.Ticked())


@settings(deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_what_a_worker_is_given_is_what_a_look_at_every_job_would_find(seed, monkeypatch_class):
    world = World(Random(seed))
    for _ in range(100):
        world.step()


@pytest.fixture(scope="module")
def monkeypatch_class():
    """Brokers whose dispatchers are checked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brokering, "Dispatcher", CheckedHandout)
        yield
    assert all(CheckedHandout.choices[each] for each in ("give", "make way", "nothing"))


@settings(deadline=None, max_examples=20)
@example(seed=32)  # a window's limit at the worker that ran dry
@example(seed=46)  # shares
@example(seed=121)  # an estimate that changed since a job was filed
@example(seed=609)  # equal jobs
@given(seed=st.integers(0, 1 << 32))
def test_recalled_tasks_do_not_return_to_the_same_worker_to_be_recalled_again(seed):
    world = World(Random(seed))
    for _ in range(60):
        world.step()
        world.now_s += 0.2  # all work is late
        world.rest()


def test_equal_needs_are_one_and_others_stay_apart():
    book = DispatchTermsBook()
    own, same = job_of(1), job_of(2)
    foreign = job_of(3, user="ann@paris")  # its code needs a sandbox
    for job in (own, same, foreign):
        book.of(job)
    assert own.need is same.need
    assert not own.need.is_others
    assert foreign.need.is_others
