"""A client of the run: `python -m tests.chaos.work.client SETTINGS`, a process that may be killed.

It hands over job after job, of kinds drawn by its seed, and notes in its journal the promises it
got and the end of each task, until there is a file `stop` in the run's folder.
"""

import concurrent.futures
import contextlib
import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from federation import Client
from federation.errors import GatewayUnreachable, GridError, JobNotFound, JobRefused
from tests.chaos.journal import Journal
from tests.chaos.work import tasks
from tests.chaos.work.reaching import connected

WORK = {"work": True}  # the tag of pools that take the work; others are for probes
BIG_BYTES = 100_000
# Kind of job → how often it is drawn, by where the client is.
KINDS = {
    "london": {
        **dict.fromkeys(("attached", "detached", "forwarded", "relayed"), 4),
        **dict.fromkeys(("mapped", "flaky", "wrong", "cancelled", "preemptible", "slow"), 2),
    },
    "paris": {
        **dict.fromkeys(("attached", "detached", "production"), 3),
        **dict.fromkeys(("forwarded", "flaky"), 1),
    },
    "tokyo": {**dict.fromkeys(("attached", "detached"), 3), "flaky": 1, "cancelled": 1},
}
SELLER = {"london": "paris", "paris": "tokyo"}


class JobSubmitter:
    """Hands jobs over, one after the other."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._folder = Path(settings["folder"])
        self._site = settings["site"]
        self._name = settings["name"]
        self._chance = random.Random(settings["seed"])
        self._journal = Journal(self._folder / "journals" / f"{self._name}.jsonl")
        self._total = settings.get("tasks", 0)
        self._client = connected(settings["address"], self._site)
        self._number = 0

    def run(self) -> None:
        """Hand over jobs until told to stop; one large job, where the settings have `tasks`."""
        if self._total:
            self._map("large", self._total, 0.0)
        else:
            kinds = KINDS[self._site]
            while not (self._folder / "stop").exists():
                kind = self._chance.choices(list(kinds), list(kinds.values()))[0]
                try:
                    self._one(kind)
                except JobRefused as error:  # each of these jobs can be done
                    self._journal.note("refused", kind=kind, text=str(error))
                    time.sleep(1.0)
        self._client.shutdown()
        self._journal.note("leaves")

    def _one(self, kind: str) -> None:
        count = self._chance.choice((1, 5, 20, 60))
        seconds = self._chance.choice((0.0, 0.02, 0.1, 0.3))
        if kind in ("mapped", "slow"):
            self._map(kind, count, seconds)
        elif kind == "detached" or (kind in ("forwarded", "cancelled") and count > 5):
            self._detach(kind, count, seconds)
        else:
            self._attach(kind, count, seconds)

    def _view(self, kind: str, count: int) -> tuple[str, Client, str]:
        """A new job's key, the view of the client that it is handed over by, and its manner."""
        self._number += 1
        key = f"{self._name}-{self._number}"
        manner = kind if kind in ("flaky", "wrong") else "steady"
        changes: dict[str, Any] = {"name": key, "tags": dict(WORK)}
        if kind == "flaky":
            changes["retries"] = 3
        if kind == "forwarded":
            changes["sites"] = [SELLER[self._site]]
        if kind == "relayed":
            changes["tags"]["far"] = True
        if kind == "preemptible":
            changes |= {"preemptible": True, "sites": [SELLER[self._site]]}
        if kind == "production":
            changes["project"] = "production"
        self._journal.note(
            "submits", key=key, site=self._site, kind=kind, tasks=count, manner=manner
        )
        return key, self._client.options(**changes), manner

    def _end(self, key: str, task: int, outcome: Any) -> None:
        """Note how a task ended."""
        if isinstance(outcome, BaseException):
            self._journal.note(
                "ended", key=key, task=task, error=type(outcome).__name__, text=str(outcome)[:300]
            )
        else:
            self._journal.note("ended", key=key, task=task, value=outcome[0])

    def _attach(self, kind: str, count: int, seconds: float) -> None:
        key, view, manner = self._view(kind, count)
        calls = self._calls(key, count, seconds, manner)
        futures = [view.submit(tasks.work, *call) for call in calls]
        self._journal.note("opened", key=key, job=futures[0].job)
        left = threading.Semaphore(0)
        for task, future in enumerate(futures):
            future.add_done_callback(lambda each, task=task: self._called(key, task, each, left))
        if kind == "cancelled":
            time.sleep(self._chance.random() * count * seconds / 2)
            self._journal.note("cancels", key=key)
            stop = self._chance.random() < 0.5
            for future in futures:
                future.cancel(stop=stop)
        concurrent.futures.wait(futures)
        for _ in futures:
            left.acquire()  # each was called back
        self._journal.note("finished", key=key)

    def _called(self, key: str, task: int, future: Any, left: threading.Semaphore) -> None:
        try:
            self._end(key, task, future.result(timeout=0))
        except (Exception, CancelledError) as error:
            self._end(key, task, error)
        left.release()

    def _map(self, kind: str, count: int, seconds: float) -> None:
        key, view, manner = self._view(kind, count)
        size = BIG_BYTES if kind == "slow" else 0
        calls = self._calls(key, count, seconds, manner, size)
        results = view.starmap(tasks.work, calls)
        self._journal.note("opened", key=key, job=results.job)
        task = 0
        try:
            for task, outcome in enumerate(results):
                self._end(key, task, outcome)
                if kind == "slow":
                    time.sleep(0.2)  # a consumer that is slower than the slots
        except GridError as error:  # it ends the iterator: nothing is known of the rest
            self._end(key, task + 1, error)
            return
        self._journal.note("finished", key=key)

    def _calls(
        self, key: str, count: int, seconds: float, manner: str, size: int = 0
    ) -> Iterator[tuple[Any, ...]]:
        folder = str(self._folder)
        return ((folder, key, task, seconds, manner, size) for task in range(count))

    def _detach(self, kind: str, count: int, seconds: float) -> None:
        key, view, manner = self._view(kind, count)
        calls = self._calls(key, count, seconds, manner)
        job = view.submit_job(tasks.work, calls, star=True)
        self._journal.note("accepted", key=key, job=job.id)
        if kind == "cancelled":
            time.sleep(self._chance.random() * count * seconds / 2)
            self._journal.note("cancels", key=key)
            # Unreachable: it was cancelled, or was not. Not found: it ended before.
            with contextlib.suppress(GatewayUnreachable, JobNotFound):
                job.cancel(stop=self._chance.random() < 0.5)
        elif self._chance.random() < 0.7:  # who hands over too much waits for it
            while True:
                try:
                    job.wait(5.0)
                    return
                except TimeoutError:
                    if (self._folder / "stop").exists():
                        return


def main() -> None:
    """Run a client by the settings in a file."""
    worker = JobSubmitter(json.loads(Path(sys.argv[1]).read_text()))
    try:
        worker.run()
    except GridError as error:
        worker._journal.note("failed", error=type(error).__name__, text=str(error)[:300])
        raise


if __name__ == "__main__":
    main()
