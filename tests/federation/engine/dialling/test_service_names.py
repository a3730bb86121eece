"""Service names: the gateways they stand for, their order, and the refusals."""

import builtins
import logging
import random
from collections import Counter

import pytest
from support.dns_server import DnsServer

from federation import Client
from federation.address import AddressError, check_address
from federation.engine.dialling.nearest import GatewayChoice, choose
from federation.engine.dialling.resolver import SERVER_VARIABLE, find_candidates
from federation.engine.dialling.service_names import (
    RECORDS_MAX,
    ServiceRecord,
    candidates,
    in_groups,
    service_name,
    usable,
)
from federation.errors import GatewayUnreachable

NAME = "grid.example.com"
ASKED = f"_gridfed._tcp.{NAME}"
SERVICE = f"srv://{NAME}"


def record(priority, weight, host="gw1", port=7461):
    return ServiceRecord(priority, weight, host, port)


@pytest.mark.parametrize("text", ["srv://Grid.Example.com", "srv://grid.example.com."])
def test_a_service_name_is_a_name_of_dns(text):
    assert service_name(text) == NAME


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("srv://grid.example.com:7461", "has no port"),
        ("srv:grid.example.com", "must be a DNS name, as in srv://"),
        ("srv://", "must be a DNS name"),
        ("srv://-a.b", "must be a DNS name"),
        ("srv://a..b", "must be a DNS name"),
        ("srv://a/b", "must be a DNS name"),
        ("srv://" + "a" * 64, "must be a DNS name"),
        ("srv://" + "a." * 150 + "b", "must be a DNS name"),
    ],
)
def test_what_is_no_service_name_is_refused(text, why):
    with pytest.raises(AddressError, match=why):
        service_name(text)


def test_only_a_client_takes_a_service_name():
    with pytest.raises(AddressError, match="for clients alone"):
        check_address(SERVICE)


def test_the_lowest_priority_comes_first():
    found = in_groups(
        [record(20, 0, "b"), record(10, 5, "a"), record(20, 9, "c")], random.Random(1)
    )
    assert [group[0].priority for group in found] == [10, 20]
    assert {each.target for each in found[1]} == {"b", "c"}


def test_weights_are_the_shares_of_first_places():
    both = [record(1, 30, "heavy"), record(1, 10, "light"), record(1, 0, "none")]
    chance = random.Random(7)
    first = Counter(in_groups(both, chance)[0][0].target for _ in range(8000))
    assert 0.70 < first["heavy"] / 8000 < 0.78
    assert 0.21 < first["light"] / 8000 < 0.28
    assert 0 < first["none"] / 8000 < 0.05


def test_weights_of_zero_are_equal():
    both = [record(1, 0, "one"), record(1, 0, "two")]
    chance = random.Random(7)
    first = Counter(in_groups(both, chance)[0][0].target for _ in range(2000))
    assert min(first.values()) > 800


def test_named_addresses_count_among_the_best_and_keep_the_name_of_their_host():
    named = [SERVICE, "tls+tcp://gw9:1", "tls+tcp://gw2:7461"]
    answers = {NAME: [record(5, 0, "gw1"), record(7, 0, "gw2"), record(9, 0, "gw3")]}
    found = candidates(named, answers, random.Random(1))
    assert found.groups == (
        ("tls+tcp://gw1:7461", "tls+tcp://gw9:1", "tls+tcp://gw2:7461"),
        ("tls+tcp://gw3:7461",),
    ) or found.groups == (
        ("tls+tcp://gw1:7461", "tls+tcp://gw9:1"),
        ("tls+tcp://gw2:7461",),
        ("tls+tcp://gw3:7461",),
    )
    assert found.certificate_names == {"tls+tcp://gw1:7461": NAME, "tls+tcp://gw3:7461": NAME}


def test_an_answer_is_bounded_and_the_worst_priorities_are_left_out():
    many = [record(at, 0, f"gw{at}") for at in range(500)]
    found = candidates([SERVICE], {NAME: many}, random.Random(1))
    assert found.groups == tuple((f"tls+tcp://gw{at}:7461",) for at in range(RECORDS_MAX))


def test_records_without_a_host_or_port_are_left_out():
    good = record(1, 0)
    odd = [record(1, 0, "a b"), record(1, 0, "gw", 0), record(1, 0, "."), record(1, 0, "x" * 300)]
    assert usable(NAME, [*odd, good]) == [good]
    with pytest.raises(GatewayUnreachable, match=r"no SRV record of .* has a valid host and port"):
        usable(NAME, odd)


