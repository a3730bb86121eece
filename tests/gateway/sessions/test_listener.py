"""Connections before their hello: caps, paces, silent pipes; and urgent messages that overtake."""

import itertools

import pytest

from federation.messages.messages import HANDSHAKE, Answer, Ask, Hello
from federation.messages.wire import pack
from federation.sessions.handshake import Dialogue, Opened, SharedSecret
from federation.sessions.memory import MemoryPort
from federation.transport import Origin
from gateway.config.limits import ListenerLimits
from gateway.sessions.half_open import GREETING_MAX_S
from gateway.sessions.listener import (
    LAST_WORD_S,
    LOOKED_AT_MIN,
    QUIET_S,
    ROUND_S,
    PeerCameIn,
    PeerLeft,
    PeerSaid,
    PeerTurnedAway,
    SessionListener,
)


class Caller:
    """A dialler over a link in memory."""

    def __init__(self, port, name="caller", role="client", origin=Origin()):  # noqa: B008
        numbers = itertools.count(1)
        self.link = port.dial(origin)
        self.heard = []
        self.dialogue = Dialogue(
            hello=Hello([], role, name, "ada", b"", "", 0, {}),
            credentials=SharedSecret(""),
            random_bytes=lambda count: bytes([next(numbers)]) * count,
        )
        self.dialogue.connected(0.0)

    def step(self, now_s=0.0):
        self.dialogue.flush(self.link.send, now_s)
        for frame in self.link.receive():
            self.heard += self.dialogue.receive(frame, now_s)
        self.dialogue.flush(self.link.send, now_s)


class Harness:
    """A listener over a port in memory."""

    def __init__(self, handles=None, **rules):
        self.port = MemoryPort()
        self.listener = SessionListener(self.port, ListenerLimits(**rules), handles=handles)
        self.news = []

    def step(self, now_s=0.0):
        self.news += self.listener.pipes_came(self.port.came(), now_s)
        for pipe, frame in self.port.receive():
            self.news += self.listener.receive(pipe, frame, now_s)
        self.listener.flush(now_s)
        self.listener.pipes_gone(self.port.gone(), now_s)

    def tick(self, now_s):
        self.news += self.listener.tick(now_s)
        self.listener.pipes_gone(self.port.gone(), now_s)

    def of(self, kind):
        return [each for each in self.news if isinstance(each, kind)]


@pytest.fixture
def make_harness():
    made = []

    def make(**rules):
        made.append(Harness(**rules))
        return made[-1]

    yield make
    for each in made:
        each.port.close()


def meet(harness, *callers, now_s=0.0):
    for _ in range(4):
        for caller in callers:
            caller.step(now_s)
        harness.step(now_s)


def test_a_pipe_that_never_greets_is_dropped_in_time(make_harness):
    harness = make_harness()
    link = harness.port.dial()
    harness.step(0.0)
    harness.tick(GREETING_MAX_S)
    assert link.is_up
    harness.tick(GREETING_MAX_S + 0.1)
    harness.tick(GREETING_MAX_S + 0.2 + LAST_WORD_S)
    assert not link.is_up
    assert [each.code for each in harness.of(PeerTurnedAway)] == ["late"]


EVIL, HONEST = Origin("203.0.113.9", 1), Origin("198.51.100.7", 1)


def test_pipes_that_never_greet_keep_no_newcomer_out(make_harness):
    harness = make_harness(strangers_max=4, host_strangers_max=4)
    silent = [harness.port.dial(EVIL) for _ in range(4)]
    harness.step()
    for origin in (HONEST, EVIL):
        meet(harness, Caller(harness.port, origin=origin))
    assert len(harness.of(PeerCameIn)) == 2
    assert [each.code for each in harness.of(PeerTurnedAway)] == ["busy"]
    harness.tick(LAST_WORD_S + 0.1)
    assert [link.is_up for link in silent] == [False, True, True, True]


def test_who_is_in_is_not_counted_so_that_many_come_from_one_address(make_harness):
    harness = make_harness(strangers_max=4, host_strangers_max=2)
    for _ in range(10):
        meet(harness, Caller(harness.port, origin=HONEST))
    assert len(harness.of(PeerCameIn)) == 10
    assert not harness.of(PeerTurnedAway)


