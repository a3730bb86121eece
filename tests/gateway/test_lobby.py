"""The lobby over a transport in memory, at times that a test sets."""

import pytest

from federation.memory import MemoryPort
from federation.messages import HANDSHAKE, Hello, Refused
from gateway.lobby import GREETING_MAX_S, LAST_WORD_S, HouseRules, Lobby

HELLO = HANDSHAKE.encode(Hello([1], "client", "n", "u", bytes(16), "", 0, {}))


@pytest.fixture
def port():
    made = MemoryPort()
    yield made
    made.close()


class House:
    """A port, its lobby, and what the site does between the two."""

    def __init__(self, port, **rules):
        self.port = port
        self.lobby = Lobby(port, HouseRules(**rules))

    def look(self, now_s):
        self.lobby.pipes_came(self.port.came(), now_s)
        for pipe, frame in self.port.receive():
            list(self.lobby.receive(pipe, frame, now_s))
        list(self.lobby.tick(now_s))
        self.lobby.pipes_gone(self.port.gone(), now_s)


def refusal(link):
    (frame,) = link.receive()
    return HANDSHAKE.decode(frame, 1 << 16)


def test_a_pipe_that_says_nothing_is_dropped_in_time_with_the_reason(port):
    house = House(port)
    link = port.dial()
    house.look(0.0)
    house.look(GREETING_MAX_S)
    assert link.receive() == []
    house.look(GREETING_MAX_S + 0.1)
    assert refusal(link).code == "late"
    house.look(GREETING_MAX_S + 0.2 + LAST_WORD_S)
    assert link.is_lost


def test_silent_pipes_count_from_the_moment_they_connect(port):
    house = House(port, strangers_max=2)
    silent = [port.dial(), port.dial()]
    house.look(0.0)
    late = port.dial()
    house.look(0.1)
    found = refusal(late)
    assert isinstance(found, Refused)
    assert found.code == "busy"
    assert [link.receive() for link in silent] == [[], []]
    silent[0].close()
    house.look(0.2)
    another = port.dial()
    another.send(HELLO)
    house.look(0.3)
    assert not isinstance(refusal(another), Refused)


def test_the_news_of_a_pipe_may_come_after_its_first_frame(port):
    house = House(port)
    link = port.dial()
    link.send(HELLO)
    ((pipe, frame),) = port.receive()
    list(house.lobby.receive(pipe, frame, 0.0))
    house.look(0.1)
    house.look(GREETING_MAX_S)
    assert len(link.receive()) == 1  # the challenge, and no second one
