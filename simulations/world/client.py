"""A user's process in virtual time: the real books and dialogue, and a simulated user.

The books are those of federation.engine.books, which know neither threads nor sockets; callbacks
replace federation.engine.engine, and note what the user learns.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, Final

from federation.engine.books.jobs import CANCELLED, JobTable
from federation.engine.books.requests import RequestTable
from federation.engine.books.streams import Ended, Stream
from federation.engine.engine import LEAVE_S
from federation.engine.graph_calls import GraphCalls
from federation.errors import SessionRefused
from federation.ids import id_at
from federation.messages.messages import (
    Answer,
    Ask,
    Bye,
    Cancel,
    Dropped,
    Hello,
    HoldChanged,
    Kept,
    NeedFunction,
    OpenJob,
    RejectJob,
    Results,
    SendAgain,
)
from federation.payload import SealedFunction
from federation.ranges import Range
from federation.reasons import Reason
from federation.sessions.handshake import PASSING_REFUSALS, Opened
from simulations.world.caller import Caller
from simulations.world.graphs import sealed
from simulations.world.host import Ground
from simulations.world.plan import PYTHON, ClientPlan, JobPlan
from simulations.world.tasks import Task, draw_task

FETCH_WAIT_S: Final = 10.0
OUTCOMES_MAX: Final = 16
WAKE_S: Final = 0.005  # until the user's thread sees the engine's news
IMPATIENT_S: Final = 0.003  # until another process of the user asks for a job just submitted


@dataclass(slots=True)
class SimJob:
    """A job, as its user knows it: this outlives the user's process.

    `outcomes` has the result of each call, None before; `is_kept` means that the gateway has
    promised to keep it; `life` is the number of the process that opened it.
    """

    id: str
    plan: JobPlan
    life: int
    tasks: list[Task] = field(default_factory=list)
    outcomes: list[bytes | Ended | None] = field(default_factory=list)
    left: int = 0
    is_closed: bool = False
    is_kept: bool = False
    is_lost: bool = False  # its process died before the gateway had promised to keep it
    is_fetched: bool = False
    is_cancelled: bool = False
    is_asked: bool = False  # a fetch is in flight

    @property
    def is_over(self) -> bool:
        """Whether its user knows all results."""
        if self.is_lost:
            return True
        if self.plan.detached:
            return self.is_fetched
        return self.is_closed and not self.left


class SimClient(Caller):
    """One user's process, and after a crash the next one."""

    def __init__(self, ground: Ground, plan: ClientPlan) -> None:
        super().__init__(ground, plan.name, plan.site, skew_s=plan.skew_s, drift=plan.drift)
        self.plan = plan
        self.jobs: dict[str, SimJob] = {}
        self._begun = 0  # jobs of the plan

    def hello(self) -> Hello:
        """Return its introduction."""
        return Hello([], "client", f"{self.name}-{self.life}", self.name, b"", "", 0, {})

    def boot(self) -> None:
        """Start with stored state only: ids of jobs that the gateway promised to keep."""
        self._asked: dict[int, str] = {}  # request → job
        self.sessions = 0
        for job in self.jobs.values():
            job.is_asked = False
            if not job.is_over and not job.is_kept:
                job.is_lost = True
        super().boot()
        self._table = JobTable(self.dialogue, self, deque(), self._new_id)
        self._requests = RequestTable(self.dialogue)
        self._graph_calls = GraphCalls(self, self._table, self.dialogue)
        for at, plan in enumerate(self.plan.jobs):
            if at >= self._begun:
                self.after(max(0.0, plan.at_s - self.clock.now_s), partial(self._begin, plan))
        self._fetch_all()

    @property
    def address(self) -> str:
        """The address of its gateway."""
        return self.gateway

    @property
    def welcome(self) -> Any:
        """The gateway's Welcome."""
        return self.dialogue.welcome

    def _new_id(self) -> str:
        return id_at(round(self.utc_s() * 1000), self.dice.choice)

    @property
    def is_over(self) -> bool:
        """Whether it has begun all its jobs, and all are over."""
        begun = self._begun == len(self.plan.jobs)
        return begun and all(job.is_over for job in self.jobs.values())

    def leave(self) -> None:
        """Say goodbye, and exit."""
        self.dialogue.post(Bye("done"))
        self.flush()
        self.is_leaving = True
        self.after(LEAVE_S, self.stop)

    # --- actions of its user -------------------------------------------------------------------

    def _begin(self, plan: JobPlan) -> None:
        session = self.dialogue.welcome
        if session is None:  # a SimClient() waits for its first connection
            self.after(0.1, lambda: self._begin(plan))
            return
        self._begun += 1
        body = f"function of {self.name} {self._begun}".encode()
        digest = sha256(body).digest()
        job = SimJob(self._new_id(), plan, self.life)
        self.jobs[job.id] = job
        opening = OpenJob(
            job=job.id,
            name=f"job {self._begun}",
            function=digest,
            detached=plan.detached,
            project="desk",
            priority=plan.priority,
            tags=dict(plan.tags),
            timeout_s=plan.timeout_s,
            retries=plan.retries,
            max_cost_nanos=plan.max_cost_nanos,
            currency="USD" if plan.max_cost_nanos is not None else "",
            python=PYTHON,
            prints=False,
            again=False,
            wishes=self._wishes(plan),
        )
        self.trace.add(self.name, "opens", job.id, data=job)
        stream = self._table.open(opening, SealedFunction(digest, body, opening.name))
        self._submit(job, stream)
        if plan.cancel_at_s is not None:
            wait_s = max(0.0, plan.cancel_at_s - self.clock.now_s)
            self.after(wait_s, lambda: self._cancel(job))
        if plan.is_impatient:
            self.after(IMPATIENT_S, lambda: self._fetch(job))

    def _submit(self, job: SimJob, stream: Stream) -> None:
        plan = job.plan
        if stream.rejected or job.is_cancelled:
            self._close(job, stream)
            return
        first = len(job.tasks)
        stop = min(plan.tasks, first + plan.batch)
        tasks = [draw_task(plan, job.id, number, self.dice) for number in range(first, stop)]
        job.tasks += tasks
        job.outcomes += [None] * len(tasks)
        job.left += len(tasks)
        self.trace.add(self.name, "submits", job.id, (first, stop))
        calls = [sealed(job, number) for number in range(first, stop)]
        waits = self._graph_calls.check(calls, detached=plan.detached)
        stream.extend(calls, has_open=waits)
        self._table.sender.add(stream)
        if stop == plan.tasks:
            self._close(job, stream)
        else:
            self.after(plan.every_s, lambda: self._submit(job, stream))
        self.flush()

    def _close(self, job: SimJob, stream: Stream) -> None:
        job.is_closed = True
        self._table.close(stream)
        self.flush()

    def _cancel(self, job: SimJob) -> None:
        stream = self._table.find(job.id)
        job.is_cancelled = True
        if job.is_over or (stream is None and not job.is_kept):
            return
        self.trace.add(self.name, "cancels", job.id, note=f"kill={job.plan.kill}")
        if stream is not None and not job.plan.detached:
            taken = self._table.cancel_unsent(stream, [(0, stream.total)])
            self._note_end(stream, taken, CANCELLED)
        total = len(job.tasks)
        ranges = [] if job.plan.detached or not total else [[0, total]]
        self._ask(Cancel(0, job.id, ranges, job.plan.kill), job.id)

    def _fetch_all(self) -> None:
        """Fetch the results of kept jobs, and of jobs whose user does not wait for that."""
        self.after(0.5, self._fetch_all)
        for job in self.jobs.values():
            if job.is_kept or job.plan.is_impatient:
                self._fetch(job)

    def _fetch(self, job: SimJob) -> None:
        """Request the results of a job, unless that is in flight or not needed."""
        if not job.plan.detached or job.is_over or job.is_asked or not self.dialogue.is_open:
            return
        job.is_asked = True
        after = next((at for at, each in enumerate(job.outcomes) if each is None),
                     len(job.outcomes))  # fmt: skip
        details = {"job": job.id, "after": after, "limit": OUTCOMES_MAX, "wait_s": FETCH_WAIT_S}
        self._ask(Ask(0, "results", details), job.id)

    def _ask(self, question: Any, job: str) -> None:
        number, _ = self._requests.post(question)
        self._asked[number] = job
        self.flush()

    def fill(self) -> None:
        """Pack as much as the session takes."""
        self._table.sender.fill(self.dialogue)
        self._note_fallen(self._chains())

    def _chains(self) -> list[tuple[SimJob, Stream]]:
        """Return the unfinished jobs whose calls wait for each other."""
        jobs = [each for each in self.jobs.values() if each.plan.chain and not each.is_over]
        found = [(each, self._table.find(each.id)) for each in jobs]
        return [(job, stream) for job, stream in found if stream is not None]

    def _note_fallen(self, chains: list[tuple[SimJob, Stream]]) -> None:
        """Note the calls that ended here, as they could not be sent without an input."""
        for job, stream in chains:
            for low, high in stream.ended_here:
                for at in range(low, high):
                    if job.outcomes[at] is None:
                        ended = Ended("dependency", "an input failed")
                        self._learn(job, at, [ended], ended.kind)

    # --- messages of the gateway ---------------------------------------------------------------

    def hear(self, messages: list[Any]) -> None:
        """Take messages of the gateway."""
        for message in messages:
            match message:
                case Results():
                    self._hear_results(message)
                case Opened(resumed):
                    self._opened(resumed=resumed)
                case Answer():
                    self._hear_answer(message)
                case Dropped():
                    self._hear_dropped(message)
                case RejectJob():
                    self._rejected(message)
                case NeedFunction(digest):
                    self._table.put_function(digest)
                case HoldChanged():
                    self._table.hear_hold(message, self.gateway)
                case Kept():
                    self._hear_kept(message)
                case SendAgain():
                    self._graph_calls.hear(message)
                case _:
                    pass
        chains = self._chains()  # they may end now
        self._graph_calls.post_again()
        self._note_fallen(chains)

    def _hear_kept(self, message: Kept) -> None:
        job, stream = self.jobs[message.job], self._table.find(message.job)
        if stream is None:
            return
        self._table.hear_kept(message)
        if message.closed:
            job.is_kept = True
            self.trace.add(self.name, "knows it kept", job.id)
            self.after(WAKE_S, partial(self._table.forget_kept, stream))

    def _opened(self, *, resumed: bool) -> None:
        self.note("is in", "resumed" if resumed else "anew")
        if resumed:
            return
        self.sessions += 1
        self._graph_calls.restart()
        self._table.restart(near=False)
        self._requests.restart(self.gateway, self._taken_back)

    def _taken_back(self, question: Cancel) -> list[Range]:
        """Take back what is queued here for a cancel, and is not sent in this session."""
        stream = self._table.attached(question.job)
        taken = self._table.taken_back(question)
        if stream is not None:
            self._note_end(stream, taken, CANCELLED)
        return taken

    def _hear_dropped(self, message: Dropped) -> None:
        stream = self._table.find(message.job)
        if stream is None:
            return
        pairs = [(low, high) for low, high in message.ranges]
        if any(high > stream.total for _, high in pairs):
            pairs += [pair for bundle in stream.waiting for pair in bundle.unfinished()]
        self._table.hear_dropped(message)
        self._note_end(stream, pairs, Ended(message.failure, message.reason))

    def _hear_results(self, message: Results) -> None:
        outcomes: list[Any] = message.values
        for offset, kind, text, payload in message.failures:
            outcomes[int(offset)] = Ended(kind, text, payload)
        self._learn(self.jobs[message.job], message.first, outcomes, "results")
        stream = self._table.find(message.job)
        if stream is not None:
            placed = stream.place(message.first, outcomes, failed=bool(message.failures))
            self._table.take(stream, placed)

    def _rejected(self, message: RejectJob) -> None:
        job, stream = self.jobs[message.job], self._table.find(message.job)
        if job.is_kept or stream is None:
            return
        self.trace.add(self.name, "is rejected", job.id, note=f"{message.code}: {message.reason}")
        unsent = [pair for bundle in stream.waiting for pair in bundle.unfinished()]
        self._table.hear_rejected(message, moves=False)  # a map's calls go to no other job
        if stream.rejection is not None:
            self._learn_missing(job, stream.rejection)
        elif (tasks := message.details.get("tasks")) is not None:
            first, stop = tasks
            ended = Ended("cancelled", message.reason)
            self._note_end(stream, [*unsent, (first, stop)], ended)
        else:
            self._learn_missing(job, Ended("cancelled", message.reason))
        if job.plan.detached:
            job.is_lost = True

    def _hear_answer(self, answer: Answer) -> None:
        question, name = self._requests.hear(answer), self._asked.pop(answer.request, "")
        if question is None:
            return
        self._requests.forget(answer.request)
        job = self.jobs[name]
        if isinstance(question, Cancel):
            stream = self._table.attached(name)
            self._table.hear_cancelled(question, answer)
            if stream is not None and not answer.code:
                pairs = [(low, high) for low, high in answer.value["taken"]]
                self._note_end(stream, pairs, CANCELLED)
            elif stream is not None and answer.code == Reason.JOB_NOT_FOUND:
                self._learn_missing(job, CANCELLED)
            return
        job.is_asked = False
        if answer.code:
            self.trace.add(self.name, "can't fetch", name, note=f"{answer.code}: {answer.reason}")
            return
        for first, values, failures, *_ in answer.value["outcomes"]:
            outcomes = list(values)
            for offset, kind, text, payload in failures:
                outcomes[offset] = Ended(kind, text, payload)
            self._learn(job, first, outcomes, "fetches", again=True)
        if answer.value["ended"] and not answer.value["outcomes"]:
            job.is_fetched = True

    def _note_end(self, stream: Stream, ranges: list[Range], ended: Ended) -> None:
        """Note that calls have ended without a value."""
        job = self.jobs[stream.id]
        for low, high in ranges:
            top = min(high, len(job.outcomes))
            for at in range(low, top):
                if job.outcomes[at] is None:
                    continue
                # A call that ends this way must not have another outcome.
                note = f"{ended.kind} after {job.outcomes[at]!r}"
                self.trace.add(self.name, "is told twice", job.id, (at, at + 1), note)
            self._learn(job, low, [ended] * (top - low), ended.kind, again=True)

    def _learn_missing(self, job: SimJob, ended: Ended) -> None:
        for at, outcome in enumerate(job.outcomes):
            if outcome is None:
                self._learn(job, at, [ended], ended.kind)

    def _learn(
        self, job: SimJob, first: int, outcomes: list[Any], what: str, *, again: bool = False
    ) -> None:
        """Note the outcomes of calls."""
        self.trace.add(self.name, f"learns ({what})", job.id, (first, first + len(outcomes)))
        for at, outcome in enumerate(outcomes, first):
            if at >= len(job.outcomes):
                self.trace.add(self.name, "hears of a call never made", job.id, (at, at + 1))
            elif job.outcomes[at] is None:
                job.outcomes[at] = outcome
                job.left -= 1
            elif not again and not self._took_back(job.outcomes[at]):
                note = f"{outcome!r} after {job.outcomes[at]!r}"
                self.trace.add(self.name, "is told twice", job.id, (at, at + 1), note)

    def _took_back(self, known: bytes | Ended | None) -> bool:
        """Whether a call was cancelled here, and sent again in a new session before its notice.

        Its result is then ignored: the books drop it.
        """
        return self.sessions > 1 and isinstance(known, Ended) and known.kind == "cancelled"

    def refused(self, refusal: SessionRefused) -> None:
        """Note that nothing will finish, unless the refusal is temporary."""
        if refusal.code in PASSING_REFUSALS:
            return
        self.trace.add(self.name, "is thrown out", note=str(refusal))
        for stream in self._table.streams:
            stream.rejection = Ended("refused", str(refusal))
            self._table.end(stream, stream.rejection)
            self._learn_missing(self.jobs[stream.id], stream.rejection)

    def _wishes(self, plan: JobPlan) -> dict[str, Any]:
        """Return its user's wishes for a job's placement, in wire format."""
        wishes = {
            "objective": plan.objective,
            "sites": list(plan.only),
            "not_sites": list(plan.never),
            "label": list(plan.label),
            # By the true time: by a slow user's clock it would have passed already.
            "deadline_s": plan.deadline_s and self.utc_s() - self.skew_s + plan.deadline_s,
        }
        return {name: value for name, value in wishes.items() if value}
