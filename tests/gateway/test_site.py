"""The running site in this very process: the effects of its parts on each other."""

import sqlite3
import threading
import time
from calendar import monthrange
from contextlib import ExitStack
from dataclasses import replace

import pytest
import trio
from sqlalchemy.exc import OperationalError
from support.processes import InnerSite, Visitor, wait_until

from federation import Client
from federation.errors import GridError
from federation.ids import new_id
from federation.messages import messages
from federation.sessions.hearing import SILENT_BEATS
from gateway import site
from gateway.api.views.work_views import status
from gateway.config.books import BookRules
from gateway.config.carbon import CarbonConfig, SeriesConfig
from gateway.config.limits import ListenerLimits
from gateway.config.site import PoolConfig, SiteConfig, check
from gateway.ledger.db.errors import StoreFailed
from gateway.ledger.store.store import SqlStore
from gateway.runtime import environment
from gateway.site import Site

pytestmark = pytest.mark.real

DEADLINE_S = 300.0


def square(x):
    return x * x


def nap(x):
    time.sleep(x)


@pytest.fixture
def closing():
    """Ends the parts that a test began, last first."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def visit(closing):
    """Come to a site as a client of few words."""

    def visit_(inner, name="visitor"):
        made = Visitor(inner.address, name)
        closing.callback(made.close)
        return made

    return visit_


class Held:
    """A store whose look-ups wait until they are released, or fail."""

    def __init__(self, store, error=None):
        self._store = store
        self._error = error
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self.jobs = self

    def get(self, job):
        self.asked.set()
        assert self.go_on.wait(DEADLINE_S)
        if self._error is not None:
            raise self._error
        return self._store.jobs.get(job)

    def __getattr__(self, name):
        whole = self._store.jobs if hasattr(self._store.jobs, name) else self._store
        return getattr(whole, name)


def test_looking_a_job_up_holds_up_nobody_else(make_inner, visit, closing):
    inner = make_inner(1)
    held = inner.site.server.store = Held(inner.site.store)
    closing.callback(held.go_on.set)
    one, other = visit(inner, "one"), visit(inner, "other")
    one.open_job(square, "from-before", [3])
    assert held.asked.wait(DEADLINE_S)
    other.say(messages.Ask(1, "status", {}))
    assert other.wait_for(messages.Answer).value["clients"] == 2
    held.go_on.set()
    # What its client said meanwhile was held, and comes in its order.
    assert len(one.wait_for(messages.Results).values) == 1


def test_a_job_that_cannot_be_looked_up_is_rejected_and_the_site_goes_on(
    make_inner, visit, closing
):
    inner = make_inner(1, rules=ListenerLimits(store_wait_s=0.0))
    broken = OperationalError("SELECT", {}, sqlite3.OperationalError("disk I/O error"))
    whole, failing = inner.site.store, Held(inner.site.store, broken)
    inner.site.server.store = failing
    failing.go_on.set()
    one = visit(inner)
    one.open_job(square, "from-before", [3])
    reject = one.wait_for(messages.RejectJob)
    assert reject.code == "store-trouble"
    assert "disk I/O error" in reject.reason
    inner.site.server.store = whole
    one.open_job(square, "another", [3])
    assert one.wait_for(messages.Results).job == "another"


@pytest.mark.parametrize(("store_wait_s", "step_s"), [(30.0, 3600.0), (0.0, -3600.0)])
def test_when_jobs_are_refused_for_the_store_does_not_depend_on_the_calendar(
    make_inner, visit, store_wait_s, step_s
):
    inner = make_inner(1, rules=ListenerLimits(store_wait_s=store_wait_s))
    site, steps = inner.site, [0.0]
    utc_s = site.runtime.utc_s
    site.runtime = replace(site.runtime, utc_s=lambda: utc_s() + steps[-1])
    site.server._clock = site.runtime
    one = visit(inner)
    site._on_trouble("the disk is full")
    wait_until(lambda: site.broker.trouble, "the trouble")
    steps.append(step_s)
    one.open_job(square, "new", [3])
    if store_wait_s:
        assert one.wait_for(messages.Results).job == "new"
    else:
        assert one.wait_for(messages.RejectJob).code == "store-trouble"


def test_a_job_waits_for_a_store_that_cannot_be_read_for_a_while(make_inner, visit):
    inner = make_inner(1)
    broken = OperationalError("SELECT", {}, sqlite3.OperationalError("disk I/O error"))
    whole = inner.site.store
    failing = inner.site.server.store = Held(whole, broken)
    failing.go_on.set()
    one = visit(inner)
    one.open_job(square, "from-before", [3])
    assert failing.asked.wait(DEADLINE_S)
    inner.site.server.store = whole
    assert one.wait_for(messages.Results).job == "from-before"


def test_who_is_looked_up_sends_no_more_than_its_window(make_inner, visit, closing):
    inner = make_inner()
    held = inner.site.server.store = Held(inner.site.store)
    closing.callback(held.go_on.set)
    one = visit(inner)
    one.open_job(square, "from-before", [3])
    assert held.asked.wait(DEADLINE_S)
    for _ in range(50):
        one.say(messages.Cancel(0, "nonesuch", [], False))
    (peer,) = inner.site.listener.peers.values()
    wait_until(lambda: one.hear() and peer.session.received == 8, "a full window")
    assert not one.dialogue.session.has_room
    held.go_on.set()
    wait_until(lambda: one.hear() and one.dialogue.session.is_idle, "the rest")


def test_questions_are_counted_and_too_many_are_refused(make_inner, visit):
    inner = make_inner(rules=ListenerLimits(questions_max=2))
    one = visit(inner)
    one.open_job(square, "kept", [1], detached=True)
    for request in (1, 2, 3):
        one.say(messages.Ask(request, "results", {"job": "kept", "wait_s": 30}))
    refused = one.wait_for(messages.Answer)
    assert (refused.request, refused.code) == (3, "busy")
    one.say(messages.Cancel(0, "kept", [], True))
    wait_until(lambda: sum(type(each) is messages.Answer for each in one.hear()) == 3)
    one.heard.clear()
    one.say(messages.Ask(4, "status", {}))
    assert one.wait_for(messages.Answer).code == ""


def test_who_waits_for_results_is_woken_for_his_job_alone(make_inner, visit):
    inner = make_inner()
    reads = []
    read = inner.site.read

    async def note(what, *arguments):
        found = await read(what, *arguments)
        reads.append(arguments[0])
        return found

    inner.site.read = note
    one = visit(inner)
    for job in ("waits", "another"):
        one.open_job(square, job, [1], detached=True)
    one.say(messages.Ask(1, "results", {"job": "waits", "wait_s": 30}))
    wait_until(lambda: one.hear() and reads.count("waits") == 2, "the first look")
    one.say(messages.Cancel(2, "another", [], True))
    one.say(messages.Ask(3, "results", {"job": "another", "wait_s": 30}))
    wait_until(lambda: answers(one) >= {2, 3}, "the end of the other job")
    one.say(messages.Ask(4, "results", {"job": "another"}))
    wait_until(lambda: 4 in answers(one))
    assert reads.count("waits") == 2
    one.say(messages.Cancel(5, "waits", [], True))
    wait_until(lambda: 1 in answers(one), "its results")


def answers(visitor):
    """The questions of a visitor that were answered."""
    return {each.request for each in visitor.hear() if type(each) is messages.Answer}


class Behind:
    """A store that says that much waits for it."""

    def __init__(self, store, **much):
        self._store = store
        self._much = much

    def __getattr__(self, name):
        return self._much.get(name, getattr(self._store, name))


@pytest.mark.parametrize("much", ["backlog", "backlog_bytes"])
def test_while_the_store_is_behind_peers_wait_and_nobody_is_given_up(make_inner, visit, much):
    inner = make_inner(rules=ListenerLimits(heartbeat_s=0.3, grace_s=30.0))
    store = inner.site.store
    inner.site.server.store = Behind(store, **{much: 1 << 40})
    one = visit(inner)
    (peer,) = inner.site.listener.peers.values()
    job = new_id()
    one.open_job(square, job, [3])
    one.say(messages.Ask(1, "status", {}))
    assert one.wait_for(messages.Answer).value["jobs"] == 0
    # Many more heartbeats than a silence may last, in both directions.
    wait_until(
        lambda: one.hear() and one.dialogue.session.received > 2 * SILENT_BEATS, "heartbeats"
    )
    assert not one.link.is_lost
    assert inner.site.listener.peers == {peer.handle: peer}
    inner.site.server.store = store
    wait_until(lambda: one.hear() and job in inner.site.broker.jobs, "the job")
    wait_until(lambda: one.hear() and one.dialogue.session.is_idle, "its acknowledgement")


def test_the_end_of_a_session_may_wait_for_its_turn(make_inner, visit):
    """As in a tick while others have much to say: of a peer that is held, and has a token."""
    inner = make_inner(rules=ListenerLimits())
    server = inner.site.server
    store, server.store = inner.site.store, Behind(inner.site.store, backlog=1 << 40)
    one = visit(inner)
    (peer,) = inner.site.listener.peers.values()
    one.open_job(square, new_id(), [3])
    wait_until(lambda: one.hear() is not None and peer.handle in server._held)

    def end():
        server._tokens[peer.handle] = None  # not asked for what it is worth any more
        ended = list(server.listener.expel(peer, "because", 0.0))
        server.store = store
        server.catch_up()
        server._watch_tokens([])
        happened = []
        server._take(ended, happened)
        server.act(happened)

    inner.call(end)
    assert not server._held
    assert not inner.site.listener.peers


def test_old_results_are_forgotten_by_themselves_and_what_they_cost_is_not(make_inner, visit):
    inner = make_inner(1, results_s=0.05)
    one = visit(inner)
    job = new_id()
    one.open_job(square, job, [3], detached=True)
    wait_until(lambda: (row := inner.site.store.jobs.get(job)) and row.forgotten, "its time")
    assert inner.site.store.jobs.outcomes(job, 0, 10) == []
    assert inner.site.store.jobs.get(job).done == 1
    assert inner.site.store.usage.totals([])[0].tasks == 1


def test_old_records_are_rolled_up_by_themselves_and_cost_what_they_did(
    make_inner, visit, monkeypatch
):
    monkeypatch.setattr(site, "ROLL_UP_S", 0.02)
    inner = make_inner(1, books=BookRules(detail_days=1.0 + 1e-9, dispute_days=1e-9))
    one = visit(inner)
    job = new_id()
    one.open_job(nap, job, [0.01], detached=True)
    store = inner.site.store
    wait_until(store.journal.balances, "what it cost")
    # Two days later; others have asked before, and kept the clock that there was.
    now_s = inner.site.runtime.utc_s
    monkeypatch.setattr(
        inner.site,
        "runtime",
        replace(inner.site.runtime, utc_s=lambda: now_s() + 2 * 86_400),
    )
    wait_until(lambda: not store.journal.booked(0, 10), "a checkpoint")
    assert store.usage.totals([])[0].tasks == 1
    cost_nanos = store.usage.totals([])[0].cost_nanos
    assert sum(each.debits_nanos for each in store.journal.balances().values()) == cost_nanos > 0


def test_a_store_that_fails_before_the_site_serves_is_told_and_no_more(tmp_path, monkeypatch):
    class Failing(SqlStore):
        def __init__(self, url, on_trouble, on_fatal):
            super().__init__(url, on_trouble, on_fatal)
            self.on_fatal = on_fatal

        def mark_lost(self, now_s):
            error = StoreFailed("the store has failed")
            self.on_fatal(error)
            raise error

    monkeypatch.setattr(environment, "SqlStore", Failing)
    said = []
    listen = (f"ipc://{tmp_path}/gw.sock",)
    site = Site(check(SiteConfig(listen=listen, state=str(tmp_path)), 0.0), said.append)

    async def run():
        async with trio.open_nursery() as nursery:
            await nursery.start(site.run)

    with pytest.raises(ExceptionGroup) as caught:
        trio.run(run)
    assert caught.group_contains(StoreFailed)
    assert site.failed
    assert any("the gateway is shutting down" in line for line in said)


def test_work_is_booked_by_a_series_and_a_broken_one_stops_the_start(tmp_path, closing):
    path = tmp_path / "grid.csv"
    rows = [f"2024-{month:02}-{day:02}T{hour:02}:00Z,100"
            for month in range(1, 13) for day in range(1, 32) for hour in range(24)
            if day <= monthrange(2024, month)[1]]  # fmt: skip
    path.write_text("\n".join(["hour_utc,g_per_kwh", *rows]))
    carbon = CarbonConfig(max_watts=10.0, series=SeriesConfig(str(path), repeats=True))
    pools = (PoolConfig("local", "local", 1, carbon=carbon),)
    inner = InnerSite(tmp_path, pools=pools)
    closing.callback(inner.stop)
    with Client(inner.address) as client:
        assert client.submit(square, 3).result() == 9
    (pool,) = status(inner.site.broker, "s", [], 0)["pools"]
    assert (pool["carbon_g_per_kwh"], pool["slot_watts"]) == (100.0, 10.0)
    with sqlite3.connect(tmp_path / "state" / "gridfed.db") as database:
        rows = database.execute(
            "SELECT intensity_mg_per_kwh, carbon_source, energy_uj, carbon_ng, wall_ns FROM usage"
        ).fetchall()
    database.close()
    ((intensity, source, energy_uj, carbon_ng, wall_ns),) = rows
    assert (intensity, source) == (100_000, "series grid.csv repeated")
    assert 0 <= energy_uj <= wall_ns * 10 // 1_000 + 1
    assert abs(carbon_ng - energy_uj / 36) <= 1
    path.write_text("hour_utc,g_per_kwh\n2023-01-01T00:00Z,lots\n")
    site = Site(inner.site.config, lambda line: None)

    async def start():
        async with trio.open_nursery() as nursery:
            await nursery.start(site.run)

    with pytest.raises(ExceptionGroup) as caught:
        trio.run(start)
    assert caught.group_contains(
        GridError, match=r"grid\.csv, line 2: the intensity is not a number"
    )
