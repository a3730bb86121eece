"""An explanation says that workers drain, and that the end of earlier tasks is unknown."""

from dataclasses import replace
from typing import Any

import pytest
from support.pure.broker import CLIENT, WORKER, BrokerWorld, orders, spec
from support.pure.market import NOW_S, make_ask, make_market, make_pool, make_preferences, seeded
from support.pure.windows import WindowsWorld
from support.pure.windows import spec as windows_spec

from federation.reasons import Reason
from gateway.api.views.pool_loads import note_waits, with_causes
from gateway.api.views.work_views import status
from gateway.scheduler.model import events
from policies.access.claims import NOTHING, Claim, Claims
from policies.access.entitlements import EntitlementRule, Entitlements
from policies.access.windows import Window
from policies.calendar.hours import Hours
from policies.parties import read_party
from policies.placement.brokering import place


def decided(pool: str = "local") -> Any:
    """A decision about a pool of site "a" whose advert shows no worker."""
    shown = make_pool(pool, pythons=(), slots_total=0, slots_free=0)
    return place(make_ask(), make_market(a=shown), make_preferences(), NOW_S, seeded())


def test_a_pool_whose_workers_all_drain_says_so() -> None:
    world = BrokerWorld(slots=2)
    assert (
        with_causes(decided(), spec(), world.broker, "a", NOW_S).refused[0][1].reason
        is Reason.NO_SLOTS
    )
    world.do(events.DrainAsked(WORKER, True))
    [(_, why)] = with_causes(decided(), spec(), world.broker, "a", NOW_S).refused
    assert why.reason is Reason.DRAINING
    assert why.text == (
        "takes nothing new: its worker drains: an operator has ordered it; "
        "`gridfed drain --resume` ends it"
    )
    [(_, why)] = with_causes(decided(), spec(), world.broker, "b", NOW_S).refused
    assert why.text == "has no workers now"  # of another site there are adverts alone
    [(_, why)] = with_causes(decided("other"), spec(), world.broker, "a", NOW_S).refused
    assert why.text == "has no workers now"


def test_it_says_until_when_if_its_grid_has_told() -> None:
    world = BrokerWorld(slots=2)
    world.join(77)
    for worker, ends_at_s in ((WORKER, NOW_S + 60), (77, NOW_S)):
        world.do(events.DrainAsked(worker, True, events.Drainer.CONTROLLER))
        world.broker.workers[worker].ends_at_s = ends_at_s
    [(_, why)] = with_causes(decided(), spec(), world.broker, "a", NOW_S).refused
    assert why.text.startswith("takes nothing new: all its 2 workers drain, the last until ")
    assert why.text.endswith(": its grid takes it back")


def test_a_pool_whose_window_gives_the_party_no_slot_says_which() -> None:
    claims = Claims((Claim(read_party("user:ann"), borrows=NOTHING),))
    world = WindowsWorld(Window("all day", Hours(0, 24 * 3600), claims=claims))
    ask = make_ask()
    shown = make_pool("fast", slots_total=0, slots_free=0)
    decision = place(ask, make_market(a=shown), make_preferences(), NOW_S, seeded())
    assert decision.refused[0][1].reason is Reason.NO_SLOTS
    [(_, why)] = with_causes(decision, windows_spec(), world.broker, "a", NOW_S).refused
    assert why.reason is Reason.WINDOW_CLOSED
    assert why.text.startswith("gives user:ann no slot in window 'all day', until ")
    bobs = replace(windows_spec(), user="bob")
    assert with_causes(decision, bobs, world.broker, "a", NOW_S).refused == decision.refused


@pytest.mark.parametrize("drained", [False, True])
def test_a_pool_that_the_entitlements_deny_says_so_with_the_rule(drained: bool) -> None:
    world = BrokerWorld(slots=2)
    rule = EntitlementRule(True, (read_party("ours"),), frozenset({"risk"}), line=7)
    rules = Entitlements((rule,), "gateway.toml")
    world.do(events.EntitlementsKnown(rules, {"local": frozenset()}))
    world.do(events.DrainAsked(WORKER, drained))
    [(_, why)] = with_causes(decided(), spec(), world.broker, "a", NOW_S).refused
    assert why.reason is Reason.NOT_ENTITLED
    assert why.text.startswith("is not allowed: no [[entitlement]] of gateway.toml allows")


def test_status_counts_the_draining_workers_of_a_pool() -> None:
    world = BrokerWorld(slots=2)
    world.join(77)
    world.do(events.DrainAsked(77, True))
    [pool] = status(world.broker, "a", [], 0)["pools"]
    assert (pool["workers"], pool["draining"]) == (2, 1)


@pytest.mark.parametrize("is_known", [False, True])
def test_the_wait_behind_tasks_of_unknown_duration_is_not_known(is_known: bool) -> None:
    world = BrokerWorld(slots=2)
    if is_known:
        (first,) = orders(world.submit(1, "known", function=b"k" * 32))
        world.report(first, wall_ns=60 * 10**9)
    world.do(events.JobOpened(CLIENT, "long", spec(function=b"k" * 32)))
    world.do(events.TasksArrived(CLIENT, "long", 0, [b"0"] * 2))
    world.submit(3, "j", function=b"o" * 32)
    rows: list[dict[str, Any]] = [{"site": "a", "pool": "local"}, {"site": "b", "pool": "local"}]
    found = {"tasks": 3, "candidates": rows, "shares": [{"site": "a", "pool": "local", "tasks": 1}]}
    note_waits(found, world.broker, "a", without=world.broker.jobs["j"])
    assert [each["is_wait_known"] for each in rows] == [is_known, True]
    assert found["shares"][0]["is_wait_known"] is is_known


def test_free_slots_wait_for_nobody() -> None:
    world = BrokerWorld(slots=4)
    world.submit(1, "long")
    found: dict[str, Any] = {"tasks": 3, "candidates": [{"site": "a", "pool": "local"}]}
    found["shares"] = []
    note_waits(found, world.broker, "a")
    assert found["candidates"][0]["is_wait_known"]
    found["tasks"] = 4  # one of them waits for the first
    note_waits(found, world.broker, "a")
    assert not found["candidates"][0]["is_wait_known"]
