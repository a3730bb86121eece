"""The common protocol of the two interfaces to Symphony: sessions, tasks, and their news."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import trio

from gateway.grids.contract import GridFault

ID_CHARS_MAX: Final = 256
_ID: Final = re.compile(r"[!-+\--~]+").fullmatch  # ASCII without spaces and commas


class ConnectionCut(GridFault):
    """There is no connection: it is unknown whether the request was carried out."""


@dataclass(frozen=True, slots=True)
class SymphonyOutcome:
    """A task has ended: with `data` as its output, or else with Symphony's reason."""

    session: str
    task: str
    is_ok: bool
    data: bytes = b""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """A session has ended, with all its tasks."""

    session: str
    text: str


Heard = SymphonyOutcome | Gone


class SymphonyInterface(Protocol):
    """An interface to Symphony. Every call raises GridFault, and no other error."""

    async def check(self) -> str:
        """Check whether it is reachable and lets us in; return a description."""
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
        """Let this run end without closing sessions, if the settings have them reopened."""
        ...

    async def reopen(self, session: str, tasks: Sequence[str]) -> bool:
        """Listen to a session of a former connection again; False: it is not open any more.

        No outcome of these tasks has been received, though that connection may have been sent one.

        Outcomes since then are reported, perhaps before this returns; or Gone.
        """
        ...

    async def open(self, name: str, common: bytes) -> str:
        """Open a session with common data; return its id."""
        ...

    async def send(self, session: str, inputs: Sequence[bytes]) -> list[str | None]:
        """Send tasks; return the id of each, None for a refused one."""
        ...

    async def kill(self, session: str, tasks: Sequence[str]) -> None:
        """Kill tasks in any state."""
        ...

    async def close(self, session: str) -> None:
        """Close a session with all its tasks, also a former run's; no effect if it is gone."""
        ...


def words(text: object, chars_max: int = 2000) -> str:
    """Make foreign text encodable, and bound it: JSON may contain invalid characters."""
    return str(text)[:chars_max].encode("utf-8", "replace").decode()


def is_id(found: object) -> bool:
    """Whether this is a valid id of a session or task, fit for files, addresses and lists."""
    return isinstance(found, str) and 0 < len(found) <= ID_CHARS_MAX and _ID(found) is not None
