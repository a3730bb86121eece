"""The order of gateways by measured round trips."""

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.dialling.nearest import (
    GatewayChoice,
    choose,
    in_order,
    measure,
    round_trip_s,
)

NEAR, MIDDLE, FAR, AWAY = (f"tcp://10.0.0.{number}:7000" for number in range(4))


def test_the_nearest_comes_first_and_those_that_do_not_answer_last():
    trips_s = {FAR: 0.080, NEAR: 0.001, MIDDLE: 0.020}
    assert in_order([AWAY, FAR, MIDDLE, NEAR], trips_s) == (NEAR, MIDDLE, FAR, AWAY)


def test_gateways_that_are_about_as_near_keep_their_order():
    trips_s = {FAR: 0.0300, MIDDLE: 0.0290, NEAR: 0.0280}
    assert in_order([FAR, MIDDLE, NEAR], trips_s) == (FAR, MIDDLE, NEAR)


@given(st.dictionaries(st.sampled_from([NEAR, MIDDLE, FAR, AWAY]), st.floats(0, 10)))
def test_the_order_has_each_address_once(trips_s):
    given_ = [FAR, NEAR, AWAY, MIDDLE]
    assert sorted(in_order(given_, trips_s)) == sorted(given_)


def test_the_race_does_not_wait_for_one_that_is_much_farther():
    release = threading.Event()

    def dial_s(address, within_s):
        if address == FAR:
            assert release.wait(within_s)
        return 0.001

    try:
        found = measure([FAR, NEAR], 300.0, dial_s)
    finally:
        release.set()
    assert found == {NEAR: 0.001}


def test_what_can_not_be_reached_is_left_out():
    def dial_s(address, _within_s):
        if address == NEAR:
            raise ConnectionRefusedError
        return 0.5

    assert measure([NEAR, FAR], 300.0, dial_s) == {FAR: 0.5}


def test_one_gateway_is_not_measured():
    found = choose([[AWAY]], "given")
    assert (found.addresses, found.round_trips_s) == ((AWAY,), {})


def test_why_a_client_is_where_it_is_is_said_in_words():
    choice = GatewayChoice((NEAR, FAR), {NEAR: 0.0012}, "given")
    assert choice.why(NEAR) == "nearest of 2 gateways (given): 1.2 ms away"
    assert choice.why(FAR) == "not the nearest of 2 gateways (given): it did not answer in the race"
    assert choice.why(AWAY) == "named by another gateway, after a failover"


@pytest.mark.real
def test_a_port_that_takes_connections_and_says_nothing_is_no_gateway():
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        round_trip_s(f"tcp://127.0.0.1:{silent.getsockname()[1]}", 0.2)
    with pytest.raises(FileNotFoundError):
        round_trip_s("ipc:///nowhere/gateway.sock", 1.0)
