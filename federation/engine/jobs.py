"""A handle to a job at a gateway: query its state, fetch its results, cancel it, forget it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from federation.engine.books.streams import Ended
from federation.engine.detached_tasks import DetachedTask
from federation.engine.engine import ClientEngine
from federation.engine.failures import failure_of
from federation.engine.futures import screen, show
from federation.engine.log_lines import LogLine, read_lines
from federation.errors import GatewayUnreachable, GridError, JobNotFound
from federation.ids import id_time_ms
from federation.messages.printed import joined, stream_of
from federation.money import format_money
from federation.payload import open_result
from federation.pictures.graph_picture import GraphPicture, stages_of
from federation.ranges import RangeSet
from federation.words import Length, clean, read_timeout

if TYPE_CHECKING:
    from federation.engine.explained import Explanation

ASK_WAIT_S: Final = 10.0
ORDERS: Final = frozenset({"hold", "release", "prioritise"})
LOOK_MAX_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job. `total` is None while tasks are still being submitted.

    `running` and `waiting` are 0 of a job that has ended, and at a gateway of an older version.
    """

    done: int
    failed: int
    cancelled: int
    total: int | None
    running: int = 0
    waiting: int = 0  # for a slot, or for inputs


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a job so far, exactly: nano-units of a currency, and slot time."""

    nanos: int
    currency: str
    price_nanos: int
    wall_ns: int
    user: str
    project: str

    def __str__(self) -> str:
        # The currency is unknown until a task has run: pools may differ in theirs.
        return format_money(self.nanos, self.currency) if self.currency else "0"


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """A job was cancelled.

    Attributes:
        tasks: the number of tasks taken back or stopped.
        title: its id, user and project, for people; empty if its gateway does not say so.
    """

    tasks: int
    title: str


class JobHandle:
    """A job by its id, at a gateway. Each property queries that gateway again.

    A detached job stays at the gateway to which it was submitted. When its client goes to another
    gateway, the handle asks by a connection of its own; GatewayUnreachable names the gateway that
    is away.

    Attributes:
        id: the id of the job; until the first question, what Client.job was given.
        gateway: the address of its gateway. It is empty for a client's own tasks, which go along
            with the client: they are at the client's current gateway.
    """

    def __init__(
        self,
        reach: Callable[[str, float | None], ClientEngine],
        job_id: str,
        gateway: str = "",
        trusted_sites: frozenset[str] | None = None,
        *,
        prints: bool = True,
        shown: RangeSet | None = None,
    ) -> None:
        self._prints = prints  # if False, output was not asked for: show none
        # Tasks whose output was shown: reading results again does not repeat it.
        self._shown = RangeSet() if shown is None else shown
        self._reach = reach
        self._is_pinned = id_time_ms(job_id) is not None
        self._trusted_sites = trusted_sites
        self.id = job_id
        self.gateway = gateway

    def _ask(self, verb: str, details: dict[str, Any], timeout_s: float | None = None) -> Any:
        try:
            engine = self._reach(self.gateway, timeout_s)
            self._pin(engine, timeout_s, for_order=verb in ORDERS)
            return engine.ask(verb, {"job": self.id, **details}, timeout_s, self.gateway)
        except GatewayUnreachable as error:
            raise self._explain(error) from error

    def _pin(
        self, engine: ClientEngine, timeout_s: float | None = None, *, for_order: bool = False
    ) -> None:
        """Ask which job is meant by a name or a part of an id, once: a later one may have it too.

        An order means the only one that has not ended. Raises JobNotFound, or GridError where
        several are meant.
        """
        if self._is_pinned:
            return
        found = self._meant(engine, timeout_s) if for_order else None
        if found is None:
            found = engine.ask("job", {"job": self.id}, timeout_s, self.gateway)
        self.id, self._is_pinned = str(found["id"]), True

    def _meant(self, engine: ClientEngine, timeout_s: float | None = None) -> Any:
        """Return the job that an order means; None: the gateway is of an older version.

        Raises JobNotFound, also where the job has ended, or GridError where several are meant.
        """
        details = {"job": self.id, "for_order": True}
        try:
            return engine.ask("job", details, timeout_s, self.gateway)
        except GridError as error:
            if "has no detail 'for_order'" in str(error):
                return None
            raise

    def explain(self) -> "Explanation":
        """Explain why the job goes where it goes; see Client.explain."""
        return explanation(self._ask("explain", {"job": self.id}))

    def _explain(self, error: GatewayUnreachable) -> GatewayUnreachable:
        if not self.gateway:
            return error
        return GatewayUnreachable(f"job {self.id} at gateway {self.gateway}: {error}")

    def details(self, timeout: Length | None = None) -> dict[str, Any]:
        """Return everything that the gateway knows of the job. Raises JobNotFound."""
        found: dict[str, Any] = self._ask("job", {}, read_timeout(timeout))
        return found

    @property
    def state(self) -> str:
        """The state: waiting, running, open, cancelling, ending; or, when it has ended, done,
        failed, partly failed, cancelled, abandoned, lost or rejected.

        An open job has nothing to run and may still get more tasks. A cancelling job begins no more
        tasks, and those that had begun run to their end: until then its cost is not final; ending
        is the same for another reason, as for a client that is gone. A done job has ended and no
        task of it failed; a failed one has failures and no result, a partly failed one has both:
        `first_error` says what went wrong first. An abandoned job lost its client half way, a lost
        one its gateway.
        """
        return str(self.details()["state"])

    @property
    def first_error(self) -> str:
        """The error of the first task that failed, in one line; empty if none has.

        `results(return_exceptions=True)` has all of them.
        """
        return str(self.details().get("first_error", ""))

    def why_waiting(self) -> str:
        """Return why its tasks wait, in one sentence; empty if none waits."""
        return clean(str(self.details().get("waits_for", "")))

    def graph(self) -> GraphPicture:
        """Return the graph of the job: its stages, and a picture of them.

        A stage is a job; those that read its results, or whose results it reads, are in the graph,
        and so on. Without any it is the only one. A notebook shows the picture;
        `job.graph().save("graph.svg")` writes it, or a page where the name ends in .html.
        """
        found = self.details()
        return GraphPicture(tuple(stages_of(found.get("stages") or [_lone_stage(found)])))

    def progress(self) -> Progress:
        """Return how many of its tasks run, wait, are done, failed and cancelled, and the total."""
        found = self.details()
        ended = (found["done"], found["failed"], found["cancelled"])
        if "running" not in found:  # a gateway of an older version
            return Progress(*ended, found["total"])
        waiting = found["waiting"] + found["in_flight"] - found["running"] + found["blocked"]
        return Progress(*ended, found["total"], found["running"], waiting)

    def cost(self) -> Cost:
        """Return the cost of the job so far, and the user and project that are billed."""
        found = self.details()
        return Cost(
            int(found["cost_nanos"]),
            found["currency"],
            found["price_nanos"],
            int(found["wall_ns"]),
            found["user"],
            found["project"],
        )

    def wait(self, timeout: Length | None = None) -> str:
        """Wait until the job has ended, and return its state: "done" only if no task failed.

        Its cost is final then. A cancelled job has ended when its last begun task has. `timeout` is
        in seconds, or a text such as "10m".

        Raises TimeoutError.
        """
        within_s = read_timeout(timeout)
        until_s = None if within_s is None else time.monotonic() + within_s
        pause_s = 0.01
        state: str | None = None
        while True:
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            try:
                found = self.details(left_s)
                state = str(found["state"])
                if found["ended_at_s"] is not None:
                    return state
            except GatewayUnreachable:
                if left_s is None:
                    raise
            if until_s is not None and time.monotonic() >= until_s:
                known = state or "unreachable: its gateway does not answer"
                raise TimeoutError(f"job {self.id} is still {known}")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_MAX_S)

    def results(self, *, return_exceptions: bool = False) -> Iterator[Any]:
        """Yield the results of a detached job, in order, and wait for those that are not there yet.

        The first failed task raises at its place and ends the iterator. With `return_exceptions`
        its exception takes the place of the result, and the iterator goes on.
        """
        at = 0
        while True:
            before = at
            found = self._ask("results", {"after": at, "wait_s": ASK_WAIT_S})
            streams = iter(found.get("streams", ()))  # an older gateway sends none
            for first, values, failures, prints, sites in found["outcomes"]:
                printed = joined(prints, next(streams, ()))
                if first > at:
                    break  # the tasks in between are still running
                sites = [*sites, *self._reach(self.gateway, None).strangers]
                outcomes = screen(values, failures, sites, self._trusted_sites)
                self._show(first, printed)
                for outcome in outcomes[at - first :]:
                    at += 1
                    yield self._value(outcome, at - 1, return_exceptions)
                at = max(at, first + len(values))
            if at > before or not found["ended"]:
                continue
            if found["total"] is None or at >= found["total"]:
                return
            # The job ended without an outcome for this task: it was dropped together with its job.
            gone = Ended("cancelled", f"task {at} was dropped when its job ended")
            at += 1
            yield self._value(gone, at - 1, return_exceptions)

    def task(self, number: int) -> DetachedTask:
        """Return what stands for a task's result among the arguments of other calls.

        Those calls begin once the task has ended; see docs/graphs.md. Only for detached jobs: of
        an attached one, pass the futures.
        """
        if type(number) is not int or number < 0:
            raise ValueError(
                f"number is {number!r:.40}; it must be the number of a task, from 0 on"
            )
        if not self._is_pinned:
            self.details()
        return DetachedTask(self.id, number, self.gateway)

    def tasks(self) -> list[DetachedTask]:
        """Return what stands for the results of all tasks, in order: see `task`."""
        total = self.progress().total
        if total is None:
            raise GridError(f"job {self.id} may still get more tasks: name them with task(number)")
        return [DetachedTask(self.id, number, self.gateway) for number in range(total)]

    def _show(self, first: int, printed: list[list[Any]]) -> None:
        """Show the output of tasks from `first` on, that of each task once."""
        if not self._prints:
            return
        tasks = {first + row[0] for row in printed if first + row[0] not in self._shown}
        for task in tasks:
            self._shown.add(task, task + 1)
        for row in printed:
            if first + row[0] in tasks:
                show(row[1], stream_of(row))

    def _value(self, outcome: bytes | Ended, task: int, return_exceptions: bool) -> Any:
        if not isinstance(outcome, Ended):
            return open_result(outcome)
        error = failure_of(outcome, task, self.id, None)
        if return_exceptions:
            return error
        raise error

    def cancel(self, *, stop: bool = False) -> int:
        """Cancel the unstarted tasks; with `stop`, the running ones too. Return their number.

        Without `stop` the job is cancelling until its last begun task has ended: `wait()`.
        """
        return self.order_cancel(stop=stop).tasks

    def order_cancel(self, *, stop: bool = False) -> JobCancelled:
        """Cancel as `cancel` does; say as well whose job it was."""
        try:
            engine = self._reach(self.gateway, None)
            self._pin(engine, for_order=True)
            try:
                engine.check_usable()
                tasks, title = engine.cancels.job(self.id, stop=stop, at=self.gateway)
            except JobNotFound:
                if self._has_ended():
                    self._meant(engine)  # says when and how
                raise
            return JobCancelled(tasks, clean(title))
        except GatewayUnreachable as error:
            raise self._explain(error) from error

    def _has_ended(self) -> bool:
        """Whether this user sees that the job has ended."""
        try:
            return self.details()["ended_at_s"] is not None
        except JobNotFound:
            return False

    def logs(self, task: int | None = None, *, follow: bool = False) -> Iterator[LogLine]:
        """Yield the lines that its tasks have printed, in the order in which they arrived.

        The gateway keeps the last output of each task, up to the limits of its site, whatever the
        option `prints` says. It forgets the output with the job.

        Args:
            task: only the lines of this task.
            follow: wait for more lines until the job has ended. A line without an end is given
                after a second; what the task adds to it is a line of its own.

        Raises JobNotFound, and GridError when the job has no such task.
        """
        return read_lines(lambda details: dict(self._ask("logs", details)), task, follow=follow)

    def hold(self) -> None:
        """Hold the job: no task of it begins, here or at another site, until it is released.

        Running tasks go on. The hold lasts over restarts of the gateway; it does not put a deadline
        off. Raises JobNotFound, or GridError when it is held already.
        """
        self._ask("hold", {})

    def release(self) -> None:
        """Let a held job go on. Raises JobNotFound, or GridError when it is not held.

        A job that the operator holds can be released by the operator alone.
        """
        self._ask("release", {})

    def prioritise(self, priority: float) -> None:
        """Serve the job by another priority: of one user's jobs, those of higher priority go first.

        Raises JobNotFound, or GridError when the user's entitlements don't allow it.
        """
        self._ask("prioritise", {"priority": priority})

    @property
    def held_by(self) -> str:
        """The user who holds the job; empty if it is not held."""
        return clean(str(self.details().get("held_by", "")))

    def forget(self) -> None:
        """Make the gateway drop the results and the output of a job that has ended.

        Its cost stays on record. Without this they are kept for as long as the site keeps results.
        Raises JobNotFound.
        """
        self._ask("forget", {})

    def __repr__(self) -> str:
        return f"<gridfed job {self.id} at {self.gateway or 'the gateway of its client'}>"


def explanation(answer: Any) -> "Explanation":
    """Return the answer of a gateway as an explanation. Imported when it is needed, as few are."""
    from federation.engine.explained import Explanation

    return Explanation(answer)


__all__ = ["Cost", "GridError", "JobHandle", "Progress"]


def _lone_stage(found: dict[str, Any]) -> dict[str, Any]:
    """Return a job that is in no graph as a stage."""
    figures = {key: found[key] for key in ("id", "name", "done", "failed")}
    running = found.get("running", 0)  # an older gateway does not tell
    waiting = found.get("waiting", 0) + found.get("in_flight", 0) - running
    return figures | {
        "depth": 0,
        "total": found["tasks"] if found["total"] is None else found["total"],
        "running": running,
        "waiting": max(0, waiting),
        "reads": [],
    }
