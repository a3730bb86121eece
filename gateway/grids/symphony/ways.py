"""The two ways to Symphony have this in common: sessions, tasks, and what is heard of them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import trio

from gateway.grids.contract import GridFault

ID_CHARS_MAX: Final = 256
_ID: Final = re.compile(r"[!-+\--~]+").fullmatch  # ASCII without spaces and commas


class Cut(GridFault):
    """There is no connection: whatever was asked may have happened or not."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A task has ended: with `data` as its output, or else with what Symphony says of it."""

    session: str
    task: str
    is_ok: bool
    data: bytes = b""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """A session is no more, with all its tasks."""

    session: str
    text: str


Heard = Outcome | Gone


class Way(Protocol):
    """How Symphony is spoken to. Every call raises GridFault, and no other."""

    async def check(self) -> str:
        """Look whether it is there and lets us in: what it is, in words."""
        ...

    async def run(
        self, hear: Callable[[Heard], None], leaves: bool, *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Connect, and listen until cancelled; all sessions are closed in the end.

        Outcomes may come before `send` has returned, and twice.

        Args:
            leaves: sessions stay open, for `reopen`.
        """
        ...

    def leave(self) -> None:
        """Let this run end without closing sessions, where the settings have them taken up."""
        ...

    async def reopen(self, session: str, tasks: Sequence[str]) -> bool:
        """Listen to a session of a former connection again; False: it is not open any more.

        Of these tasks no outcome has been heard, though one may have been given to that connection.

        What has ended there meanwhile is told, perhaps before this returns; or Gone.
        """
        ...

    async def open(self, name: str, common: bytes) -> str:
        """Open a session with common data; its id."""
        ...

    async def send(self, session: str, inputs: Sequence[bytes]) -> list[str | None]:
        """Send tasks; the id of each, None for one that was not taken."""
        ...

    async def kill(self, session: str, tasks: Sequence[str]) -> None:
        """End tasks, whatever they are at."""
        ...

    async def close(self, session: str) -> None:
        """Close a session with all its tasks, ours or a former life's; what is gone is closed."""
        ...


def words(text: object, chars_max: int = 2000) -> str:
    """What others say, as it can be told on: JSON may name characters that there are not."""
    return str(text)[:chars_max].encode("utf-8", "replace").decode()


def is_id(found: object) -> bool:
    """Whether this may be a session's or a task's id: it stands in files, addresses and lists."""
    return isinstance(found, str) and 0 < len(found) <= ID_CHARS_MAX and _ID(found) is not None
