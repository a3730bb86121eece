"""Drives conversations and links in virtual time, as gateway.sessions.driving does under trio."""

import math
from typing import Final

from federation.clocks import MonoS
from gateway.sessions.conversation import Conversation
from gateway.sessions.links import TICK_S, PeerLinks
from simulations.world.host import SimHost
from simulations.world.network import SimLink


class HostDriver:
    """Takes the steps of all conversations of a host's process; see gateway.sessions.links.Driver.

    Args:
        host: the host.
    """

    def __init__(self, host: SimHost) -> None:
        self._host = host
        self.mono_s: Final = host.mono_s
        self.random_bytes: Final = host.random_bytes
        self._conversations: list[Conversation] = []

    def start(self, conversation: Conversation) -> None:
        """Take a conversation's steps from now on."""
        self._conversations = [each for each in self._conversations if not each.is_over]
        self._conversations.append(conversation)
        _Turns(self._host, conversation).wake()

    def maintain(self, links: PeerLinks) -> None:
        """Tick for links from now on."""

        def tick() -> None:
            self._host.after(TICK_S, tick)
            links.tick(self._host.mono_s())

        self._host.after(TICK_S, tick)

    def die(self) -> None:
        """End all conversations: the process died."""
        for conversation in self._conversations:
            if isinstance(conversation.link, SimLink):
                conversation.link.is_closed = True


class _Turns:
    """The steps of one conversation."""

    def __init__(self, host: SimHost, conversation: Conversation) -> None:
        self._host = host
        self._conversation = conversation
        self._next_at_s = MonoS(math.inf)
        conversation.on_wake = self.wake

    def wake(self) -> None:
        """Take a step at this moment, after what goes on now."""
        self._take_at(self._host.mono_s())

    def _take_at(self, at_s: MonoS) -> None:
        if at_s < self._next_at_s:
            self._next_at_s = at_s
            wait_s = max(0.0, at_s - self._host.mono_s())
            self._host.after(wait_s, lambda: self._take(at_s))

    def _take(self, at_s: MonoS) -> None:
        if at_s != self._next_at_s or self._conversation.is_over:
            return  # an earlier step was taken
        self._next_at_s = MonoS(math.inf)
        # Clocks that drift round: it is never earlier than the time that was asked for.
        self._take_at(self._conversation.step(max(at_s, self._host.mono_s())))
