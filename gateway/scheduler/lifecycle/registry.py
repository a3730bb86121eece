"""The jobs of a site: begun here, and ended once no task of them is left. Pure."""

from collections.abc import Callable
from typing import Any

from federation.clocks import UtcS
from federation.messages.messages import RejectJob
from gateway.ledger.db import records
from gateway.scheduler.dispatch.dispatcher import Dispatcher
from gateway.scheduler.graphs.waiting_calls import WaitingCalls
from gateway.scheduler.lifecycle.awaited_functions import AwaitedFunctions
from gateway.scheduler.model import events
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from gateway.scheduler.model.effects import Effect, Write
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import Accounts
from gateway.scheduler.quotas.fair_shares import FairShares
from gateway.scheduler.tasks.history import History
from gateway.scheduler.tasks.losses import Losses
from gateway.scheduler.tasks.ordered_ends import OrderedEnds
from policies.placement.placement import counted


class JobRegistry:
    """The jobs that are not over, and the parts that must know when one begins or ends.

    Args:
        jobs: the jobs by id; other parts read it.
        tell: sends a client a message.
        graphs: the calls that wait for other tasks; told of each end.
        keeps_output: whether output of the tasks of this site's jobs is kept.

    Attributes:
        shares: the fair shares of slots, if configured.
    """

    def __init__(  # noqa: PLR0913 - its parts at its birth, each by its name
        self,
        jobs: dict[str, Job],
        accounts: Accounts,
        budget_accounts: BudgetAccounts,
        dispatcher: Dispatcher,
        losses: Losses,
        history: History,
        functions: AwaitedFunctions,
        ends: OrderedEnds,
        effects: list[Effect],
        tell: Callable[[int, Any], None],
        graphs: WaitingCalls,
        *,
        keeps_output: bool,
    ) -> None:
        self.jobs = jobs
        self._accounts = accounts
        self._budget_accounts = budget_accounts
        self._dispatcher = dispatcher
        self._losses = losses
        self._history = history
        self._functions = functions
        self._ends = ends
        self._effects = effects
        self._tell = tell
        self._graphs = graphs
        self._keeps_output = keeps_output
        self._numbers = 0
        self.shares: FairShares | None = None

    def share_out(self, event: events.SharesKnown, utc_s: UtcS) -> None:
        """Take up other fair shares; without rules there are none."""
        self.shares = None if event.rules is None else FairShares(event.rules)
        if self.shares is not None:
            self.shares.take_up(event.used_ns, utc_s)
            for job in self.jobs.values():
                self.shares.opened(job)
        self._dispatcher.share_out(self.shares)

    def begin(self, name: str, spec: JobSpec, client: int, utc_s: UtcS) -> Job:
        """Begin a job."""
        self._numbers += 1
        budget_accounts = self._budget_accounts.of(spec.whose)
        job = Job(
            name, spec, client, self._numbers, utc_s, spec.need, counted(spec.tags), budget_accounts
        )
        job.is_logged = self._keeps_output and spec.price is None  # for a buyer its own site does
        self.jobs[name] = job
        self._accounts.begin(job)
        if self.shares is not None:
            self.shares.opened(job)
        return job

    def reject(self, job: Job, rejection: RejectJob, utc_s: UtcS) -> None:
        """End a job of which no task has run."""
        self._tell(job.client, rejection)
        for first, stop in job.withdraw():
            self._accounts.credit(job, stop - first)
        job.leaving, job.reason = "rejected", rejection.reason
        self.finish(job, utc_s)

    def abandon(self, job: Job, utc_s: UtcS, reason: str = "the client disconnected") -> None:
        """Stop a job whose client is gone: drop its queued tasks, kill its running ones."""
        finished = job.total is not None and len(job.ended) >= job.total
        waits = job.waiting or job.blocked or job.in_flight
        if not job.leaving and waits and not finished:
            self._ends.order(job, "abandoned", reason)
        job.leaving = job.leaving or "done"
        for first, stop in job.withdraw():
            if not job.awaits_sellers:  # which of them have begun is not known yet
                job.known.remove(first, stop)
        for assignment in list(job.assignments.values()):
            assignment.is_stopped = True
            self._dispatcher.recall_all(assignment, kill=True)
        self._dispatcher.mark_ready(job)
        self.finish(job, utc_s)

    def finish(self, job: Job, utc_s: UtcS) -> None:
        """End the job if no task of it is left."""
        self._dispatcher.entitling.note_queue(job)
        if not job.is_over or job.id not in self.jobs:
            return
        self._losses.settle(job, utc_s)
        self._graphs.finished(job)  # of each: one that only reads is a stage, too
        del self.jobs[job.id]
        self._dispatcher.forget(job)
        if self.shares is not None:
            self.shares.ended(job)
        self._functions.forget(job)
        state = job.leaving or "done"
        self._history.end(job, state)
        job.hold_bytes(-job.held_bytes)
        self._accounts.disown(job)
        counts = (job.done, job.failed, job.cancelled + job.interrupted)
        reason = job.reason or job.first_error
        self._effects.append(Write(records.JobEnded(job.id, state, reason, utc_s, *counts), False))
