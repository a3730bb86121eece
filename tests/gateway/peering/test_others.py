"""A gateway tells its clients where else they could go."""

import os

import pytest

from federation.address import ADDRESS_CHARS_MAX, OTHERS_MAX, AddressError
from federation.messages.messages import Gateways, Hello
from federation.sessions.handshake import Dialogue, Opened, SharedSecret
from federation.sessions.memory import MemoryPort
from gateway.config import site
from gateway.config.limits import ListenerLimits
from gateway.sessions.listener import SessionListener

A, B = "tls+tcp://a.example:7461", "tls+tcp://b.example:7461"


class Door:
    """A listener, and a dialler at it."""

    def __init__(self, others=()):
        self.port = MemoryPort()
        self.listener = SessionListener(self.port, ListenerLimits())
        self.listener.set_others(list(others))

    def come_in(self, role="client"):
        hello = Hello([], role, "n", "ann", b"", "", 0, {})
        dialogue = Dialogue(hello=hello, credentials=SharedSecret(""), random_bytes=os.urandom)
        link = self.port.dial()
        dialogue.connected(0.0)
        heard = []
        while not any(isinstance(message, Opened) for message in heard):
            heard = self.converse(dialogue, link)
        return dialogue, link

    def converse(self, dialogue, link):
        """One exchange both ways; returns the messages that the dialler received."""
        dialogue.flush(link.send, 0.0)
        for pipe, frame in self.port.receive():
            list(self.listener.receive(pipe, frame, 0.0))
        self.listener.flush(0.0)
        return [m for frame in link.receive() for m in dialogue.receive(frame, 0.0)]


@pytest.fixture
def make_door():
    doors = []

    def make(*others):
        doors.append(Door(others))
        return doors[-1]

    yield make
    for door in doors:
        door.port.close()


def test_who_comes_in_is_told_in_the_welcome(make_door):
    dialogue, _ = make_door(A, B).come_in()
    assert dialogue.welcome.others == [A, B]


def test_a_client_that_is_in_is_told_of_a_change_and_only_of_that(make_door):
    door = make_door(A)
    peer = door.come_in()
    door.listener.set_others([A])
    assert door.converse(*peer) == []
    door.listener.set_others([B, A, B])
    assert door.converse(*peer) == [Gateways([B, A])]


def test_a_worker_is_told_of_no_change(make_door):
    door = make_door(A)
    peer = door.come_in("worker")
    door.listener.set_others([B])
    assert door.converse(*peer) == []


@pytest.mark.parametrize(
    "wrong",
    [
        [f"tcp://h{n}:1" for n in range(OTHERS_MAX + 1)],
        ["tcp://" + "h" * ADDRESS_CHARS_MAX],
        ["http://a.example"],
        ["tcp://a\nb:1"],
    ],
)
def test_what_no_client_would_take_is_refused_by_the_listener_and_by_the_configuration(
    make_door, wrong
):
    listener = make_door(A).listener
    with pytest.raises(AddressError):
        listener.set_others(wrong)
    assert listener.others == [A]
    with pytest.raises(site.ConfigError, match="others"):
        site.check(site.SiteConfig(others=tuple(wrong)), 0.0)


def test_a_site_is_told_of_others_by_its_file(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(f'[site]\nothers = ["{A}"]\n')
    assert site.check(site.load(str(path)), 0.0).others == (A,)
    path.write_text(f'[site]\nothers = "{A}"\n')
    with pytest.raises(site.ConfigError, match="list of addresses"):
        site.load(str(path))
