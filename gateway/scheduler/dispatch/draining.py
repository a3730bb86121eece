"""Workers out of service: they get no task, and return those that have not begun. Pure."""

from collections.abc import Mapping

from federation.messages.messages import Drain
from gateway.scheduler.dispatch.dispatcher import Dispatcher
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import Effect, SendToWorker
from gateway.scheduler.model.jobs import Worker
from gateway.scheduler.quotas.drains import StandingDrains


class Draining:
    """Carries out drains of workers, by themselves, by their grid or by an operator.

    Attributes:
        standing: the drains that an operator has ordered, for workers that are to come as well.
    """

    def __init__(
        self, workers: Mapping[int, Worker], dispatcher: Dispatcher, effects: list[Effect]
    ) -> None:
        self._workers = workers
        self._dispatcher = dispatcher
        self._effects = effects
        self.standing = StandingDrains()

    def asked(self, event: events.DrainAsked) -> None:
        """Begin or end the drain of one worker."""
        worker = self._workers.get(event.worker)
        if worker is None:
            return
        (worker.drained_by.add if event.on else worker.drained_by.discard)(event.by)
        worker.draining = bool(worker.drained_by)
        self._dispatcher.worker_index.note(event.worker)
        if event.by is events.Drainer.ITSELF or worker.draining is not event.on:
            return
        self._effects.append(SendToWorker(worker.handle, Drain(event.on), worker.port))
        for assignment in worker.assignments.values() if event.on else ():
            self._dispatcher.recall_all(assignment, kill=False)

    def ordered(self, event: events.DrainOrdered) -> None:
        """Begin or end an operator's drain, for all workers that it covers or no longer covers."""
        self.standing.take(event)
        for worker in list(self._workers.values()):
            is_covered = self.standing.cover(worker)
            if is_covered is not (events.Drainer.OPERATOR in worker.drained_by):
                self.asked(events.DrainAsked(worker.handle, is_covered))

    def joined(self, worker: Worker) -> None:
        """Give no task to a worker that comes while an operator drains its host or name."""
        if self.standing.cover(worker):
            worker.drained_by.add(events.Drainer.OPERATOR)
            worker.draining = True
