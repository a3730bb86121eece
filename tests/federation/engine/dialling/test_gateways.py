"""Which gateway a client dials next, and when."""

import random

import pytest

from federation.address import OTHERS_MAX, is_local, is_weak, resolve
from federation.engine.dialling.gateways import (
    ATTEMPT_MIN_S,
    PAUSE_MAX_S,
    DialGateway,
    GatewayLoss,
    GiveUp,
    Itinerary,
)

A, B, C, D = (f"tls+tcp://{name}.example:7461" for name in "abcd")
WEAK = "tcp://w.example:7461"


def make(*own, seed=7, **terms):
    return Itinerary(own or (A,), random=random.Random(seed), **terms)


def opened(*own, learnt=(), **terms):
    """An itinerary whose session is open at the first of its own."""
    made = make(*own, **terms)
    made.begin(0.0, 5.0)
    made.opened()
    assert made.learn(learnt) == []
    return made


def follow(itinerary, count, loss=GatewayLoss.ABSENT, now_s=100.0):
    """The addresses of the next so many steps, each of which fails; and when the last is due."""
    found = []
    for _ in range(count):
        step = itinerary.lost(loss, now_s, now_s)
        assert isinstance(step, DialGateway)
        found.append(step.address)
        now_s = step.at_s
    return found, now_s


def test_a_gateway_without_an_alternative_is_dialled_for_ever():
    itinerary = opened(A)
    assert set(follow(itinerary, 50)[0]) == {A}
    assert not itinerary.is_overdue(1e9)


def test_a_lost_pipe_is_dialled_again_for_failover_s_before_another_gateway_is():
    itinerary = opened(A, B, failover_s=5.0)
    step = itinerary.lost(GatewayLoss.GONE, 100.0, 100.0)
    assert step.address == A
    assert not itinerary.is_overdue(104.9)
    assert itinerary.is_overdue(105.0)
    assert itinerary.lost(GatewayLoss.GONE, 105.0, 105.0) == DialGateway(B, 105.0)


def test_time_of_silence_counts_as_time_of_waiting():
    assert opened(A, B, failover_s=5.0).lost(GatewayLoss.GONE, 108.0, 100.0) == DialGateway(
        B, 108.0
    )


def test_a_gateway_that_is_absent_is_left_at_once():
    assert opened(A, B).lost(GatewayLoss.ABSENT, 100.0, 100.0) == DialGateway(B, 100.0)


def test_it_stays_where_it_is_when_a_better_one_comes_back():
    itinerary = opened(A, B)
    itinerary.lost(GatewayLoss.ABSENT, 100.0, 100.0)
    itinerary.opened()
    assert itinerary.address == B
    assert itinerary.lost(GatewayLoss.GONE, 200.0, 200.0).address == B


def test_a_round_goes_by_its_own_list_then_by_what_it_learnt_and_last_home():
    itinerary = opened(A, B, learnt=[C, D])
    round_1, _ = follow(itinerary, 4)
    assert round_1[0] == B
    assert set(round_1[1:3]) == {C, D}
    assert round_1[3] == A


def test_what_was_learnt_is_tried_in_another_order_by_another_client():
    orders = {tuple(follow(opened(A, learnt=[B, C, D], seed=n), 3)[0]) for n in range(40)}
    assert len(orders) == 6


def test_equal_seeds_give_equal_ways():
    first, second = (follow(opened(A, learnt=[B, C, D], seed=3), 30) for _ in range(2))
    assert first == second


def test_there_is_a_pause_between_rounds_and_none_within():
    itinerary = opened(A, B)
    assert follow(itinerary, 2) == ([B, A], 100.0)
    pauses = []
    now_s = 100.0
    for _ in range(20):
        _, later_s = follow(itinerary, 2, now_s=now_s)
        pauses.append(later_s - now_s)
        now_s = later_s
    assert 0 < pauses[0] < 0.1
    assert PAUSE_MAX_S / 2 <= pauses[-1] <= PAUSE_MAX_S * 1.5


def test_a_gateway_that_does_not_answer_has_its_time_and_no_more():
    itinerary = opened(A, B, C, failover_s=0.0)
    assert itinerary.lost(GatewayLoss.GONE, 100.0, 100.0) == DialGateway(B, 100.0)
    assert not itinerary.is_overdue(100.0 + ATTEMPT_MIN_S / 2)
    assert itinerary.is_overdue(100.0 + ATTEMPT_MIN_S)


def test_each_of_several_has_its_share_of_the_first_connection():
    itinerary = make(A, B, failover_s=5.0)
    assert itinerary.begin(100.0, 5.0) == DialGateway(A, 100.0)
    assert itinerary.is_overdue(102.5)
    assert itinerary.lost(GatewayLoss.GONE, 102.5, 102.5) == DialGateway(B, 102.5)
    assert itinerary.is_overdue(105.0)


def test_a_gateway_that_refuses_is_not_asked_again_until_a_session_was_open():
    itinerary = opened(A, B)
    assert itinerary.lost(GatewayLoss.ABSENT, 100.0, 100.0).address == B
    assert itinerary.lost(GatewayLoss.UNWILLING, 100.0, 100.0).address == A
    assert set(follow(itinerary, 9)[0]) == {A}
    itinerary.opened()
    assert itinerary.lost(GatewayLoss.ABSENT, 200.0, 200.0).address == B


