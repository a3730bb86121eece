"""A broker whose users are entitled to some of it: the share of each, and the texts for each."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pure.broker import after_its_time

from federation.messages import messages
from federation.reasons import Reason
from gateway.api.views import work_views
from gateway.ledger.db import records
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import SendToClient, SendToWorker, Write
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import ClientLimits
from policies.access.claims import Amount, Claim, Claims
from policies.access.entitlements import EntitlementRule, Entitlements
from policies.access.windows import Window, WindowPlan, rules_at
from policies.calendar.hours import Hours
from policies.parties import read_party
from policies.tariffs import Tariff

PRICE = Tariff(3_600_000_000, "USD", "1")
NOON = 12 * 3600.0  # of the first of January 1970
NIGHT = Window("night", Hours(20 * 3600, 6 * 3600))


def rule(who, *, allows=True, pools="", windows="", **limits):
    parties = tuple(map(read_party, who.split()))
    return EntitlementRule(
        allows, parties, frozenset(pools.split()), frozenset(windows.split()), **limits
    )


def spec(user="ann", site="", **changes):
    made = JobSpec(
        "pricing", b"f" * 32, False, user, "risk", 0.0, {}, None, 0, None, None, "3.11", False,
    )  # fmt: skip
    sold = {"path": (site,), "price": PRICE} if site else {}
    return replace(made, **sold, **changes)


class World:
    """A broker with pools "fast" and "slow", and a client for each job."""

    def __init__(self, *rules, slots=(4,), slow=(), windows=(), claims=None):
        self.now_s = NOON
        self.broker = Broker({"fast": PRICE, "slow": PRICE}, limits=ClientLimits(tasks_max=10_000))
        self.plan = WindowPlan(windows, claims) if claims is not None else WindowPlan(windows)
        self.allow(*rules)
        self.pass_to(NOON)
        for number, each in enumerate(slots, 1):
            self.do(events.WorkerJoined(number, f"w{number}", "fast", each, {}, "3.11"))
        for number, each in enumerate(slow, 51):
            self.do(events.WorkerJoined(number, f"w{number}", "slow", each, {}, "3.11"))
        self.clients = 100
        self.told = []

    def allow(self, *rules):
        rules = tuple(replace(each, line=at) for at, each in enumerate(rules, 1))
        names = frozenset(each.name for each in self.plan.windows)
        known = {"fast": names, "slow": frozenset()}
        self.do(events.EntitlementsKnown(Entitlements(rules, "site.toml"), known))

    def pass_to(self, at_s):
        self.now_s = at_s
        return self.do(events.RulesTurned({"fast": rules_at(self.plan, at_s)}))

    def do(self, *happened):
        effects = []
        for event in happened:
            effects += self.broker.handle(event, self.now_s)
        self.told = [each.message for each in effects if isinstance(each, SendToClient)]
        return effects + self.broker.settle(self.now_s)

    def submit(self, job, tasks, **about):
        self.clients += 1
        return self.do(
            events.ClientJoined(self.clients, about.get("user", "ann")),
            events.JobOpened(self.clients, job, spec(**about)),
            events.TasksArrived(self.clients, job, 0, [b"x"] * tasks),
        )

    def learn(self, task_s):
        self.broker.durations.learn(b"f" * 32, 1_000, round(task_s * 1e12))

    def running(self, *jobs):
        return [self.broker.jobs[job].in_flight for job in jobs]

    def end(self, job, tasks):
        """Report so many tasks of a job as done."""
        for assignment in list(self.broker.jobs[job].assignments.values()):
            for first, stop in list(assignment.left):
                count = min(tasks, stop - first)
                if count:
                    tasks -= count
                    report = events.Reported(
                        assignment.worker.handle, assignment.id, first, [b""] * count,
                        wall_ns=10**9,
                    )  # fmt: skip
                    self.do(after_its_time(self.broker, report))

    def why(self, job):
        job = self.broker.jobs[job]
        found = work_views.why_waiting(self.broker, job, self.now_s)
        return [(each["reason"], each["text"]) for each in found]


def rejected(told):
    """Code and sentence of jobs that were not taken; their tasks are told so as well."""
    found = (each for each in told if isinstance(each, messages.RejectJob))
    return [(each.code, each.reason) for each in found if each.code != Reason.JOB_NOT_FOUND]


def assigned(effects):
    return sum(
        len(each.message.arguments)
        for each in effects
        if isinstance(each, SendToWorker) and isinstance(each.message, messages.Assign)
    )


# --- who may at all ------------------------------------------------------------------------------


def test_without_rules_everybody_may_everything():
    world = World()
    world.learn(0.001)
    assert assigned(world.submit("j", 1_000)) > 4


def test_who_is_on_no_list_is_refused_with_the_file():
    world = World(rule("user:bob"))
    world.submit("j", 1)
    code, text = rejected(world.told)[0]
    assert code == Reason.NOT_ENTITLED
    assert text == "no [[entitlement]] of site.toml allows the work of ann"
    assert not world.broker.jobs


def test_who_is_denied_is_refused_with_the_line():
    world = World(rule("ours"), rule("user:ann", allows=False))
    world.submit("j", 1)
    assert rejected(world.told) == [
        (Reason.NOT_ENTITLED, "the work of ann is denied (site.toml:2: denies user:ann)")
    ]


def test_who_asks_for_too_much_priority_is_refused():
    world = World(rule("ours", priority_max=1.0))
    world.submit("j", 1, priority=2.0)
    assert rejected(world.told)[0][0] == Reason.NOT_ENTITLED
    world.submit("k", 1, priority=1.0)
    assert world.running("k") == [1]


def test_only_the_pools_of_a_rule_are_used():
    world = World(rule("ours", pools="slow"), slots=(4,), slow=(2,))
    world.submit("j", 10)
    assert world.running("j") == [2]
    barred = "is not allowed: no [[entitlement]] of site.toml allows the work of ann"
    assert ("not-entitled", barred) in world.why("j")


def test_what_only_a_barred_pool_could_run_is_refused():
    world = World(rule("ours", pools="slow"), slow=(2,))
    world.do(events.WorkerJoined(9, "w9", "fast", 1, {"gpu": 1}, "3.11"))
    world.submit("j", 1, tags={"gpu": 1})
    assert rejected(world.told)[0][0] == Reason.TAG_MISSING


def test_work_that_waits_is_given_out_when_its_window_begins_and_no_more_when_it_ends():
    world = World(rule("ours", windows="night"), windows=(NIGHT,))
    world.submit("j", 10)
    assert world.running("j") == [0]
    assert world.why("j") == [
        (
            "window-closed",
            "is not allowed: the work of ann is allowed only in window night (site.toml:1: "
            "allows ours; windows night)",
        )
    ]
    world.pass_to(20 * 3600.0)
    assert world.running("j") == [4]
    world.pass_to(30 * 3600.0)
    world.end("j", 2)
    assert world.running("j") == [2]  # nothing is stopped, and nothing begun


def test_another_file_lets_what_waits_run():
    world = World(rule("ours", slots_max=1))
    world.submit("j", 10)
    assert world.running("j") == [1]
    world.allow(rule("ours", slots_max=3))
    assert world.running("j") == [3]
    world.allow(rule("user:bob"))
    world.end("j", 3)
    assert world.running("j") == [0]
    world.allow()
    assert world.running("j") == [4]


# --- slots ---------------------------------------------------------------------------------------


def test_a_groups_slots_are_of_all_its_members_over_all_workers():
    world = World(rule("group:quants", slots_max=5, user_slots_max=3), slots=(4, 4))
    world.learn(0.001)
    world.submit("a", 1_000, group="quants")
    world.submit("b", 1_000, user="bob", group="quants")
    assert world.running("a", "b") == [3, 2]
    assert world.why("b")[0] == (
        "over-entitlement",
        "has reached the entitlement's limit of slots: group:quants has 5 of 5 and bob has "
        "2 of 3 slots (site.toml:1: allows group:quants; slots_max 5; user_slots_max 3)",
    )
    world.end("a", 3)
    assert sum(world.running("a", "b")) == 5


def test_slots_of_a_lost_worker_are_had_again():
    world = World(rule("ours", slots_max=2), slots=(2, 2))
    world.submit("a", 10)
    [worker] = {each.worker.handle for each in world.broker.jobs["a"].assignments.values()}
    world.do(events.WorkerGone(worker, "lost"))
    assert world.running("a") == [2]


def test_slots_are_of_the_pools_of_the_rule():
    limited = rule("ours", pools="fast", slots_max=1)
    world = World(limited, rule("ours", pools="slow"), slow=(2,))
    world.submit("a", 10)
    assert world.running("a") == [3]


def test_who_is_unbounded_gets_work_ahead_beside_who_is_not():
    world = World(rule("user:ann"), rule("group:quants", slots_max=1), slots=(4,))
    world.learn(0.001)
    world.submit("a", 1_000, group="quants")
    assert world.running("a")[0] > 4
    world.submit("b", 10, user="bob", group="quants")
    assert world.running("b") == [0]  # all slots of the group are taken: by ann
    assert world.broker.entitling.slots_used(*group_rule(world)) == 4


def group_rule(world):
    return world.broker.entitling.rules.rules[1], ""


def test_a_window_that_ends_gives_nothing_more_before_anybody_has_noticed():
    world = World(rule("ours", windows="night", slots_max=1), windows=(NIGHT,))
    world.pass_to(29 * 3600.0)
    world.submit("j", 10)
    assert world.running("j") == [1]
    world.now_s = 30 * 3600.0
    world.end("j", 1)
    assert world.running("j") == [0]


def test_a_site_has_what_its_rule_gives():
    world = World(rule("site:paris", slots_max=1))
    world.submit("theirs:1", 10, user="zoe@paris", site="paris")
    world.submit("j", 10)
    assert world.running("theirs:1", "j") == [1, 3]
    world.submit("more:1", 10, user="tom@tokyo", site="tokyo")
    assert rejected(world.told)[0][0] == Reason.NOT_ENTITLED


def test_no_room_is_made_for_who_may_not_run():
    claims = Claims((Claim(read_party("project:risk"), Amount(3), lends=Amount(3)),))
    world = World(rule("user:bob"), claims=claims)
    world.submit("b", 4, user="bob", project="other")
    assert world.running("b") == [4]
    world.allow()
    world.submit("a", 4)
    world.allow(rule("user:bob"))
    world.now_s += 1.0
    effects = world.do(events.Ticked())
    recalls = [each for each in effects if isinstance(each, SendToWorker)]
    assert not any(isinstance(each.message, messages.Notice) for each in recalls)


# --- tasks that wait -----------------------------------------------------------------------------


def dropped(told):
    return [each for each in told if isinstance(each, messages.Dropped)]


def test_tasks_over_the_limit_are_refused_and_the_others_kept():
    world = World(rule("group:quants", queued_max=10, user_queued_max=8))
    world.submit("a", 6, group="quants")
    world.submit("b", 6, user="bob", group="quants")
    [message] = dropped(world.told)
    assert (message.job, message.ranges, message.failure) == ("b", [[4, 6]], "queue")
    assert message.reason == (
        "group:quants has 10 of 10 and bob has 4 of 8 tasks that have not ended "
        "(site.toml:1: allows group:quants; queued_max 10; user_queued_max 8)"
    )
    job = world.broker.jobs["b"]
    assert (job.waiting + job.in_flight, job.failed) == (4, 2)


def test_a_job_is_refused_where_no_task_has_room_and_taken_when_some_have_ended():
    world = World(rule("ours", queued_max=4))
    world.submit("a", 4)
    world.submit("b", 1)
    code, text = rejected(world.told)[0]
    assert code == Reason.OVER_ENTITLEMENT
    assert text.startswith("ours has 4 of 4 tasks that have not ended (site.toml:1: ")
    world.end("a", 1)
    world.submit("b", 1)
    assert not rejected(world.told)
    assert sum(world.running("a", "b")) == 4


def test_what_is_tried_again_cancelled_or_dropped_is_counted_once():
    world = World(rule("ours", queued_max=4), slots=(2,))
    world.submit("a", 4)
    world.do(events.WorkerGone(1, "lost"))
    assert world.broker.entitling.queue_left(spec()) == 0
    world.do(events.CancelAsked(world.clients, 1, "a", ((0, 3),), True))
    assert world.broker.entitling.queue_left(spec()) == 3
    world.do(events.ClientGone(world.clients))
    assert world.broker.entitling.queue_left(spec()) == 4


def test_what_was_kept_before_a_restart_is_not_refused():
    world = World(rule("ours", queued_max=1))
    kept = spec(detached=True)
    world.do(
        events.JobRecovered("a", kept, 3, (), 0, 0, (), {}, 0, 0),
        events.TasksArrived(0, "a", 0, [b"x"] * 3),
    )
    assert world.running("a") == [3]
    assert world.broker.entitling.queue_left(kept) == 0


def test_tasks_of_a_job_whose_user_is_on_the_list_no_more_wait():
    world = World(rule("ours", queued_max=5))
    world.submit("a", 2)
    world.allow(rule("user:bob", queued_max=5))
    world.do(events.TasksArrived(world.clients, "a", 2, [b"x"] * 9))
    job = world.broker.jobs["a"]
    assert (job.waiting, job.in_flight, job.failed) == (9, 2, 0)


def test_refused_tasks_of_a_detached_job_are_in_its_results():
    world = World(rule("ours", queued_max=2))
    effects = world.submit("a", 3, detached=True)
    kept = [each.record for each in effects if isinstance(each, Write)]
    [outcome] = [each for each in kept if isinstance(each, records.OutcomeKept)]
    assert (outcome.first, outcome.count) == (2, 1)
    [bundle] = [each for each in kept if isinstance(each, records.BundleKept)]
    assert (bundle.first, bundle.count) == (0, 2)


# --- whatever happens ----------------------------------------------------------------------------

USERS = {"ann": "quants", "bob": "quants", "dan": ""}
RULES = (
    rule("group:quants", pools="fast", slots_max=3, user_slots_max=2, queued_max=9),
    rule("user:dan", slots_max=2, windows="night", user_queued_max=5),
    rule("user:dan", pools="slow", slots_max=1),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(sorted(USERS)), st.integers(1, 6)),
        st.tuples(st.just("end"), st.integers(0, 20), st.integers(1, 3)),
        st.tuples(st.just("back"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("lose"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("pass"), st.sampled_from((1, 5, 9)), st.just(0)),
        st.tuples(st.just("reload"), st.sampled_from((0, 1, 2)), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(steps, st.sampled_from((None, 0.001, 5.0)))
def test_limits_hold_whatever_is_given_and_comes_back(drawn, task_s):
    """Given tasks fit a rule that held then; all counts are those of outstanding tasks."""
    world = World(*RULES, slots=(2, 3), slow=(2,), windows=(NIGHT,))
    if task_s:
        world.learn(task_s)
    workers = 60
    for number, (what, one, other) in enumerate(drawn):
        before = Counter(out(world))
        live = list(world.broker.jobs)
        match what:
            case "submit":
                world.submit(f"j{number}", other, user=one, group=USERS[one])
            case "end" if live:
                world.end(live[one % len(live)], other)
            case "back" if live:
                for each in list(world.broker.jobs[live[one % len(live)]].assignments.values()):
                    ranges = tuple(each.left)
                    world.do(events.HandedBack(each.worker.handle, each.id, ranges, of_all=True))
            case "lose":
                handle = sorted(world.broker.workers)[one % len(world.broker.workers)]
                pool = world.broker.workers[handle].offer.pool
                world.do(events.WorkerGone(handle, "lost"))
                workers += 1
                world.do(events.WorkerJoined(workers, f"w{workers}", pool, 2, {}, "3.11"))
            case "pass":
                world.pass_to(world.now_s + one * 3600.0)
            case "reload":
                world.allow(*(RULES, RULES[::-1], RULES[:1])[one])
        check_slots(world, before)
        check_counts(world)


def out(world):
    """(user, group, pool) of each task that is with a worker."""
    for job in world.broker.jobs.values():
        for each in job.assignments.values():
            pool = each.worker.offer.pool
            yield from [(job.whose.user, job.whose.group, pool)] * len(each.left)


def check_slots(world, before):
    now = Counter(out(world))
    quants = sum(now[key] for key in now if key[1] == "quants")
    assert quants <= 3
    assert not any(key[1] == "quants" and key[2] == "slow" for key in now)
    assert all(now[key] <= 2 for key in now if key[1] == "quants")
    is_night = world.plan.at(world.now_s) is not None
    fast, slow = (now["dan", "", pool] for pool in ("fast", "slow"))
    if fast > before["dan", "", "fast"]:
        assert is_night
    # Each rule stands by itself: what the one for "slow" gives counts for the other, which gives
    # no more then, but not the other way round.
    assert fast <= 2
    assert slow <= 1


def check_counts(world):
    entitling = world.broker.entitling
    for each in entitling.rules.rules:
        jobs = [j for j in world.broker.jobs.values() if each.includes(j.whose)]
        held = Counter()
        for job in jobs:
            for found in job.assignments.values():
                if each.covers(found.worker.offer.pool):
                    held[found.worker.handle] += len(found.left)
        slots = sum(min(held[h], world.broker.workers[h].slots) for h in held)
        if each.slots_max is not None:
            assert entitling.slots_used(each, "") == slots
        if each.queued_max is not None:
            queued = sum(job.waiting + job.in_flight for job in jobs)
            assert entitling.queued(each, "") == queued <= each.queued_max


@pytest.mark.parametrize("user", ["ann", "dan"])
def test_work_that_has_ended_leaves_no_count_behind(user):
    world = World(*RULES, slots=(2,), slow=(1,), windows=(NIGHT,))
    world.submit("a", 3, user=user, group=USERS[user])
    while "a" in world.broker.jobs and world.broker.jobs["a"].in_flight:
        world.end("a", 1)
    world.do(events.JobClosed(world.clients, "a", 3))
    entitling = world.broker.entitling
    kept = (entitling._tasks, entitling._slots, entitling._queued, entitling._noted)
    assert not any(kept)


@pytest.mark.parametrize(
    ("rules", "taken"),
    [
        ([rule("ours", windows="night")], True),  # when it begins
        ([rule("ours", windows="night"), rule("user:ann", allows=False, windows="night")], False),
        ([rule("ours"), rule("user:ann", allows=False, pools="fast")], True),
        ([rule("ours"), rule("user:ann", allows=False, pools="fast slow")], False),
        ([rule("ours", pools="elsewhere")], False),  # there is nobody
    ],
)
def test_a_job_is_taken_if_it_may_run_somewhere_sometime(rules, taken):
    world = World(*rules, windows=(NIGHT,))
    world.submit("j", 1)
    assert ("j" in world.broker.jobs) is taken


def test_nothing_is_called_back_for_a_worker_whose_pool_its_user_may_not_use():
    world = World(rule("ours", pools="fast"), slow=(4,))
    world.learn(0.05)
    assert assigned(world.submit("j", 100)) > 4
    world.now_s += 1.0  # it is late, and the other has nothing to do
    effects = world.do()
    assert not [each for each in effects if isinstance(each, SendToWorker)]


def test_one_users_jobs_together_call_back_as_many_slots_as_he_is_entitled_to():
    claims = Claims((Claim(read_party("user:ann"), Amount(3)),))
    window = Window("day", Hours(6 * 3600, 20 * 3600), claims, grace_s=20.0)
    rules = rule("user:bob"), rule("user:ann", user_slots_max=1)
    world = World(*rules, windows=(window,))
    world.submit("his", 4, user="bob")
    world.now_s += 1
    world.clients += 1
    opened = [
        each
        for job in ("one", "two", "three")
        for each in (
            events.JobOpened(world.clients, job, spec()),
            events.TasksArrived(world.clients, job, 0, [b"x"]),
        )
    ]
    found = world.do(events.ClientJoined(world.clients, "ann"), *opened)
    notices = [
        each.message
        for each in found
        if isinstance(each, SendToWorker) and isinstance(each.message, messages.Notice)
    ]
    assert sum(each.stop - each.first for each in notices) == 1


def test_tasks_that_end_as_they_come_are_not_counted():
    world = World(rule("ours", queued_max=10))
    world.submit("j", 2)
    world.do(events.JobLimitsUnmet("j", "it can't be done", "limits"))
    world.do(events.TasksArrived(world.clients, "j", 2, [b"x"] * 3))
    assert world.broker.entitling.queue_left(spec()) == 8
