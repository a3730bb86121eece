"""Results that stay at their site as objects: fetched as they arrive, else made again.

An object is lost with the object host. So the client maps each result as soon as it hears of it,
before its future is done: from then on nothing but the end of this process takes it away. What is
lost before that is made by running the call again, in a job of its own.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from federation.engine.books.streams import Outcome, Stream
from federation.engine.objects import LeftResult, NotThere
from federation.errors import GridError
from federation.objects.left import REF

_log = logging.getLogger("gridfed")

IDLE_S: Final = 5.0  # after that the thread ends; the next result starts another
AGAIN_S: Final = 0.1
PATIENCE_S: Final = 30.0  # for the object host, where there is a session with the gateway


@dataclass(frozen=True, slots=True)
class Arrived:
    """Outcomes of a job from call `first` on, some of which are objects that may be lost."""

    stream: Stream
    first: int
    outcomes: list[Outcome]

    @property
    def are_references(self) -> bool:
        """Whether the user gets references, and no values."""
        return self.stream.opening.results == REF


class ResultFetcher:
    """Maps results in the order of their arrival, in a thread of its own.

    Args:
        session: returns the number of the session with a gateway, 0 while there is none; None: no
            gateway will be reached any more.
        place: gives calls their outcomes; those of these offsets were lost, as the text says.
    """

    def __init__(
        self,
        session: Callable[[], int | None],
        place: Callable[[Arrived, list[int], str], None],
    ) -> None:
        self._session = session
        self._place = place
        self._waiting: deque[Arrived] = deque()
        self._news = threading.Condition()
        self._is_running = False

    def add(self, arrived: Arrived) -> None:
        """Map the results of a message; then the engine hears of it. Waits for nothing."""
        with self._news:
            self._waiting.append(arrived)
            self._news.notify()
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="gridfed-results", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._news:
                if not self._waiting and not self._news.wait(IDLE_S) and not self._waiting:
                    self._is_running = False
                    return
                if not self._waiting:
                    continue
                arrived = self._waiting.popleft()
            lost, text = self._fetch(arrived)
            try:
                self._place(arrived, lost, text)
            except BaseException:  # noqa: BLE001 - a callback of a future may exit: not this thread
                _log.warning("a callback of a result failed", exc_info=True)
            del arrived  # the results are their futures' alone

    def _fetch(self, arrived: Arrived) -> tuple[list[int], str]:
        """Map the results; return the offsets of those that are lost, and how they were."""
        lost, text = [], ""
        for at, outcome in enumerate(arrived.outcomes):
            if type(outcome) is LeftResult and outcome.is_away:
                why = self._own(outcome, as_reference=arrived.are_references)
                if why:
                    lost.append(at)
                    text = why
        return lost, text

    def _own(self, result: LeftResult, *, as_reference: bool) -> str:
        """Map one result; return how it was lost, or an empty text.

        Without a session it waits for the next one, whose object host may be the same. A gateway
        that does not answer for good ends the calls anyway.
        """
        known, until_s = 0, 0.0
        while (session := self._session()) is not None:
            try:
                result.own(as_reference=as_reference)
            except NotThere as error:
                return str(error)
            except (GridError, OSError, RuntimeError) as error:  # RuntimeError: the client ends
                if not session or session != known:
                    known, until_s = session, time.monotonic() + PATIENCE_S
                elif time.monotonic() > until_s:
                    return str(error)
                time.sleep(AGAIN_S)
            except Exception as error:  # noqa: BLE001 - all later results wait for this thread
                _log.exception("a result at its site can't be mapped")
                return f"it can't be mapped: {error!r}"
            else:
                return ""
        return ""
