"""Connections that never finish their TLS handshake, on a real port: counted, capped, shut."""

import socket

import pytest
from support.processes import make_certificate, wait_until

from federation.sessions.nng import NngLink, NngPort
from federation.transport import TlsSettings
from gateway.sessions.doorkeeper import Doorkeeper

pytestmark = pytest.mark.real

PATIENCE_S = 10.0


@pytest.fixture(params=["127.0.0.1", "[::1]"])
def door(request, tmp_path):
    """A port, a pipe that got through, and how to come without saying a word."""
    both, alone = make_certificate(tmp_path)
    try:
        port = NngPort([f"tls+tcp://{request.param}:0"], lambda: None, TlsSettings(both))
    except Exception as error:
        pytest.skip(f"no such address here: {error}")
    link = NngLink(port.addresses[0], lambda: None, TlsSettings(None, alone, "localhost"))
    number = int(port.addresses[0].rpartition(":")[2])
    opened = []

    def come():
        opened.append(socket.create_connection((request.param.strip("[]"), number), timeout=10))
        return opened[-1]

    wait_until(lambda: link.is_up)
    wait_until(port.came)
    yield port, link, number, come
    for each in opened:
        each.close()
    link.close()
    port.close()


def make_keeper(number, pipes, most=10, most_of_host=10):
    return Doorkeeper([number], pipes, patience_s=PATIENCE_S, most=most, most_of_host=most_of_host)


def look(keeper, now_s):
    return keeper.judge(keeper.read(), now_s)


def is_seen(keeper):
    """Whether nng has taken a connection that is no pipe: the kernel shows it with its inode."""
    return len(keeper.read()) >= 2


def is_shut(connection):
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_who_says_nothing_is_shut_in_time_and_who_got_through_is_not(door):
    port, link, number, come = door
    keeper = make_keeper(number, port.remotes)
    silent = come()
    wait_until(lambda: is_seen(keeper))
    assert look(keeper, 0.0) == 0
    assert look(keeper, PATIENCE_S) == 0
    assert not is_shut(silent)
    wait_until(lambda: look(keeper, PATIENCE_S + 1) == 1)
    wait_until(lambda: is_shut(silent))
    wait_until(lambda: look(keeper, PATIENCE_S + 2) == 0)
    assert link.is_up
    assert link.send(b"still here")
    wait_until(port.receive)


def test_of_more_than_may_be_at_the_door_the_oldest_are_shut(door):
    port, _link, number, come = door
    keeper = make_keeper(number, port.remotes, most=9, most_of_host=2)
    first = come()
    wait_until(lambda: is_seen(keeper) and look(keeper, 0.0) == 0)
    later = [come() for _ in range(2)]
    wait_until(lambda: look(keeper, 1.0) == 1)
    wait_until(lambda: is_shut(first))
    assert not any(is_shut(each) for each in later)


def test_once_all_have_got_through_nobody_is_asked_for_all_the_pipes_again(door):
    port, _link, number, _come = door
    asked = []

    def pipes():
        asked.append(True)
        return port.remotes()

    keeper = make_keeper(number, pipes)
    wait_until(lambda: keeper.read())
    for now_s in range(3):
        assert look(keeper, now_s) == 0
    assert len(asked) == 1
