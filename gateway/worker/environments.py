"""The environments of a worker's slots: makes them as jobs need them, and moves slots there.

It stands between the task book, which decides, and the host, which makes environments: it starts
slow work in a helper thread, ends slots that are to move, and fails tasks whose environment is
unavailable.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import trio

from federation.messages.environments import Environment
from gateway.worker.isolation.homes import BARE, SlotHome, key_of
from gateway.worker.isolation.host_environments import EnvironmentUnavailable, HostEnvironments
from gateway.worker.pieces import AgentBundle, AssignmentTerms, SlotBook
from gateway.worker.slot.process import SlotProcess
from gateway.worker.task_book import TaskBook

PATIENCE_S: Final = 1.0  # an environment that takes longer holds up no slot that the gateway counts
REFUSED_S: Final = 30.0  # an environment that could not be made is not retried for this time
BAD_STARTS_MAX: Final = 3  # consecutive, of slots of one home


class Environments:
    """The homes of one agent's slots.

    Args:
        task_book: its books.
        host: makes environments on this host.
        processes: its slots' processes, by number; read when needed.
        fail: reports a task as failed: terms, task, kind, text.
        hand_back: returns all tasks of functions to the gateway, which keeps them until told of
            fewer functions.
        feed: feeds slots that have room.
        say: reports to the user.
    """

    def __init__(
        self,
        task_book: TaskBook,
        host: HostEnvironments,
        processes: Sequence[SlotProcess],
        *,
        fail: Callable[[AssignmentTerms, int, str, str], None],
        hand_back: Callable[[frozenset[bytes]], None],
        feed: Callable[[], None],
        busy_s: Callable[[], list[float]],
        say: Callable[[str], None],
    ) -> None:
        self._task_book = task_book
        self._host = host
        self._processes = processes
        self._fail = fail
        self._hand_back = hand_back
        self._feed = feed
        self._busy_s = busy_s
        self._say = say
        self._environments: dict[bytes, Environment] = {}  # of functions that have one
        self._awaiting: dict[str, set[bytes]] = {}  # functions whose environment is being made
        self._refused: dict[str, tuple[float, str]] = {}  # failed environments: when and why
        self._slow: set[str] = set()  # environments being made that take long
        self._bad_starts: Counter[SlotHome] = Counter()
        self._one_by_one = trio.CapacityLimiter(1)

    # --- functions -------------------------------------------------------------------------------

    def arrived(
        self, function: bytes, environment: Environment | None, nursery: trio.Nursery
    ) -> None:
        """Take note of a new function and its environment."""
        if environment is None:
            self._task_book.known.add(function)
        else:
            self._environments[function] = environment
            self.wanted(function, nursery)

    def wanted(self, function: bytes, nursery: trio.Nursery) -> None:
        """Let a function's tasks run once their environment is here; have it made if it isn't."""
        environment = self._environments[function]
        key = key_of(environment)
        at_s, text = self._refused.get(key, (-math.inf, ""))
        self._task_book.settle_in(function, key)
        if self._host.is_ready(key):
            self._task_book.known.add(function)
        elif time.monotonic() - at_s < REFUSED_S:
            self.refuse(function, text)
        elif key in self._awaiting:
            is_news = function not in self._awaiting[key]
            self._awaiting[key].add(function)
            if is_news and key in self._slow:
                self._tell()
        else:
            self._awaiting[key] = {function}
            nursery.start_soon(self._provide, key, environment)

    def forget(self, function: bytes) -> None:
        """Forget a function that is not here any more."""
        self._task_book.forget_function(function)
        environment = self._environments.pop(function, None)
        self._awaiting.get(key_of(environment), set()).discard(function)

    async def _provide(self, key: str, environment: Environment) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._give_back, key)
            await self._make(key, environment)
            nursery.cancel_scope.cancel()
        if key in self._slow:
            self._slow.discard(key)
            self._tell()
        self._feed()

    async def _give_back(self, key: str) -> None:
        """Have the gateway keep the tasks of a slow environment, as other workers may run them."""
        await trio.sleep(PATIENCE_S)
        self._slow.add(key)
        self._tell()

    def tell_again(self) -> None:
        """Tell a gateway with a new session which slow environments are being made."""
        if self._slow:
            self._tell()

    def _tell(self) -> None:
        waiting = (self._awaiting.get(key, set()) for key in self._slow)
        self._hand_back(frozenset().union(*waiting))

    async def _make(self, key: str, environment: Environment) -> None:
        self._say(f"builds {environment}")
        try:
            await trio.to_thread.run_sync(
                self._host.provide,
                environment,
                abandon_on_cancel=True,
                limiter=self._one_by_one,
            )
        except EnvironmentUnavailable as error:
            self._say(f"environment build failed: {error}")
            self._refused[key] = time.monotonic(), str(error)
            for function in self._awaiting.pop(key):
                self.refuse(function, str(error))
        else:
            self._say(f"built {environment}")
            self._refused.pop(key, None)
            self._task_book.known |= self._awaiting.pop(key)

    def refuse(self, function: bytes, text: str) -> None:
        """Report all queued tasks of a function as impossible here."""
        self._report(self._task_book.evict(function), text)

    def _report(self, pieces: Iterable[AgentBundle], text: str) -> None:
        for piece in pieces:
            for task in range(piece.first, piece.stop):
                self._fail(piece.terms, task, "environment", text)

    # --- slots -----------------------------------------------------------------------------------

    def move(self) -> None:
        """Restart idle slots in homes that have queued work."""
        if not self._task_book.may_move:
            return
        for slot in self._task_book.moves(self._busy_s()):
            home = slot.moves_to
            assert home is not None, "the task book must ask for an environment"
            objection = self._host.objection(home)
            if objection:
                slot.moves_to, slot.is_forsaken = None, False
                self._report(self._task_book.evict_home(home), objection)
            else:
                self._processes[slot.index].kill()

    def started(self, home: SlotHome) -> None:
        """Note that a slot of this home is ready."""
        del self._bad_starts[home]

    def not_started(self, slot: SlotBook, process: SlotProcess) -> bool:
        """Handle a slot that never became ready: it is retried, or its home is given up.

        Return False when no retry is left: bare slots don't start.
        """
        home = slot.home
        self._bad_starts[home] += 1
        if not process.is_unfit and self._bad_starts[home] < BAD_STARTS_MAX:
            return True
        del self._bad_starts[home]
        if home == BARE:
            return False
        said = process.describe_end()
        if not process.is_unfit:
            said = f"{self._host.explain_start(home, process.code, said)}: {said}"
        self._say(f"can't use {home} any more: {said}")
        self._give_up(home, f"{home}: {said}", is_for_long=process.is_unfit)
        slot.moves_to = BARE
        return True

    def _give_up(self, home: SlotHome, text: str, *, is_for_long: bool) -> None:
        """Fail the tasks of a home; its environment is made anew when it is needed again."""
        self._host.forget(home)
        if is_for_long:
            self._refused[home.environment] = time.monotonic(), text
        for function, environment in self._environments.items():
            if key_of(environment) == home.environment:
                self._task_book.known.discard(function)
                self.refuse(function, text)
        self._report(self._task_book.evict_home(home), text)
