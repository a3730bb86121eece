"""The answers about other sites from filled books."""

from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from federation.messages.contracts import Delivery, Verdict
from gateway.api import books_desk
from gateway.ledger.db.contracts.records import ContractOpened, posted, settled
from gateway.ledger.db.records import Record
from gateway.ledger.db.settlement.records import Disputed, DisputeSettled
from gateway.ledger.store.store import Store

NOW_S = 1_793_700_000.0
EPOCH = 2**62 + 1  # which no float holds


def deal(side: Any = "buy", site: str = "paris") -> list[Any]:
    """A contract with two deliveries that were paid, of which the second is taken back."""
    paid = [Delivery(EPOCH, first, first + 10, 400 + first, 7, 1000 * first) for first in (10, 20)]
    key = (side, "c", EPOCH, 20, site)
    return [
        ContractOpened("c", side, site, "j-7", "grid", 1, 5, "USD", 30.0, 1.0),
        *(posted("c", side, site, each, "USD") for each in paid),
        *(settled("c", side, site, each, Verdict.POST, "USD", 30.0) for each in paid),
        Disputed(*key, "wrong", 40.0),
        DisputeSettled(*key, "accepted", "so it is", 50.0, 420, "USD"),
    ]


async def ask(store: Store, verb: str, **details: Any) -> Any:
    async def read(query: Any, *arguments: Any) -> Any:
        return query(*arguments)

    runtime = SimpleNamespace(utc_s=lambda: NOW_S)
    site: Any = SimpleNamespace(store=store, read=read, runtime=runtime)
    found = await books_desk.QUESTIONS[verb](site, details)
    return found["rows"] if verb == "deliveries" else found


@pytest.mark.parametrize(("side", "sign"), [("buy", -1), ("sell", 1)])
async def test_what_is_listed_adds_up_to_the_statement(
    store: Store, commit: Any, side: str, sign: int
) -> None:
    commit(store, *deal(side))
    rows = await ask(store, "deliveries", site="paris")
    assert sorted(row["cost"] for row in rows if row["first"] == 20) == [
        "-0.00000042",
        "0.00000042",
    ]
    found = await ask(store, "statement")
    [owed] = (dict(zip(found["columns"], row, strict=True)) for row in found["rows"])
    assert sum(Decimal(row["cost"]) for row in rows) * sign == Decimal(owed["balance"])


async def test_a_bill_can_be_put_to_the_job_that_it_was_for(store: Store, commit: Any) -> None:
    commit(store, *deal())
    rows = await ask(store, "deliveries", site="paris") + await ask(store, "disputes")
    assert [row["job"] for row in rows] == ["j-7"] * 4


async def test_a_dispute_names_the_version_of_the_rules_of_its_contract(
    store: Store, commit: Any
) -> None:
    opened, *others = deal()
    commit(store, replace(opened, rules=7), *others)
    [row] = await ask(store, "disputes")
    assert row["rules"] == 7


async def test_an_epoch_survives_readers_whose_numbers_are_floats(
    store: Store, commit: Any
) -> None:
    commit(store, *deal())
    rows = await ask(store, "deliveries", site="paris") + await ask(store, "disputes")
    assert {row["epoch"] for row in rows} == {str(EPOCH)}


@pytest.mark.parametrize("verb", ["deliveries", "payments"])
async def test_a_site_that_we_never_dealt_with_is_refused(
    store: Store, commit: Any, verb: str
) -> None:
    commit(store, *deal())
    assert await ask(store, "payments", site="paris") == await ask(store, "payments") == []
    with pytest.raises(
        books_desk.BadBooksQuestion, match="no contracts with site 'berlin'; sites with contracts"
    ):
        await ask(store, verb, site="berlin")


def relay(number: int, sellers: dict[str, int], took: int, state: str = "post") -> list[Record]:
    """A job of Tokyo that was sold on to it for `took`, and bought for these amounts."""
    name = f"tokyo-1-{number}"
    job, at_ms, found = f"tokyo:{name}", 1000 * number, []
    parts = [("sell", "tokyo", name, took), *(("buy", *each) for each in _bought(name, sellers))]
    for side, site, contract, nanos in parts:
        delivery = Delivery(EPOCH, 0, 10, nanos, 7, at_ms)
        found += [
            ContractOpened(contract, side, site, job, "relay", 1, 5, "USD", 30.0, 1.0),
            posted(contract, side, site, delivery, "USD"),
        ]
        verdict = Verdict.POST if side == "buy" else Verdict(state) if state else None
        if verdict is not None:
            found.append(settled(contract, side, site, delivery, verdict, "USD", 30.0))
    return found


def _bought(name: str, sellers: dict[str, int]) -> list[tuple[str, str, int]]:
    return [(site, f"london-{site}-{name}", nanos) for site, nanos in sellers.items()]


async def margin(store: Store, **details: Any) -> dict[tuple[str, ...], list[str]]:
    found = await ask(store, "margin", **details)
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    names = ("took", "gave", "margin", "held_sold", "void_sold")
    return {
        (row["sold_to"], row["bought_from"], row["job"]): [
            f"{Decimal(row[name]) * 10**9:.0f}" for name in names
        ]
        for row in rows
    }


async def test_a_relay_is_told_what_it_took_and_gave(store: Store, commit: Any) -> None:
    disputed = ("buy", "london-paris-tokyo-1-1", EPOCH, 0, "paris")
    commit(
        store,
        *relay(1, {"paris": 300}, 400),
        *relay(2, {"paris": 30, "rome": 20}, 60),
        *relay(3, {"rome": 7}, 9, "void"),
        *relay(4, {"rome": 1}, 2, ""),
        *deal("sell", "tokyo"),  # which ran here
        *deal("buy"),  # for our own user
        Disputed(*disputed, "wrong", 40.0),
        DisputeSettled(*disputed, "accepted", "so it is", 50.0, 300, "USD"),
    )
    assert await margin(store) == {
        ("tokyo", "paris", ""): ["400", "0", "400", "0", "0"],
        ("tokyo", "paris, rome", ""): ["60", "50", "10", "0", "0"],
        ("tokyo", "rome", ""): ["0", "8", "-8", "2", "9"],
    }
    by_job = await margin(store, by_job=True, start_s=0, end_s=2.5)
    assert by_job == {
        ("tokyo", "paris", "tokyo:tokyo-1-1"): ["400", "300", "100", "0", "0"],
        ("tokyo", "paris, rome", "tokyo:tokyo-1-2"): ["60", "50", "10", "0", "0"],
    }
    with pytest.raises(books_desk.BadBooksQuestion, match="`by_job` must be true or false"):
        await ask(store, "margin", by_job="x")


async def test_a_statement_says_what_of_it_was_passed_on(store: Store, commit: Any) -> None:
    commit(store, *relay(1, {"paris": 300}, 400), *deal("sell", "tokyo"), *deal("buy"))
    found = await ask(store, "statement")
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    passed_on = {row["site"]: (row["relayed_sold"], row["relayed_bought"]) for row in rows}
    assert passed_on == {"tokyo": ("0.0000004", "0"), "paris": ("0", "0.0000003")}
    assert [row["sold"] for row in rows if row["site"] == "tokyo"] == ["0.00000123"]
