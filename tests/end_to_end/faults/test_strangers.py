"""Strangers hold connections open at a client port: new clients get in all the same."""

import contextlib
import resource
import socket
import threading

import pytest
from support.processes import make_certificate, wait_until

from federation import Client
from federation.address import host_and_port
from federation.transport import TlsSettings
from gateway.config.limits import ListenerLimits
from gateway.sessions import doorkeeper
from gateway.sessions.doorkeeper import Doorkeeper

pytestmark = pytest.mark.real

STRANGERS = 600
# How a connection of nng's begins: the bytes that make it a pipe.
SP_HEADER = b"\0SP\0\0\x11\0\0"


@pytest.fixture(autouse=True)
def enough_files():
    """Both ends of all connections are of this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(before[1], max(before[0], 8_192))
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Strangers:
    """Holds so many connections open, and opens another for each that is closed."""

    def __init__(self, address, greeting):
        host, port = host_and_port(address)
        self._where = host, int(port)
        self._greeting = greeting
        self._is_over = threading.Event()
        self._held = [self._come() for _ in range(STRANGERS)]
        self._thread = threading.Thread(target=self._renew)
        self._thread.start()

    def _come(self):
        made = socket.create_connection(self._where, timeout=200)
        made.setblocking(False)
        if self._greeting:
            made.send(self._greeting)
        return made

    def _renew(self):
        while not self._is_over.wait(0.05):
            for at, each in enumerate(self._held):
                if self._is_closed(each):
                    each.close()
                    with contextlib.suppress(OSError):
                        self._held[at] = self._come()

    def _is_closed(self, each):
        try:
            while data := each.recv(4096):
                assert data
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def stop_renewing(self):
        self._is_over.set()
        self._thread.join()

    def close(self):
        self.stop_renewing()
        for each in self._held:
            each.close()


@pytest.fixture
def hold():
    """Hold connections to an address open."""
    made = []

    def hold_(address, greeting=b""):
        made.append(Strangers(address, greeting))
        return made[-1]

    yield hold_
    for each in made:
        each.close()


def half_open(address):
    number = int(host_and_port(address)[1])
    keeper = Doorkeeper([number], list, patience_s=10.0, most=1, most_of_host=1)
    return len(keeper.read())


def test_six_hundred_that_say_nothing_keep_no_newcomer_of_their_own_address_out(make_inner, hold):
    inner = make_inner(slots=1, listen=("tcp://127.0.0.1:0",))
    (address,) = inner.site.addresses
    hold(address, SP_HEADER)
    wait_until(lambda: inner.call(lambda: len(inner.site.listener._half_open)) > 200)
    for _ in range(3):
        with Client(address, connect_timeout_s=20.0) as client:
            assert client.submit(pow, 2, 5).result(timeout=60) == 32


def test_unfinished_tls_handshakes_end_and_keep_nobody_out(make_inner, hold, tmp_path, monkeypatch):
    monkeypatch.setattr(doorkeeper, "GREETING_MAX_S", 3.0)
    both, alone = make_certificate(tmp_path)
    inner = make_inner(
        slots=1,
        listen=("tls+tcp://127.0.0.1:0",),
        tls_certificate_file=both,
        rules=ListenerLimits(),
    )
    (address,) = inner.site.addresses
    strangers = hold(address)
    tls = TlsSettings(ca_file=alone, server_name="localhost")
    with Client(address, connect_timeout_s=20.0, tls=tls) as client:
        assert client.submit(pow, 2, 5).result(timeout=60) == 32
        most = ListenerLimits().host_strangers_max
        strangers.stop_renewing()
        wait_until(lambda: half_open(address) <= most + 1, "the limit of one host")
        wait_until(lambda: half_open(address) == 1, "the end of them all")
        assert client.submit(pow, 2, 6).result(timeout=60) == 64
    assert sum("without a handshake were closed" in line for line in inner.said) == 1
