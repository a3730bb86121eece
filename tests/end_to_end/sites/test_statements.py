"""Statements, reconciliation, disputes and payments of two sites, real processes over tls+tcp.

All tests share two sites, and each holds all bookings that the others made there before: one that
takes tests over from another process may run the first ones last.
"""

import csv
import io
import time
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.answers import answer
from support.members import dear_and_cheap, run, settled
from support.processes import wait_until

from gateway.cli.main import cli

pytestmark = [pytest.mark.slow, pytest.mark.real]


def square(number):
    return number * number


def begin_and_stay(path):
    Path(path).touch()
    time.sleep(600)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """London, which has bought from Paris."""
    with dear_and_cheap(tmp_path_factory.mktemp("pair")) as members:
        london, paris = members
        with london.client() as client:
            view = client.options(sites=["paris"])
            assert sum(view.map(square, range(20_000))) == sum(n * n for n in range(20_000))
        wait_until(lambda: is_settled(london, paris), "the books to be settled")
        yield members


def is_settled(london, paris):
    return settled(london, paris) and london.deals("buy") == paris.deals("sell")


def order(member, *arguments, code=0):
    yes = ("--yes",) if arguments[0] == "settle" else ()
    return run(*arguments, *yes, "--gateway", member.address, code=code)


def accounts(member, other):
    """The statement with the other, by currency."""
    found = answer(order(member, "report", "statement", "--with", other, "--json"))
    return {row["currency"]: row for row in found["rows"]}


def balance(member, other):
    """The other site's debt, in nano-units."""
    return {currency: row["balance_nanos"] for currency, row in accounts(member, other).items()}


def payments(member):
    """The state of each payment that was not undone."""
    found = answer(order(member, "payments", "--json"))
    return {row["reference"]: row["state"] for row in found if row["state"] != "undone"}


def test_both_sites_have_the_same_statement_and_agree_on_it(pair):
    london, paris = pair
    ours, theirs = accounts(london, "paris")["USD"], accounts(paris, "london")["USD"]
    assert ours["bought"] == theirs["sold"]
    assert Decimal(theirs["sold"]) > 0  # which no payment takes back
    assert ours["balance_nanos"] == -theirs["balance_nanos"]
    found = answer(order(london, "reconcile", "paris", "--json"))
    assert found == {"site": "paris", "state": "agreed", "details": "", "payments": []}


def test_what_is_stopped_at_another_site_is_the_same_in_reports_and_statements(pair, tmp_path):
    london, paris = pair
    begun = [tmp_path / "one", tmp_path / "two"]
    with london.client() as client:
        job = client.options(sites=["paris"]).submit_job(begin_and_stay, list(map(str, begun)))
        wait_until(lambda: any(each.exists() for each in begun), "a worker of Paris to begin")
        job.cancel(stop=True)
        wait_until(lambda: client.ask("job", job=job.id)["ended_at_s"], "the job to be stopped")
        assert client.job(job.id).cost
    wait_until(lambda: is_settled(london, paris), "the books to be settled")
    bought, sold = accounts(london, "paris")["USD"], accounts(paris, "london")["USD"]
    assert bought["bought"] == sold["sold"]
    for member, where, column, account, back in (
        (london, "site=paris", "PublisherName", "bought", "credited"),
        (paris, "origin=london", "BillingAccountId", "sold", "refunded"),
    ):
        statement = bought if member is london else sold
        found = order(member, "report", "cost", "--all", "--where", where, "--json")
        nanos = answer(found)["facts"]["settled_nanos"]["USD"]
        assert nanos == Decimal(statement[account]) * 10**9
        other = where.partition("=")[2]
        rows = csv.DictReader(io.StringIO(run("export", "focus", "--config", str(member.config))))
        billed = sum(Decimal(row["BilledCost"]) for row in rows if row[column] == other)
        assert billed == Decimal(statement[account]) - Decimal(statement[back])
    found = answer(order(london, "reconcile", "paris", "--json"))
    assert found["state"] == "agreed"
    for member in pair:
        run("audit", "--config", str(member.config))  # fails where anything is wrong


def test_what_is_disputed_and_accepted_is_reversed_in_both_books(pair):
    london, paris = pair
    before = balance(paris, "london")["USD"]
    rows = answer(order(london, "deliveries", "paris", "--json"))["rows"]
    text = order(london, "deliveries", "paris", "--csv")
    assert [each["first"] for each in csv.DictReader(io.StringIO(text))] == [
        str(row["first"]) for row in rows
    ]
    paid = [row for row in rows if row["state"] == "settled" and float(row["cost"])]
    first, second, third = paid[:3]
    for each in (first, second):
        text = order(
            london, "dispute", each["contract"], "--only", f"{each['epoch']}/{each['first']}",
            "--reason", "the result is wrong",
        )  # fmt: skip
        assert "the result is wrong" in text
    wait_until(lambda: len(answer(order(paris, "disputes", "--json"))) == 2, "Paris hears of it")
    only = "--only", f"{first['epoch']}/{first['first']}"
    order(paris, "answer", first["contract"], "--accept", *only, "--reason", "so it is")
    order(paris, "answer", second["contract"], "--reject", "--reason", "it is right")

    def states(member):
        found = answer(order(member, "disputes", "--json"))
        return sorted((row["state"], row["answer"]) for row in found)

    expected = [("accepted", "so it is"), ("rejected", "it is right")]
    wait_until(lambda: states(london) == states(paris) == expected, "the answer arrives")
    nanos = int(Decimal(first["cost"]) * 10**9)
    assert balance(paris, "london")["USD"] == before - nanos
    assert balance(london, "paris")["USD"] == nanos - before
    assert "agreed with paris" in order(london, "reconcile", "paris")
    for member in pair:
        audited = run("audit", "--config", str(member.config))
        assert " 0" in audited
    text = order(paris, "answer", third["contract"], "--accept", "--reason", "x", code=1)
    assert "awaits an answer here" in text


