"""How often other sites' new cards are taken, and how often our ports are opened anew for them."""

import itertools

import pytest
from support.pure.site_keys import NOW_S, card, folder_of_london

from gateway.trust.card_rates import (
    CARD_EVERY_S,
    CARDS_MAX,
    REOPEN_MAX_S,
    WAITING_MAX,
    CardPaces,
    Reopening,
)
from gateway.trust.identity_store import Registry


def openings(reopening, changes, until_s, *, urgent=False):
    """When the ports are opened anew, for changes at these times."""
    found, changes = [], sorted(changes)
    for tick in range(int(until_s * 20)):
        now_s = 1_000.0 + tick / 20
        while changes and changes[0] <= now_s - 1_000.0:
            reopening.want(urgent=urgent)
            del changes[0]
        if reopening.is_due(now_s):
            reopening.opened(now_s)
            found.append(now_s - 1_000.0)
    return found


def test_ports_are_opened_at_once_for_the_first_change_and_then_ever_more_seldom():
    found = openings(Reopening(), [each / 7 for each in range(7 * 600)], 600.0)
    assert found[0] == 0.0
    gaps = [after - before for before, after in itertools.pairwise(found)]
    assert gaps[:4] == pytest.approx([1.0, 2.0, 4.0, 8.0], abs=0.1)
    assert gaps[-1] == pytest.approx(REOPEN_MAX_S, abs=0.1)
    assert len(found) < 18


def test_the_last_change_is_not_missed_and_quiet_ends_the_wait():
    found = openings(Reopening(), [0.0, 0.1, 0.2, 20.0], 30.0)
    assert found == pytest.approx([0.0, 1.0, 20.0], abs=0.1)


def test_what_this_site_decides_takes_effect_at_once():
    reopening = Reopening()
    openings(reopening, [each / 7 for each in range(700)], 100.0)
    reopening.want(urgent=False)
    assert not reopening.is_due(1_100.0)
    reopening.want(urgent=True)
    assert reopening.is_due(1_100.0)
    reopening.opened(1_100.0)
    assert not reopening.is_due(2_000.0)


def test_cards_of_one_site_beyond_its_rate_wait():
    paces = CardPaces()
    for _ in range(CARDS_MAX):
        assert paces.allows("paris", 0.0)
        paces.note("paris", 0.0)
    assert not paces.allows("paris", 0.0)
    assert paces.allows("lyon", 0.0)
    for raw in (b"1", b"2"):
        paces.put_off("paris", "lyon", raw)
    assert paces.due(CARD_EVERY_S / 2) == []
    assert paces.due(CARD_EVERY_S) == [("lyon", b"2")]
    assert paces.due(CARD_EVERY_S) == []
    assert paces.allows("paris", -1.0)  # the clock was set back
    for number in range(2 * WAITING_MAX):
        paces.put_off("paris", str(number), b"")
    assert len(paces.due(CARD_EVERY_S)) == WAITING_MAX


def test_a_member_that_renews_its_card_without_end_is_followed_at_a_rate(tmp_path):
    now_s = NOW_S
    registry = Registry(folder_of_london(tmp_path / "federation"), clock=lambda: now_s)
    registry.book.admit(card("paris", serial=100), NOW_S, approve=True)
    registry.write_tls()
    changes = 0
    for serial in range(101, 521):  # a minute of it, 7 a second
        now_s = NOW_S + (serial - 101) / 7
        raw = card("paris", serial=serial).raw
        assert registry.note([("card", raw)], "paris") == []
        changes += registry.take_news() != []
    assert CARDS_MAX <= changes <= CARDS_MAX + 1
    held = registry.book.members["paris"]
    assert held.card.content.serial < 520
    now_s += CARD_EVERY_S
    assert registry.take_due() == []
    assert held.card.content.serial == 520  # the last one was not lost
    assert registry.take_due() == []