def test_a_service_that_is_closed_says_so():
    with pytest.raises(
        GatewayUnreachable, match="the service has no gateway now: ask its operator"
    ):
        usable(NAME, [record(0, 0, ".", 0)])


def test_gateways_of_a_worse_priority_are_tried_where_none_before_them_answers(monkeypatch):
    answers = {"tcp://c:1": 0.5, "tcp://d:1": 0.1, "tcp://e:1": 0.001}
    monkeypatch.setattr(
        "federation.engine.dialling.nearest.measure",
        lambda group: {each: answers[each] for each in group if each in answers},
    )
    groups = (("tcp://a:1",), ("tcp://b:1", "tcp://c:1", "tcp://d:1"), ("tcp://e:1",))
    found = choose(groups, "given")
    order = ("tcp://d:1", "tcp://c:1", "tcp://b:1", "tcp://e:1", "tcp://a:1")
    assert found.addresses == order
    assert "tcp://e:1" not in found.round_trips_s
    assert found.why("tcp://d:1") == (
        "nearest of the 3 of the best priority that answers, of 5 gateways (given): 100.0 ms away"
    )
    assert found.unasked == ("tcp://e:1",)
    alone = choose((("tcp://a:1",), ("tcp://c:1",), ("tcp://e:1",)), "given")
    assert alone.why("tcp://c:1") == (
        "the only one of the best priority that answers, of 3 gateways (given): 500.0 ms away"
    )
    assert found.better("tcp://d:1") == ("tcp://a:1",)
    assert found.better("tcp://b:1") == ("tcp://a:1", "tcp://d:1", "tcp://c:1")
    assert found.better("tcp://e:1") == ("tcp://a:1", "tcp://b:1", "tcp://c:1", "tcp://d:1")
    assert found.better("tcp://learnt:1") == order


def test_without_priorities_the_nearer_ones_are_better():
    found = GatewayChoice(("tcp://a:1", "tcp://b:1"), {}, "given")
    assert (found.better("tcp://a:1"), found.better("tcp://b:1")) == ((), ("tcp://a:1",))


def test_without_the_extra_its_name_is_said(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name.partition(".")[0] == "dns":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(AddressError, match=r"pip install 'gridfed\[dns\]'"):
        find_candidates([SERVICE, "tcp://gw1:1"], 1.0)


def test_a_dns_server_that_is_no_address_is_refused(monkeypatch):
    monkeypatch.setenv(SERVER_VARIABLE, "ns.example.com:53")
    with pytest.raises(AddressError, match="must be the IP address of a DNS server"):
        find_candidates([SERVICE], 1.0)


@pytest.fixture
def server(monkeypatch):
    with DnsServer({ASKED: ["10 0 7461 gw1.example.com.", "20 0 7462 gw2.example.com."]}) as made:
        monkeypatch.setenv(SERVER_VARIABLE, made.address)
        yield made


@pytest.mark.real
def test_the_records_are_looked_up(server):
    found = find_candidates([SERVICE], 60.0)
    assert found.groups == (
        ("tls+tcp://gw1.example.com:7461",),
        ("tls+tcp://gw2.example.com:7462",),
    )
    assert set(found.certificate_names.values()) == {NAME}


@pytest.mark.real
@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (None, "DNS has no name _gridfed._tcp.grid.example.com .NXDOMAIN."),
        ([], "DNS has no SRV record of _gridfed._tcp.grid.example.com: ask its operator"),
        (["0 0 0 ."], 'has the target "."'),
    ],
)
def test_an_answer_without_a_gateway_is_explained(server, lines, why):
    server.records = {} if lines is None else {ASKED: lines}
    with pytest.raises(GatewayUnreachable, match=why):
        Client(SERVICE, connect_timeout_s=60.0)


@pytest.mark.real
def test_the_wait_for_an_answer_is_bounded(server):
    server.is_silent = True
    with pytest.raises(
        GatewayUnreachable, match=r"did not answer within 0.5 s .* check the network"
    ):
        find_candidates([SERVICE], 0.5)


@pytest.mark.real
def test_a_named_address_is_used_where_dns_fails(server, caplog):
    server.records = {}
    with caplog.at_level(logging.WARNING, "gridfed"):
        found = find_candidates([SERVICE, "tcp://gw1:1"], 60.0)
    assert found.groups == (("tcp://gw1:1",),)
    assert "NXDOMAIN" in caplog.text
