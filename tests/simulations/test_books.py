"""The books of simulated worlds: the checks after each commit, and the actions of people there."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from federation.messages.contracts import Delivery, Verdict
from federation.messages.reconciliation import tally_of
from gateway.config.books import BookRules, period_of
from gateway.ledger.db.contracts.records import ContractOpened, ContractSide, posted, settled
from gateway.ledger.db.records import Record
from gateway.ledger.db.settlement.records import DisputeSettled, StatementKept
from gateway.ledger.db.usage.records import UsageRecord
from simulations.bugs import planted
from simulations.world.clock import EPOCH_S
from simulations.world.memory import tables
from simulations.world.memory.store import MemoryStore
from simulations.world.plan import (
    ClientPlan,
    Crash,
    JobPlan,
    OperatorPlan,
    SitePlan,
    WorkerPlan,
    WorldPlan,
)
from simulations.world.trace import InvariantBroken
from simulations.world.trioclock import run_under_trio
from simulations.world.world import World

AT_S = EPOCH_S + 1.0
AT_MS = round(AT_S * 1000)
DAY_MS = 2_000
DELIVERY = Delivery(1, 0, 10, 500, 7, AT_MS)
SIDE: dict[str, ContractSide] = {"london": "buy", "paris": "sell"}


def dealing() -> WorldPlan:
    """Two sites with short days, one of which dies; people dispute, answer and pay."""
    books = BookRules(0.5, 1.0, 60.0 / 86_400, "week", 0.0, day_ms=DAY_MS)
    operator = OperatorPlan(every_s=0.5, disputes=0.3, accepts=0.5, pays=0.2)
    sites = tuple(
        SitePlan(name, others=(other,), books=books, operator=operator)
        for name, other in (("london", "paris"), ("paris", "london"))
    )
    job = JobPlan(tasks=30, task_s=0.2)
    faults = (Crash(2.0, "paris", 1.0),)
    return WorldPlan(
        sites, (WorkerPlan("w", "paris"),), (ClientPlan("ann", jobs=(job,)),), faults, calm_s=6.0
    )


@pytest.fixture
def world() -> World:
    """The same before anything has happened."""
    return World(dealing(), 7)


def commit(world: World, site: str, *records: Record, durable: bool = True) -> None:
    world.sites[site].disk.commit(records, durable=durable)


def deliver(world: World, *sites: str) -> None:
    """Book a delivery of Paris to London at these, held and paid."""
    for site in sites:
        side, other = SIDE[site], "paris" if site == "london" else "london"
        opened = ContractOpened("c", side, other, "job", "farm", 2, 5, "USD", 30.0, AT_S)
        hold = posted("c", side, other, DELIVERY, "USD")
        paid = settled("c", side, other, DELIVERY, Verdict.POST, "USD", AT_S)
        commit(world, site, opened, hold, paid)


def agree(world: World, site: str) -> None:
    """Keep that a site agrees on the day of the delivery, as it has it."""
    side, other = SIDE[site], "paris" if site == "london" else "london"
    first_ms, stop_ms = period_of(AT_MS, "day", DAY_MS)
    tally = tally_of(
        MemoryStore(world.sites[site].disk).settlement.entries(side, other, first_ms, stop_ms)
    )
    span = (first_ms, stop_ms, False, "agreed")
    kept = StatementKept(side, other, *span, b"", tally.digest, "", b"", b"", AT_S)
    commit(world, site, kept)


def used(first: int, tasks: int, attempt: int = 0) -> UsageRecord:
    who: dict[str, Any] = {"user": "u", "project": "p", "name": "n", "pool": "f", "worker": "w"}
    times = {"started_at_s": AT_S, "ended_at_s": AT_S, "wall_ns": 1, "cpu_ns": 1}
    price = {"price_nanos": 1, "currency": "USD", "tariff": "t", "cost_nanos": 100}
    return UsageRecord("job", first, tasks, attempt, state="ok", peak_memory_bytes=0,
                       **who, **times, **price)  # fmt: skip


def test_what_is_booked_as_it_should_be_breaks_nothing(world: World) -> None:
    deliver(world, "london", "paris")
    agree(world, "london")
    agree(world, "paris")
    commit(world, "london", used(0, 10), used(10, 5), used(0, 10, attempt=1))


def test_a_transfer_that_does_not_follow_the_last_one_is_found_at_its_commit(world: World) -> None:
    deliver(world, "london")
    with (
        patch.object(tables, "digest", lambda *_: b"x" * 32),
        pytest.raises(InvariantBroken, match="follow"),
    ):
        commit(world, "london", used(0, 10))


def test_debits_that_are_not_credits_are_found_at_their_commit(world: World) -> None:
    deliver(world, "london")
    back = DisputeSettled("buy", "c", 1, 0, "paris", "accepted", "", AT_S, 500, "USD")
    with (
        planted("half-a-transfer"),
        pytest.raises(InvariantBroken, match="debits differ from credits"),
    ):
        commit(world, "london", back)


def test_a_hold_that_was_not_made_is_found_when_it_is_resolved(world: World) -> None:
    paid = settled("c", "buy", "paris", DELIVERY, Verdict.POST, "USD", AT_S)
    with pytest.raises(InvariantBroken, match="are negative"):
        commit(world, "london", paid)


def test_a_run_that_is_charged_twice_is_found_at_the_second_charge(world: World) -> None:
    commit(world, "london", used(0, 10))
    with pytest.raises(InvariantBroken, match=r"attempt 0 of tasks \[\(8, 10\)\] twice"):
        commit(world, "london", used(8, 4))


def test_a_day_that_is_agreed_on_while_the_books_differ_is_found(world: World) -> None:
    deliver(world, "london")
    with pytest.raises(InvariantBroken, match="their books differ"):
        agree(world, "london")


def test_what_comes_into_a_day_that_was_agreed_on_is_found(world: World) -> None:
    deliver(world, "london", "paris")
    agree(world, "paris")
    late = posted("c", "sell", "london", replace(DELIVERY, first=20, stop=30), "USD")
    with pytest.raises(InvariantBroken, match="agreed on"):
        commit(world, "paris", late)


def test_after_a_power_cut_the_ledger_is_looked_at_from_its_beginning(world: World) -> None:
    deliver(world, "london")
    commit(world, "london", used(0, 10), durable=False)
    world.sites["london"].disk.cut_power()
    commit(world, "london", used(0, 10))
    assert len(world.sites["london"].disk.tables.booked) == 3


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["heap", "trio"])
def test_days_agree_periods_are_closed_and_people_dispute_answer_and_pay(driver: str) -> None:
    worlds: list[World] = []

    def noting(world: World, *_: object) -> None:
        worlds.append(world)

    with patch.object(World, "told", _told_and(noting, World.told)):
        run = World(dealing(), 7).run() if driver == "heap" else run_under_trio(dealing(), 7)
    assert run.broken is None
    found = [site.disk.tables for site in worlds[0].sites.values()]
    kept = [each for table in found for each in table.statements.values()]
    assert {(each.side, each.state, each.is_final) for each in kept} >= {
        (side, "agreed", is_final) for side in ("buy", "sell") for is_final in (False, True)
    }
    answers = [each.state for table in found for each in table.answers.values()]
    assert {*answers} == {"accepted", "rejected"}
    directions = [each.direction for table in found for each in table.payments.values()]
    assert 0 < directions.count("paid") == directions.count("received")


def _told_and(note: Any, told: Any) -> Any:
    def both(world: World, *rest: Any) -> Any:
        note(world)
        return told(world, *rest)

    return both
