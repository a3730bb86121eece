"""Calls with futures among their arguments: which are taken, and those that are sent again.

And calls with large arguments, which are objects: the same kind of call.
"""

import os
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

from federation.address import TOKEN_VARIABLE
from federation.engine.books.jobs import JobTable
from federation.engine.detached_tasks import DetachedTask
from federation.engine.objects import ClientObjects
from federation.errors import GridError, SerializationError, SessionRefused
from federation.messages.messages import CloseJob, SendAgain
from federation.objects.large_arguments import LargeArgument
from federation.objects.left import VALUE
from federation.objects.open_calls import OpenCall, SealedCall
from federation.payload import seal_call, seal_large
from federation.sessions.handshake import Dialogue
from federation.sessions.task_passes import is_pass

OLDER: Final = (
    "the gateway at {} is of an older version, and takes no calls with futures among their "
    "arguments: pass their results"
)


class Welcoming(Protocol):
    """What these calls use of an engine."""

    @property
    def address(self) -> str:
        """The address of its gateway."""

    @property
    def welcome(self) -> Any:
        """The gateway's Welcome."""


class LargeCallEngine(Welcoming, Protocol):
    """What calls with large arguments use of an engine."""

    objects: ClientObjects
    is_near: bool


ARGUMENTS_MAX: Final = 200  # large arguments of a call that are objects; others are in its message


def seal_large_call(
    engine: LargeCallEngine,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    whole: SealedCall | None,
    project: str,
    results: str,
) -> SealedCall:
    """Seal a call that is large: with objects in place of its large arguments, if that can be.

    It can where the gateway is on this host, and all slots of its site read objects. A task seals
    its own calls whole: those that it waits for it may have to run itself. Nor is an object made
    with `results` "value". What has no room goes in the message. `whole` is the call for a message,
    if it was sealed so already.
    """
    is_task = is_pass(os.environ.get(TOKEN_VARIABLE, ""))
    is_taken = engine.is_near and engine.welcome.graphs and not is_task and results != VALUE
    if not is_taken or not engine.objects.takes_arguments():
        return whole if whole is not None else seal_call(args, kwargs)
    left = ARGUMENTS_MAX

    def put(value: Any) -> LargeArgument | None:
        nonlocal left
        if not left:
            return None
        left -= 1
        try:
            return engine.objects.put_argument(value, project)
        except (GridError, SerializationError):  # refused, or can't be pickled by itself
            left = 0
            return None

    return seal_large(args, kwargs, put)


class GraphCalls:
    """The calls of an engine that wait for others.

    Args:
        engine: whose calls they are.
        jobs: its unfinished jobs.
        dialogue: takes messages for the gateway.
    """

    def __init__(self, engine: Welcoming, jobs: JobTable, dialogue: Dialogue) -> None:
        self._engine = engine
        self._jobs = jobs
        self._dialogue = dialogue
        self._are_any = False
        self._asked_again: deque[SendAgain] = deque()

    def check(self, calls: Sequence[SealedCall], *, detached: bool) -> bool:
        """Return whether some calls have futures among their arguments, of this client alone.

        Raises GridError at a gateway that takes no such calls, ValueError for a future that the
        calls can't wait for.
        """
        found = [call for call in calls if isinstance(call, OpenCall)]
        if not found:
            return False
        if not self._engine.welcome.graphs:
            raise GridError(OLDER.format(self._engine.address))
        for future in [each for call in found for each in call.inputs]:
            if future.as_input() is None:
                self._check_future(future, detached=detached)
        self._are_any = True
        self._jobs.sender.keep_order()
        return True

    def _check_future(self, future: Any, *, detached: bool) -> None:
        here = self._engine.address
        if isinstance(future, DetachedTask):
            if future.gateway not in ("", here):
                raise ValueError(
                    f"{future!r} is at the gateway at {future.gateway}, and this client is at "
                    f"{here}: submit the call there"
                )
            return
        if getattr(future, "engine", self._engine) is not self._engine:
            raise ValueError(f"{future!r} is of another client: pass its result()")
        if detached:
            raise ValueError(
                f"{future!r} ends with this client, and a detached job may outlive it: wait for "
                "its result(), or submit it by submit_job and pass job.task(n)"
            )

    def check_fit(self) -> None:
        """Refuse a gateway that can't take the calls made for another. Raises SessionRefused."""
        if self._are_any and self._jobs.streams and not self._engine.welcome.graphs:
            raise SessionRefused(OLDER.format(self._engine.address), "limits")

    def hear(self, message: SendAgain) -> None:
        """Note that the gateway asks for calls again, until the results before it are resolved."""
        self._asked_again.append(message)

    def restart(self) -> None:
        """Begin a new session, in which all unfinished calls are sent."""
        self._asked_again.clear()

    def post_again(self) -> None:
        """Send calls again for which the gateway has asked; by now their inputs are resolved."""
        while self._asked_again:
            message = self._asked_again.popleft()
            stream = self._jobs.find(message.job)
            if stream is None or self._dialogue.session is None:
                continue
            ranges = [(low, high) for low, high in message.ranges if low < high <= stream.total]
            messages, placed = stream.send_calls(ranges, self._jobs.payload_max)
            untold = stream.take_untold()
            for told in messages if untold is None else [*messages, untold]:
                self._dialogue.post(told)
            if placed.calls and stream.closed:  # the gateway was told how many there are
                self._dialogue.post(CloseJob(stream.id, stream.total, stream.elsewhere()))
            self._jobs.take(stream, placed)
