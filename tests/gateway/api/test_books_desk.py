"""An operator's view of the books: of a long list, and of a site without entries."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from federation.messages.contracts import Delivery
from federation.messages.reconciliation import BookEntry, EntryState
from gateway.api import books_desk
from gateway.api.books_desk import (
    DELIVERIES_SHOWN,
    BadBooksQuestion,
    answer_dispute,
    deliveries,
    dispute,
    reconcile,
    settle,
    undo_payment,
)
from gateway.cli.books import between
from gateway.cli.main import cli
from gateway.ledger.db.contracts.records import ContractRow, PostingRow
from gateway.ledger.db.settlement.records import Payment, PaymentRow
from gateway.settlement.reconciler import Comparison

NOW_S = 1_793_700_000.0


def entry(n, state):
    """A delivery that was made in second `n`."""
    return BookEntry("c", "USD", Delivery(1, n, n + 1, 100, 7, 1000 * n), state)


class Books:
    """A store of one site's purchases and sales."""

    def __init__(self, **delivered):
        self.delivered = delivered
        self.contracts = self.settlement = self.journal = self

    def _of(self, side, is_void):
        found = self.delivered.get(side, ())
        return (each for each in found if (each.state is EntryState.VOID) is is_void)

    def entries(self, side, *_asked):
        return self._of(side, is_void=False)

    def voids(self, side, *_asked):
        return self._of(side, is_void=True)

    def get(self, _side, _contract):
        return SimpleNamespace(job="j-7", state="settled", max_cost_nanos=None)

    def partners(self, _side=None):
        return ["paris"]

    def payments(self):
        return []

    def unlike(self, _site, _limit):
        return self.charged_otherwise

    charged_otherwise = ()


def site_with(store, reconciler=None):
    async def read(query, *arguments):
        return query(*arguments)

    runtime = SimpleNamespace(utc_s=lambda: NOW_S)
    return SimpleNamespace(store=store, read=read, runtime=runtime, reconciler=reconciler)


async def listed(books, **details):
    found = await deliveries(site_with(books), {"site": "paris", **details})
    return [(row["side"], row["at_s"]) for row in found["rows"]], found["is_cut"]


async def test_the_oldest_come_first_of_either_side_and_whether_they_are_void():
    bought = [entry(5, EntryState.POSTED), entry(3, EntryState.VOID), entry(1, EntryState.POSTED)]
    books = Books(buy=bought, sell=[entry(2, EntryState.PENDING), entry(4, EntryState.VOID)])
    assert await listed(books) == (
        [("buy", 1), ("sell", 2), ("buy", 3), ("sell", 4), ("buy", 5)],
        False,
    )
    assert await listed(books, state="void") == ([("buy", 3), ("sell", 4)], False)
    assert await listed(books, state="settled") == ([("buy", 1), ("buy", 5)], False)
    assert await listed(books, state="posted") == ([("buy", 1), ("buy", 5)], False), "an old word"
    assert await listed(books, state="pending") == ([("sell", 2)], False)
    with pytest.raises(BadBooksQuestion, match="pending, settled, reversal, void"):
        await listed(books, state="paid")


async def test_a_delivery_that_its_grant_has_capped_is_named_so():
    terms = ("c", "sell", "paris", "j-7", "gpu", 1, 10**15, "USD", 30.0, 1.0)
    books = Books(sell=[entry(1, EntryState.POSTED), entry(2, EntryState.POSTED)])
    books.get = lambda *_: ContractRow(*terms, max_cost_nanos=200)
    books.postings = lambda *_: [
        PostingRow(1, n, 1, 100, "post", 7 if n == 1 else 10**9, float(n)) for n in (1, 2)
    ]
    found = await deliveries(site_with(books), {"site": "paris"})
    assert [row["note"] for row in found["rows"]] == ["", "capped by its grant"]


async def test_what_one_side_has_voided_is_found_behind_whatever_the_other_has_paid():
    paid = [entry(n, EntryState.POSTED) for n in range(DELIVERIES_SHOWN)]
    books = Books(buy=paid, sell=[entry(0, EntryState.VOID)])
    rows, is_cut = await listed(books)
    assert (len(rows), is_cut) == (DELIVERIES_SHOWN, True)
    assert ("sell", 0) in rows
    assert await listed(books, state="void") == ([("sell", 0)], False)
    assert (await listed(Books(buy=paid)))[1] is False


