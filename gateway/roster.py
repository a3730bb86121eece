"""The workers of a site, and what has ever been offered here. Pure.

A job that no worker can take now waits if one that could was here before, or can be started: so
what workers offer is remembered when they have left, as far as it can be told from others.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Final

from gateway.events import PilotsAwaited, PilotSeen, PoolGrows, WorkerJoined
from gateway.jobs import Job, Worker
from policies.butler import Growth
from policies.placement import Offer, counted, judge
from policies.tariffs import Tariff

OFFERS_MAX: Final = 10_000


class Roster:
    """Who is here, and what is known to be offered, in `offers` by name.

    Args:
        workers: those who are here, by handle; written here alone.
        offers: pools that are known before any of their workers joins.
        tariffs: what each pool of ours charges now; of them its currency counts.
        growth: our pools that are grown for work, by name.

    Attributes:
        version: is another after each change of offers and workers.
    """

    def __init__(
        self,
        workers: dict[int, Worker],
        offers: Mapping[str, Offer],
        tariffs: Mapping[str, Tariff],
        growth: Mapping[str, Growth],
    ) -> None:
        self.workers = workers
        self.version = 0
        self.offers = dict(offers)
        self._tariffs = tariffs
        self._growth = growth
        self._promised = dict(offers)  # of pools whose workers are yet to be started
        self._awaited: dict[str, Mapping[str, tuple[str, float | None]]] = {}  # by pool: pilots

    def joined(self, event: WorkerJoined) -> None:
        """A worker has come, or a contract that is one to us."""
        self.version += 1
        currency = (event.tariff or self._tariffs[event.pool]).currency
        name = f"worker {event.name}"
        if not event.job and any(each.offer.name == name for each in self.workers.values()):
            name = f"{name} #{event.worker}"  # another of that name is here, with its own offer
        offer = Offer(name, event.pool, event.tags, event.python, currency, event.takes_others)
        free = dict(counted(event.tags))
        if event.job:
            free = dict.fromkeys(free, inf)  # the seller counts them
        grid_id, ends_s = self._awaited.get(event.pool, {}).get(event.name, ("", None))
        self.workers[event.worker] = Worker(
            event.worker,
            event.name,
            offer,
            event.slots,
            event.tariff,
            free,
            job=event.job,
            round_trip_s=event.round_trip_s,
            is_funded=event.is_funded,
            grid_id=grid_id,
            ends_s=ends_s,
            memory_bytes=event.memory_bytes,
            tells_begun=event.tells_begun,
            token=event.token,
        )
        if event.job:
            return
        # Remembered after it has left: a job that only it could run waits for its return.
        self.offers.pop(offer.name, None)
        self.offers[offer.name] = offer
        while len(self.offers) > OFFERS_MAX:
            del self.offers[next(each for each in self.offers if each not in self._promised)]

    def left(self, handle: int) -> Worker | None:
        """A worker has left; None if it had before."""
        worker = self.workers.pop(handle, None)
        if worker is None:
            return None
        self.version += 1
        if worker.offer.name != f"worker {worker.name}" or worker.offer.pool in self._growth:
            # It could not be told from others when back; or others like it can be started.
            self.offers.pop(worker.offer.name, None)
        return worker

    def grows(self, event: PoolGrows) -> None:
        """Workers of a pool can be started: what they would offer is known from its tags."""
        promised = self._promised.get(f"pool {event.pool}")
        if promised is not None:
            self.version += 1
            tags = promised.tags if event.tags is None else event.tags
            self.offers[promised.name] = replace(promised, tags=tags)

    def awaited(self, event: PilotsAwaited) -> None:
        """What a grid calls the workers that a pool will have, and when it will stop them."""
        self._awaited[event.pool] = event.pilots

    def seen(self, event: PilotSeen) -> None:
        """The same of a worker that is here."""
        if event.worker in self.workers:
            worker = self.workers[event.worker]
            worker.grid_id, worker.ends_s = event.grid_id, event.ends_s

    def is_awaited(self, pool: str, name: str) -> bool:
        """Whether a grid was asked to start a worker of that name for a pool."""
        return name in self._awaited.get(pool, {})

    def has_fit(self, job: Job, *, here: bool = False) -> bool:
        """Whether a worker has not failed yet to make what a job is to run in; `here`: of ours."""
        return any(
            judge(job.need, each.offer) is None and each.place not in job.unfit
            for each in self.workers.values()
            if not each.draining and each.job in (("",) if here else ("", job.id))
        )
