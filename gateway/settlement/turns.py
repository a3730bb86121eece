"""Queued jobs that take turns: the site's own come first, then one of each site in turn."""

from collections.abc import Awaitable, Callable, Hashable

import trio

Job = Callable[[], Awaitable[None]]
OURS = ""  # in place of a site


class Turns:
    """A queue of jobs by site, run one at a time.

    However many jobs a site queues, the other sites wait for only one of them.

    Args:
        waiting_max: queued jobs of one site; the site's own are not counted.
    """

    def __init__(self, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._queues: dict[str, dict[Hashable, Job]] = {}  # the sites in the order of their turns
        self._came = trio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, site: str, job: Job, about: Hashable = None) -> bool:
        """Queue a job; False when too many are queued for the site.

        The job replaces a queued one with the same `about`.
        """
        queue = self._queues.get(site, {})
        name = object() if about is None else about
        if site != OURS and len(queue) >= self._waiting_max and name not in queue:
            return False
        queue[name] = job
        self._queues[site] = queue
        self._came.set()
        return True

    def take(self) -> tuple[str, Job] | None:
        """Return the next job and its site, if any is queued."""
        if not self._queues:
            return None
        site = OURS if OURS in self._queues else next(iter(self._queues))
        queue = self._queues.pop(site)
        job = queue.pop(next(iter(queue)))
        if queue:
            self._queues[site] = queue  # behind all others
        return site, job

    async def next(self) -> tuple[str, Job]:
        """Return the next job, once there is one."""
        while (found := self.take()) is None:
            self._came = trio.Event()
            await self._came.wait()
        return found