def test_a_pipe_that_closes_while_another_gives_way_to_it_is_forgotten(make_harness):
    harness = make_harness(strangers_max=1)
    harness.port.dial(EVIL)
    harness.step()
    caller = Caller(harness.port, origin=HONEST)
    caller.step()
    ((pipe, frame),) = harness.port.receive()
    news = harness.listener.receive(pipe, frame, 0.0)
    assert next(news).code == "busy"  # the other; the rest waits for its turn
    harness.listener.pipes_gone([pipe], 0.0)
    assert not list(news)
    meet(harness, Caller(harness.port, origin=HONEST))
    assert len(harness.of(PeerCameIn)) == 1


def test_strangers_that_come_too_fast_to_be_told_are_dropped_at_once(make_harness):
    harness = make_harness(strangers_max=2)
    links = [harness.port.dial(EVIL) for _ in range(50)]
    harness.step()
    assert sum(link.is_up for link in links) == 2 + 2  # half-open, and being told


def test_more_connections_of_a_host_than_the_rate_allows_are_turned_away_until_it_does(
    make_harness,
):
    harness = make_harness(handshakes_per_s=1.0)
    for _ in range(4):
        harness.port.dial(EVIL)
    harness.step(0.0)
    assert [each.code for each in harness.of(PeerTurnedAway)] == ["busy", "busy"]
    other = Caller(harness.port, origin=HONEST)
    meet(harness, other, now_s=0.0)
    late = Caller(harness.port, origin=EVIL)
    meet(harness, late, now_s=2.0)
    assert len(harness.of(PeerCameIn)) == 2


def test_who_is_turned_away_is_named_by_what_it_said(make_harness):
    harness = make_harness()
    caller = Caller(harness.port, name="essex", role="gateway")
    with pytest.raises(Exception, match="is not accepted here"):
        meet(harness, caller)
    (away,) = harness.of(PeerTurnedAway)
    assert (away.role, away.name, away.code) == ("gateway", "essex", "role")


def test_who_sends_too_fast_is_answered_slowly_and_loses_nothing(make_harness):
    harness = make_harness(frames_per_s=10.0, heartbeat_s=1000.0)
    caller = Caller(harness.port)
    meet(harness, caller)
    now_s, sent = 0.0, 60
    for number in range(1, sent + 1):
        caller.dialogue.post(Ask(number, "status", {}))
        meet(harness, caller, now_s=now_s)
    at_once = len(harness.of(PeerSaid))
    assert at_once < sent
    while len(harness.of(PeerSaid)) < sent:
        now_s += 0.1
        assert now_s < 60
        harness.tick(now_s)
        meet(harness, caller, now_s=now_s)
    assert [each.message.request for each in harness.of(PeerSaid)] == list(range(1, sent + 1))
    assert now_s > 0.3


def test_an_urgent_message_overtakes_what_waits(make_harness):
    harness = make_harness()
    caller = Caller(harness.port)
    meet(harness, caller)
    (peer,) = [each.peer for each in harness.of(PeerCameIn)]
    for number in range(3):
        harness.listener.post(peer, Answer(number, "", "", None))
    harness.listener.post(peer, Answer(99, "", "", None), urgent=True)
    meet(harness, caller)
    said = [each.request for each in caller.heard if not isinstance(each, Opened)]
    assert said == [99, 0, 1, 2]


def test_a_session_is_resumed_only_by_who_has_the_same_name(make_harness):
    harness = make_harness()
    caller = Caller(harness.port)
    meet(harness, caller)
    thief = Caller(harness.port, name="thief")
    thief.dialogue._session_id = caller.dialogue._session_id
    thief.dialogue.connected(0.0)
    meet(harness, thief)
    assert len(harness.of(PeerCameIn)) == 2
    assert harness.of(PeerLeft) == []


