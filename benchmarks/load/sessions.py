"""A real session with a gateway, in a process that simulates many."""

import json
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from federation.messages.messages import Hello
from federation.sessions.handshake import SharedSecret
from federation.transport import TlsSettings
from gateway.worker.conversation import WorkerConversation
from gateway.worker.outbox import WorkerOutbox

TICK_S = 0.25


class LoadSession:
    """One session with a gateway. Only the contents of the hello make it a worker's or a client's.

    Args:
        address: the gateway's.
        role: "worker" or "client".
        name: unique among sessions of the role.
        about: a worker's description of itself.
        hear: takes messages, Opened and Lapsed among them.
    """

    def __init__(
        self,
        address: str,
        role: str,
        name: str,
        about: dict[str, Any],
        hear: Callable[[list[Any]], None],
    ) -> None:
        outbox = WorkerOutbox()
        self._conversation = WorkerConversation(
            address=address,
            tls=TlsSettings(None, None),
            credentials=SharedSecret(""),
            hello=Hello([], role, name, f"user of {name}", b"", "", 0, about),
            outbox=outbox,
            give_up_s=0.0,
            hear=hear,
            say=lambda line: print(name, line, file=sys.stderr),
        )
        self.post = outbox.add
        self.post_report = outbox.add_report
        self.flush = self._conversation.flush

    @property
    def is_open(self) -> bool:
        """Whether there is a session on a pipe now."""
        return self._conversation.is_open

    async def run(self) -> None:
        """Keep the session, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._conversation.run)
            while True:
                await trio.sleep(TICK_S)
                self._conversation.tick()


def play(run: Callable[[], Awaitable[None]], figures: Callable[[], dict[str, Any]]) -> None:
    """Run until the process is told to stop; answer each line of input with the figures."""

    async def answer(scope: trio.CancelScope) -> None:
        stdin = trio.lowlevel.FdStream(0)
        async for _ in stdin:
            print(json.dumps(figures()), flush=True)
        scope.cancel()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer, nursery.cancel_scope)
            nursery.start_soon(run)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    trio.run(main)
