"""Counts the slots of this site's pools, and writes the counts to the books."""

from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

import trio
from sqlalchemy.exc import SQLAlchemyError

from gateway.ledger.accounting.capacity import CapacityMeter, uncounted
from gateway.ledger.db.errors import StoreError
from gateway.ledger.db.records import Record
from gateway.ledger.db.usage.records import CapacityRecord
from gateway.ledger.store.store import Store
from gateway.runtime.environment import RuntimeEnvironment
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.jobs import Worker
from gateway.scheduler.model.present_slots import slots_once

WAITING_MAX: Final = 10_000  # records waiting to be written; over it the oldest are dropped
RETRY_S: Final = 10.0


class RecordedSite(Protocol):
    """What the capacity recorder uses of its site."""

    store: Store

    @property
    def broker(self) -> Broker:
        """The scheduler, which knows the workers."""

    @property
    def runtime(self) -> RuntimeEnvironment:
        """Clock and chance."""

    async def read(self, query: Callable[..., Any], *arguments: Any) -> Any:
        """Read from the store, in turn."""

    async def record(self, *records: Record, durable: bool = False) -> None:
        """Have the store commit these; return when they are, and all that was written before."""

    def tell_store_trouble(self, error: Exception) -> str:
        """Tell the operator that the store can't be read; the sentence."""


class CapacityRecorder:
    """The capacity recorder of one site: `look` is called regularly, `run` is a task, `close` ends
    it.
    """

    def __init__(self, site: RecordedSite) -> None:
        self._site = site
        self._meter = CapacityMeter()
        self._waiting: deque[CapacityRecord] = deque(maxlen=WAITING_MAX)
        self._more = trio.Event()

    def look(self) -> None:
        """Count the slots of each pool."""
        members: dict[str, list[Worker]] = {}
        for worker in self._site.broker.workers.values():
            if not worker.job:  # a contract is another site's slots
                members.setdefault(worker.offer.pool, []).append(worker)
        slots = Counter({pool: slots_once(workers) for pool, workers in members.items()})
        self._waiting.extend(self._meter.look(slots, self._site.runtime.utc_s()))
        if self._waiting:
            self._more.set()

    def unwritten(self) -> tuple[CapacityRecord, ...]:
        """The records that may not be in the books yet."""
        return (*self._waiting, *self._meter.unwritten())

    async def run(self) -> None:
        """Write the waiting records, as long as the site runs."""
        while True:
            await self._more.wait()
            self._more = trio.Event()
            while self._waiting:
                record = self._waiting[0]
                try:
                    kept = await self._site.read(
                        self._site.store.usage.capacity_of, record.pool, record.hour
                    )
                    fresh = uncounted([record], kept)
                    if fresh:
                        await self._site.record(*fresh)
                except (StoreError, SQLAlchemyError) as error:
                    self._site.tell_store_trouble(error)
                    await trio.sleep(RETRY_S)
                    continue
                # The oldest record may have been dropped during the write.
                if self._waiting and self._waiting[0] is record:
                    self._waiting.popleft()

    def close(self) -> None:
        """Write all records up to now. Writing a record that is in flight twice is idempotent.

        Records that can't be written any more are lost: a quarter of an hour at most, as in a
        crash.
        """
        store = self._site.store
        with suppress(StoreError, SQLAlchemyError):
            for record in (*self._waiting, *self._meter.close()):
                fresh = uncounted([record], store.usage.capacity_of(record.pool, record.hour))
                if fresh:
                    store.write(fresh, False, lambda: None)
