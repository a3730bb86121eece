"""The object host survives its connections (gateway.objects.host): descriptors, room, tickets."""

import array
import errno
import gc
import os
import resource
import socket
import threading
from contextlib import asynccontextmanager
from unittest.mock import Mock, patch

import pytest
import trio

from federation.messages.objects import (
    AdoptHost,
    GetObject,
    HeldBefore,
    HolderBefore,
    HolderGone,
    HostOpen,
    HostReady,
    NoteHolder,
    ObjectKept,
    ObjectMissing,
    OpenHost,
    PutObject,
    SealedObject,
    SettleObject,
    SetUpHost,
    StopHost,
)
from federation.objects.bodies import make_body
from federation.objects.segments import create
from federation.sessions.object_socket import encode_frame
from gateway.objects import host, shelf
from gateway.objects.descriptors import DESCRIPTORS_MAX, raise_descriptors
from gateway.objects.host import ObjectHost
from gateway.objects.host_process import HostPlace, listen_at
from gateway.objects.tickets import CLIENT, GATEWAY, ObjectTicket
from gateway.worker.object_pipe import ObjectPipe

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs memfd"),
]
PLACE = HostPlace("@none", b"k" * 32)
TICKET = ObjectTicket(CLIENT, 1, "ann", "risk").sign(PLACE.key)
OTHERS = ObjectTicket(CLIENT, 2, "bob", "risk").sign(PLACE.key)
ROOM = 1 << 20
TIMEOUT_S = 60.0


class FailingListener:
    """A listener whose accept has no descriptor so many times."""

    def __init__(self, listener, fails=0):
        self._listener, self.fails = listener, fails

    async def accept(self):
        if self.fails:
            self.fails -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return await self._listener.accept()

    def close(self):
        self._listener.close()


class Site:
    """A host in this process, and its gateway's end."""

    def __init__(self, gateway, listener, address):
        self.gateway, self.listener, self._address = gateway, listener, address
        self.connections = []

    async def dial(self):
        connection = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connections.append(connection)
        await connection.connect("\0" + self._address.removeprefix("@"))
        return connection

    async def client(self, ticket=TICKET, *, spills=False):
        pipe = ObjectPipe(await self.dial())
        await pipe.send(OpenHost(ticket))
        assert await pipe.receive() == [(HostOpen(ROOM, spills=spills, labels=True), -1)]
        return pipe

    async def put(self, client, file, size):
        """Put a file, as its gateway agrees; return the answer."""
        await client.send(PutObject(1, size, "", None), file)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.agree)
            [(answer, _)] = await client.receive()
            nursery.cancel_scope.cancel()
        return answer

    async def agree(self):
        for message, _ in await self.gateway.receive():
            assert isinstance(message, SealedObject)
            await self.gateway.send(SettleObject(message.request, "", 1.0))


@asynccontextmanager
async def running(*, fails=0, descriptors=1000, limits=()):
    place = HostPlace.make()
    listening = listen_at(place)
    listening.setblocking(False)
    listener = FailingListener(trio.socket.from_stdlib_socket(listening), fails)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    gateway, control = (ObjectPipe(trio.socket.from_stdlib_socket(each)) for each in (ours, theirs))
    try:
        with trio.fail_after(TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ObjectHost(control, listener, descriptors=descriptors).run)
                await gateway.send(SetUpHost(PLACE.key, ROOM, *limits))
                ready = HostReady(
                    os.getpid(),
                    ends_sessions=True,
                    notes_holders=True,
                    keeps_labels=True,
                    drops_names=True,
                )
                assert await gateway.receive() == [(ready, -1)]
                site = Site(gateway, listener, place.address)
                yield site
                await site.gateway.send(StopHost("the test ends"))
                for each in site.connections:
                    each.close()
    finally:
        listener.close()
        gateway.close()
        control.close()


def a_body(value="x"):
    body = make_body(value)
    segment = create(body.size)
    segment.write(body.pieces())
    return segment


async def is_closed(connection):
    """Wait for the end of a connection, or for bytes."""
    try:
        return await connection.recv(1) == b""
    except ConnectionError:
        return True


def descriptors():
    gc.collect()  # those of earlier tests that nothing refers to any more would end in between
    return len(os.listdir("/proc/self/fd"))


def test_an_accept_without_a_descriptor_ends_nothing_and_closes_the_oldest_stranger(monkeypatch):
    monkeypatch.setattr(host, "OPEN_S", 10 * TIMEOUT_S)  # it is not closed for its silence

    async def check():
        async with running() as site:
            client = await site.client()
            stranger = await site.dial()
            later = await site.client()  # so the stranger is accepted
            site.listener.fails = 1
            last = [await site.client(), await site.client()]
            assert await stranger.recv(1) == b""
            for each in (client, later, *last):
                body = a_body()
                assert isinstance(await site.put(each, body.descriptor, body.size), ObjectKept)

    trio.run(check)


