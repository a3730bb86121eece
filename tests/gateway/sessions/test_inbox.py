"""Messages that wait to be heard: in turns, and of no peer more than its room."""

import itertools
import os

import pytest

from federation.messages.messages import HANDSHAKE, MESSAGES, Hello, Refused, Unknown
from federation.messages.wire import pack
from federation.sessions.handshake import Dialogue, SharedSecret
from federation.sessions.memory import MemoryPort
from federation.sessions.session import DIALLER_WINDOW, FRAME_BYTES_MAX
from gateway.config.limits import ListenerLimits
from gateway.sessions.inbox import TURN_MAX, WAITING_BYTES_MAX, Inbox
from gateway.sessions.listener import (
    PeerCameIn,
    PeerLeft,
    PeerSaid,
    PeerTurnedAway,
    SessionListener,
)

WORD = MESSAGES.encode(Unknown("x"))
FULL = [WORD] * (FRAME_BYTES_MAX // (len(WORD) + 8))  # of a frame


@pytest.fixture
def port():
    made = MemoryPort()
    yield made
    made.close()


class Harness:
    """A listener and its inbox."""

    def __init__(self, port):
        self.port = port
        self.listener = SessionListener(port, ListenerLimits())
        self.inbox = Inbox(self.listener)
        self.news = []

    def take_in(self):
        self.inbox.add_frames(self.port.receive(), 0.0)

    def turn(self):
        before = len(self.news)
        self.news += self.inbox.take()
        self.listener.flush(0.0)
        return len(self.news) - before

    def of(self, kind):
        return [each for each in self.news if isinstance(each, kind)]


@pytest.fixture
def harness(port):
    return Harness(port)


@pytest.fixture
def link(harness):
    """A client that has come in."""
    link = harness.port.dial()
    dialogue = Dialogue(
        hello=Hello([], "client", "c", "ada", b"", "", 0, {}),
        credentials=SharedSecret(""),
        random_bytes=os.urandom,
    )
    dialogue.connected(0.0)
    while not dialogue.is_open:
        dialogue.flush(link.send, 0.0)
        harness.take_in()
        harness.turn()
        for frame in link.receive():
            dialogue.receive(frame, 0.0)
    return link


def test_what_is_under_way_is_heard_turn_by_turn(harness, link):
    for number in range(1, DIALLER_WINDOW + 1):
        link.send(pack([number, 0, FULL[: 5 * TURN_MAX]]))
        for _ in range(50):  # a dialler that only listens keeps up its heartbeats
            link.send(pack([0, 0, []]))
    harness.take_in()
    while harness.inbox:
        assert harness.turn() <= TURN_MAX
    assert len(harness.of(PeerSaid)) == DIALLER_WINDOW * 5 * TURN_MAX
    assert not harness.of(PeerLeft)


def test_who_sends_on_and_on_is_sent_away_before_its_turn(harness, link):
    sent_bytes = 0
    for number in itertools.count(1):
        frame = pack([number, 0, FULL])
        link.send(frame)
        harness.take_in()
        if harness.of(PeerLeft) or not harness.listener.peers:
            break
        sent_bytes += len(frame)
        assert sent_bytes <= WAITING_BYTES_MAX
    assert sent_bytes > DIALLER_WINDOW * FRAME_BYTES_MAX
    while harness.inbox:
        harness.turn()
    (left,) = harness.of(PeerLeft)
    assert "more unacknowledged frames than the window allows" in left.reason
    assert not harness.of(PeerSaid)
    told = HANDSHAKE.decode(link.receive()[-1], 1 << 16)
    assert isinstance(told, Refused)
    link.send(pack([1, 0, FULL]))
    harness.take_in()
    assert not harness.inbox  # what comes now is not so much as kept


def test_the_same_of_who_has_not_come_in(harness):
    link = harness.port.dial()
    for _ in range(WAITING_BYTES_MAX // FRAME_BYTES_MAX + 1):
        link.send(b"x" * FRAME_BYTES_MAX)
        harness.take_in()
    assert not harness.of(PeerCameIn)
    while harness.inbox:
        harness.turn()
    assert len(harness.of(PeerTurnedAway)) == 1
