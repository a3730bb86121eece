"""How long buyers wait that have slots held and buy nothing."""

import pytest

from federation.reasons import Reason
from gateway.config.contracts import DealRules
from gateway.contracts.selling.idle_holds import IdleHolds

RULES = DealRules(hold_s=5.0, rest_s=5.0, rest_max_s=300.0)


@pytest.fixture
def holds():
    return IdleHolds(RULES)


def wait_s(holds, now_s, buyer="london"):
    """How long from now a buyer gets no quote, by tenths of a second."""
    tenths = 0
    while holds.refusal(buyer, now_s + tenths / 10) is not None:
        tenths += 1
    return tenths / 10


def test_who_gives_back_waits_four_times_as_long_as_it_stood_idle(holds):
    assert wait_s(holds, 100.0) == 0.0
    holds.gave_back("london", 99.5, 0.5, 100.0)
    assert holds.refusal("london", 100.0) is Reason.NO_SLOTS
    assert wait_s(holds, 100.0) == 2.0
    assert wait_s(holds, 100.0, "paris") == 0.0


def test_what_stood_idle_at_the_same_time_counts_once(holds):
    for _ in range(1000):
        holds.gave_back("london", 99.5, 0.5, 100.0)
    assert wait_s(holds, 100.0) == 2.0
    holds.gave_back("london", 99.5, 1.0, 100.5)
    assert wait_s(holds, 100.5) == 3.5


def test_a_moment_in_which_we_stood_still_is_not_the_buyers(holds):
    holds.gave_back("london", 100.0, 100.0, 200.0)
    assert wait_s(holds, 200.0) == 4 * RULES.hold_s


def test_who_lets_a_hold_run_out_waits_longer_each_time_and_that_is_forgotten(holds):
    now_s = 1000.0
    for expected_s in (5.0, 10.0, 20.0):
        holds.ran_out("london", now_s)
        assert holds.refusal("london", now_s) is Reason.BUSY
        assert wait_s(holds, now_s) == expected_s
        now_s += expected_s
    holds.ran_out("london", now_s + RULES.rest_max_s + 1.0)
    assert wait_s(holds, now_s + RULES.rest_max_s + 1.0) == 5.0
    holds.bought("london")
    assert wait_s(holds, now_s + RULES.rest_max_s + 1.0) == 0.0


def test_one_that_ran_out_makes_no_longer_wait_shorter_and_none_longer_ago(holds):
    holds.gave_back("london", 95.0, 5.0, 100.0)
    holds.ran_out("london", 100.0)
    assert wait_s(holds, 100.0) == 20.0
    holds.gave_back("london", 199.9, 0.1, 200.0)
    assert holds.refusal("london", 200.0) is Reason.NO_SLOTS, "it ran out long ago"
