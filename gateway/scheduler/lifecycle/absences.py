"""Jobs whose client is gone: attached ones end; detached ones stay, unless half submitted. Pure."""

from collections import deque
from typing import Final

from federation.clocks import UtcS
from gateway.scheduler.dispatch.dispatcher import Dispatcher
from gateway.scheduler.lifecycle.registry import JobRegistry
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.quotas.accounts import Accounts

# How long a detached job may stay half submitted without its client.
ORPHAN_S: Final = 60.0


class AbsentClients:
    """Goes on with the jobs of clients that have left, some in each turn."""

    def __init__(self, accounts: Accounts, dispatcher: Dispatcher, registry: JobRegistry) -> None:
        self._accounts = accounts
        self._dispatcher = dispatcher
        self._registry = registry
        self._left: deque[tuple[int, str]] = deque()  # jobs whose client has left, with that client
        self._orphans: set[str] = set()  # jobs that may be half submitted without their client

    @property
    def is_settled(self) -> bool:
        """Whether `settle` has nothing to do."""
        return not self._left

    def left(self, client: int, jobs: list[str]) -> None:
        """Note that a client has left, with these jobs."""
        self._left.extend((client, name) for name in jobs)

    def settle(self, utc_s: UtcS, jobs_max: int) -> None:
        """Go on with at most `jobs_max` jobs whose client has left, unless it is back meanwhile."""
        for _ in range(min(jobs_max, len(self._left))):
            client, name = self._left.popleft()
            job = self._registry.jobs.get(name)
            if job is None or job.client != client:
                continue
            if job.spec.detached:
                self._accounts.forgive(job)
                job.client = 0
                if job.total is None:
                    self.orphan(job, utc_s)
                else:
                    job.orphan_since_s = None
                self._dispatcher.refile(job)
            else:
                self._registry.abandon(job, utc_s)

    def orphan(self, job: Job, utc_s: UtcS) -> None:
        """Note that a job may be half submitted, and has no client."""
        job.orphan_since_s = utc_s
        self._orphans.add(job.id)

    def ticked(self, utc_s: UtcS) -> None:
        """Abandon the jobs that were half submitted for more than ORPHAN_S without a client."""
        for name in list(self._orphans):
            orphan = self._registry.jobs.get(name)
            since_s = orphan.orphan_since_s if orphan is not None else None
            if orphan is None or since_s is None:
                self._orphans.discard(name)
            elif utc_s - since_s > ORPHAN_S and not orphan.leaving:
                orphan.orphan_since_s = None
                self._registry.abandon(
                    orphan, utc_s, "the client disconnected before all tasks were submitted"
                )
