"""Double entry, pure: the transfers of each record, and their sums."""

from collections.abc import Callable
from typing import Any

import pytest

from gateway.ledger.accounting.postings import LedgerAccount, Transfer, balances, transfers_of
from gateway.ledger.db.contracts.records import Posted, PostingSettled
from gateway.ledger.db.jobs.records import JobClosedRecord
from gateway.ledger.db.usage.records import UsageRecord

Usage = Callable[..., UsageRecord]


def posted(side: str = "sell", **fields: Any) -> Posted:
    defaults: dict[str, Any] = {
        "contract": "london-1-1",
        "side": side,
        "site": "paris" if side == "buy" else "london",
        "epoch": 3,
        "first": 100,
        "tasks": 10,
        "wall_ns": 10**9,
        "cost_nanos": 500,
        "currency": "EUR",
        "posted_at_s": 1_700_000_000.0,
    }
    return Posted(**(defaults | fields))


def settled(side: str = "sell", state: str = "post", **fields: Any) -> PostingSettled:
    of = posted(side)
    defaults: dict[str, Any] = {
        "contract": of.contract,
        "side": side,
        "site": of.site,
        "epoch": of.epoch,
        "first": of.first,
        "state": state,
        "cost_nanos": of.cost_nanos,
        "currency": of.currency,
        "settled_at_s": 1_700_000_001.0,
    }
    return PostingSettled(**(defaults | fields))


def account(kind: Any, name: str, project: str = "", currency: str = "EUR") -> LedgerAccount:
    return LedgerAccount(kind, name, project, currency)


@pytest.mark.parametrize(
    ("job", "pool", "debit", "credit"),
    [
        ("job-1", "local", account("user", "ada", "risk"), account("pool", "local")),
        ("job-1", "paris/grid", account("user", "ada", "risk"), account("bought", "paris")),
        ("rome:rome-1-1", "local", account("sold", "rome"), account("pool", "local")),
        ("rome:rome-1-1", "paris/relay", account("sold", "rome"), account("bought", "paris")),
    ],
)
def test_who_pays_whom_for_a_run(
    job: str, pool: str, debit: LedgerAccount, credit: LedgerAccount, usage: Usage
) -> None:
    record = usage(job=job, pool=pool, currency="EUR", first=4, attempt=2, cost_nanos=7)
    [transfer] = transfers_of(record)
    assert (transfer.debit, transfer.credit) == (debit, credit)
    assert (transfer.key, transfer.kind, transfer.amount_nanos) == (f"use/{job}/4/2", "entry", 7)
    assert transfer.at_s == record.ended_at_s


def test_what_costs_nothing_moves_nothing(usage: Usage) -> None:
    free = [
        usage(cost_nanos=0),
        posted(cost_nanos=0),
        settled(cost_nanos=0),
        JobClosedRecord("j", 1),
    ]
    assert [transfers_of(record) for record in free] == [()] * 4


@pytest.mark.parametrize("side", ["buy", "sell"])
def test_a_delivery_is_held_until_it_is_settled(side: str) -> None:
    [hold], [post], [void] = (
        transfers_of(record) for record in (posted(side), settled(side), settled(side, "void"))
    )
    assert (hold.kind, post.kind, void.kind) == ("hold", "post", "void")
    assert hold.resolves is None
    assert post.resolves == void.resolves == hold.key
    assert post.key == void.key  # so there is one verdict
    site = account("site", "paris" if side == "buy" else "london")
    held = balances([hold])[site]
    sign = -1 if side == "buy" else 1
    assert (held.net_nanos, held.held_nanos) == (0, 500 * sign)
    paid = balances([hold, post])[site]
    assert (paid.net_nanos, paid.held_nanos) == (500 * sign, 0)
    voided = balances([hold, void])[site]
    assert (voided.net_nanos, voided.held_nanos) == (0, 0)


def test_what_a_user_pays_for_what_is_bought_goes_to_its_seller(usage: Usage) -> None:
    records = [
        usage(pool="paris/grid", cost_nanos=500, currency="EUR"),
        posted("buy"),
        settled("buy"),
    ]
    found = balances(transfer for record in records for transfer in transfers_of(record))
    assert {str(key): each.net_nanos for key, each in found.items()} == {
        "user:ada/risk EUR": 500,
        "bought:paris EUR": 0,
        "site:paris EUR": -500,
    }


def test_currencies_are_apart(usage: Usage) -> None:
    found = balances(
        transfer
        for currency in ("EUR", "USD")
        for transfer in transfers_of(usage(currency=currency, cost_nanos=5))
    )
    assert len(found) == 4


def test_a_transfer_is_frozen(usage: Usage) -> None:
    [entry] = transfers_of(usage())
    assert isinstance(entry, Transfer)
    with pytest.raises(AttributeError):
        entry.amount_nanos = 1  # type: ignore[misc]
