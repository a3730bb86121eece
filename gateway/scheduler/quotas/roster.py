"""The workers of a site, and all offers that were ever made here. Pure.

A job that no present worker can take is queued if a fitting worker was here before, or can be
started. So a worker's offer is remembered after it has left, as far as the worker can be told from
others.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Final

from federation.clocks import UtcS
from gateway.scheduler.model.events import PilotsAwaited, PilotSeen, PoolGrows, WorkerJoined
from gateway.scheduler.model.jobs import Job, Worker
from policies.placement.autoscaling import PoolGrowth
from policies.placement.placement import CapacityOffer, counted, judge
from policies.tariffs import Tariff

OFFERS_MAX: Final = 10_000


class WorkerRoster:
    """The present workers, and the known offers, in `offers` by name.

    Args:
        workers: the present workers, by handle; written here alone.
        offers: pools that are known before any of their workers joins.
        tariffs: the present tariff of each pool of this site; only its currency is used.
        growth: this site's pools that grow with their work, by name.

    Attributes:
        version: changes with each change of offers and workers.
    """

    def __init__(
        self,
        workers: dict[int, Worker],
        offers: Mapping[str, CapacityOffer],
        tariffs: Mapping[str, Tariff],
        growth: Mapping[str, PoolGrowth],
    ) -> None:
        self.workers = workers
        self.version = 0
        self.offers = dict(offers)
        self._tariffs = tariffs
        self._growth = growth
        self._promised = dict(offers)  # of pools whose workers are yet to be started
        self._awaited: dict[str, Mapping[str, tuple[str, UtcS | None]]] = {}  # by pool: pilots

    def joined(self, event: WorkerJoined) -> None:
        """Add a worker, or a contract that acts as one here."""
        self.version += 1
        currency = (event.tariff or self._tariffs[event.pool]).currency
        name = f"worker {event.name}"
        if not event.job and any(each.offer.name == name for each in self.workers.values()):
            name = f"{name} #{event.worker}"  # another of that name is here, with its own offer
        offer = CapacityOffer(
            *(name, event.pool, event.tags, event.python, currency, event.takes_others),
            takes_inputs=event.takes_inputs,
            label=event.label,
        )
        free = dict(counted(event.tags))
        if event.job:
            free = dict.fromkeys(free, inf)  # the seller counts them
        grid_id, ends_at_s = self._awaited.get(event.pool, {}).get(event.name, ("", None))
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
            ends_at_s=ends_at_s,
            memory_bytes=event.memory_bytes,
            tells_begun=event.tells_begun,
            tells_output=event.tells_output,
            runs_chains=event.runs_chains,
            token=event.token,
            host=event.host,
            port=event.port,
        )
        if event.job:
            return
        # Remembered after it has left: a job that only it could run waits for its return.
        self.offers.pop(offer.name, None)
        self.offers[offer.name] = offer
        while len(self.offers) > OFFERS_MAX:
            del self.offers[next(each for each in self.offers if each not in self._promised)]

    def left(self, handle: int) -> Worker | None:
        """Remove a worker that has left; return None if it had left before."""
        worker = self.workers.pop(handle, None)
        if worker is None:
            return None
        self.version += 1
        if worker.offer.name != f"worker {worker.name}" or worker.offer.pool in self._growth:
            # On return it could not be told from others; or others like it can be started.
            self.offers.pop(worker.offer.name, None)
        return worker

    def grows(self, event: PoolGrows) -> None:
        """Offer a pool whose workers can be started: its tags tell their offer."""
        promised = self._promised.get(f"pool {event.pool}")
        if promised is not None:
            self.version += 1
            tags = promised.tags if event.tags is None else event.tags
            self.offers[promised.name] = replace(promised, tags=tags)

    def awaited(self, event: PilotsAwaited) -> None:
        """Note the grid's ids of a pool's future workers, and when the grid will stop them."""
        self._awaited[event.pool] = event.pilots

    def seen(self, event: PilotSeen) -> None:
        """Note the grid's id of a present worker, and when the grid will stop it."""
        if event.worker in self.workers:
            worker = self.workers[event.worker]
            worker.grid_id, worker.ends_at_s = event.grid_id, event.ends_at_s

    def is_awaited(self, pool: str, name: str) -> bool:
        """Whether a grid was asked to start a worker of that name for a pool."""
        return name in self._awaited.get(pool, {})

    def has_fit(self, job: Job, *, here: bool = False) -> bool:
        """Whether a worker may still make a job's environment; `here`: one of this site's own."""
        return any(
            judge(job.need, each.offer) is None and each.place not in job.unfit
            for each in self.workers.values()
            if not each.draining and each.job in (("",) if here else ("", job.id))
        )
