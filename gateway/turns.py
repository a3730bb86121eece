"""Jobs that wait for their turn: ours come first, then one of each site after the other."""

from collections.abc import Awaitable, Callable, Hashable

import trio

Job = Callable[[], Awaitable[None]]
OURS = ""  # in place of a site


class Turns:
    """What is to be done, one thing at a time, for whom. However much one asks, others wait for
    one job of it alone.

    Args:
        waiting_max: jobs of one site; ours are not counted.
    """

    def __init__(self, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._queues: dict[str, dict[Hashable, Job]] = {}  # the sites in the order of their turns
        self._came = trio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, site: str, job: Job, about: Hashable = None) -> bool:
        """Queue a job; False when too many wait for the site.

        What waits already about the same is done no more: the new job takes its place.
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
        """The next job and for which site it is, if any waits."""
        if not self._queues:
            return None
        site = OURS if OURS in self._queues else next(iter(self._queues))
        queue = self._queues.pop(site)
        job = queue.pop(next(iter(queue)))
        if queue:
            self._queues[site] = queue  # behind all others
        return site, job

    async def next(self) -> tuple[str, Job]:
        """The next job, once there is one."""
        while (found := self.take()) is None:
            self._came = trio.Event()
            await self._came.wait()
        return found
