"""Jobs whose function has not arrived: they wait for it, and not for ever. Pure."""

from collections.abc import Iterator, Mapping

from federation.clocks import UtcS
from gateway.scheduler.dispatch.dispatcher import Dispatcher
from gateway.scheduler.model.jobs import Job


class AwaitedFunctions:
    """The jobs that lack their function, by its digest."""

    def __init__(self, jobs: Mapping[str, Job], dispatcher: Dispatcher) -> None:
        self._jobs = jobs
        self._dispatcher = dispatcher
        self._lacking: dict[bytes, set[str]] = {}
        self._arrived: dict[bytes, None] = {}

    @property
    def is_settled(self) -> bool:
        """Whether `settle` has nothing to do."""
        return not self._arrived

    def lack(self, job: Job, utc_s: UtcS) -> None:
        """Let a new job wait for its function."""
        job.lacks_function_since_s = utc_s
        self._lacking.setdefault(job.spec.function, set()).add(job.id)

    def arrived(self, function: bytes, jobs_max: int) -> None:
        """Let the jobs of a function go on, some at once."""
        if function in self._lacking:
            self._arrived[function] = None
            self.settle(jobs_max)

    def settle(self, jobs_max: int) -> None:
        """Go on with at most `jobs_max` jobs whose function has arrived."""
        left = jobs_max
        while self._arrived and left > 0:
            function = next(iter(self._arrived))
            names = self._lacking.get(function, set())
            while names and left > 0:
                left -= 1
                job = self._jobs[names.pop()]
                job.lacks_function_since_s = None
                self._dispatcher.mark_ready(job)
            if not names:
                self._lacking.pop(function, None)
                del self._arrived[function]

    def forget(self, job: Job) -> None:
        """Await no function any more for a job that is over."""
        if job.lacks_function_since_s is not None:
            lacking = self._lacking[job.spec.function]
            lacking.discard(job.id)
            if not lacking:
                del self._lacking[job.spec.function]

    def late(self, utc_s: UtcS, wait_s: float) -> Iterator[Job]:
        """Yield the jobs that have waited for more than `wait_s`."""
        for name in [name for names in self._lacking.values() for name in names]:
            job = self._jobs[name]
            if utc_s - (job.lacks_function_since_s or UtcS(0.0)) > wait_s:
                yield job
