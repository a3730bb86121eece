"""The dialler's side of a session, pushed by hand against a lobby in memory."""

from federation.handshake import Dialogue, SharedSecret
from federation.memory import MemoryPort
from federation.messages import Hello, Pulse
from gateway.lobby import HouseRules, Lobby


class Pair:
    """A dialogue and a lobby, and frames that pass when they are let."""

    def __init__(self) -> None:
        self.port = MemoryPort()
        self.lobby = Lobby(self.port, HouseRules())
        hello = Hello([], "worker", "w", "ann", b"", "", 0, {})
        self.dialogue = Dialogue(hello=hello, credentials=SharedSecret(""), random_bytes=bytes)
        self.link = self.port.dial()

    def up(self, now_s: float) -> None:
        self.dialogue.flush(self.link.send, now_s)
        for pipe, frame in self.port.receive():
            for _ in self.lobby.receive(pipe, frame, now_s):
                pass

    def down(self, now_s: float) -> None:
        for frame in self.link.receive():
            self.dialogue.receive(frame, now_s)

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
    assert pair.dialogue.granted_s == 100.0
    list(pair.lobby.tick(105.0))  # a heartbeat of the gateway's, which has heard nothing new
    pair.down(105.1)
    assert pair.dialogue.granted_s == 100.0
    pair.dialogue.post(Pulse([]))
    pair.up(106.0)
    list(pair.lobby.tick(108.5))
    pair.down(109.0)
    assert pair.dialogue.granted_s == 106.0
    pair.close()