@pytest.mark.parametrize(("is_cut", "state"), [(False, ""), (True, ""), (True, "void")])
def test_a_list_that_was_cut_says_so_beside_what_programs_read(monkeypatch, is_cut, state):
    row = {"side": "sell", "at_s": NOW_S + 0.25, "state": "void"}
    asked = []

    def ask(_reach, verb, **details):
        asked.append((verb, details))
        return {"rows": [row], "is_cut": is_cut}

    monkeypatch.setattr(between, "ask", ask)
    chosen = ["--state", state] if state else []
    found = CliRunner().invoke(cli, ["deliveries", "paris", *chosen, "--json"])
    assert found.exit_code == 0
    assert '"void"' in found.stdout
    # To the thousandth: there may be more in one second than one list has.
    hint = "only the first 1 are shown; continue with --from 2026-11-03T10:00:00.250Z"
    assert (hint in found.stderr) is is_cut
    assert asked == [("deliveries", {"site": "paris", "contract": "", "state": state})]


async def test_what_was_never_bought_or_has_not_begun_is_not_compared():
    site = site_with(Books(), SimpleNamespace())
    with pytest.raises(BadBooksQuestion, match="in the future"):
        await reconcile(site, {"site": "paris", "start_s": NOW_S + 5})
    site.store.contracts.partners = lambda side=None: ["paris"] if side is None else []
    with pytest.raises(BadBooksQuestion, match="no contracts with paris in either direction"):
        await reconcile(site, {"site": "paris", "start_s": 0})


async def test_what_was_bought_and_what_was_sold_is_compared_and_told_together():
    async def compare(*_asked):
        return Comparison("agreed", "", [])

    async def compare_sold(*_asked):
        return "differs", "USD tasks: 1 here, 2 there"

    site = site_with(Books(), SimpleNamespace(compare=compare, compare_sold=compare_sold))
    site.store.contracts.partners = lambda side=None: ["paris"]
    found = await reconcile(site, {"site": "paris", "start_s": 0})
    assert found["state"] == "differs"
    assert found["details"] == "sold: USD tasks: 1 here, 2 there"
    site.store.contracts.partners = lambda side=None: ["paris"] if side != "sell" else []
    assert (await reconcile(site, {"site": "paris", "start_s": 0}))["state"] == "agreed"


async def test_what_an_audit_finds_between_the_two_is_told_though_both_have_the_same_deliveries():
    async def compare(*_asked):
        return Comparison("agreed", "", [])

    site = site_with(Books(), SimpleNamespace(compare=compare))
    site.store.contracts.partners = lambda side=None: ["paris"] if side != "sell" else []
    site.store.charged_otherwise = ["job j-7 was charged 5 for paris, which delivered 4"]
    found = await reconcile(site, {"site": "paris", "start_s": 0})
    assert found["state"] == "differs"
    assert found["details"] == (
        "in our own books (see `gridfed audit`): job j-7 was charged 5 for paris, which delivered 4"
    )


async def test_a_seller_that_says_nothing_may_be_down_or_have_another_clock():
    async def compare(*_asked):
        return Comparison("", "", [])

    site = site_with(Books(), SimpleNamespace(compare=compare))
    with pytest.raises(BadBooksQuestion, match="that the period has ended by its clock"):
        await reconcile(site, {"site": "paris", "start_s": 0})


async def test_a_buyer_that_says_nothing_may_be_of_an_older_version():
    async def compare_sold(*_asked):
        return "", ""

    site = site_with(Books(), SimpleNamespace(compare_sold=compare_sold))
    site.store.contracts.partners = lambda side=None: ["paris"] if side != "buy" else []
    with pytest.raises(BadBooksQuestion, match="older version does not compare at a seller's"):
        await reconcile(site, {"site": "paris", "start_s": 0})


# --- payments ------------------------------------------------------------------------------------


def cashier(monkeypatch, booked=()):
    """A site that deals with Paris, where these payments are booked; and its records."""
    store = SimpleNamespace(
        contracts=SimpleNamespace(partners=lambda _side=None: ["paris"]),
        settlement=SimpleNamespace(payments=lambda _site="": list(booked)),
        journal=SimpleNamespace(balances=dict),
    )
    recorded, told = [], []

    async def harden(*records):
        recorded.extend(records)

    async def tell(site):
        told.append(site)

    async def in_turn(work):
        return await work()

    reconciler = SimpleNamespace(in_turn=in_turn, payments=SimpleNamespace(tell=tell))
    site = site_with(store, reconciler)
    site.harden = harden
    monkeypatch.setattr(books_desk, "_statement_rows", lambda *_: [])
    return site, recorded, told


