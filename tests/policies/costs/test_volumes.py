"""The usage of buyers in this month."""

from datetime import UTC, datetime

from policies.costs import volumes
from policies.costs.volumes import Buyer, Volumes, month_start_at_s

ANN, PARIS = Buyer("grid", "", "ann"), Buyer("grid", "paris")


def utc(*at):
    return datetime(*at, tzinfo=UTC).timestamp()


def test_it_counts_on_from_the_books_and_begins_anew_each_month():
    had = Volumes()
    had.take_up({PARIS: 7}, utc(2026, 11, 22))
    had.add(PARIS, 5, utc(2026, 11, 30, 23, 59, 59))
    had.add(ANN, 1, utc(2026, 11, 30))
    assert had.had_ns(PARIS, utc(2026, 11, 30)) == 12
    assert had.had_ns(PARIS, utc(2026, 12, 1)) == 0
    had.add(PARIS, 2, utc(2026, 12, 1))
    assert (had.had_ns(PARIS, utc(2026, 12, 2)), had.had_ns(ANN, utc(2026, 12, 2))) == (2, 0)


def test_a_clock_that_is_set_back_takes_nothing_away():
    had = Volumes()
    had.add(PARIS, 5, utc(2026, 12, 1))
    had.add(PARIS, 5, utc(2026, 11, 30))
    assert had.had_ns(PARIS, utc(2026, 12, 1)) == 10


def test_it_remembers_so_many_buyers(monkeypatch):
    monkeypatch.setattr(volumes, "BUYERS_MAX", 2)
    had = Volumes()
    for name in ("a", "b", "c"):
        had.add(Buyer("grid", name), 1, utc(2026, 12, 1))
    assert [had.had_ns(Buyer("grid", each), utc(2026, 12, 1)) for each in "abc"] == [0, 1, 1]


def test_a_month_begins_at_midnight_utc():
    assert month_start_at_s(utc(2026, 12, 31, 23)) == utc(2026, 12, 1)