def test_strangers_give_way_to_new_connections():
    async def check():
        async with running(descriptors=16) as site:  # 4 connections
            strangers = [await site.dial() for _ in range(8)]
            await site.client()
            for each in strangers[:4]:
                assert await each.recv(1) == b""
            for _ in range(2):
                await site.client()
            one_more = ObjectPipe(await site.dial())
            await one_more.send(OpenHost(TICKET))
            assert await is_closed(site.connections[-1])  # a user has three quarters of them
            await site.client(OTHERS)
            refused = await site.dial()  # all four have shown a ticket
            assert await is_closed(refused)

    trio.run(check)


def test_a_put_is_refused_before_descriptors_run_out():
    async def check():
        async with running(descriptors=16) as site:  # 10 objects
            client, other = await site.client(), await site.client(OTHERS)
            for number in range(7):
                body = a_body(number)
                assert isinstance(await site.put(client, body.descriptor, body.size), ObjectKept)
            body = a_body("one more")
            answer = await site.put(client, body.descriptor, body.size)
            assert isinstance(answer, ObjectMissing)
            assert "has 7 objects at the object host, three quarters" in answer.reason
            for number in range(7, 10):
                body = a_body(number)
                assert isinstance(await site.put(other, body.descriptor, body.size), ObjectKept)
            body = a_body("one more")
            answer = await site.put(other, body.descriptor, body.size)
            assert isinstance(answer, ObjectMissing)
            assert "descriptors for 10 objects" in answer.reason

    trio.run(check)


def test_a_fault_with_one_connection_ends_neither_the_host_nor_the_others(monkeypatch, capsys):
    async def check():
        async with running() as site:
            client, other = await site.client(), await site.client()
            monkeypatch.setattr(
                shelf.ObjectShelf, "take", Mock(side_effect=ZeroDivisionError("a defect"))
            )
            await client.send(GetObject(1, "p", b"\x02" + bytes(32)))
            assert await client.receive() == []
            monkeypatch.undo()
            body = a_body()
            assert isinstance(await site.put(other, body.descriptor, body.size), ObjectKept)

    trio.run(check)
    assert "ZeroDivisionError: a defect" in capsys.readouterr().err


def test_the_next_gateway_is_taken_before_the_loss_of_the_last_was_noticed():
    async def check():
        async with running() as site:
            body = a_body()
            client = await site.client()
            kept = await site.put(client, body.descriptor, body.size)
            assert isinstance(kept, ObjectKept)
            await site.gateway.send(NoteHolder("risk", kept.digest, "bob", 7.0))
            following = ObjectPipe(await site.dial())
            ticket = ObjectTicket(GATEWAY).sign(PLACE.key)
            await following.send(AdoptHost(ticket, b"k" * 32, ROOM, wants_holders=True))
            site.gateway.close()  # only now: it was asked before
            heard = []
            while not any(isinstance(each, HostReady) for each in heard):
                heard += [message for message, _ in await following.receive()]
            assert isinstance(heard[0], HeldBefore)
            assert heard[0].user == "ann"
            holders = [each.user for each in heard if isinstance(each, HolderBefore)]
            assert holders == ["ann", "bob"]
            site.gateway = following  # for the end of the test

    trio.run(check)


def test_a_gateway_that_lives_loses_its_host_to_no_other(monkeypatch):
    monkeypatch.setattr(host, "LOSS_S", 0.05)

    async def check():
        async with running() as site:
            following = ObjectPipe(await site.dial())
            ticket = ObjectTicket(GATEWAY).sign(PLACE.key)
            await following.send(AdoptHost(ticket, b"k" * 32, ROOM))
            assert await is_closed(site.connections[-1])
            body = a_body()
            client = await site.client()
            assert isinstance(await site.put(client, body.descriptor, body.size), ObjectKept)

    trio.run(check)


def test_a_file_that_cannot_be_read_leaves_the_room_as_it_was():
    async def check():
        async with running() as site:
            client = await site.client()
            size = ROOM // 2 + 1
            for _ in range(2):
                segment = create(size)
                write_only = os.open(f"/proc/self/fd/{segment.descriptor}", os.O_WRONLY)
                answer = await site.put(client, write_only, size)
                os.close(write_only)
                assert isinstance(answer, ObjectMissing)
                assert "can't be read" in answer.reason

    trio.run(check)


@pytest.mark.parametrize("end", [b"", b"\xff" * 4])
def test_no_descriptor_is_left_of_a_bad_connection(end):
    async def check():
        async with running() as site:
            files = [os.memfd_create("x") for _ in range(8)]
            before = None
            for is_known in (False, True, False, True):
                connection = await site.dial()
                if is_known:
                    await connection.send(encode_frame(OpenHost(TICKET)))
                    assert await connection.recv(1000)
                puts = b"".join(encode_frame(PutObject(1, 10, "", None)) for _ in files[:4])
                bad = encode_frame(StopHost("no message for a host")) + puts + end
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
                await connection.sendmsg([bad], rights)
                assert await is_closed(connection)
                connection.close()
                if is_known:
                    before = before or descriptors()
                    assert descriptors() == before
            for each in files:
                os.close(each)

    trio.run(check)


