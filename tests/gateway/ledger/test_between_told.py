"""What is answered about other sites from filled books."""

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


def deal(side: Any = "buy", site: str = "paris") -> list[Record]:
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

    surroundings = SimpleNamespace(utc_s=lambda: NOW_S)
    site: Any = SimpleNamespace(store=store, read=read, surroundings=surroundings)
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
