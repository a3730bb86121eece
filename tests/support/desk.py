"""A whole site in this process, at an unused port: its desk is asked directly."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import trio

from federation.messages.messages import Answer, Ask
from federation.transport import Origin
from gateway.config.site import SiteConfig
from gateway.runtime.environment import RuntimeEnvironment
from gateway.scheduler.model import events
from gateway.site import Site

NOON_S = 1_793_707_200.0


class ClosedPort:
    """A port without a listener; see Port for its fields."""

    addresses = ["ipc:///closed"]

    def __init__(self) -> None:
        self._quiet, self._other = os.pipe()

    def receive(self) -> list[tuple[int, bytes]]:
        return []

    def came(self) -> list[int]:
        return []

    def gone(self) -> list[int]:
        return []

    def remotes(self) -> list[tuple[str, int]]:
        return []

    def fileno(self) -> int:
        return self._quiet

    def close(self) -> None:
        for each in (self._quiet, self._other):
            os.close(each)


async def read_at_once(query: Any, *arguments: Any) -> Any:
    """As RuntimeEnvironment.read, in our own thread."""
    await trio.lowlevel.checkpoint()
    return query(*arguments)


class DeskClient:
    """Asks a site as a client, a holder of a token, or its operator."""

    def __init__(self, site: Site, told: list[str]) -> None:
        self.site = site
        self.told = told  # the lines of the site's log

    async def ask(
        self, verb: str, user: str = "ann", token: Any = None, *, home: bool = False,
        of_user: Any = None, **details: Any
    ) -> Answer:  # fmt: skip
        """The answer to one question, asked by a peer; `of_user` is a detail named `user`."""
        if of_user is not None:
            details["user"] = of_user
        peer = SimpleNamespace(handle=77, user=user, role="client", is_local=home, origin=Origin())
        if token is not None:
            self.site.server._tokens[77] = SimpleNamespace(token=token)
        try:
            return await self.site.desk._answer(peer, Ask(1, verb, details))
        finally:
            self.site.server._tokens.pop(77, None)

    async def refusal(self, verb: str, **asked: Any) -> tuple[str, str]:
        """The code and the text of an answer that is none."""
        answer = await self.ask(verb, **asked)
        assert answer.code, answer.value
        return answer.code, answer.reason

    def tell(self, *happened: events.Event) -> None:
        """Let something happen to the site's broker."""
        for each in happened:
            self.site.expect(each)


@asynccontextmanager
async def counter_of(folder: Any, **config: Any) -> AsyncIterator[DeskClient]:
    """A site with these settings that runs until the block ends."""
    told: list[str] = []
    runtime = RuntimeEnvironment(
        utc_s=lambda: NOON_S, open_port=lambda *_: ClosedPort(), read=read_at_once
    )
    made = SiteConfig(**{"name": "london", "state": str(folder), **config})
    site = Site(made, told.append, runtime)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: site.run(task_status=task_status))
        yield DeskClient(site, told)
        nursery.cancel_scope.cancel()
