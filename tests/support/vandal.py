"""A raw link to a gateway, for messages that no client or worker of ours would send."""

import os
import select
import time

from federation.messages import messages
from federation.messages.messages import HANDSHAKE, Hello
from federation.sessions.handshake import Dialogue, Opened, SharedSecret
from federation.sessions.nng import NngLink


def nothing():
    """The tests look for themselves."""


class Vandal:
    """A raw link to a gateway."""

    def __init__(self, address):
        self.link = NngLink(address, nothing)
        self.dialogue = None
        self.frames = []
        self.wait(lambda: self.link.is_up)

    def wait(self, condition, at_most_s=200.0):
        until_s = time.monotonic() + at_most_s
        while not condition():
            assert time.monotonic() < until_s, "it did not come about"
            time.sleep(0.002)

    def answer(self):
        """The next frame, or None when the pipe was closed instead."""
        until_s = time.monotonic() + 200.0
        while time.monotonic() < until_s:
            select.select([self.link.fileno()], [], [], 0.02)
            self.frames += self.link.receive()
            if self.frames:
                return self.frames.pop(0)
            if self.link.is_lost:
                return None
        raise AssertionError("neither an answer nor the end")

    def come_in(self, role="client", about=None, **changes):
        """Open a session, as a client would; give the dialogue."""
        hello = Hello([], role, "vandal", "vandal", b"", "", 0, about or {})
        self.dialogue = Dialogue(
            hello=hello, credentials=SharedSecret(""), random_bytes=os.urandom, **changes
        )
        self.dialogue.connected(0.0)
        opened = []
        until_s = time.monotonic() + 200.0
        while not opened:
            assert time.monotonic() < until_s
            self.dialogue.flush(self.link.send, 0.0)
            select.select([self.link.fileno()], [], [], 0.02)
            for frame in self.link.receive():
                opened += [m for m in self.dialogue.receive(frame, 0.0) if isinstance(m, Opened)]
        return self.dialogue

    def expect_expulsion(self):
        """Read until the gateway throws us out, which it does bare; its reason."""
        self.dialogue = None
        while (frame := self.answer()) is not None:
            if b"\x80" <= frame[:1] < b"\x90":
                refused = HANDSHAKE.decode(frame, 1 << 16)
                assert isinstance(refused, messages.Refused)
                return refused.reason
        raise AssertionError("the pipe was closed without a word")

    def leave(self):
        """Say goodbye, where there is a session to say it in."""
        if self.dialogue is not None:
            self.dialogue.post(messages.Bye("done"))
            self.dialogue.flush(self.link.send, 0.0)
            self.wait(lambda: self.dialogue.flush(self.link.send, 0.0))
        self.link.close()
