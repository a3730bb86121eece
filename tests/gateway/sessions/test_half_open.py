"""Which half-open connections give way to newcomers: of which host, and which of its."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from federation.sessions.memory import MemoryPort
from federation.transport import Origin
from gateway.peering import join_server
from gateway.peering.join_server import JoinServer
from gateway.sessions import token_bucket
from gateway.sessions.half_open import SILENT_S, HalfOpen, source_of
from gateway.sessions.token_bucket import HostTokenBuckets

EVIL, HONEST = "203.0.113.9", "198.51.100.7"


def test_a_host_at_its_limit_pushes_out_its_own_oldest():
    waiting = HalfOpen(most=100, most_of_host=3)
    assert [waiting.add(at, EVIL, at) for at in range(5)] == [[], [], [], [0], [1]]
    assert waiting.add("honest", HONEST, 5.0) == []
    assert list(waiting) == [2, 3, 4, "honest"]


def test_over_the_limit_in_all_the_host_with_the_most_gives_way():
    waiting = HalfOpen(most=4, most_of_host=4)
    waiting.add("early", HONEST, 0.0)
    for at in range(3):
        waiting.add(at, EVIL, 1.0)
    assert waiting.add("late", "192.0.2.1", 1.0) == [0]
    assert "early" in waiting


def test_the_oldest_that_has_long_been_silent_goes_before_one_in_talks():
    waiting = HalfOpen(most=100, most_of_host=3)
    for at in range(3):
        waiting.add(at, EVIL, 0.0)
    waiting.heard(0)
    assert waiting.add("late", EVIL, SILENT_S) == [1]


def test_who_greets_and_says_no_more_does_not_keep_a_newcomer_out():
    waiting = HalfOpen(most=100, most_of_host=3)
    for at in range(3):
        waiting.add(at, EVIL, 0.0)
        waiting.heard(at)
    assert waiting.add("newcomer", EVIL, 5.0) == [0]
    # ... nor when one that was silent for less than a greeting takes comes after it.
    assert waiting.add("churn", EVIL, 5.0) == [1]
    assert "newcomer" in waiting


def test_our_own_sockets_have_no_limit_of_their_own():
    waiting = HalfOpen(most=4, most_of_host=1)
    assert not any(waiting.add(at, "", 0.0) for at in range(4))
    assert waiting.add("one more", EVIL, 0.0) == [0]


def test_what_is_gone_is_forgotten():
    waiting = HalfOpen(most=2, most_of_host=2)
    for at in range(10):
        assert waiting.add(at, EVIL, 0.0) == []
        waiting.remove(at)
        waiting.remove(at)
    assert len(waiting) == 0


def test_who_is_late_is_known():
    waiting = HalfOpen(most=9, most_of_host=9)
    waiting.add("old", EVIL, 0.0)
    waiting.add("new", HONEST, 6.0)
    assert waiting.older_than(5.0, 6.0) == ["old"]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("203.0.113.9", "203.0.113.10", False),
        ("::ffff:203.0.113.9", "203.0.113.9", True),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("", "127.0.0.1", False),
    ],
)
def test_what_counts_as_one_host(one, other, is_same):
    assert (source_of(one) == source_of(other)) is is_same


def test_a_host_that_is_too_fast_holds_up_no_other():
    paces = HostTokenBuckets(1.0)
    taken = [paces.take(EVIL, 0.0) for _ in range(4)]
    assert taken == [True, True, False, False]
    assert paces.take(HONEST, 0.0)
    assert paces.take(EVIL, 2.0)
    assert all(HostTokenBuckets(0.0).take(EVIL, 0.0) for _ in range(99))


def test_no_more_hosts_are_remembered_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(token_bucket, "SOURCES_MAX", 8)
    paces = HostTokenBuckets(1.0)
    for at in range(100):
        assert paces.take(f"192.0.2.{at}", 0.001 * at)
        assert len(paces._paces) <= 8


def test_visitors_who_say_nothing_keep_no_invited_site_out(monkeypatch):
    port = MemoryPort()
    monkeypatch.setattr(join_server, "NngPort", lambda *_: port)
    registry = SimpleNamespace(
        active=SimpleNamespace(leaf=b""), folder=Path(), book=None, invitations=None
    )
    door = JoinServer(
        "tls+tcp://0.0.0.0:7463",
        registry,
        strangers_max=4,
        host_strangers_max=2,
        handshakes_per_s=0.0,
        changed=lambda: None,
        say=lambda _: None,
    )
    evil = [port.dial(Origin(EVIL, at)) for at in range(1, 9)]
    invited = port.dial(Origin(HONEST, 1))
    door._look(0.0)
    assert [link.is_up for link in evil] == [False] * 6 + [True] * 2
    assert invited.is_up
    port.close()