def test_a_stranger_that_says_half_a_message_has_no_descriptor_here():
    async def check():
        async with running() as site:
            await site.client()
            stranger, files = await site.dial(), [os.memfd_create("x") for _ in range(8)]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
            later = await site.client()  # so the stranger is accepted
            before = descriptors()
            await stranger.sendmsg([b"\0"], rights)
            body = a_body()
            assert isinstance(await site.put(later, body.descriptor, body.size), ObjectKept)
            assert descriptors() == before + 2  # the object's: ours and the host's
            for each in files:
                os.close(each)

    trio.run(check)


def test_a_connection_without_a_ticket_hands_over_no_descriptor():
    async def check():
        ours, theirs = trio.socket.socketpair()
        pipe = ObjectPipe(theirs, takes_files=False)
        files = [os.memfd_create("x") for _ in range(3)]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
        before = descriptors()
        await ours.sendmsg([encode_frame(OpenHost(b"t"))], rights)
        assert await pipe.receive() == [(OpenHost(b"t"), -1)]
        assert descriptors() == before
        pipe.close()
        ours.close()
        for each in files:
            os.close(each)

    trio.run(check)


@pytest.mark.parametrize("descriptors", [256, 1024, 20_000, DESCRIPTORS_MAX])
def test_connections_and_objects_leave_descriptors_over(descriptors):
    connections, objects = host.shares(descriptors)
    assert 0 < connections <= min(host.CONNECTIONS_MAX, descriptors // 4)
    assert objects > descriptors // 2
    assert connections + objects <= descriptors * 7 // 8


def test_the_host_raises_its_limit_of_descriptors():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
        assert raise_descriptors() == min(before[1], DESCRIPTORS_MAX)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == raise_descriptors()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_connections_of_a_session_that_is_over_are_closed_and_its_tickets_taken_no_more():
    async def main():
        async with running() as site:
            client, other = await site.client(), await site.dial()
            second = ObjectPipe(other)
            await second.send(OpenHost(ObjectTicket(CLIENT, 2, "eve", "risk").sign(PLACE.key)))
            assert await second.receive() == [(HostOpen(ROOM, labels=True), -1)]
            await site.gateway.send(HolderGone(1))
            assert await client.receive() == []
            late = ObjectPipe(await site.dial())
            await late.send(OpenHost(TICKET))
            assert await late.receive() == []
            file = a_body()
            assert isinstance(await site.put(second, file.descriptor, file.size), ObjectKept)
            file.close()

    trio.run(main)


def test_what_a_session_that_is_over_was_putting_is_not_offered(monkeypatch):
    async def main():
        async with running() as site:
            client, file = await site.client(), a_body()
            measure, goes_on = host._measure, threading.Event()

            def slow(*args):
                goes_on.wait(TIMEOUT_S)
                return measure(*args)

            monkeypatch.setattr(host, "_measure", slow)
            await client.send(PutObject(1, file.size, "", None), file.descriptor)
            await site.gateway.send(HolderGone(1))
            assert await client.receive() == []
            goes_on.set()
            monkeypatch.setattr(host, "_measure", measure)
            # The room is free again: the next one has all of it.
            other = ObjectPipe(await site.dial())
            await other.send(OpenHost(ObjectTicket(CLIENT, 2, "eve", "risk").sign(PLACE.key)))
            assert await other.receive() == [(HostOpen(ROOM, labels=True), -1)]
            answer = await site.put(other, file.descriptor, file.size)
            assert isinstance(answer, ObjectKept)
            file.close()

    trio.run(main)


def test_a_put_that_its_user_has_no_room_for_pushes_nothing_of_others_to_disk(tmp_path):
    async def check():
        most = ROOM // 2
        async with running(limits=(most, str(tmp_path), 1 << 30)) as site:
            ann = await site.client(spills=True)
            bob = await site.client(OTHERS, spills=True)
            for client in (bob, ann):
                body = a_body(os.urandom(most * 9 // 10))
                answer = await site.put(client, body.descriptor, body.size)
                assert isinstance(answer, ObjectKept)
            large = a_body(os.urandom(most // 2))
            with patch.object(host, "spill", Mock(side_effect=OSError("written"))) as written:
                await ann.send(PutObject(2, large.size, "", None), large.descriptor)
                [(answer, _)] = await ann.receive()
                assert f"{most:,} bytes of objects of user ann" in answer.reason
                assert not written.called
                eve = await site.client(
                    ObjectTicket(CLIENT, 3, "eve", "risk").sign(PLACE.key), spills=True
                )
                await eve.send(PutObject(1, large.size, "", None), large.descriptor)
                [(answer, _)] = await eve.receive()
                assert "nor can others be written" in answer.reason
                assert written.called

    trio.run(check)
