"""A restart takes up reservations at another site, and the contracts in them."""

from hashlib import sha256

import pytest
from support.pure.broker import spec
from support.pure.reception import make_server

from federation.messages.wire import pack
from gateway.config.pools import PoolConfig
from gateway.config.site import SiteConfig
from gateway.ledger.db.contracts.records import ContractOpened
from gateway.ledger.db.jobs.records import (
    BundleKept,
    FunctionKept,
    JobClosedRecord,
    JobOpenedRecord,
)
from gateway.ledger.db.reservations.records import ReservationKept
from gateway.scheduler.model.stored_terms import terms_plain
from policies.costs.budgets import Budget
from policies.parties import read_party
from simulations.world.memory.disk import Disk

NOON = 1_700_000_000.0
HOUR_S = 3_600.0
USD = 10**9
BODY = b"body"
FUNCTION = sha256(BODY).digest()


def job():
    """A detached job of Ann's, of which nothing has ended."""
    terms = spec(detached=True, currency="USD", function=FUNCTION)
    return (
        FunctionKept(FUNCTION, BODY),
        JobOpenedRecord(
            "j", "f", "ann", "risk", True, pack(terms_plain(terms)), NOON - 60, FUNCTION
        ),
        BundleKept("j", 0, 2, pack([b"0", b"1"])),
        JobClosedRecord("j", 2),
    )


def part(seller):
    """Two slots of a seller's for two hours, of which Ann pays a dollar an hour for each."""
    return ReservationKept(
        *("buy", "london-1-1", seller, "whole", 3, "booked", "local", "user:ann", 2),
        *(NOON - HOUR_S, NOON + HOUR_S, USD, "USD", 10**6, 0, "ann", "", "risk"),
        *(NOON - 2 * HOUR_S, NOON),
    )


CONTRACT = ContractOpened(
    *("london-1-2", "buy", "paris", "j", "local", 2, USD, "USD", 60.0, NOON - 60),
    max_cost_nanos=3 * USD,
    tariff="reservation london-1-1",
)


@pytest.mark.parametrize(("seller", "held_usd"), [("paris", 4), ("rome", 4 + 3)])
def test_after_a_restart_nothing_is_held_beside_the_price_of_its_own_sellers_slots(
    seller, held_usd
):
    disk = Disk()
    disk.commit([*job(), part(seller), CONTRACT], durable=True)
    budget = Budget("desk", read_party("user:ann"), "USD", 100 * USD, span=None)
    config = SiteConfig(name="london", pools=(PoolConfig("local", "local", 1),), budgets=(budget,))
    server = make_server(config, disk, NOON)
    server.recover()
    assert list(server.exchange.purchases.purchases) == ["london-1-2"]
    assert server.broker.budget_accounts.own["desk"].held_nanos == held_usd * USD
