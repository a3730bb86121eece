"""Whose work may have how much of a pool: of many people, who are of few kinds."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.pure.windows import WindowsWorld, orders

from federation.clocks import NEVER_S
from gateway.scheduler.model import events
from gateway.scheduler.quotas import occupancy
from gateway.scheduler.quotas.occupancy import PoolOccupancy
from policies.access.claims import NOTHING, Amount, Claim, Claims, ReservedSlots
from policies.access.windows import Closing, PoolRules, Window, WindowPlan, closings, rules_at
from policies.calendar.hours import Hours
from policies.parties import OTHERS, Owner, read_party
from policies.placement.autoscaling import PoolGrowth
from policies.tariffs import Tariff

NOON = 12 * 3600.0
NIGHT = Claims((Claim(read_party("project:risk")), Claim(OTHERS, borrows=NOTHING)))
PLAN = WindowPlan(
    (Window("night", Hours(17 * 3600, 23 * 3600), NIGHT),),
    Claims((Claim(OTHERS, borrows=Amount(3)),)),
)


def counted(monkeypatch):
    asked = []

    def closings_(*details):
        asked.append(details)
        return closings(*details)

    monkeypatch.setattr(occupancy, "closings", closings_)
    return asked


def test_however_many_users_another_site_makes_up_is_looked_at_once(monkeypatch):
    """Ten thousand of them took ten seconds, each time that a worker came or went."""
    asked = counted(monkeypatch)
    pool = PoolOccupancy(rules_at(PLAN, NOON))
    users = [Owner(f"u{at}@paris", "", ("fx", "risk")[at % 2], "paris") for at in range(20_000)]
    for total in (10, 11):
        pool.size(total)
        for whose in users:
            assert pool.claim(whose) == 0
            assert (pool.closing(whose, 0) is None) == (whose.project == "risk")
    assert len(asked) == 2 * 2
    assert len(pool.examples) == 2


def test_an_example_of_each_kind_is_known_however_many_there_are(monkeypatch):
    monkeypatch.setattr(occupancy, "WHOSE_MAX", 3)
    pool = PoolOccupancy(rules_at(PLAN, NOON))
    for at in range(10):
        pool.claim(Owner(f"u{at}"))
    pool.claim(Owner("ada@paris", site="paris"))
    assert {each.site for each in pool.examples.values()} == {"", "paris"}


def seats(name, who, slots, until_s):
    tariff = Tariff(1, "USD", f"reservation {name}", reservation=name)
    return ReservedSlots(read_party(f"user:{who}"), slots, tariff, until_s)


def reserved_pool(*reserved, then=()):
    """A pool of four slots with these reservations until 13:00, and others until 14:00."""
    now, later = rules_at(WindowPlan((Window("now", Hours(12 * 3600, 13 * 3600)),)), NOON).spans[:2]
    spans = (
        replace(now, claims=Claims(reserved=reserved)),
        replace(later, until_s=NOON + 7200.0, claims=Claims(reserved=then)),
    )
    pool = PoolOccupancy(PoolRules(spans, NOON))
    pool.size(4)
    return pool


def test_who_has_slots_reserved_has_them_no_longer_than_that():
    """The share of ordinary work of the same people is another matter."""
    ann, bobs = Owner("ann"), seats("r3", "bob", 4, NOON + 7200)
    pool = reserved_pool(
        seats("r1", "ann", 1, NOON + 3600), seats("r2", "ann", 3, NOON + 3600), then=(bobs,)
    )
    first = pool.rules.now.claims.first_reserved
    found = [pool.ahead(ann, claim) for claim in (pool.claim(ann), first, first + 1)]
    assert [[(each.at_s, each.slots) for each in closings] for closings in found] == [
        [],
        [(NOON + 3600, 0)],
        [(NOON + 3600, 0)],
    ]


def test_reserved_slots_that_nobody_else_has_next_are_not_taken_away():
    pool = reserved_pool(seats("r1", "ann", 2, NOON + 3600))
    assert pool.ahead(Owner("ann"), pool.rules.now.claims.first_reserved) == ()


@pytest.mark.parametrize(("reservation", "claim"), [("r1", 0), ("", None)])
def test_a_price_list_that_is_called_like_a_reservation_is_none(reservation, claim):
    pool = reserved_pool(seats("r1", "ann", 2, NOON + 3600))
    ann = Owner("ann")
    tariff = Tariff(1, "USD", "reservation r1", reservation=reservation)
    found = pool.claim_of(SimpleNamespace(tariff=tariff, job=SimpleNamespace(whose=ann)))
    first = pool.rules.now.claims.first_reserved
    assert found == (pool.claim(ann) if claim is None else first + claim)


def test_what_is_reserved_is_shown_to_whom_it_is_for():
    found = occupancy.Occupancy({})
    found.pools["fast"] = reserved_pool(
        seats("r1", "ann", 1, NOON + 3600), seats("r2", "bob", 1, NOON + 3600)
    )
    assert [each.reservation for each in found.reserved_for("fast", Owner("bob"))] == ["r2"]
    assert found.reserved_for("slow", Owner("bob")) == []


def test_a_worker_that_has_come_back_counts_once_while_its_last_session_lasts():
    world = WindowsWorld(slots=())
    for handle, slots in ((7, 2), (8, 3)):
        joined = events.WorkerJoined(handle, "w", "fast", slots, {}, "3.11")
        world.do(replace(joined, host="h"))
    assert world.broker.occupancy.slots("fast") == 3
    for handle, host in ((9, "other"), (10, ""), (11, "")):
        joined = events.WorkerJoined(handle, "w", "fast", 1, {}, "3.11")
        world.do(replace(joined, host=host))
    assert world.broker.occupancy.slots("fast") == 6
    world.do(events.WorkerGone(8, "lost"))
    assert world.broker.occupancy.slots("fast") == 5


@pytest.fixture
def two_pools():
    """A broker with three tasks of Paris in pool "fast" and two in "slow", both without rules."""
    world = WindowsWorld(slots=(3,))
    world.do(events.RulesTurned({"fast": None}))
    world.submit("first", 3, site="paris", pool="fast")
    world.do(events.WorkerJoined(9, "w9", "slow", 2, {}, "3.11"))
    world.submit("second", 2, site="paris", pool="slow")
    assert (world.running("first"), world.running("second")) == (3, 2)
    return world


def test_rules_that_begin_count_what_runs_in_their_own_pool(two_pools):
    two_pools.do(events.RulesTurned({"fast": rules_at(PLAN, NOON)}))
    pool = two_pools.broker.occupancy.pools["fast"]
    assert (pool.total, pool.used.total()) == (3, 3)


def test_a_pool_whose_rules_go_does_not_keep_others_from_theirs(two_pools):
    rules = rules_at(PLAN, NOON)
    two_pools.do(events.RulesTurned({"fast": rules}))
    two_pools.do(events.RulesTurned({"fast": None, "slow": rules}))
    pools = two_pools.broker.occupancy.pools
    assert list(pools) == ["slow"]
    assert pools["slow"].used.total() == 2


def test_the_slots_for_a_job_are_those_that_it_has_and_those_that_it_may_have():
    world = WindowsWorld(base=PLAN.base, slots=(4,))
    world.submit("theirs", 2, site="paris")
    spec = world.broker.jobs["theirs"].spec
    assert world.broker.occupancy.slots_for("fast", spec, 0.001, NOON) == 3


def test_each_claim_knows_its_assignments_as_tasks_come_and_go():
    """Every look at a pool went through all assignments of all workers."""
    pool = PoolOccupancy(rules_at(PLAN, NOON))
    occupied = occupancy.Occupancy({})
    occupied.pools["fast"] = pool
    worker = SimpleNamespace(handle=1, slots=8, job="", offer=SimpleNamespace(pool="fast"))
    whose, tariff = Owner("ann"), Tariff(1, "USD", "v")

    def made(number, at_s):
        job = SimpleNamespace(whose=whose)
        return SimpleNamespace(
            id=number, worker=worker, job=job, tariff=tariff, left=[(0, 2)], given_at_s=at_s
        )

    first, second = made(1, 10.0), made(2, 20.0)
    for each in (first, second):
        occupied.note(each, 2)
    claim = pool.claim(whose)
    assert pool.latest_first(claim) == [second, first]
    second.left = [(0, 1)]
    occupied.note(second, -1)
    assert pool.latest_first(claim) == [second, first]
    for each in (first, second):
        tasks, each.left = sum(stop - low for low, stop in each.left), []
        occupied.note(each, -tasks)
    assert (pool.latest_first(claim), pool.held) == ([], {})


# --- the decisions by themselves -----------------------------------------------------------------


def sites_pool(pool):
    found = occupancy.Occupancy({})
    found.pools["fast"] = pool
    return found


def job_of(name, site=""):
    spec = SimpleNamespace(whose=Owner(name, site=site), price=None, price_class="", reservation="")
    return SimpleNamespace(spec=spec, whose=spec.whose)


def test_work_that_may_have_all_slots_has_no_bound_though_some_are_kept_for_it():
    kept = Claims((Claim(read_party("user:ann"), Amount(2), lends=NOTHING),))
    pool = PoolOccupancy(rules_at(WindowPlan((), kept), NOON))
    pool.size(4)
    worker = SimpleNamespace(offer=SimpleNamespace(pool="fast"), job="", slots=4, handle=1)
    found = sites_pool(pool)
    assert found.bound(job_of("ann"), worker, 1.0, NOON) is None
    assert found.bound(job_of("bob"), worker, 1.0, NOON) == 2


def test_a_claim_with_a_guarantee_keeps_its_work_at_this_site():
    kept = Claims((Claim(read_party("user:ann"), Amount(2)),))
    found = sites_pool(PoolOccupancy(rules_at(WindowPlan((), kept), NOON)))
    assert found.keeps("fast", Owner("ann"))
    assert not found.keeps("fast", Owner("bob"))
    assert not found.keeps("slow", Owner("ann"))


def closing(at_s, *, stops_at_s=NEVER_S, slots=1):
    return Closing(NOON + at_s, NOON + at_s, NOON + at_s - 10, stops_at_s, slots, "night", 0, 4)


def test_each_reduction_ahead_bounds_the_tasks_that_are_in_its_way(monkeypatch):
    """A preemptible task begins before one that would stop it, and not before one that can't."""
    ahead = (closing(100, stops_at_s=NOON + 110), closing(200, slots=2))
    monkeypatch.setattr(occupancy, "closings", lambda *_: ahead)
    pool = PoolOccupancy(rules_at(PLAN, NOON))
    pool.size(4)
    job = job_of("bob@paris", "paris")
    job.spec.price_class = "preemptible"
    assert sites_pool(pool).slots_for("fast", job.spec, 150.0, NOON) == 3  # the claim's bound
    assert sites_pool(pool).slots_for("fast", job.spec, 500.0, NOON) == 2


