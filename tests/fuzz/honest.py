"""Honest users continue their work while others fuzz: one task after the other.

A task that is not done in time is noted, and the user goes on with the next. Its future is kept: in
the end each must have a result, or an error that names the cause.
"""

import threading
import time
from concurrent.futures import CancelledError, Future, wait
from concurrent.futures import TimeoutError as Late
from typing import Any, Final

from federation import Client
from federation.errors import GridError
from tests.fuzz.judging import Done
from tests.fuzz.town import HONEST

PAUSE_S: Final = 0.1  # between two tasks of one user
GIVE_UP_S: Final = 300.0  # of a task that is late anyway
ENDS_S: Final = 60.0  # in which all late ones must end, once nobody disturbs


class Stream:
    """One user's tasks from one site to another, in a thread of its own.

    Args:
        name: of the way, for people.
        address: of the user's gateway.
        site: where the tasks run.
        token: by which the user comes in; empty: as the operator does.
    """

    def __init__(self, name: str, address: str, site: str, token: str = "") -> None:
        self.name, self.done = name, list[Done]()
        self._address, self._site, self._token = address, site, token
        self._late: list[Future[Any]] = []
        self.hanging: list[str] = []  # what became of futures that had not ended; see `run`
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, at_most_s: float) -> None:
        """End after the task at hand, or without it when that takes longer."""
        self._is_over.set()
        self._thread.join(at_most_s)

    def _run(self) -> None:
        given: dict[str, Any] = {"token": self._token} if self._token else {"user": "honest"}
        client = Client(self._address, connect_timeout_s=GIVE_UP_S, **given)
        try:
            view = client.options(sites=[self._site], tags=HONEST, priority=1e6, name="honest")
            while not self._is_over.wait(PAUSE_S):
                self.done.append(self._one(view, len(self.done)))
            self.hanging = self._outcomes()
        finally:
            client.shutdown(wait=False)

    def _outcomes(self) -> list[str]:
        """Wait for the late futures; say which have no end, or one without a name."""
        wait(self._late, ENDS_S)
        found = []
        for future in self._late:
            if not future.done():
                found.append("a future has not ended")
                continue
            try:
                future.result()
            except (GridError, OSError):
                continue
            except (Exception, CancelledError) as error:
                found.append(f"a future has ended by {type(error).__name__}: {error}"[:200])
        return found

    def _one(self, view: Client, number: int) -> Done:
        begun_s = time.monotonic()
        error = ""
        try:
            future = view.submit(pow, 2, number % 64)
            value = future.result(GIVE_UP_S)
            if value != 2 ** (number % 64):
                error = f"a wrong value: {value!r}"
        except Late:
            error = "no result"
            self._late.append(future)
        except (GridError, OSError) as found:
            error = f"{type(found).__name__}: {found}"[:200]
        return Done(self.name, time.monotonic() - begun_s, error)
