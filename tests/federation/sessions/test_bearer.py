"""A token serves any holder: it is not sent where others could read it."""

from random import Random

import pytest

from federation import Client
from federation.address import AddressError, check_bearer
from federation.engine.dialling.connection import Connection
from federation.engine.dialling.gateways import Itinerary
from federation.messages.messages import Hello
from federation.sessions.handshake import Dialogue, SharedSecret
from federation.transport import TlsSettings


@pytest.mark.parametrize("address", ["tcp://gw.example:7461", "tcp://10.0.0.1:1", "tcp://[::2]:1"])
def test_a_token_does_not_go_over_plain_tcp_to_another_host(address):
    with pytest.raises(AddressError, match="a token is a bearer credential"):
        check_bearer(address)
    with pytest.raises(AddressError, match="a token is a bearer credential"):
        Client(address, token="gft1_x")
    with pytest.raises(AddressError):
        Client(["ipc:///nowhere/gw.sock", address], token="gft1_x")


@pytest.mark.parametrize(
    "address", ["tls+tcp://gw.example:1", "ipc:///run/gw.sock", "tcp://127.0.0.1:1"]
)
def test_it_goes_over_tls_and_within_this_host(address):
    check_bearer(address)


def test_a_token_from_the_environment_is_as_careful(monkeypatch):
    monkeypatch.setenv("GRIDFED_TOKEN", "gft1_x")
    with pytest.raises(AddressError, match="a token is a bearer credential"):
        Client("tcp://gw.example:7461")


def test_no_gateway_is_dialled_later_that_the_first_would_not_have_been():
    hello = Hello([], "client", "c", "u", b"", "", 0, {"token": "gft1_x"})
    dialogue = Dialogue(hello=hello, credentials=SharedSecret(""), random_bytes=bytes)
    itinerary = Itinerary(("tcp://gw.example:7461",), random=Random(1))
    line = Connection(itinerary, dialogue, TlsSettings(), bears_token=True)
    try:
        with pytest.raises(AddressError):
            line.dial()
        assert line.link is None
    finally:
        line.close()
