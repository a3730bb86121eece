"""A lost object host is taken over, or it is said why not (gateway.objects.keeper)."""

import errno
import os
import socket
import subprocess
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
import trio.testing
from support.object_books import FreeBooks

from federation.clocks import UtcS
from federation.messages.objects import HolderGone, HostReady, SealedObject
from federation.objects.labels import UNLABELLED, read_label
from gateway.config.limits import ObjectRoom
from gateway.config.pools import PoolConfig
from gateway.grids.local import LocalGrid
from gateway.objects import keeper as keeping
from gateway.objects.host_process import FILE, HostPlace, listen_at
from gateway.objects.keeper import ObjectKeeper
from gateway.objects.tickets import SHOW_S, read_ticket

pytestmark = pytest.mark.real
TIMEOUT_S = 60.0


@pytest.fixture
def lines():
    return []


@pytest.fixture
def keeper(tmp_path, lines):
    return ObjectKeeper(
        lambda session: True,
        lambda job: None,
        lambda: UtcS(1000.0),
        lines.append,
        ObjectRoom(1 << 20),
        tmp_path,
        4.0,
        FreeBooks(),
    )


@pytest.fixture
def place(tmp_path):
    place = HostPlace.make()
    place.save(tmp_path / FILE)
    return place


@asynccontextmanager
async def running(keeper):
    with trio.fail_after(TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run)
            yield
            nursery.cancel_scope.cancel()


async def until(lines, text):
    with trio.fail_after(TIMEOUT_S):
        while not any(text in each for each in lines):  # noqa: ASYNC110
            await trio.sleep(0.01)


def crowded(place):
    """Return a listener whose queue is full, and the connections in it."""
    listener = listen_at(place)
    listener.listen(0)
    waiting = []
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        waiting.append(connection)
        try:
            connection.connect("\0" + place.address.removeprefix("@"))
        except BlockingIOError:
            return listener, waiting


def test_a_lost_host_that_has_ended_is_said_and_agents_get_another_address(
    keeper, place, lines, tmp_path
):
    async def check():
        keeper.look()
        before = keeper.for_agents()
        assert before[0] == place.address
        async with running(keeper):
            await keeper.settled()
            assert keeper.address not in (place.address, "")
            assert keeper.for_agents() == (keeper.address, keeper.agent_ticket)
            assert keeper.for_agents() != before
        [line] = lines
        assert "could not be taken over: it has ended" in line
        assert not (tmp_path / FILE).exists()

    trio.run(check)


def test_an_agent_is_started_with_the_address_of_then(keeper, place, monkeypatch):
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **more: started.append(command))

    async def check():
        keeper.look()
        grid = LocalGrid(
            PoolConfig("cpus", kind="local"), "tcp://x:1", "pass", print, "", keeper.for_agents
        )
        async with running(keeper):
            await keeper.settled()
        grid._start()
        [command] = started
        assert command[command.index("--objects") + 1] == keeper.address != place.address

    trio.run(check)


def test_a_busy_host_is_tried_again(keeper, place, lines, monkeypatch, tmp_path):
    monkeypatch.setattr(keeping, "AGAIN_S", 0.01)

    async def check():
        listener, waiting = crowded(place)
        keeper.look()
        async with running(keeper):
            await until(lines, "is tried again")
            assert (tmp_path / FILE).exists()
            for each in (listener, *waiting):
                each.close()
            await keeper.settled()
        assert len(lines) == 2  # once, not each time
        assert "it has ended" in lines[1]

    trio.run(check)


def test_a_host_that_stays_busy_is_given_up(keeper, place, lines, monkeypatch):
    monkeypatch.setattr(keeping, "START_S", 0.0)

    async def check():
        listener, waiting = crowded(place)
        keeper.look()
        async with running(keeper):
            await keeper.settled()
        for each in (listener, *waiting):
            each.close()
        assert "could not be taken over: [Errno" in lines[0]

    trio.run(check)


def test_a_host_that_ends_while_it_is_taken_over_does_not_end_the_gateway(
    keeper, place, lines, monkeypatch
):
    def gone(pid):
        raise ProcessLookupError(errno.ESRCH, "No such process")

    monkeypatch.setattr(os, "pidfd_open", gone)

    async def check():
        keeper.look()
        with listen_at(place):
            async with running(keeper):
                await keeper.settled()
        assert "could not be taken over: [Errno 3] No such process" in lines[0]

    trio.run(check)