PAID = {
    "site": "paris",
    "reference": "wire-1",
    "direction": "paid",
    "amount_nanos": 5,
    "currency": "USD",
}
BOOKED = PaymentRow("paris", "wire-1", "USD", "paid", "bank", 5, "", NOW_S + 5.0)
UNDONE = replace(BOOKED, undone_at_s=NOW_S)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"site": "rome"}, "no contracts with site 'rome'; sites with contracts: paris"),
        ({"site": "pariss"}, "no contracts with site 'pariss' .did you mean 'paris'"),
        ({"site": ""}, "site must be 1 to 100"),
        ({"reference": "a\nb"}, "reference must be 1 to 100"),
        ({"direction": "lost"}, "direction must be one of"),
        ({"through": "pigeon"}, "through must be one of"),
        ({"amount_nanos": 0}, "an amount must be above zero"),
        ({"amount_nanos": 1.5}, "an amount must be above zero"),
        ({"amount_nanos": True}, "an amount must be above zero"),
        ({"currency": "usd"}, "three capital letters"),
        ({"currency": None}, "got .NoneType"),
        ({"note": "x\ny"}, "note must be text of up to"),
        ({"through": "exchange"}, "into_nanos: an amount must be above zero"),
        (
            {"through": "exchange", "into_nanos": 4, "into_currency": "USD"},
            "both amounts are in USD",
        ),
    ],
)
async def test_a_payment_that_makes_no_sense_is_not_booked(monkeypatch, changes, text):
    site, recorded, told = cashier(monkeypatch)
    with pytest.raises(BadBooksQuestion, match=text):
        await settle(site, PAID | changes)
    assert (recorded, told) == ([], [])


async def test_a_payment_is_booked_once_under_its_reference(monkeypatch):
    site, recorded, told = cashier(monkeypatch)
    await settle(site, PAID)
    assert recorded == [Payment("paris", "wire-1", "USD", "paid", "bank", 5, "", NOW_S)]
    assert told == ["paris"]
    site, recorded, _ = cashier(monkeypatch, [BOOKED])
    with pytest.raises(BadBooksQuestion, match=r"is booked already, as paid 0\.000000005 USD"):
        await settle(site, PAID)
    site, recorded, _ = cashier(monkeypatch, [UNDONE])
    await settle(site, PAID)
    assert recorded[0].attempt == 1


async def test_what_is_exchanged_is_booked_on_both_sides(monkeypatch):
    site, recorded, _ = cashier(monkeypatch)
    exchange = {"through": "exchange", "into_nanos": 4, "into_currency": "EUR"}
    await settle(site, PAID | exchange)
    assert [(each.direction, each.amount_nanos, each.currency) for each in recorded] == [
        ("paid", 5, "USD"),
        ("received", 4, "EUR"),
    ]


async def test_only_what_stands_is_undone_and_not_before_it_was_booked(monkeypatch):
    asked = {"site": "paris", "reference": "wire-1", "note": "slip"}
    for booked in ([], [UNDONE]):
        site, recorded, _ = cashier(monkeypatch, booked)
        with pytest.raises(BadBooksQuestion, match="no settlement with paris under 'wire-1' found"):
            await undo_payment(site, asked)
        assert not recorded
    site, recorded, _ = cashier(monkeypatch, [BOOKED])
    await undo_payment(site, asked)
    assert recorded == [BOOKED.undone("slip", NOW_S + 5.0)]


@pytest.mark.parametrize(
    ("verb", "details", "text"),
    [
        (dispute, {"deliveries": "all"}, "deliveries must be a list"),
        (dispute, {"deliveries": [[1]]}, "a delivery must be .epoch, first."),
        (dispute, {"deliveries": [[1, -1]]}, "a delivery must be .epoch, first."),
        (dispute, {"deliveries": [[1, True]]}, "a delivery must be .epoch, first."),
        (answer_dispute, {}, "accept must be true or false"),
        (answer_dispute, {"accept": 1}, "accept must be true or false"),
        (answer_dispute, {"accept": True, "deliveries": [1]}, "a delivery must be .epoch, first."),
    ],
)
async def test_a_dispute_that_makes_no_sense_is_not_begun(monkeypatch, verb, details, text):
    site, recorded, _ = cashier(monkeypatch)
    site.reconciler.disputes = SimpleNamespace(
        dispute=lambda *_: recorded.append, answer=lambda *_, **__: recorded.append
    )
    with pytest.raises(BadBooksQuestion, match=text):
        await verb(site, {"contract": "c", "reason": "r"} | details)
    assert not recorded