def test_what_is_paid_is_owed_no_more_and_a_reference_counts_once(pair):
    london, paris = pair
    owed = balance(paris, "london")["USD"]
    assert owed > 0
    assert "we owe paris" in order(london, "report", "statement")
    assert "london owes us" in order(paris, "report", "statement")
    half = f"0.{owed // 2:09d} USD"
    paid = ("settle", "paris", "--paid", half, "--reference", "wire-1")
    assert "we owe paris" in order(london, *paid)
    assert "booked already" in order(london, *paid, code=1)
    wait_until(lambda: payments(paris) == {"wire-1": "to be confirmed"}, "Paris hears of it")
    assert balance(paris, "london")["USD"] == owed  # nothing is booked by the word of London
    assert "not all payments that london has booked are booked here: see" in order(
        paris, "report", "statement"
    )
    assert "paris has not booked all payments that are booked here: see" in order(
        london, "report", "statement"
    )
    assert "it has not booked it" in order(london, "reconcile", "paris", code=1)
    order(paris, "settle", "london", "--received", "9 USD", "--reference", "wire-1")
    wait_until(lambda: payments(london) == {"wire-1": "differs"}, "London hears of a slip")
    order(paris, "settle", "london", "--undo", "wire-1", "--note", "a slip")
    assert "no settlement" in order(paris, "settle", "london", "--undo", "wire-1", code=1)
    order(paris, "settle", "london", "--received", half, "--reference", "wire-1")
    wait_until(lambda: payments(london) == {"wire-1": "confirmed"}, "London hears that it is there")
    assert "agreed with paris" in order(london, "reconcile", "paris")
    rows = list(csv.DictReader(io.StringIO(order(paris, "payments", "london", "--csv"))))
    assert [(row["state"], row["amount"], row["note"]) for row in rows] == [
        ("undone", "9", "a slip"),
        ("confirmed", half.split()[0].rstrip("0"), ""),
    ]
    rest = owed - owed // 2
    assert balance(paris, "london") == {"USD": rest}
    assert balance(london, "paris") == {"USD": -rest}
    left = f"0.{rest:09d} USD"
    for member, other, word in ((london, "paris", "--paid"), (paris, "london", "--received")):
        order(
            member, "settle", other, word, left, "--as", "0.5 EUR", "--reference", "Q-17",
            "--note", "1 USD = 0.9 EUR",
        )  # fmt: skip
    assert balance(paris, "london") == {"USD": 0, "EUR": 500_000_000}
    assert balance(london, "paris") == {"USD": 0, "EUR": -500_000_000}
    order(paris, "settle", "london", "--received", "0.5 EUR", "--write-off", "--reference", "loss")
    assert balance(paris, "london") == {"USD": 0, "EUR": 0}
    found = answer(order(paris, "report", "statement", "--with", "london", "--json"))
    [euros] = [row for row in found["rows"] if row["currency"] == "EUR"]
    assert (euros["received"], euros["written_off"]) == ("0", "0.5")
    assert "agreed with paris" in order(london, "reconcile", "paris")
    for member in pair:
        assert " 0" in run("audit", "--config", str(member.config))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("settle", "rome", "--paid", "1 USD", "--reference", "x"), "with site 'rome'"),
        (("settle", "paris", "--paid", "-1 USD", "--reference", "x"), "is negative"),
        (("settle", "paris", "--paid", "1 QUID", "--reference", "x"), "QUID"),
        (("settle", "paris", "--paid", "0 USD", "--reference", "x"), "above zero"),
        (
            ("settle", "paris", "--paid", "1 USD", "--as", "1 USD", "--reference", "x"),
            "needs two currencies",
        ),
        (("settle", "paris", "--reference", "x"), "give one of"),
        (("settle", "paris", "--paid", "1 USD"), "--reference"),
        (("settle", "paris", "--undo", "x", "--paid", "1 USD"), "--undo takes no other option"),
        (("settle", "paris", "--undo", "nothing"), "no settlement"),
        (("payments", "--csv", "--json"), "only one of"),
        (("deliveries", "paris", "--csv", "--json"), "only one of"),
        (("dispute", "london-9-9", "--reason", "x"), "'london-9-9' not found"),
        (("report", "statement", "--with", "rome"), "with site 'rome'"),
        (("reconcile", "paris", "--from", "2026-01-02", "--to", "2026-01-01"), "is not before"),
    ],
)
def test_what_can_not_be_is_said(pair, arguments, told):
    london, _ = pair
    result = CliRunner().invoke(cli, [*arguments, "--gateway", london.address])
    assert result.exit_code in (1, 2)
    assert told in result.output
