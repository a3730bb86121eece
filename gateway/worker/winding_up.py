"""The end of an agent: on a signal, before its host is taken away, or by itself.

On a first signal the agent returns the tasks that wait, lets running ones end, and says goodbye; on
another it stops at once. A notice that the host will be taken away works like a first signal, with
all the time until then.
"""

import math
import signal
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import trio

from federation.messages.messages import Bye, Drain, Returned
from federation.words import count, duration_text
from gateway.base.clocks import utc_now
from gateway.sessions.conversation import SETTLE_MAX_S
from gateway.worker.conversation import WorkerConversation
from gateway.worker.interruption import Interruption, watch
from gateway.worker.outbox import WorkerOutbox
from gateway.worker.pieces import SlotBook
from gateway.worker.settings import AgentSettings
from gateway.worker.task_book import ALL_TASKS, TaskBook

STOP_S: Final = 10.0  # time for running tasks to end when the agent stops
AT_ONCE_S: Final = 0.2  # time for a goodbye when the agent stops at once
LOOK_S: Final = 0.05  # how often it is checked whether running tasks have ended
STOPPED_AT_ONCE: Final = 130


class WindingUp:
    """Ends an agent.

    Args:
        settings, task_book, outbox, gateway: the agent's.
        reclaim: takes back tasks that have not begun from these slots.
        is_reporting: whether a report waits until its results are kept.
        stop_all_in: has all tasks stop so many seconds from now.
        say: reports to the user.

    Attributes:
        is_stopping: whether the agent begins no more tasks.
        has_said_bye: whether it tells the gateway nothing more.
        is_draining: whether the gateway has told it to take no more tasks.
        exit_code: the exit code of its process.
    """

    def __init__(
        self,
        settings: AgentSettings,
        task_book: TaskBook,
        outbox: WorkerOutbox,
        gateway: WorkerConversation,
        *,
        reclaim: Callable[[Iterable[SlotBook]], Awaitable[None]],
        is_reporting: Callable[[], bool],
        stop_all_in: Callable[[float], None],
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._task_book = task_book
        self._outbox = outbox
        self._gateway = gateway
        self._reclaim = reclaim
        self._is_reporting = is_reporting
        self._stop_all_in = stop_all_in
        self._say = say
        self._why = ""
        self.is_stopping = False
        self.has_said_bye = False
        self.is_draining = False
        self.exit_code = 0

    def begin(self, nursery: trio.Nursery) -> None:
        """Heed signals and interruptions; the end of the agent cancels the nursery."""
        self._nursery = nursery
        nursery.start_soon(self._stop_on_signal)
        if self._settings.interruptions:
            nursery.start_soon(self._watch_interruptions)

    async def _stop_on_signal(self) -> None:
        """On a signal, return queued tasks and let running ones end; on another, stop at once."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                name = signal.Signals(number).name
                if self.is_stopping:
                    await self._say_goodbye(AT_ONCE_S)
                    self.end(
                        f"has stopped at once, after a second signal ({name}): the gateway gives "
                        "its tasks to other workers",
                        STOPPED_AT_ONCE,
                    )
                else:
                    self.is_stopping = True
                    self._why = f"after {name}"
                    if not self._task_book.is_idle:
                        self._say(
                            f"was told to stop by {name}: it gives waiting tasks back to the "
                            f"gateway now, and running ones if they do not end within {STOP_S:g} "
                            "s; a second signal stops it at once"
                        )
                    self._nursery.start_soon(self._wind_up)

    async def _watch_interruptions(self) -> None:
        settings = self._settings
        await watch(
            settings.interruptions,
            self._interrupted,
            self._say,
            utc_now,
            poll_s=settings.interruptions_s,
            rebalances=settings.heeds_rebalance,
        )

    def _interrupted(self, notice: Interruption) -> None:
        """Wind up before the host is taken away: as on a first signal, but until that moment."""
        in_s = notice.stop_in_s(utc_now())
        self._say(
            notice.text
            if in_s is None
            else f"{notice.text}: its tasks stop in {duration_text(in_s)}"
        )
        if in_s is not None:
            self._stop_all_in(in_s)
        if not self.is_stopping:
            self.is_stopping = True
            self._why = f"before its host is taken away ({notice.text})"
            self._nursery.start_soon(self._wind_up, math.inf)

    async def _wind_up(self, at_most_s: float = STOP_S) -> None:
        self._outbox.add(Drain(True))
        self._gateway.flush()
        await self._reclaim([slot for slot in self._task_book.slots if slot.bundles])
        # Tasks that the gateway has assigned meanwhile return to it with the Bye.
        waiting = 0
        for number in list(self._task_book.held):
            taken = self._task_book.withdraw(number, 0, ALL_TASKS)
            waiting += sum(stop - first for first, stop in taken)
            self._outbox.add(Returned(number, [list(span) for span in taken]))
        self._gateway.flush()
        with trio.move_on_after(at_most_s):
            while self._is_reporting() or any(slot.bundles for slot in self._task_book.slots):  # noqa: ASYNC110 - not for long
                await trio.sleep(LOOK_S)
        running = sum(bool(slot.bundles) for slot in self._task_book.slots)
        await self._say_goodbye()
        self.end(stopped_text(self._why, waiting, running), 0)

    async def _say_goodbye(self, at_most_s: float = SETTLE_MAX_S) -> None:
        """Say goodbye, so that the gateway does not wait for this worker to return."""
        self.has_said_bye = True
        self._outbox.add(Bye("drained" if self.is_draining else "stopped"))
        await self._gateway.settle(at_most_s)

    def end(self, reason: str, code: int) -> None:
        """End the agent now: tell the user why, and set its exit code."""
        self._say(reason)
        self.exit_code = code
        self._nursery.cancel_scope.cancel()


def stopped_text(why: str, waiting: int, running: int) -> str:
    """Return the last line of a worker: why it has stopped, and what became of its tasks.

    Args:
        why: "after SIGTERM".
        waiting: its tasks that had not begun.
        running: its slots whose task had not ended.
    """
    given = waiting + running
    if not given:
        return f"has stopped {why}: it had no task left"
    anew = f", of which {running:,} ran and will begin anew" if running else ""
    return f"has stopped {why}: it gave {count(given, 'task')} back to the gateway{anew}"