def test_a_place_that_cannot_be_saved_ends_no_host(keeper, lines, monkeypatch, tmp_path):
    saves, save = [], HostPlace.save

    def full(self, path):
        saves.append(path)
        if len(saves) < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(self, path)

    monkeypatch.setattr(HostPlace, "save", full)
    monkeypatch.setattr(keeping, "SAVE_AGAIN_S", 0.01)

    async def check():
        keeper.look()
        async with running(keeper):
            assert await keeper.ready()
            pid = keeper.pid
            await until(lines, "is written")
            assert (tmp_path / FILE).exists()
            assert keeper.pid == pid
            assert len(lines) == 2  # not for each try
            assert "No space left on device" in lines[0]

    trio.run(check)


def test_a_host_of_before_gets_tickets_without_an_end_and_no_word_of_sessions(keeper):
    keeper._hear(HostReady(1))
    assert read_ticket(keeper.ticket(7, "ann", "risk"), keeper._place.key).show_by_s is None
    keeper.session_ended(7)
    assert keeper._orders[1].statistics().current_buffer_used == 0


def test_the_host_is_told_of_the_end_of_each_session_that_has_a_ticket(keeper):
    keeper._hear(HostReady(1, ends_sessions=True))
    ticket = read_ticket(keeper.ticket(7, "ann", "risk"), keeper._place.key)
    assert 0 < ticket.show_by_s - time.monotonic() <= SHOW_S
    for session in (8, 7, 7):
        keeper.session_ended(session)
    assert keeper._orders[1].receive_nowait() == HolderGone(7)
    assert keeper._orders[1].statistics().current_buffer_used == 0


def sealed(session, label=(), digest=b"d"):
    digest = b"\x02" + digest * 32
    return SealedObject(1, session, "ann", "risk", digest, 10, "", None, label=list(label))


def test_what_a_task_puts_has_the_label_of_what_it_has_read(keeper):
    """A task that had read EU data could put it without a label."""
    eu = read_label(["EU"])
    keeper.label_of_session = lambda session: eu if session == 7 else UNLABELLED
    keeper._hear(HostReady(1, keeps_labels=True))
    keeper._hear(sealed(7))
    keeper._hear(sealed(8, digest=b"e"))
    keeper._hear(sealed(7, ["US"], b"f"))
    answers = [keeper._orders[1].receive_nowait() for _ in range(3)]
    assert [each.label for each in answers] == [["EU"], [], []]
    assert [bool(each.reason) for each in answers] == [False, False, True]
    assert "the value may lie only in US, and what the task has read" in answers[2].reason


def test_a_host_of_before_is_given_no_labelled_object_and_no_word_of_labels(keeper):
    """It would forget the label, and the next run of the gateway would not know it."""
    keeper._owner_of = lambda _job: ("ann", "risk")
    keeper._hear(HostReady(1))
    keeper._hear(sealed(7, ["EU"]))
    keeper._hear(sealed(7, digest=b"e"))
    keeper.label_of = lambda _job: read_label(["EU"])
    keeper._hear(replace(sealed(0, digest=b"f"), job="j"))
    assert "keeps no labels" in keeper.hold_result("j", "risk", b"\x02" + b"e" * 32)
    assert keeper.hold_result("j", "risk", b"\x02" + b"g" * 32) == "it is not here any more"
    answers = [keeper._orders[1].receive_nowait() for _ in range(3)]
    assert "keeps no labels of objects" in answers[0].reason
    assert answers[1].reason == ""
    assert "keeps no labels of objects" in answers[2].reason
    assert keeper._orders[1].statistics().current_buffer_used == 0
    [held] = keeper.catalogue
    assert not held.label


class DeafHost:
    """An object host that takes orders, says nothing, and ends when the test says so."""

    def __init__(self):
        self.sent = []
        self.told = trio.Event()  # when an order has come
        self.over = trio.Event()
        self.pipe = self
        self.wait = self.over.wait

    async def send(self, message):
        self.sent.append(message)
        self.told.set()

    async def receive(self):
        await trio.sleep_forever()

    async def stop(self):
        pass


def test_the_next_host_is_told_of_the_sessions_whose_tickets_it_would_take(keeper):
    async def check():
        with trio.fail_after(TIMEOUT_S):
            host = DeafHost()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keeper._run_once, host)
                await trio.testing.wait_all_tasks_blocked()
                keeper._hear(HostReady(1, ends_sessions=True))
                for session in (6, 7, 8):
                    keeper.ticket(session, "ann", "risk")
                keeper.session_ended(7)
                await host.told.wait()
                host.over.set()
            keeper.session_ended(8)  # while there is no host
            following = DeafHost()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keeper._run_once, following)
                await following.told.wait()
                await trio.testing.wait_all_tasks_blocked()
                assert following.sent == [HolderGone(7), HolderGone(8)]
                keeper.session_ended(6)  # its ticket is of the first host
                await trio.testing.wait_all_tasks_blocked()
                assert following.sent[2:] == [HolderGone(6)]
                following.over.set()

    trio.run(check)
