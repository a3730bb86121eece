"""Bugs that are planted on purpose, to see that the swarm finds them. Nothing of it ships.

Each is a context manager that patches the real code by name, in this process, while it is open.
A checker that cannot fail proves nothing. What comes with federation (a lease without an epoch, a
refutation that is ignored) takes its place in BUGS.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final
from unittest.mock import patch

from federation.session import Session
from federation.wire import pack, unpack
from gateway.jobs import Assignment, Job, Worker
from simulations.world.worker import Worker as Agent

Bug = Callable[[], AbstractContextManager[Any]]


@contextmanager
def lost_ack() -> Iterator[None]:
    """A session that resumes counts as delivered what was only sent."""
    rewind = Session.rewind

    def forgetful(self: Session, acknowledged: int) -> None:
        rewind(self, acknowledged)
        # Acknowledged by nobody: sent again, but without its messages.
        self._resend = type(self._resend)(_emptied(frame) for frame in self._resend)

    with patch.object(Session, "rewind", forgetful):
        yield


def _emptied(frame: bytes) -> bytes:

    number, acknowledged, _ = unpack(frame, len(frame))
    return pack([number, acknowledged, []])


@contextmanager
def double_charge() -> Iterator[None]:
    """A gateway that takes a job up again forgets what was charged for it."""

    def forgetful(*_: object) -> None:
        return

    with patch.object(Job, "take_up", forgetful):
        yield


@contextmanager
def leaked_hold() -> Iterator[None]:
    """Tasks of a job that is being cancelled don't give their counted tags back."""
    hold = Worker.hold

    def leaky(self: Worker, assignment: Assignment, tasks: int) -> None:
        free = dict(self.free)
        hold(self, assignment, tasks)
        if tasks < 0 and assignment.job.leaving:
            self.free.update(free)

    with patch.object(Worker, "hold", leaky):
        yield


@contextmanager
def endless_lease() -> Iterator[None]:
    """A worker's agent does not look at its lease: it works on when its gateway has given it up."""
    with patch.object(Agent, "_check_lease", lambda self: True):
        yield


BUGS: Final[dict[str, Bug]] = {
    "lost-ack": lost_ack,
    "double-charge": double_charge,
    "leaked-hold": leaked_hold,
    "endless-lease": endless_lease,
}


def planted(name: str) -> AbstractContextManager[Any]:
    """The bug of that name for as long as this is open; none for the empty name."""
    return BUGS[name]() if name else nullcontext()
