"""Carries out the broker's effects in the promised order.

Messages to clients wait, in order, until the records written before them are stored. Orders to
workers do not wait. Stores commit in groups: while one commit runs, the next group gathers by
itself.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, assert_never

from federation.messages.messages import Assign, NeedFunction, PutFunction, RejectJob
from gateway.base.store_lookup import StoreLookup, recall_now
from gateway.ledger.db.jobs.records import FunctionKept, JobEnded, JobOpenedRecord, OutcomeKept
from gateway.ledger.db.records import Record
from gateway.ledger.store.store import Store
from gateway.runtime.functions import FunctionStore, Recipient
from gateway.runtime.late_bills import LateBills
from gateway.scheduler.model.effects import (
    AnswerBill,
    Effect,
    Expel,
    Harden,
    HoldObjects,
    KeepOutput,
    LogOrder,
    PeerSide,
    PullObjects,
    ReadOutcomes,
    Remark,
    SendFunction,
    SendToClient,
    SendToSite,
    SendToWorker,
    TakeObjects,
    Write,
)
from gateway.sessions.listener import PeerSession, SessionListener

Pieces = Sequence[tuple[int, int, str]]  # of output: task, stream, text
_Waiting = SendToClient | SendToSite | AnswerBill


@dataclass(slots=True)
class _Batch:
    """Records that are being stored, and the messages that wait for them."""

    tells: list[_Waiting] = field(default_factory=list)
    jobs: set[str] = field(default_factory=set)  # jobs with more results, or with their end
    stored: bool = False


class PeerSender(Protocol):
    """Sends messages to other sites."""

    def carry(self, site: str, side: PeerSide, message: Any) -> None:
        """Queue a message for a site that is our buyer or seller in this matter."""

    def flush(self) -> None:
        """Send the queued messages."""


@dataclass(frozen=True)
class OutboxUses:
    """What effects use besides the port and the store.

    Args:
        recall: runs slow queries of the store.
        remark: receives lines for the operator.
        pass_key: returns the sealed pass by which the tasks of a job may connect, from the
            description of the worker and the job; empty for none.
        on_write: is called with each record that is written.
        on_order: writes an operator's order into the log.
        keep_output: keeps output of tasks: (job, (task, stream, text) of each piece); must not
            wait. None where no output is kept.
        hold_objects: lets a job hold objects.
        take_objects: hands results over to a client.
        read_outcomes: reads outcomes in the books; called once all earlier writes are queued.
    """

    recall: StoreLookup = recall_now
    remark: Callable[[str], None] = lambda _: None
    pass_key: Callable[[Mapping[str, Any], str], bytes] = lambda _about, _job: b""
    on_write: Callable[[Record], None] | None = None
    on_order: Callable[[LogOrder], None] = lambda _order: None
    keep_output: Callable[[str, Pieces], None] | None = None
    take_objects: Callable[[TakeObjects], None] = lambda _effect: None
    pull_objects: Callable[[PullObjects], None] = lambda _effect: None
    read_outcomes: Callable[[ReadOutcomes], None] = lambda _effect: None
    hold_objects: Callable[[HoldObjects], None] = lambda _effect: None


class EffectOutbox:
    """Performs effects.

    Args:
        on_stored: `on_stored(f)` must arrange for f() to be called soon in the site's own thread;
            it is called from the store's writer thread.
        on_results: called in the site's own thread with the jobs of which more results, or the end,
            can now be read.
        uses: what effects need beyond the port and the store.
    """

    def __init__(
        self,
        listener: SessionListener,
        store: Store,
        functions: FunctionStore,
        on_stored: Callable[[Callable[[], None]], None],
        on_results: Callable[[Iterable[str]], None],
        uses: OutboxUses | None = None,
    ) -> None:
        self._listener = listener
        self._store = store
        self._functions = functions
        self._on_stored = on_stored
        self._on_results = on_results
        self._uses = uses = uses or OutboxUses()
        self._thread = threading.get_ident()
        self._batches: deque[_Batch] = deque()
        self._peers: PeerSender | None = None  # None for a single site
        self._late_bills = LateBills(store.contracts, uses.recall, self._perform_and_flush)

    @property
    def peers(self) -> PeerSender | None:
        """The sender of messages to other sites; None for a lone site."""
        return self._peers

    def attach_peers(self, peers: PeerSender) -> None:
        """Send messages for other sites by this: the site is part of a federation."""
        self._peers = peers

    def perform(self, effects: Iterable[Effect]) -> list[Expel]:  # noqa: C901 - one match
        """Carry out effects; return the peers that the site must expel."""
        records: list[Record] = []
        tells: list[_Waiting] = []
        expels: list[Expel] = []
        reads: list[ReadOutcomes] = []
        durable = False
        for effect in effects:
            match effect:
                case Write():
                    records += self._with_function(effect.record)
                    durable = durable or effect.durable
                case Harden():
                    durable = True
                case SendToSite() if effect.message.row.at_once:
                    self._say(effect)
                case SendToClient(message=RejectJob()):
                    self._tell([effect])  # nothing was booked for it, and the store may be full
                case SendToClient() | SendToSite() | AnswerBill():
                    tells.append(effect)
                case SendToWorker():
                    self._order(effect)
                case Expel():
                    expels.append(effect)
                case SendFunction():
                    self._send_function(effect)
                case Remark():
                    self._uses.remark(effect.text)
                case HoldObjects():
                    self._uses.hold_objects(effect)
                case TakeObjects():
                    self._uses.take_objects(effect)
                case PullObjects():
                    self._uses.pull_objects(effect)
                case ReadOutcomes():
                    reads.append(effect)
                case KeepOutput():
                    if self._uses.keep_output is not None:
                        self._uses.keep_output(effect.job, effect.pieces)
                case LogOrder():
                    self._uses.on_order(effect)
                case _:
                    assert_never(effect)
        if records or durable:
            ready = {each.job for each in records if isinstance(each, OutcomeKept | JobEnded)}
            batch = _Batch(tells, ready)
            self._batches.append(batch)
            self._store.write(records, durable, lambda: self._committed(batch))
        elif self._batches:
            self._batches[-1].tells.extend(tells)
        else:
            self._tell(tells)
        for read in reads:
            self._uses.read_outcomes(read)
        return expels

    def _with_function(self, record: Record) -> list[Record]:
        """Return the records to store: a detached job together with the function that it runs."""
        if self._uses.on_write is not None:
            self._uses.on_write(record)
        if isinstance(record, JobOpenedRecord) and record.function is not None:
            body = self._functions.body(record.function)
            if body is not None:
                return [FunctionKept(record.function, body), record]
        return [record]

    def _committed(self, batch: _Batch) -> None:
        """Note that a batch is stored; called from the store's thread, or from ours if quick."""
        if threading.get_ident() == self._thread:
            self._stored(batch)
        else:
            self._on_stored(lambda: self._stored(batch))

    def _stored(self, batch: _Batch) -> None:
        batch.stored = True
        self._on_results(batch.jobs)
        while self._batches and self._batches[0].stored:
            self._tell(self._batches.popleft().tells)

    def _tell(self, tells: Iterable[_Waiting]) -> None:
        for tell in tells:
            if isinstance(tell, SendToSite):
                self._say(tell)
                continue
            if isinstance(tell, AnswerBill):
                self._answer_bill(tell)
                continue
            peer = self._listener.peers.get(tell.client)
            if peer is not None:
                self._listener.post(peer, tell.message)

    def _say(self, say: SendToSite) -> None:
        if self._peers is not None:
            self._peers.carry(say.site, say.side, say.message)

    def _answer_bill(self, answer: AnswerBill) -> None:
        self._late_bills.take(answer)

    def _perform_and_flush(self, effects: Iterable[Effect]) -> None:
        self.perform(effects)
        if self._peers is not None:
            self._peers.flush()

    def _send_function(self, send: SendFunction) -> None:
        """Send a seller a function that a contract needs."""
        get = self._functions.want if send.again else self._functions.to_send
        body = get(send.site, send.digest)
        if body is not None and self._peers is not None:
            self._peers.carry(send.site, PeerSide.SELLER, PutFunction(send.digest, body))

    def forget_site(self, site: str) -> None:
        """Note that a site's session is new: it may have none of the functions sent before."""
        self._functions.forget(site)

    def _order(self, order: SendToWorker) -> None:
        peer = self._listener.peers.get(order.worker)
        if peer is None:
            return
        message = order.message
        if isinstance(message, Assign):
            body = self._functions.to_send(order.worker, message.function)
            if body is not None:
                self._listener.post(peer, PutFunction(message.function, body))
            key = self._uses.pass_key(peer.about, message.job)
            message = replace(message, pass_key=key) if key else message
        self._listener.post(peer, message)

    def hand_function(self, digest: bytes, waiting: Iterable[Recipient]) -> None:
        """Give a function that has just arrived to the workers and sites that waited for it."""
        for worker in waiting:
            if isinstance(worker, str):
                self._send_function(SendFunction(worker, digest, again=True))
                continue
            peer = self._listener.peers.get(worker)
            body = self._functions.want(worker, digest)
            if peer is not None and body is not None:
                self._listener.post(peer, PutFunction(digest, body))

    def need_function(self, peer: PeerSession, digest: bytes) -> None:
        """Ask a client for a function that one of its jobs names."""
        self._listener.post(peer, NeedFunction(digest))
