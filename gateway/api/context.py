"""What handlers of questions and orders may use of the site that they answer for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import trio

from federation.messages.wire import Maps
from federation.reasons import Reason
from gateway.alerts.watch import Watch
from gateway.config.site import SiteConfig
from gateway.contracts.exchange import Exchange
from gateway.grids.local import LocalGrid
from gateway.grids.scaling.pool_controller import PoolController
from gateway.ledger.db.records import Record
from gateway.ledger.store.store import Store
from gateway.logs.task_logs import TaskLogs
from gateway.objects.keeper import ObjectKeeper
from gateway.peering.gossip_loop import GossipLoop
from gateway.peering.neighbours import FederationSide
from gateway.runtime.capacity_recorder import CapacityRecorder
from gateway.runtime.environment import RuntimeEnvironment
from gateway.runtime.server import GatewayServer
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.events import Event
from gateway.sessions.listener import PeerSession, SessionListener
from gateway.settlement.reconciler import Reconciler
from gateway.trust.rights import Asker
from policies.parties import Owner

SEE_JOBS: Final = "`gridfed jobs` lists yours; a job stays at the gateway that took it"


class BadQuestion(Exception):
    """A question that can't be answered as it was asked."""

    def __init__(self, reason: str, code: str = Reason.BAD_REQUEST) -> None:
        super().__init__(reason)
        self.code = code


def no_job(asker: Asker, name: str) -> BadQuestion:
    """Return the refusal of a question about a job that an asker does not see, or none has.

    It is the same for both, so that it does not tell which ids there are.
    """
    whose, why = (" of yours", asker.needs_audit) if asker.needs_audit else ("", SEE_JOBS)
    return BadQuestion(f"no job {name!r:.80}{whose} found here: {why}", Reason.JOB_NOT_FOUND)


class SiteContext(Protocol):
    """A running site, as its handlers see it; gateway.site.Site is the real one."""

    server: GatewayServer
    store: Store
    watch: Watch
    recorder: CapacityRecorder
    logs: TaskLogs | None  # None where no output of tasks is kept
    objects: ObjectKeeper | None  # None where no slot is on the gateway's host

    @property
    def config(self) -> SiteConfig:
        """The configuration as it is now."""

    @property
    def runtime(self) -> RuntimeEnvironment:
        """Clock, chance and disk."""

    @property
    def addresses(self) -> list[str]:
        """Where clients and workers dial this site."""

    @property
    def broker(self) -> Broker:
        """The scheduler of this site's jobs."""

    @property
    def exchange(self) -> Exchange:
        """What this site buys and sells."""

    @property
    def listener(self) -> SessionListener:
        """The sessions of clients and workers."""

    @property
    def pulses(self) -> dict[int, Maps]:
        """What workers last said of their slots, by handle."""

    @property
    def gossip(self) -> GossipLoop | None:
        """The federation as this site sees it; None for a single site."""

    @property
    def peers(self) -> FederationSide | None:
        """The sessions with other gateways; None for a single site."""

    @property
    def reconciler(self) -> Reconciler | None:
        """Compares the books with other sites'; None for a single site."""

    @property
    def controllers(self) -> list[PoolController]:
        """The pool controllers of pools whose workers grids start."""

    @property
    def local_grids(self) -> Sequence[LocalGrid]:
        """The local pools, whose agents are children of this gateway."""

    async def read(self, query: Callable[..., Any], *arguments: Any) -> Any:
        """Read from the store, in turn."""

    async def record(self, *records: Record, durable: bool = False) -> None:
        """Have the store commit these; return when they are, and all that was written before."""

    async def harden(self, *records: Record) -> None:
        """The same, and no power cut takes any of it."""

    async def forget(self, jobs: Sequence[str]) -> None:
        """Drop the results of jobs that have ended; return when they are gone."""

    def expect(self, event: Event) -> None:
        """Take an event that did not come in by the port."""

    def take_in(self, config: SiteConfig, used_ns: Mapping[Owner, int]) -> None:
        """Replace the configuration by another one of the same pools."""

    def results_of(self, job: str) -> trio.Event:
        """Return the event that is set when more results of a job, or its end, are in the store."""

    def output_of(self, job: str) -> trio.Event:
        """Return the event that is set when more output of a job is kept, or the job has ended."""

    async def wait_for_results(self, more: trio.Event, at_most_s: float) -> None:
        """Return when `results_of` or `output_of` has come about, or after so many seconds."""

    async def wait_for_progress(self, at_most_s: float) -> None:
        """Return when anything has been stored or told, or after so many seconds."""

    def tell_store_trouble(self, error: Exception) -> str:
        """Tell the operator that the store can't be read; the sentence."""

    def tell_fault(self, where: str, error: Exception) -> None:
        """Tell the operator of a fault of ours, and go on."""

    def uptime_s(self, peer: PeerSession) -> float:
        """How long a peer has been here."""