def test_when_all_refuse_it_gives_up():
    itinerary = opened(A, B)
    itinerary.lost(GatewayLoss.ABSENT, 100.0, 100.0)
    itinerary.lost(GatewayLoss.UNWILLING, 100.0, 100.0)
    assert isinstance(itinerary.lost(GatewayLoss.UNWILLING, 100.0, 100.0), GiveUp)


@pytest.mark.parametrize("own", [(A,), (A, B)])
def test_it_gives_up_when_no_gateway_was_reached_for_so_long(own):
    itinerary = opened(*own, give_up_s=30.0)
    step = itinerary.lost(GatewayLoss.GONE, 100.0, 100.0)
    while isinstance(step, DialGateway) and step.at_s < 129.9:
        step = itinerary.lost(GatewayLoss.GONE, step.at_s + 0.1, step.at_s + 0.1)
    assert itinerary.is_overdue(130.0)
    given_up = itinerary.lost(GatewayLoss.GONE, 130.0, 130.0)
    assert isinstance(given_up, GiveUp)
    assert all(address in given_up.reason for address in own)


def test_a_gateway_that_is_back_in_time_ends_the_count_to_giving_up():
    itinerary = opened(A, give_up_s=30.0)
    itinerary.lost(GatewayLoss.GONE, 100.0, 100.0)
    itinerary.opened()
    assert isinstance(itinerary.lost(GatewayLoss.GONE, 131.0, 131.0), DialGateway)


@pytest.mark.parametrize(
    ("teacher", "address", "words"),
    [
        (A, WEAK, "weaker"),
        ("ipc:///run/gw.sock", WEAK, "weaker"),
        ("tcp://127.0.0.1:7461", WEAK, "weaker"),
        (A, "ipc:///tmp/gw.sock", "own host"),
        (WEAK, "tcp://127.0.0.1:7461", "own host"),
        (A, "ws://b.example:80", "must start with"),
        (A, "tls+tcp://b\n.example:80", "printable"),
        (A, "tls+tcp://" + "b" * 300, "256"),
    ],
)
def test_some_addresses_are_not_followed_and_said_so_once(teacher, address, words):
    itinerary = opened(teacher)
    (line,) = itinerary.learn([address, B])
    assert words in line
    assert line.isprintable()
    assert itinerary.known == (teacher, B)
    assert itinerary.learn([address, B]) == []


@pytest.mark.parametrize(
    ("teacher", "address"),
    [
        (WEAK, "tcp://v.example:7461"),
        (WEAK, B),
        ("ipc:///run/gw.sock", "tcp://127.0.0.1:7461"),
        ("tcp://localhost:1", "ipc:///run/gw.sock"),
    ],
)
def test_addresses_as_good_as_the_teachers_are_followed(teacher, address):
    assert opened(teacher, learnt=[address]).known == (teacher, address)


def test_a_weak_address_is_forgotten_once_it_would_be_weaker():
    itinerary = opened(WEAK, A, learnt=["tcp://v.example:7461"])
    assert itinerary.lost(GatewayLoss.ABSENT, 100.0, 100.0).address == A
    itinerary.opened()
    assert itinerary.learn([B]) == []
    assert itinerary.known == (WEAK, A, B)


def test_what_a_gateway_tells_replaces_what_it_told_before_and_nothing_else():
    itinerary = opened(A, learnt=[B, C])
    itinerary.lost(GatewayLoss.ABSENT, 100.0, 100.0)
    itinerary.opened()
    itinerary.learn([D])
    assert set(itinerary.known) == {A, B, C, D}
    itinerary.learn([])
    assert set(itinerary.known) == {A, B, C}


def test_only_so_many_are_kept():
    itinerary = opened(A)
    itinerary.learn([f"tls+tcp://h{n}:1" for n in range(500)])
    assert len(itinerary.known) == 1 + OTHERS_MAX


def test_a_client_that_does_not_follow_learns_nothing():
    assert opened(A, learnt=[B], follows=False).known == (A,)


@pytest.mark.parametrize(
    ("address", "local", "weak"),
    [
        ("ipc:///x", True, False),
        ("tcp://127.0.0.1:1", True, False),
        ("tcp://localhost:1", True, False),
        ("tcp://[::1]:1", True, False),
        ("tls+tcp://127.0.0.1:1", True, False),
        ("tcp://127.0.0.1.example:1", False, True),
        ("tcp://127.evil.example:1", False, True),
        ("tcp://localhost.example:1", False, True),
        ("tcp://10.0.0.1:1", False, True),
        ("tls+tcp://10.0.0.1:1", False, False),
    ],
)
def test_which_addresses_are_local_and_which_are_weak(address, local, weak):
    assert (is_local(address), is_weak(address)) == (local, weak)


def test_several_addresses_are_named_by_a_sequence_by_text_or_by_the_environment(monkeypatch):
    monkeypatch.setenv("GRIDFED_GATEWAY", f" {C}, {D},{C},")
    assert resolve((A, B, A)) == ((A, B), "given")
    assert resolve(f"{A}, {B}") == ((A, B), "given")
    assert resolve(None) == ((C, D), "from $GRIDFED_GATEWAY")
