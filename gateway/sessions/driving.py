"""Drives conversations and links under trio.

    TrioLinks.run ─┬─ PeerLinks.tick, four times a second
                   └─ drive, a task for each conversation:
                      step ─► wait for frames, a wake or the time of the next step

gateway.sessions.conversation and gateway.sessions.links decide; this module only waits.
"""

import secrets
from collections.abc import Callable
from typing import Final

import trio

from federation.clocks import MonoS
from gateway.base.clocks import mono_now
from gateway.sessions.conversation import SETTLE_MAX_S, Conversation
from gateway.sessions.links import TICK_S, Directory, LinkLimits, LinkNews, PeerLinks

_SETTLE_CHECK_S: Final = 0.005


async def drive(conversation: Conversation) -> None:
    """Take a conversation's steps until it is over; raises its correspondent's exceptions."""
    token = trio.lowlevel.current_trio_token()
    waiting = trio.CancelScope()

    def end_wait() -> None:
        waiting.cancel()

    def wake() -> None:
        try:
            token.run_sync_soon(end_wait, idempotent=True)
        except trio.RunFinishedError:
            return

    conversation.on_wake = wake  # links call it in threads of nng's, too
    try:
        while True:
            due_s = conversation.step(mono_now())
            if conversation.is_over:
                return
            link = conversation.link
            with trio.CancelScope(deadline=float(due_s)) as waiting:
                if link is not None and link.is_up:
                    await trio.lowlevel.wait_readable(link.fileno())
                else:
                    await trio.sleep_forever()
    finally:
        conversation.close()


async def settle(conversation: Conversation, at_most_s: float = SETTLE_MAX_S) -> None:
    """Wait, for a limited time, until the gateway has acknowledged everything."""
    with trio.move_on_after(at_most_s):
        while not conversation.is_settled:
            conversation.flush(mono_now())
            await trio.sleep(_SETTLE_CHECK_S)


class TrioLinks:
    """The links of a site in a trio nursery; the driver of their conversations.

    Args:
        directory, limits, tell, heard_all: see gateway.sessions.links.PeerLinks.
        random_bytes: the source of randomness.
    """

    def __init__(
        self,
        directory: Directory,
        limits: LinkLimits,
        tell: Callable[[LinkNews], None],
        heard_all: Callable[[], None] = lambda: None,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.random_bytes: Final = random_bytes
        self.links: Final = PeerLinks(directory, limits, self, tell, heard_all)
        self._nursery: trio.Nursery | None = None
        self._early: list[Conversation] = []  # those that began before `run`

    def mono_s(self) -> MonoS:
        """Return trio's time."""
        return mono_now()

    def start(self, conversation: Conversation) -> None:
        """See gateway.sessions.links.Driver."""
        if self._nursery is None:
            self._early.append(conversation)
        else:
            self._nursery.start_soon(drive, conversation)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Maintain the links forever."""
        async with trio.open_nursery() as self._nursery:
            for conversation in self._early:
                self._nursery.start_soon(drive, conversation)
            self._early.clear()
            task_status.started()
            while True:
                await trio.sleep(TICK_S)
                self.links.tick(mono_now())

    async def goodbye(self, reason: str) -> None:
        """Announce to all open sessions that they end, and wait briefly for delivery."""
        async with trio.open_nursery() as nursery:
            for conversation in self.links.say_goodbye(reason):
                nursery.start_soon(settle, conversation)
