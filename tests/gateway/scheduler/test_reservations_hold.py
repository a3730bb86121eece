"""A broker whose pool has reservations: the holder of the slots, early work, and payment."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.pure.windows import NOON, RISK, WindowsWorld, assigned, orders, spec

from federation.messages import messages
from federation.reasons import Reason
from gateway.ledger.db.usage.records import UsageRecord, UsageTotal
from gateway.reservations.bookings import used_of
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import Write
from policies.access.claims import Amount, Claim, Claims, ReservedSlots
from policies.access.entitlements import EntitlementRule, Entitlements
from policies.access.windows import EVERYBODY, Window, WindowPlan, rules_at
from policies.calendar.hours import Hours
from policies.costs.pricelist import PriceList
from policies.parties import Owner, read_party
from policies.reservations.reservations import (
    Reservation,
    ReservationRules,
    ReservationState,
    ReservationUse,
    overlay,
)
from policies.tariffs import Extras, Tariff
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore

HOUR_S = 3600.0
OWNER = ReservationRules(grace_s=30.0)


def reservation(name="r1", slots=3, from_s=NOON + HOUR_S, until_s=NOON + 2 * HOUR_S, who="ann"):
    return Reservation(
        name, "fast", read_party(f"user:{who}"), slots, from_s, until_s, 7_200_000_000, "USD",
        Owner(who), made_at_s=0.0, state=ReservationState.BOOKED,
    )  # fmt: skip


class Reserved(WindowsWorld):
    """A broker of four slots, some of which are reserved."""

    def __init__(self, *made, base=EVERYBODY, **about):
        self.made = made
        super().__init__(base=base, **about)

    def turn(self, *windows, base=EVERYBODY):
        self.plan = WindowPlan(windows, base)
        return self.pass_to(self.now_s)

    def pass_to(self, at_s):
        self.now_s = at_s
        rules = overlay(rules_at(self.plan, at_s), self.made, OWNER, at_s)
        return self.do(events.RulesTurned({"fast": rules}))


def notices(effects):
    return [(each.in_s, each.stop - each.first) for each in orders(effects, messages.Notice)]


def prices(world, job):
    return {
        each.tariff.version
        for worker in world.broker.workers.values()
        for each in worker.assignments.values()
        if each.job.id == job
    }


def test_slots_are_kept_for_its_party_while_it_runs():
    world = Reserved(reservation())
    world.pass_to(NOON + HOUR_S)
    assert assigned(world.submit("theirs", 10, user="bob")) == 1
    assert world.why("theirs") == (
        {Reason.OVER_CLAIM},
        [
            "has no more slots for all in window 'reservation r1', until 1970-01-01 14:00:00 UTC: "
            "1 of 1 are in use"
        ],
    )
    assert assigned(world.submit("hers", 10)) == 3
    assert prices(world, "hers") == {"reservation r1"}


def test_its_partys_other_work_has_other_slots_at_the_usual_price():
    world = Reserved(reservation())
    world.pass_to(NOON + HOUR_S)
    assert assigned(world.submit("hers", 10)) == 4
    assert prices(world, "hers") == {"reservation r1", "1"}


def test_what_runs_in_it_is_charged_as_it_was_booked():
    world = Reserved(reservation(slots=4))
    world.pass_to(NOON + HOUR_S)
    [order] = orders(world.submit("hers", 1))
    world.now_s += 1800.0
    effects = world.report(order, wall_s=1800.0)
    [used] = [e.record for e in effects if isinstance(e, Write) and type(e.record) is UsageRecord]
    assert (used.tariff, used.cost_nanos) == ("reservation r1", 3_600_000_000)


def test_what_runs_in_it_pays_for_kept_slots_whatever_its_class():
    """A preemptible job has slots that are not taken from it, at the price of such slots."""
    made = reservation(slots=4)
    world = Reserved(made)
    prices_now = PriceList(3_600_000_000, "USD", "v", extras=Extras(preemptible=333_333)).at(NOON)
    world.do(events.PricesChanged({"fast": prices_now}))
    world.pass_to(NOON + HOUR_S)
    [order] = orders(world.submit("hers", 1, price_class="preemptible"))
    world.now_s += 1800.0
    effects = world.report(order, wall_s=1800.0)
    [used] = [e.record for e in effects if isinstance(e, Write) and type(e.record) is UsageRecord]
    assert (used.tariff, used.price_class) == ("reservation r1", "guaranteed")
    assert (used.cost_nanos, used.list_cost_nanos) == (3_600_000_000, 3_600_000_000)
    # Used and unused together come to the whole price, to the nano-unit.
    bill_nanos = made.bill_nanos(ReservationUse(used.wall_ns, used.cost_nanos, 1))
    assert used.cost_nanos + bill_nanos == made.total_nanos


@pytest.mark.parametrize("site", ["", "paris"])
def test_short_tasks_in_it_cost_with_its_bill_what_was_booked(site):
    """A pool with steps and a minimum; its slots that are reserved are paid for by time alone."""
    world = Reserved()
    extras = Extras(minimum_nanos=10**6, step_ns=10**9)
    now = PriceList(3_600_000_000, "USD", "v", extras=extras).at(NOON)
    world.do(events.PricesChanged({"fast": now}))
    made = reservation()
    kept = ReservedSlots(made.who, made.slots, made.tariff)
    tariff = world.broker.charging.tariff_in("fast", kept, spec(site=site, price=None))
    costs = [tariff.charge_nanos(1, wall_ns) for wall_ns in range(5_000_000, 5_000_999)]
    used = ReservationUse(sum(range(5_000_000, 5_000_999)), sum(costs), len(costs))
    assert sum(costs) > used.ns * 2 / 1000, "rounded up: more than its time"
    assert sum(costs) + made.bill_nanos(used) <= made.total_nanos


def test_another_sites_work_in_it_is_guaranteed_and_has_that_price():
    world = Reserved(reservation())
    tariff = Tariff(7_200_000_000, "USD", "reservation r1", reservation="r1")
    kept = ReservedSlots(read_party("user:ann"), 3, tariff)
    asked = spec(site="paris", price_class="preemptible", price=None)
    quoted = world.broker.charging.tariff_in("fast", kept, asked)
    assert (quoted.price_nanos, quoted.price_class) == (7_200_000_000, "guaranteed")


def test_what_was_paid_at_its_price_is_used_and_nothing_else():
    totals = [
        UsageTotal(
            ("reservation r1", state, price_class), "USD", 1, 0, 1, wall_ns, 0, 0, 0, 0, 0, 0
        )
        for state, price_class, wall_ns in (
            *(("ok", "guaranteed", 1), ("failed", "guaranteed", 10), ("repeat", "guaranteed", 100)),
            *(("preempted", "guaranteed", 1000), ("preempted", "preemptible", 10_000)),
            ("void", "preemptible", 100_000),
        )
    ]
    usage = SimpleNamespace(totals=lambda *_: totals)
    assert used_of(usage, reservation(), NOON).ns == 10_111


def test_what_another_site_charges_by_the_same_name_is_not_used_of_it():
    made, disk = reservation(), Disk()
    records = [
        UsageRecord(
            *(f"j{at}", 0, 1, 1, "ann", "", "f", pool, "w", "ok", NOON, NOON + 60, 60 * 10**9),
            *(0, 0, made.price_nanos, "USD", made.tariff_name, 10**6),
        )
        for at, pool in enumerate((made.pool, f"paris/{made.pool}"))
    ]
    disk.commit(records, durable=True)
    assert used_of(MemoryStore(disk).usage, made, NOON) == ReservationUse(60 * 10**9, 10**6, 1)


def test_backfilling_what_is_done_in_time_runs_in_the_gap_and_what_is_not_waits():
    world = Reserved(reservation(slots=3))
    world.learn(HOUR_S - 60, "short")
    world.learn(HOUR_S + 60, "long")
    assert assigned(world.submit("long", 10, name="long")) == 1
    assert world.why("long") == (
        {Reason.WINDOW_CLOSED},
        [
            "starts no task of this job that may run into window 'reservation r1', which "
            "begins at 1970-01-01 13:00:00 UTC"
        ],
    )
    assert assigned(world.submit("short", 10, name="short")) == 3


def test_what_is_long_goes_into_the_gap_before_one_that_is_far_enough():
    world = Reserved(reservation(from_s=NOON + 3 * HOUR_S, until_s=NOON + 4 * HOUR_S))
    world.learn(HOUR_S + 60, "long")
    assert assigned(world.submit("long", 10, name="long")) == 4


def test_what_would_run_into_a_second_one_does_not_begin_either():
    world = Reserved(
        reservation(slots=1),
        reservation("r2", 4, NOON + 2 * HOUR_S, NOON + 3 * HOUR_S),
    )
    world.learn(HOUR_S * 2 - 60, "half")
    world.learn(HOUR_S * 2 + 60, "long")
    assert assigned(world.submit("long", 10, name="long")) == 0
    assert assigned(world.submit("half", 10, name="half")) == 3


def test_several_parties_together_leave_what_is_reserved():
    base = Claims((Claim(read_party("user:bob")), Claim(read_party("user:eve"))))
    world = Reserved(reservation(slots=2), base=base)
    world.learn(2 * HOUR_S, "long")
    assert assigned(world.submit("his", 10, name="long", user="bob")) == 2
    assert assigned(world.submit("hers", 10, name="long", user="eve")) == 0


def test_what_runs_when_it_begins_makes_way_with_grace():
    world = Reserved(reservation(slots=3))
    assert assigned(world.submit("theirs", 4, user="bob")) == 4
    effects = world.pass_to(NOON + HOUR_S)
    assert notices(effects) == [(30.0, 3)]


def test_its_own_work_from_before_is_work_as_any():
    world = Reserved(reservation(slots=3))
    assert assigned(world.submit("early", 4)) == 4
    assert sum(tasks for _, tasks in notices(world.pass_to(NOON + HOUR_S))) == 3
    assert prices(world, "early") == {"1"}


def test_what_is_not_done_at_its_end_goes_on_as_any_work():
    world = Reserved(reservation(slots=4))
    world.pass_to(NOON + HOUR_S)
    assert assigned(world.submit("hers", 4)) == 4
    assert notices(world.pass_to(NOON + 2 * HOUR_S)) == []
    assert assigned(world.submit("theirs", 4, user="bob")) == 0


def test_what_is_not_done_when_the_next_one_begins_makes_way_and_is_told_before():
    after = reservation("r2", 4, NOON + 2 * HOUR_S, NOON + 3 * HOUR_S, "bob")
    world = Reserved(reservation(slots=4), after)
    world.pass_to(NOON + HOUR_S)
    world.learn(HOUR_S - 60, "short")
    world.learn(HOUR_S + 60, "long")
    assert assigned(world.submit("long", 4, name="long")) == 0
    assert assigned(world.submit("short", 4, name="short")) == 4
    assert notices(world.pass_to(NOON + 2 * HOUR_S)) == [(30.0, 4)]


def test_slots_come_back_when_it_is_cancelled():
    world = Reserved(reservation(slots=4))
    world.pass_to(NOON + HOUR_S)
    assert assigned(world.submit("theirs", 4, user="bob")) == 0
    world.made = ()
    assert assigned(world.pass_to(NOON + HOUR_S + 60)) == 4


def test_what_was_sold_as_reserved_has_those_slots_and_no_others():
    made = reservation(slots=2, who="ann@paris")
    world = Reserved(made)
    world.pass_to(NOON + HOUR_S)
    sold = spec("pricing", "paris", user="ann@paris", price=made.tariff)
    world.do(events.ClientJoined(1, "paris"), events.JobOpened(1, "j", sold))
    effects = world.do(events.TasksArrived(1, "j", 0, [b"x"] * 10))
    assert assigned(effects) == 2
    occupancy = world.broker.occupancy
    assert occupancy.slots_for("fast", sold, None, world.now_s) == 2
    assert occupancy.shut("fast", sold, None, world.now_s) is None
    world.pass_to(NOON + 2 * HOUR_S)
    assert occupancy.shut("fast", sold, None, world.now_s).text == "has ended reservation r1"


def test_a_limit_of_cost_is_kept_by_the_price_that_was_booked():
    world = Reserved(reservation(slots=4))
    world.learn(1800.0)
    world.pass_to(NOON + HOUR_S)
    effects = world.submit("hers", 4, max_cost_nanos=3_000_000_000, currency="USD")
    assert assigned(effects) == 1


# --- beside other rules --------------------------------------------------------------------------


def day(claims=EVERYBODY):
    return Window("day", Hours(6 * 3600, 20 * 3600), claims, grace_s=20.0)


@pytest.mark.parametrize(
    ("allows", "window", "slots"),
    [(False, "day", 0), (False, "night", 4), (True, "day", 4), (True, "night", 0)],
)
def test_entitlements_go_by_the_window_of_the_calendar_also_while_something_is_reserved(
    allows, window, slots
):
    world = Reserved(reservation(slots=1))
    world.turn(day())
    rule = EntitlementRule(allows, (read_party("ours"),), windows=frozenset({window}))
    names = {"fast": frozenset({"day", "night"})}
    world.do(events.EntitlementsKnown(Entitlements((rule,), "site.toml"), names))
    world.pass_to(NOON + HOUR_S)
    assert assigned(world.submit("hers", 4)) == slots


def test_what_was_sold_as_reserved_calls_nobody_back_for_other_slots_of_its_site():
    paris = read_party("site:paris")
    made = replace(reservation(slots=1, who="ann@paris"), who=paris)
    world = Reserved(made)
    world.turn(day(Claims((Claim(paris, Amount(2)),))))
    world.pass_to(NOON + HOUR_S)
    assert assigned(world.submit("ours", 4, user="bob")) == 3
    world.now_s += 1
    effects = world.submit("theirs", 5, site="paris", price=made.tariff)
    assert assigned(effects) == 1
    assert notices(effects) == []
    world.now_s += 1
    assert notices(world.submit("more", 5, site="paris")) == [(20.0, 2)]


@pytest.mark.parametrize(("reserved", "stopped"), [(1, 2), (2, 0)])
def test_nobody_makes_room_for_what_what_is_reserved_next_does_not_let_begin(reserved, stopped):
    world = Reserved(reservation(slots=reserved, who="eve"))
    world.turn(day(Claims((Claim(RISK, Amount(2)),))))
    world.learn(60.0, "short")
    world.learn(2 * HOUR_S, "risk")
    assert assigned(world.submit("short", 4, name="short", user="bob")) == 4
    world.now_s += 1
    effects = world.submit("run", 2, name="risk")
    assert sum(tasks for _, tasks in notices(effects)) == stopped