def test_the_most_slots_of_a_claim_are_remembered_until_they_are_read():
    world = WindowsWorld(base=PLAN.base, slots=(4,))
    order = orders(world.submit("theirs", 2, site="paris"))[0]
    pool = world.broker.occupancy.pools["fast"]
    pool.peaks.clear()
    world.submit("more", 1, site="paris")
    world.report(order)
    assert pool.used[0] < 3
    assert pool.peaks[0] == 3


def test_a_job_that_was_sold_reserved_slots_has_those_and_not_all_that_are_reserved():
    pool = reserved_pool(seats("r1", "ann", 1, NOON + 3600), seats("r2", "bob", 2, NOON + 3600))
    job = job_of("ann")
    job.spec.reservation = "r1"
    assert sites_pool(pool).slots_for("fast", job.spec, 1.0, NOON) == 1
    assert sites_pool(pool).slots_for("slow", job.spec, 1.0, NOON) == 0


def test_others_make_room_for_work_that_may_begin_in_any_of_its_claims():
    """Its reservation ends before such a task, and of the other slots one is left then."""
    bobs = seats("r3", "bob", 3, NOON + 7200)
    pool = reserved_pool(seats("r1", "ann", 1, NOON + 3600), then=(bobs,))
    first = pool.rules.now.claims.first_reserved
    assert [each.slots for each in pool.ahead(Owner("ann"), first)] == [0]
    assert sites_pool(pool).may_begin("fast", job_of("ann"), 5_000.0, NOON, 1)


def test_a_pool_that_closes_before_a_task_would_end_is_shut_to_it(monkeypatch):
    night = closing(100, slots=0)
    monkeypatch.setattr(occupancy, "closings", lambda *_: (night,))
    pool = PoolOccupancy(rules_at(PLAN, NOON))
    pool.size(4)
    found, spec = sites_pool(pool), job_of("ann").spec
    assert found.shut("fast", spec, 99.0, NOON) is None
    assert "may run into window 'night'" in found.shut("fast", spec, 101.0, NOON).text
    assert found.shut("slow", spec, 101.0, NOON) is None
    monkeypatch.setattr(occupancy, "closings", lambda *_: (closing(100, slots=1),))
    pool.size(5)
    assert found.shut("fast", spec, 101.0, NOON) is None


def test_slots_that_a_pool_could_start_count_for_the_shares():
    world = WindowsWorld(slots=(4,))
    world.broker.occupancy.growth["fast"] = PoolGrowth(6, 60.0, 60.0)
    assert world.broker.occupancy.slots_in_all("fast") == 10
    assert world.broker.occupancy.slots("fast") == 4