def test_peers_of_two_listeners_that_share_numbers_have_different_ones(make_harness):
    numbers = itertools.count(1)
    one, other = make_harness(handles=numbers), make_harness(handles=numbers)
    callers = Caller(one.port), Caller(other.port)
    meet(one, callers[0])
    meet(other, callers[1])
    assert [each.peer.handle for each in one.of(PeerCameIn) + other.of(PeerCameIn)] == [1, 2]


def test_a_hello_that_is_nested_too_deep_is_turned_away(make_harness):
    harness = make_harness()
    hello = Hello([], "client", "caller", "ada", b"", "", 0, {"a": "in here"})
    deep = HANDSHAKE.encode(hello).replace(pack("in here"), b"\x91" * 1_000 + b"\x90")
    stranger = harness.port.dial()
    stranger.send(deep)
    harness.step()
    assert [each.code for each in harness.of(PeerTurnedAway)] == ["protocol"]
    caller = Caller(harness.port)
    meet(harness, caller)
    assert len(harness.of(PeerCameIn)) == 1


def test_a_gateway_that_was_not_run_for_a_while_gives_up_no_peer(make_harness):
    """As under SIGSTOP, or on a host that is short of CPU: their frames still wait to be read."""
    harness = make_harness(heartbeat_s=0.3, grace_s=2.0)
    caller = Caller(harness.port)
    for _ in range(3):
        harness.step()
        caller.step()
    (peer,) = harness.listener.peers.values()
    harness.tick(0.0)
    harness.tick(60.0)
    assert peer.pipe is not None
    for at in range(1, 40):
        harness.tick(60.0 + at * 0.05)
    assert peer.pipe is None, "silence since then counts"


@pytest.mark.parametrize(("pause_s", "was_late"), [(0.3, False), (2.6, True)])
def test_the_end_of_a_lease_after_a_pause_of_the_gateway_itself_is_put_down_to_it(
    make_harness, pause_s, was_late
):
    harness = make_harness(grace_s=10.0)
    caller, _ = come_in(harness)
    harness.tick(5.0 + pause_s)
    caller.link.close()
    harness.step(5.0 + pause_s)
    for at in itertools.count(1):
        harness.tick(5.0 + pause_s + at * TICK_S)
        if harness.of(PeerLeft):
            break
    (left,) = harness.of(PeerLeft)
    assert left.was_late is was_late


def test_what_ends_long_after_a_pause_is_not_put_down_to_the_gateway(make_harness):
    harness = make_harness(grace_s=2.0)
    caller, _ = come_in(harness)
    for at in range(200):
        harness.tick(6.0 + at * TICK_S)  # a second late, once
        caller.dialogue.flush(caller.link.send, 6.0 + at * TICK_S)
        caller.step(6.0 + at * TICK_S)
        harness.step(6.0 + at * TICK_S)
        assert harness.of(PeerLeft) == []
    caller.link.close()
    harness.step(16.0)
    for at in range(100):
        harness.tick(16.0 + at * TICK_S)
    (left,) = harness.of(PeerLeft)
    assert not left.was_late


def test_a_breach_after_a_pause_is_not_put_down_to_the_gateway(make_harness):
    harness = make_harness(grace_s=2.0)
    _, peer = come_in(harness)
    harness.tick(8.0)
    (left,) = harness.listener.expel(peer, "it lied", 8.0)
    assert not left.was_late


TICK_S = 0.05


def come_in(harness):
    caller = Caller(harness.port)
    meet(harness, caller)
    (peer,) = harness.listener.peers.values()
    for at in range(1, 101):
        harness.tick(at * TICK_S)
    caller.dialogue.post(Ask(1, "jobs", {}))
    caller.step(5.0)
    harness.step(5.0)
    assert peer.hearing.word_at_s == pytest.approx(5.0, abs=2 * TICK_S)
    return caller, peer


@pytest.mark.parametrize("is_ticked_first", [False, True])
def test_a_frame_that_is_read_after_a_stop_of_the_gateway_may_be_as_old_as_the_stop(
    make_harness, is_ticked_first
):
    harness = make_harness()
    caller, peer = come_in(harness)
    caller.dialogue.post(Ask(2, "jobs", {}))
    caller.step(5.1)
    if is_ticked_first:
        harness.tick(14.0)
    harness.step(14.0)
    assert peer.hearing.heard_at_s == 14.0
    assert peer.hearing.word_at_s == pytest.approx(5.0, abs=2 * TICK_S)


