"""A handle to a job at a gateway: ask how it is, fetch its results, cancel it, forget it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from federation.engine import Engine
from federation.errors import GatewayUnreachable, GridError
from federation.money import format_money
from federation.outcomes import exception_of, screen, show
from federation.payload import open_result
from federation.streams import Ended

ASK_WAIT_S: Final = 10.0
LOOK_MAX_S: Final = 0.5
RUNNING: Final = ("waiting", "running", "open")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is. `total` is None while tasks are still being submitted."""

    done: int
    failed: int
    cancelled: int
    total: int | None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a job has cost so far, exactly: nano-units of a currency, and slot time."""

    nanos: int
    currency: str
    price_nanos: int
    wall_ns: int
    user: str
    project: str

    def __str__(self) -> str:
        # Until something has run there is no currency: pools may differ in theirs.
        return format_money(self.nanos, self.currency) if self.currency else "0"


class JobHandle:
    """A job by its id, at a gateway. Each property asks that gateway anew.

    A detached job stays where it was handed over. When its client goes to another gateway, the
    handle asks by a connection of its own; GatewayUnreachable names the gateway that is away.

    Attributes:
        id: the job's.
        gateway: the address of its gateway; empty for wherever its client is, as for the tasks
            of a client, which go along with it.
    """

    def __init__(
        self,
        reach: Callable[[str, float | None], Engine],
        job_id: str,
        gateway: str = "",
        trusted_sites: frozenset[str] | None = None,
        *,
        prints: bool = True,
    ) -> None:
        self._prints = prints  # else nobody asked for them, whatever comes
        self._reach = reach
        self._trusted_sites = trusted_sites
        self.id = job_id
        self.gateway = gateway

    def _ask(self, verb: str, details: dict[str, Any], timeout_s: float | None = None) -> Any:
        try:
            engine = self._reach(self.gateway, timeout_s)
            return engine.ask(verb, {"job": self.id, **details}, timeout_s, self.gateway)
        except GatewayUnreachable as error:
            raise self._explain(error) from error

    def explain(self) -> dict[str, Any]:
        """Why it goes where it goes; see Client.explain."""
        return dict(self._ask("explain", {"job": self.id}))

    def _explain(self, error: GatewayUnreachable) -> GatewayUnreachable:
        if not self.gateway:
            return error
        return GatewayUnreachable(f"job {self.id} is at the gateway {self.gateway}: {error}")

    def details(self, timeout: float | None = None) -> dict[str, Any]:
        """Everything the gateway says of the job. Raises JobNotFound."""
        found: dict[str, Any] = self._ask("job", {}, timeout)
        return found

    @property
    def state(self) -> str:
        """waiting, running, open, done, cancelled, abandoned or lost.

        An open job has nothing to run and may get more tasks yet. Done says that all tasks have
        ended, whether well or not; an abandoned one lost its client half way, a lost one its
        gateway.
        """
        return str(self.details()["state"])

    def progress(self) -> Progress:
        """How far it is."""
        found = self.details()
        return Progress(found["done"], found["failed"], found["cancelled"], found["total"])

    def cost(self) -> Cost:
        """What it has cost so far, and who is billed."""
        found = self.details()
        return Cost(
            int(found["cost_nanos"]),
            found["currency"],
            found["price_nanos"],
            int(found["wall_ns"]),
            found["user"],
            found["project"],
        )

    def wait(self, timeout: float | None = None) -> str:
        """Wait until it has ended; its state. Raises TimeoutError."""
        until_s = None if timeout is None else time.monotonic() + timeout
        pause_s = 0.01
        state: str | None = None
        while True:
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            try:
                state = str(self.details(left_s)["state"])
            except GatewayUnreachable:
                if left_s is None:
                    raise
            if state is not None and state not in RUNNING:
                return state
            if until_s is not None and time.monotonic() >= until_s:
                known = state or "out of reach: its gateway does not answer"
                raise TimeoutError(f"job {self.id} is still {known}")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_MAX_S)

    def results(self, *, return_exceptions: bool = False) -> Iterator[Any]:
        """The results of a detached job, in order, waiting for those that are not there yet.

        The first failed task raises at its place and ends the iterator; with `return_exceptions`
        the exception stands for the result, and the iterator goes on.
        """
        at = 0
        while True:
            before = at
            found = self._ask("results", {"after": at, "wait_s": ASK_WAIT_S})
            for first, values, failures, prints, sites in found["outcomes"]:
                if first > at:
                    break  # what lies between is still running
                sites = [*sites, *self._reach(self.gateway, None).strangers]
                outcomes = screen(values, failures, sites, self._trusted_sites)
                for text in (text for _, text in prints if self._prints):
                    show(text)
                for outcome in outcomes[at - first :]:
                    at += 1
                    yield _value(outcome, return_exceptions)
                at = max(at, first + len(values))
            if at > before or not found["ended"]:
                continue
            if found["total"] is None or at >= found["total"]:
                return
            # It ended without an outcome for this one: given up together with its job.
            gone = Ended("cancelled", f"task {at} was dropped when its job ended")
            at += 1
            yield _value(gone, return_exceptions)

    def cancel(self, *, stop: bool = False) -> int:
        """Cancel what has not started; with `stop`, what runs too. How many tasks that was."""
        try:
            engine = self._reach(self.gateway, None)
            return engine.cancel_job(self.id, stop=stop, at=self.gateway)
        except GatewayUnreachable as error:
            raise self._explain(error) from error

    def forget(self) -> None:
        """Have the gateway drop the job's results, once it has ended; its cost stays on record.

        Without this they are kept for as long as the site keeps results. Raises JobNotFound.
        """
        self._ask("forget", {})

    def __repr__(self) -> str:
        return f"<gridfed job {self.id} at {self.gateway or 'the gateway of its client'}>"


def _value(outcome: bytes | Ended, return_exceptions: bool) -> Any:
    if not isinstance(outcome, Ended):
        return open_result(outcome)
    error = exception_of(outcome)
    if return_exceptions:
        return error
    raise error


__all__ = ["Cost", "GridError", "JobHandle", "Progress"]
