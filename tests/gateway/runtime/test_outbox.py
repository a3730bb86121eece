"""The order of sending: to clients and sites after earlier writes, to workers at once."""

from hashlib import sha256
from types import SimpleNamespace

import pytest

from federation.messages.deals import Renew
from federation.messages.messages import (
    Assign,
    Dropped,
    NeedFunction,
    PutFunction,
    Recall,
    RejectJob,
)
from gateway.ledger.db import records
from gateway.runtime.functions import FunctionStore
from gateway.runtime.outbox import EffectOutbox, OutboxUses
from gateway.scheduler.model.effects import (
    Expel,
    Harden,
    PeerSide,
    Remark,
    SendFunction,
    SendToClient,
    SendToSite,
    SendToWorker,
    Write,
)
from gateway.scheduler.model.ports import PortKind

CLIENT, WORKER, OTHER = 1, 2, 3
BODY = b"def f"
DIGEST = sha256(BODY).digest()
WORD = Dropped("j", [[0, 1]], "lost", "")
TELL = SendToClient(CLIENT, WORD)
ENDED = records.JobEnded("j", "done", "", 0.0, 1, 0, 0)
ASSIGN = Assign(7, "j", DIGEST, 0, [b"x"], None, False)


class Desk:
    """An outbox whose store delays every write, with all that left it, in order."""

    def __init__(self, **uses):
        self.out = []
        self.written = []
        peers = {
            each: SimpleNamespace(handle=each, about={"n": each})
            for each in (CLIENT, WORKER, OTHER)
        }
        listener = SimpleNamespace(
            peers=peers, post=lambda peer, message: self.out.append((peer.handle, message))
        )
        store = SimpleNamespace(write=lambda *details: self.written.append(details), contracts=None)
        self.functions = FunctionStore(1 << 20, lambda: {DIGEST})
        self.functions.put(DIGEST, BODY, CLIENT)
        self.results, self.said, self.threads = [], [], []
        self.box = EffectOutbox(
            listener, store, self.functions, self.threads.append, self.results.append,
            OutboxUses(remark=self.said.append, **uses),
        )  # fmt: skip
        self.box.attach_peers(
            SimpleNamespace(
                carry=lambda site, side, message: self.out.append((site, side, message)),
                flush=lambda: None,
            )
        )


@pytest.fixture
def desk():
    return Desk()


def test_a_client_is_told_when_all_that_was_written_before_is_stored(desk):
    desk.box.perform([Write(ENDED), TELL])
    desk.box.perform([SendToClient(OTHER, WORD)])  # it has no record of its own
    assert desk.out == []
    [(_, _, done)] = desk.written
    done()
    assert desk.out == [(CLIENT, WORD), (OTHER, WORD)]
    assert desk.results == [{"j"}]


def test_who_is_gone_is_told_nothing(desk):
    desk.box.perform([SendToClient(99, WORD), TELL])
    assert desk.out == [(CLIENT, WORD)]


def test_what_a_full_store_refuses_and_what_workers_do_waits_for_nothing(desk):
    reject, recall = RejectJob("j", "busy", "no"), Recall(7, 0, 1, True)
    say = SendToSite("paris", PeerSide.BUYER, Renew(1, []))
    effects = [
        Write(ENDED),
        SendToClient(CLIENT, reject),
        SendToWorker(WORKER, recall),
        say,
        Remark("hm"),
    ]
    assert desk.box.perform(effects) == []
    assert desk.out == [(CLIENT, reject), (WORKER, recall), ("paris", PeerSide.BUYER, say.message)]
    assert desk.said == ["hm"]


def test_who_is_to_go_is_for_the_site_to_expel(desk):
    expel = Expel(CLIENT, "it breaks the protocol", PortKind.CLIENT)
    assert desk.box.perform([expel]) == [expel]


@pytest.mark.parametrize(
    ("effects", "durable"),
    [
        ([Write(ENDED)], False),
        ([Write(ENDED, durable=True), Write(ENDED)], True),
        ([Write(ENDED), Write(ENDED, durable=True)], True),
        ([Write(ENDED), Harden()], True),
        ([Harden()], True),
    ],
)
def test_what_is_durable_makes_all_of_a_turn_so(desk, effects, durable):
    desk.box.perform(effects)
    assert [each[1] for each in desk.written] == [durable]


def test_a_store_that_is_done_in_its_own_thread_is_heard_in_ours(desk):
    desk.box._thread = -1
    desk.box.perform([Write(ENDED), TELL])
    desk.written[0][2]()
    assert desk.out == []
    [call] = desk.threads
    call()
    assert desk.out == [(CLIENT, WORD)]


def test_a_detached_job_is_stored_with_its_function():
    heard = []
    desk = Desk(on_write=heard.append)
    about = "f", "ann", "risk", True, b"", 0.0
    opened = records.JobOpenedRecord("j", *about, function=DIGEST)
    lacking = records.JobOpenedRecord("k", *about, function=b"?" * 32)
    desk.box.perform([Write(opened), Write(lacking)])
    assert desk.written[0][0] == [records.FunctionKept(DIGEST, BODY), opened, lacking]
    assert heard == [opened, lacking]


def test_a_worker_has_a_function_before_its_first_task_and_once():
    desk = Desk(pass_key=lambda about, job: b"key" if about == {"n": OTHER} else b"")
    for worker in (WORKER, WORKER, OTHER, 99):
        desk.box.perform([SendToWorker(worker, ASSIGN)])
    put = PutFunction(DIGEST, BODY)
    assert [each[0] for each in desk.out] == [WORKER, WORKER, WORKER, OTHER, OTHER]
    assert [each[1] for each in desk.out][:4] == [put, ASSIGN, ASSIGN, put]
    assert desk.out[4][1].pass_key == b"key"


def test_a_site_is_sent_a_function_once_in_a_session_or_when_it_asks(desk):
    put = ("paris", PeerSide.SELLER, PutFunction(DIGEST, BODY))
    send = SendFunction("paris", DIGEST)
    desk.box.perform([send, send])
    assert desk.out == [put]
    desk.box.forget_site("paris")
    desk.box.perform([send])
    assert desk.out == [put] * 2
    desk.box.perform([SendFunction("paris", DIGEST, again=True)])
    assert desk.out == [put] * 3
    desk.box.perform([SendFunction("oslo", DIGEST)])
    assert desk.out[3:] == [("oslo", *put[1:])]


def test_a_function_that_has_just_come_goes_to_all_that_wait_for_it(desk):
    body = b"def g"
    digest = sha256(body).digest()
    desk.functions._used = lambda: {digest}
    desk.box.perform([SendFunction("paris", digest, again=True), SendToWorker(WORKER, ASSIGN)])
    desk.out.clear()
    assert desk.functions.want(WORKER, digest) is None
    waiting = desk.functions.put(digest, body, CLIENT)
    assert list(waiting) == ["paris", WORKER]
    desk.box.hand_function(digest, [*waiting, 99])
    put = PutFunction(digest, body)
    assert desk.out == [("paris", PeerSide.SELLER, put), (WORKER, put)]


def test_a_client_is_asked_for_a_function(desk):
    desk.box.need_function(SimpleNamespace(handle=CLIENT), DIGEST)
    assert desk.out == [(CLIENT, NeedFunction(DIGEST))]
