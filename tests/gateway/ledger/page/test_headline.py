"""The figures at the head of a page, its order, and the amounts told apart."""

from dataclasses import replace

from gateway.ledger.page import costs, usage
from gateway.ledger.page.facts import facts_from
from gateway.ledger.page.figures import palette
from gateway.ledger.page.headline import BudgetLeft, headlines
from gateway.ledger.page.rendering import render
from tests.gateway.ledger.page.conftest import HOUR_NS, usage_of

DAY = 20_000  # counted from 1970-01-01


def row(day, hour, cost_nanos, wall_ns=HOUR_NS, tasks=1, site="", listed=None, project="risk"):
    """A row of work that ended in an hour of a day."""
    made = usage_of((day * 24 + hour, site, "", project, "ok"), wall_ns, cost_nanos)
    listed = cost_nanos if listed is None else listed
    return replace(made, tasks=tasks, list_cost_nanos=listed)


def facts(*rows):
    end = (DAY + 30) * 86_400.0
    return facts_from("london", (DAY * 86_400.0, end), end, rows, [])


def test_a_page_begins_with_what_is_spent_open_left_and_saved(london):
    found = facts(row(DAY, 9, 8 * 10**9, listed=10 * 10**9))
    budgets = [
        BudgetLeft("desk", "USD", 100 * 10**9, 90 * 10**9),
        BudgetLeft("risk", "USD", 1_234 * 10**9, 617 * 10**9),
        BudgetLeft("euros", "EUR", 10**9, 0),
    ]
    (first,) = headlines(found, ["USD"], budgets)
    shown = [(each.title, each.text, each.note) for each in first.items]
    assert shown == [
        ("Spent", "8.00", "settled, and final"),
        ("Open", "0.00", "0.00 held, 0.00 estimated for running work"),
        ("Budget left", "617.00", "50.0 % of 1,234.00, risk"),
        ("Saved", "2.00", "20.0 % less than at list prices"),
    ]
    assert [each.exact for each in first.items] == ["8", "0", "617", "2"]
    held = {each.title: each for each in headlines(london, ["USD"])[0].items}
    assert held["Open"].note == "5.00 held, 31.50 estimated for running work"
    assert (held["Open"].text, held["Budget left"].text) == ("36.50", "n/a")
    page = render(found, budgets)
    assert page.index("617.00") < page.index("Key figures")


def test_what_is_newest_is_first_and_empty_days_and_hours_are_left_out():
    found = facts(row(DAY + 3, 9, 10**9), row(DAY + 7, 17, 2 * 10**9))
    colours = palette(found)
    spend = costs.spend(found, "USD", colours)
    assert [cells[0].text for cells in spend.table.rows] == ["2024-10-11", "2024-10-07"]
    assert len(spend.chart.labels) == 5, "from the first day with work to the last"
    prices = costs.prices(found, "USD", colours)
    assert [cells[0].text for cells in prices.table.rows] == ["09:00", "17:00"]


def test_a_fee_is_in_no_price_of_a_slot_hour():
    fee = row(DAY, 9, 5 * 10**9, wall_ns=0, tasks=0)
    found = facts(row(DAY, 9, 10**9), fee)
    prices = costs.prices(found, "USD", palette(found))
    assert prices.table.foot[-2].text == "1.0000"
    assert "not used, 5.0000 USD, are not included" in prices.lead
    table = costs.key_figures(found, ["USD"])
    cells = {head.text: cell.text for head, cell in zip(table.head, table.rows[0], strict=True)}
    assert (cells["Cost"], cells["Per slot-hour"], cells["Fees"]) == ("6.0000", "1.0000", "5.0000")
    assert cells["Failed, cancelled, repeated or lost"] == "\N{EN DASH}"


def test_a_bar_says_where_idle_time_is_unknown():
    found = facts(row(DAY, 9, 10**9), row(DAY, 9, 10**9, site="paris"))
    waste = usage.waste(found)
    assert waste.chart.labels == ("london", "paris\n(idle: n/a)")
