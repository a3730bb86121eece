"""The trust book's rules in effect for code that deals with other sites."""

from types import SimpleNamespace

import pytest
from support.pure.site_keys import NOW_S, card, key

from gateway.config.federation import Follow
from gateway.trust.book import TrustBook
from gateway.trust.dealing_partners import BookPermits
from gateway.trust.permissions import ANY, ITSELF, Verb, forbid, permit

SITES = ("paris", "rome", "tokyo")


@pytest.fixture
def book():
    """London's, in which all others are approved, and their results taken."""
    made = TrustBook(card("london"), Follow.TWO)
    for site in SITES:
        made.note("card", card(site).raw, NOW_S)
        made.approve(site, made.find(site).fingerprint)
        made.trust_results(site, pickles=True)
    return made


@pytest.fixture
def permits(book):
    return BookPermits(SimpleNamespace(approved=SITES, book=book), lambda: 0.0)  # type: ignore[arg-type]


def test_a_pool_that_is_forbidden_is_barred_though_its_site_may_run_everything(book, permits):
    secret = frozenset({"secret"})
    book.trust("paris", [permit(Verb.RUN), forbid(Verb.RUN, pools=secret)])
    assert permits.runners("risk") == {"paris"}
    assert permits.barred("risk") == {"paris/secret"}


def test_a_single_pool_may_be_permitted_alone(book, permits):
    book.trust("paris", [permit(Verb.RUN, pools=frozenset({"open"}))])
    assert permits.runners("risk") == {"paris/open"}
    assert permits.barred("risk") == set()


def test_work_goes_on_only_where_the_rules_let_a_site_pass_it(book, permits):
    book.trust("paris", [permit(Verb.RUN, sites=frozenset({ITSELF, "tokyo"}))])
    book.trust("rome", [permit(Verb.RUN)])
    assert permits.reach("paris", "risk") == {"paris", "tokyo"}
    assert permits.reach("rome", "risk") == {"rome"}


def test_nobody_passes_work_on_to_a_site_that_may_never_run_it(book, permits):
    book.trust("paris", [permit(Verb.RUN, sites=frozenset({ANY}))])
    book.trust("rome", [forbid(Verb.RUN)])
    assert permits.reach("paris", "risk") == {"paris", "tokyo"}


def test_nobody_passes_work_on_to_a_site_whose_results_are_not_taken(book, permits):
    book.trust("paris", [permit(Verb.RUN, sites=frozenset({ANY}))])
    book.trust_results("tokyo", pickles=False)
    assert permits.reach("paris", "risk") == {"paris", "rome"}


def test_an_order_counts_at_once(book, permits):
    assert permits.readable() == set(SITES)
    assert permits.reach("paris", "risk") == {"paris"}
    assert permits.runners("risk") == set()
    book.trust("paris", [permit(Verb.RUN, sites=frozenset({ANY}))])
    assert permits.reach("paris", "risk") == set(SITES)
    assert permits.runners("risk") == {"paris"}
    book.trust_results("rome", pickles=False)
    assert permits.readable() == {"paris", "tokyo"}
    assert permits.reach("paris", "risk") == {"paris", "tokyo"}
    book.expel("tokyo", "it lies", key("london"), NOW_S)
    assert permits.readable() == {"paris"}
    assert permits.reach("paris", "risk") == {"paris"}
    book.forget("paris")
    assert permits.readable() == set()


def test_another_book_counts_at_once(book):
    registry = SimpleNamespace(approved=SITES, book=book)
    permits = BookPermits(registry, lambda: 0.0)  # type: ignore[arg-type]
    assert permits.readable() == set(SITES)
    registry.book = TrustBook(card("london"), Follow.TWO)
    registry.book.changes = book.changes
    assert permits.readable() == set()


def test_answers_are_computed_once_for_each_version_of_the_book(book, permits, monkeypatch):
    asked = []
    monkeypatch.setattr(book, "accepts_pickles", lambda path: asked.append(path) or True)
    for _ in range(5):
        permits.readable()
    assert asked == [[site] for site in SITES]
