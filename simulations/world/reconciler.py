"""The real Reconciler on the heap; `run`, `in_turn` and `_look`, which need trio, are replaced.

Its jobs wait only for commits, because reading takes no time here. They are resumed after those by
callbacks, one after the other, in the order of gateway.settlement.reconciler.Reconciler.
"""

from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import TypeVar, cast

from gateway.settlement.context import SettlementContext
from gateway.settlement.reconciler import Reconciler
from gateway.settlement.turns import OURS, Job
from simulations.world.host import SimHost

T = TypeVar("T")


class SimReconciler(Reconciler):
    """The reconciler of one run of a site: call `go_on` after each commit."""

    def __init__(self, context: SettlementContext, host: SimHost) -> None:
        super().__init__(context)
        self._host = host
        self._is_dead = False
        self._doing: Coroutine[None, None, None] | None = None
        self._later(OURS, self._recall)
        self._look_again()

    def order(self, job: Job) -> None:
        """Queue a job."""
        self._later(OURS, job)

    async def in_turn(self, job: Callable[[], Awaitable[T]]) -> T:
        """Run a job, and send its messages; the caller has its turn already."""
        try:
            return await job()
        finally:
            if not self._is_dead:
                self._context.post.flush()

    def go_on(self) -> None:
        """Resume the current job after a commit."""
        if self._doing is None:
            return
        try:
            self._doing.send(None)
        except StopIteration:
            self._doing = None
            self._next()

    def die(self) -> None:
        """Close the current job: the process died."""
        self._is_dead = True
        if self._doing is not None:
            self._doing.close()

    def _look_again(self) -> None:
        self._later(OURS, self.look, "look")
        self._host.after(self._context.rules.reconcile_s, self._look_again)

    def _later(self, site: str, job: Job, about: Hashable = None) -> None:
        super()._later(site, job, about)
        self._host.after(0.0, self._next)

    def _next(self) -> None:
        if self._doing is not None:
            return
        found = self.turns.take()
        if found is None:
            return
        _, job = found
        self._doing = cast("Coroutine[None, None, None]", self.in_turn(job))
        self.go_on()