def test_neither_a_lost_pipe_nor_its_return_after_a_stop_is_a_word_of_its_peer(make_harness):
    harness = make_harness()
    caller, peer = come_in(harness)
    caller.link.close()
    harness.step(14.0)
    assert peer.pipe is None
    assert peer.hearing.heard_at_s == 14.0
    assert peer.hearing.word_at_s == pytest.approx(5.0, abs=2 * TICK_S)


def test_a_resumed_session_is_no_word_before_its_first_frame(make_harness):
    harness = make_harness()
    caller, peer = come_in(harness)
    caller.link.close()
    caller.dialogue.lost()
    harness.step(6.0)
    for at_s in (6.8, 6.9, 7.0):
        harness.tick(at_s)
    caller.link = harness.port.dial(Origin())
    caller.dialogue.connected(7.0)
    while peer.pipe is None:
        caller.step(7.0)
        harness.step(7.0)
    assert peer.hearing.heard_at_s == 7.0
    assert peer.hearing.word_at_s == pytest.approx(5.0, abs=2 * TICK_S)


def test_a_heartbeat_ahead_of_messages_without_room_in_the_window_is_no_word(make_harness):
    """Acknowledgements are lost on the way: the end of a task waits, and only heartbeats arrive."""
    harness = make_harness()
    caller, peer = come_in(harness)
    sent = 0
    for at_s in itertools.count(6.0, 0.25):
        harness.tick(at_s)
        caller.dialogue.post(Ask(2, "jobs", {}))
        caller.dialogue.flush(caller.link.send, at_s)
        harness.step(at_s)
        if caller.dialogue.session.backlog_bytes:
            break
        sent, full_s = sent + 1, at_s
    assert sent > 1
    word_s = peer.hearing.word_at_s
    assert word_s == pytest.approx(full_s, abs=0.5)
    for beats in range(1, 10):
        harness.tick(full_s + beats)
        caller.dialogue.flush(caller.link.send, full_s + beats)
        harness.step(full_s + beats)
    assert peer.hearing.heard_at_s > full_s + 5
    assert peer.hearing.word_at_s == word_s


def test_a_heartbeat_of_a_peer_whose_messages_have_room_is_a_word(make_harness):
    harness = make_harness()
    caller, peer = come_in(harness)
    for at in range(1, 100):
        harness.tick(5.0 + at / 10)
        caller.step(5.0 + at / 10)
        harness.step(5.0 + at / 10)
    assert peer.hearing.word_at_s == pytest.approx(14.9, abs=2.0)


def test_the_heartbeats_of_many_peers_are_spread_over_ticks_and_none_is_late(make_harness):
    harness = make_harness(heartbeat_s=2.0)
    callers = [Caller(harness.port, f"caller {number}") for number in range(4 * LOOKED_AT_MIN)]
    meet(harness, *callers)
    now_s, beats, most = 0.0, 0, 0
    while now_s < 2.0 + ROUND_S:
        now_s += TICK_S
        harness.tick(now_s)
        came = sum(len(caller.link.receive()) for caller in callers)
        beats, most = beats + came, max(most, came)
    assert beats == len(callers)
    assert most <= LOOKED_AT_MIN


def test_who_falls_quiet_among_many_peers_is_acknowledged_with_the_next_tick(make_harness):
    harness = make_harness()
    callers = [Caller(harness.port, f"caller {number}") for number in range(4 * LOOKED_AT_MIN)]
    meet(harness, *callers)
    harness.tick(1.0)
    for caller in (callers[0], callers[-1]):
        caller.dialogue.post(Ask(1, "status", {}))
        caller.step(1.0)
    harness.step(1.0)
    harness.tick(1.0 + QUIET_S)
    for caller in (callers[0], callers[-1]):
        caller.step(1.0 + QUIET_S)
        assert caller.dialogue.session.is_idle
