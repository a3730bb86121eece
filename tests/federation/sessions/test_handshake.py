"""The dialler's side of a session, pushed by hand against a listener in memory."""

from typing import Any

import pytest

from federation.errors import SessionRefused
from federation.messages.messages import HANDSHAKE, MESSAGES, Challenge, Hello, Pulse, Unknown
from federation.messages.wire import pack
from federation.sessions.handshake import (
    NAME_CHARS_MAX,
    Dialogue,
    Greeting,
    Prover,
    SharedSecret,
)
from federation.sessions.memory import MemoryPort
from federation.sessions.patience import WAIT_MIN_S
from gateway.config.limits import ListenerLimits
from gateway.sessions.listener import PeerSaid, SessionListener

WORD = MESSAGES.encode(Pulse([]))  # of the gateway's


class Pair:
    """A dialogue and a listener, and frames that pass when they are let."""

    def __init__(self, name: str = "w", user: str = "ann") -> None:
        self.port = MemoryPort()
        self.listener = SessionListener(self.port, ListenerLimits())
        self.heard: list[Any] = []
        hello = Hello([], "worker", name, user, b"", "", 0, {})
        self.dialogue = Dialogue(hello=hello, credentials=SharedSecret(""), random_bytes=bytes)
        self.link = self.port.dial()

    def up(self, now_s: float) -> None:
        self.dialogue.flush(self.link.send, now_s)
        for pipe, frame in self.port.receive():
            self.heard += self.listener.receive(pipe, frame, now_s)

    def down(self, now_s: float) -> None:
        for frame in self.link.receive():
            self.dialogue.receive(frame, now_s)

    def open(self, now_s: float) -> None:
        """Over a new pipe."""
        self.link.close()
        self.link = self.port.dial()
        self.dialogue.lost()
        self.dialogue.connected(now_s)
        for _ in range(3):
            self.up(now_s)
            self.down(now_s)
        assert self.dialogue.is_open

    def say(self, data: bytes, now_s: float) -> None:
        """The gateway says something, and it arrives."""
        [peer] = self.listener.peers.values()
        peer.session.post(data)
        self.listener.flush(now_s)
        self.down(now_s)

    def close(self) -> None:
        self.link.close()
        self.port.close()


def test_what_arrives_grants_nothing_and_what_is_acknowledged_does_from_when_it_was_sent() -> None:
    pair = Pair()
    pair.dialogue.connected(100.0)
    for _ in range(3):
        pair.up(101.0)
        pair.down(102.0)
    assert pair.dialogue.is_open
    assert pair.dialogue.granted_at_s == 100.0
    list(pair.listener.tick(105.0))  # a heartbeat of the gateway's, which has heard nothing new
    pair.down(105.1)
    assert pair.dialogue.granted_at_s == 100.0
    pair.dialogue.post(Pulse([]))
    pair.up(106.0)
    list(pair.listener.tick(108.5))
    pair.down(109.0)
    assert pair.dialogue.granted_at_s == 106.0
    pair.close()


@pytest.mark.parametrize(("name", "user"), [("n", NAME_CHARS_MAX + 1), (NAME_CHARS_MAX + 1, "u")])
def test_names_are_not_longer_than_can_be_shown(name: Any, user: Any) -> None:
    """Where a number stands for a name, it is so long."""
    pair = Pair(*("x" * each if isinstance(each, int) else each for each in (name, user)))
    with pytest.raises(SessionRefused, match="the name has more than"):
        pair.open(0.0)
    pair.close()


def test_the_longest_names_are_let_in() -> None:
    pair = Pair("n" * NAME_CHARS_MAX, "u" * NAME_CHARS_MAX)
    pair.open(0.0)
    pair.close()


