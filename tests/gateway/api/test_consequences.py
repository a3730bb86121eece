"""The consequences of a grave order are listed before anything changes."""

from types import SimpleNamespace

import pytest
from support.desk import counter_of
from support.pure.broker import spec

from federation.errors import GridError
from federation.reasons import Reason
from gateway.api import consequences
from gateway.api.consequences import BadConsequencesQuestion
from gateway.ledger.db.settlement.records import PaymentRow
from gateway.scheduler.model import events
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from gateway.scheduler.model.ports import PortKind

UNIT = 10**9
NOW_S = 1_793_700_000.0


def made_payment(direction, amount, reference):
    return PaymentRow("paris", reference, "USD", direction, "bank", amount, "", NOW_S)


class Paris:
    """A site that deals with Paris, to which it gives a credit of 100 USD."""

    def __init__(self, monkeypatch, owes=0, paid=(), **parts):
        async def read(query, *arguments):
            return query(*arguments)

        async def statement(_site, name):
            row = {"site": name, "currency": "USD", "balance_nanos": str(owes)}
            return [row] if name == "paris" and owes else []

        monkeypatch.setattr(consequences, "_statement", statement)
        budget_accounts = BudgetAccounts((), {"paris": ((100 * UNIT, "USD"),)})
        budget_accounts.take_up({}, {("paris", "USD"): owes}, NOW_S)
        settlement = SimpleNamespace(payments=lambda _name=None: list(paid))
        self.site = SimpleNamespace(
            read=read,
            reconciler=object(),
            store=SimpleNamespace(
                settlement=settlement, contracts=SimpleNamespace(partners=lambda: ["paris"])
            ),
            runtime=SimpleNamespace(utc_s=lambda: NOW_S),
            broker=SimpleNamespace(budget_accounts=budget_accounts, jobs={}, workers={}),
            peers=SimpleNamespace(registry=SimpleNamespace(approved=["lyon", "paris"])),
            config=SimpleNamespace(name="london"),
            **parts,
        )

    async def ask(self, order, **details):
        found = await consequences.consequences(self.site, {"order": order, "details": details})
        return found["lines"]

    async def settle(self, direction, amount):
        return await self.ask(
            "settle",
            site="paris",
            reference="r1",
            direction=direction,
            amount_nanos=amount * UNIT,
            currency="USD",
        )


async def test_a_payment_in_the_wrong_direction_exhausts_a_credit(monkeypatch):
    lines = await Paris(monkeypatch, owes=20 * UNIT).settle("paid", 1000)
    assert lines == [
        "now paris owes us 20 USD; after it paris owes us 1020 USD",
        "this exhausts the credit of paris: it would owe 1020 USD, of a limit of 100 USD, and none "
        "of its tasks starts here until it has paid",
    ]


async def test_a_payment_brings_credit_back(monkeypatch):
    lines = await Paris(monkeypatch, owes=100 * UNIT).settle("received", 30)
    assert lines == [
        "now paris owes us 100 USD; after it paris owes us 70 USD",
        "paris has credit again, up to 100 USD: its work continues",
    ]


async def test_a_payment_that_is_too_small_changes_nothing_for_its_work(monkeypatch):
    lines = await Paris(monkeypatch, owes=150 * UNIT).settle("received", 30)
    assert lines[1] == "the credit of paris stays exhausted: its work still waits"


async def test_a_payment_within_the_credit_says_the_debt_alone(monkeypatch):
    lines = await Paris(monkeypatch).settle("received", 30)
    assert lines == ["now paris and we owe each other nothing in USD; after it we owe paris 30 USD"]


async def test_an_order_that_would_be_refused_is_refused_before_it_is_given(monkeypatch):
    booked = made_payment("received", 30 * UNIT, "r1")
    paris = Paris(monkeypatch, paid=[booked])
    with pytest.raises(GridError, match="is booked already"):
        await paris.settle("received", 30)
    with pytest.raises(GridError, match="no settlement with paris"):
        await paris.ask("undo_payment", site="paris", reference="r2", note="")
    with pytest.raises(GridError, match="no contracts with site"):
        await paris.ask("settle", site="rome", reference="r")
    with pytest.raises(BadConsequencesQuestion, match="order must be one of drain, expel"):
        await paris.ask("dance")


async def test_to_undo_a_payment_is_its_reverse(monkeypatch):
    booked = made_payment("received", 90 * UNIT, "r1")
    paris = Paris(monkeypatch, owes=20 * UNIT, paid=[booked])
    lines = await paris.ask("undo_payment", site="paris", reference="r1", note="")
    assert lines[0] == "now paris owes us 20 USD; after it paris owes us 110 USD"
    assert lines[1].startswith("this exhausts the credit of paris")


async def test_what_is_under_way_with_an_expelled_site_is_told(monkeypatch):
    paris = Paris(monkeypatch, owes=20 * UNIT)
    broker = paris.site.broker
    offer = SimpleNamespace(pool="paris/fast")
    broker.workers[9] = SimpleNamespace(port=PortKind.PEER, offer=offer, in_flight=7)
    whose = SimpleNamespace(site="paris")
    broker.jobs["paris:c-1"] = SimpleNamespace(whose=whose, waiting=2, in_flight=1)
    assert await paris.ask("expel", site="paris") == [
        "paris is expelled here at once; informed, and may follow: lyon",
        "its trust rules here end, also if it is kept and approved again later",
        "our work there: 7 tasks, to run again elsewhere once the leases end",
        "their work here: 3 tasks, which can't be delivered and are not paid for",
        "paris owes us 20 USD: the debt stays in the books",
    ]
    assert (await paris.ask("expel", site="lyon"))[2:] == []
    left = await paris.ask("leave")
    assert (
        left[0] == "all sessions with other sites end (lyon, paris); a return takes an invitation"
    )
    assert "our work there: 7 tasks" in left[1]


async def test_the_desk_tells_it_to_administrators_alone_and_changes_nothing(tmp_path):
    async with counter_of(tmp_path) as counter:
        counter.tell(events.ClientJoined(1, "ann"))
        counter.tell(events.JobOpened(1, "j", spec(detached=True)))
        counter.tell(events.TasksArrived(1, "j", 0, [b"x", b"y"]))
        answer = await counter.ask("consequences", home=True, order="drain")
        assert answer.value["lines"] == [
            "site london refuses new jobs of all users until `gridfed drain --all --resume`",
            "unfinished work continues to its end: 1 job of 1 user, with 2 tasks",
        ]
        assert not counter.site.broker.draining
        token = SimpleNamespace(projects=None, allows=lambda scope, project=None: scope == "audit")
        code, _ = await counter.refusal("consequences", token=token, order="drain")
        assert code == Reason.SCOPE_MISSING
        _, reason = await counter.refusal(
            "consequences", home=True, order="write_off", details={"name": "b", "site": "paris"}
        )
        assert "holds no part of a budget" in reason
