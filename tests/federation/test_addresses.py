"""Addresses, and the error for one where no gateway answers."""

import socket

import pytest

from federation.address import resolve
from federation.sessions.nng import AddressError, check_address, explain_silence


@pytest.fixture
def stranger():
    """The port of something that is no gateway."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    "address", ["tcp://localhost", "tcp://host:99999", "tcp://host:http", "ipc:///" + "x" * 107]
)
def test_an_address_that_nng_would_call_invalid_is_explained(address):
    with pytest.raises(AddressError, match=r"must end with a port|the limit is 107"):
        check_address(address)


@pytest.mark.parametrize("address", ["tcp://*:0", "tls+tcp://[::1]:65535", "ipc:///tmp/gw.sock"])
def test_an_address_that_is_one(address):
    check_address(address)


@pytest.mark.real
def test_a_listener_that_does_not_answer_in_tls_is_told_apart(stranger):
    assert "--tls-ca-file" in explain_silence(f"tls+tcp://127.0.0.1:{stranger}")
    assert "expects tls+tcp://" in explain_silence(f"tcp://127.0.0.1:{stranger}")


@pytest.mark.real
def test_where_nothing_listens_that_is_said(tmp_path):
    assert "connection failed" in explain_silence("tcp://127.0.0.1:1")
    assert "the socket does not exist" in explain_silence(f"ipc://{tmp_path}/gone.sock")


def test_a_home_in_an_address_is_found(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("GRIDFED_GATEWAY", "ipc://~/b.sock")
    assert resolve("ipc://~/a.sock")[0] == ("ipc:///home/ann/a.sock",)
    assert resolve(None)[0] == ("ipc:///home/ann/b.sock",)


@pytest.mark.parametrize("host", ["a b", "..", "a" * 64, "a\u2028b", "\0x"])
def test_a_host_that_is_no_name_is_refused(host):
    with pytest.raises(AddressError, match="the host must be a DNS name"):
        check_address(f"tcp://{host}:7000")


@pytest.mark.parametrize(
    "host", ["localhost", "a-b.example.com", "127.0.0.1", "[::1]", "bücher.de", ""]
)
def test_a_host_that_is_a_name_or_an_ip_is_taken(host):
    check_address(f"tcp://{host}:7000")