def test_an_acknowledgement_waits_for_what_it_can_ride_on_as_long_as_that_took_before() -> None:
    pair = Pair()
    pair.open(100.0)
    session = pair.dialogue.session
    assert session is not None
    pair.say(WORD, 101.0)
    assert pair.dialogue.acknowledge_s == WAIT_MIN_S
    pair.dialogue.post(Pulse([]))
    pair.up(101.002)
    pair.say(WORD, 102.0)
    assert pair.dialogue.acknowledge_s == pytest.approx(0.003)
    sent = session.sent
    pair.up(102.0029)
    assert pair.dialogue.owes
    pair.up(102.003)
    assert not pair.dialogue.owes
    assert session.sent == sent, "a bare acknowledgement has no number"
    pair.say(WORD, 103.0)
    assert pair.dialogue.acknowledge_s == WAIT_MIN_S
    pair.close()


def test_a_new_session_grants_by_its_own_frames() -> None:
    pair = Pair()
    pair.open(100.0)
    for at in range(5):
        pair.dialogue.post(Pulse([]))
        pair.up(101.0 + at)
    pair.dialogue.start_over()
    pair.open(200.0)
    pair.dialogue.post(Pulse([]))
    pair.up(201.0)
    list(pair.listener.tick(204.0))
    pair.down(204.0)
    assert pair.dialogue.granted_at_s == 201.0
    pair.close()


def test_who_hears_a_message_that_it_does_not_know_says_so() -> None:
    pair = Pair()
    pair.open(100.0)
    pair.say(pack({"t": "x" * 100, "new": 1}), 101.0)
    pair.up(102.0)
    unknown = [each.message for each in pair.heard if isinstance(each, PeerSaid)]
    assert unknown == [Unknown("x" * 64)]
    pair.close()


@pytest.mark.parametrize(
    ("given", "why"), [("", "none was given"), ("other", "is not the secret of site 'paris'")]
)
def test_a_secret_that_is_missing_is_told_from_a_wrong_one(given: str, why: str) -> None:
    hello = Hello([1], "client", "c", "ada", b"n" * 16, "", 0, {})
    challenge = Challenge(1, "paris", 0, b"c" * 16)
    proof = SharedSecret(given).prove(Prover.DIALLER, hello, challenge)
    with pytest.raises(SessionRefused, match=why):
        SharedSecret("true").check(Prover.DIALLER, hello, challenge, proof)


def chosen(offered: tuple[int, ...], spoken: tuple[int, ...]) -> int:
    """The version that a listener chooses, when the dialler takes it."""
    hello = Hello([], "worker", "w", "ann", b"", "", 0, {})
    dialogue = Dialogue(
        hello=hello, credentials=SharedSecret(""), random_bytes=bytes, versions=offered
    )
    greeting = Greeting("london", 0, SharedSecret(""), bytes(16), spoken)
    dialogue.connected(0.0)
    frames: list[bytes] = []
    dialogue.flush(lambda frame: frames.append(frame) or True, 0.0)
    answer = greeting.receive(frames.pop())
    assert isinstance(answer, bytes)
    dialogue.receive(answer, 0.0)
    dialogue.flush(lambda frame: frames.append(frame) or True, 0.0)
    assert isinstance(greeting.receive(frames.pop()), Hello)
    return HANDSHAKE.decode(answer, 1 << 16).version


@pytest.mark.parametrize(
    ("offered", "spoken", "expected"),
    [((1,), (1,), 1), ((1, 2), (1,), 1), ((1,), (1, 2), 1), ((1, 2, 3), (1, 2), 2)],
)
def test_the_highest_version_that_both_speak_is_chosen(offered, spoken, expected) -> None:
    assert chosen(offered, spoken) == expected


def test_sides_without_a_common_version_name_theirs() -> None:
    with pytest.raises(SessionRefused, match="protocol versions 3, 4, the peer offers version 1: "):
        chosen((1,), (3, 4))


def test_a_version_that_was_not_offered_is_refused_by_the_dialler() -> None:
    hello = Hello([], "worker", "w", "ann", b"", "", 0, {})
    dialogue = Dialogue(hello=hello, credentials=SharedSecret(""), random_bytes=bytes)
    dialogue.connected(0.0)
    with pytest.raises(SessionRefused, match="chose protocol version 9, this side offered version"):
        dialogue.receive(HANDSHAKE.encode(Challenge(9, "london", 0, bytes(16))), 0.0)
