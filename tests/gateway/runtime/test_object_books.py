"""The cost of objects at a site: who pays, and what it says (gateway.runtime.object_books)."""

from dataclasses import replace
from types import SimpleNamespace

from federation.clocks import UtcS
from gateway.base.scopes import ObjectScope
from gateway.objects.billing import HoldingBooks
from gateway.objects.catalogue import HoldingChange, ObjectKey
from gateway.runtime.object_books import SiteObjectBooks
from policies.costs.holding import HoldPrice


class Payer:
    """A hard budget in USD with no room left."""

    def __init__(self):
        self.budget = SimpleNamespace(is_money=True, is_hard=True, unit="USD", name="risk 2026")
        self.room_nanos, self.spent = 0, []

    def objection(self):
        return "budget risk 2026 is used up"

    def spend(self, nanos, utc_s):
        self.spent.append(nanos)


def site(payer):
    written = []
    objects = SimpleNamespace(price=lambda currency: HoldPrice(30_000_000, "USD"))
    accounts = SimpleNamespace(of=lambda owner: (payer,))
    return SimpleNamespace(
        config=SimpleNamespace(groups={}, pools=[], objects=objects),
        server=SimpleNamespace(
            broker=SimpleNamespace(budget_accounts=accounts),
            outbox=SimpleNamespace(perform=written.extend),
        ),
        runtime=SimpleNamespace(utc_s=lambda: UtcS(0.0)),
        written=written,
    )


def records(terms, scope):
    books = HoldingBooks(replace(terms))
    change = HoldingChange(ObjectKey(scope, b"\2" * 33), "ann", 10**9, is_held=True)
    books.change(change, UtcS(0.0))
    return books.stop(UtcS(3_600.0))


def test_no_budget_of_this_site_pays_for_another_sites_objects_or_refuses_them(monkeypatch):
    payer = Payer()
    found = site(payer)
    books = SiteObjectBooks(found)
    monkeypatch.setattr("gateway.runtime.object_books.unpayable", lambda *_: None)
    monkeypatch.setattr("gateway.runtime.object_books.hard_payers", list)
    theirs = str(ObjectScope("risk", "paris"))
    assert "used up" in books.objection("ann", "risk")
    assert books.objection("ann", theirs) == ""
    books.book(records(books.terms(), theirs))
    assert payer.spent == []
    books.book(records(books.terms(), "risk"))
    assert len(payer.spent) == 1
    assert payer.spent[0] > 0
    assert [each.record.origin for each in found.written] == ["paris", ""]
