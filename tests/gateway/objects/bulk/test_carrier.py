"""Objects go from the object host of one site to that of another (gateway.objects.bulk)."""

import contextlib
import hashlib
import os
import resource
import secrets
import signal
import socket
import ssl
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
from support.object_books import FreeBooks

from federation.bulk.frames import HELLO, FrameKind, frame, pack_ranges, read_ranges
from federation.bulk.pull import BlockMap
from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.messages.objects import GetObject, ObjectHere, ObjectKept, OpenHost, PutObject
from federation.objects.bodies import make_body, parts_of
from federation.objects.manifests import BLOCK_BYTES, make_manifest
from federation.objects.segments import create
from federation.sessions import bulk_socket
from federation.sessions.bulk_socket import SILENCE_S, StreamRefused, dial_bulk, dialler_context
from federation.sessions.object_socket import BlockingObjectSocket
from federation.signed.identity import SiteKey
from federation.signed.transfers import TICKET_S, TransferTicket, seal_ticket
from gateway.config.limits import ObjectRoom
from gateway.objects.bulk.carrier_process import CarrierProcess, CarrierSettings, PullSource
from gateway.objects.descriptors import DESCRIPTORS_MAX
from gateway.objects.keeper import ObjectKeeper
from gateway.trust.certificates import make_leaf
from gateway.trust.keys import write_pins, write_private

pytestmark = pytest.mark.real
TIMEOUT_S = 60.0
SITES = ("london", "paris")
JOB = "london:c-1"
THERE = "risk\u00a0@london"


class Bank:
    """A site: its object host, its carrier, and the keys of both."""

    def __init__(self, name, folder, leaves, listen):
        self.name, self.lines = name, []
        self.key = SiteKey(hashlib.sha256(name.encode()).digest())
        self.folder = folder / name / "federation"
        self.folder.mkdir(parents=True, mode=0o700)
        write_private(self.folder / "leaf.pem", leaves[name].pem)
        others = {site: [leaf.certificate] for site, leaf in leaves.items() if site != name}
        write_pins(self.folder, others)
        self.keeper = ObjectKeeper(
            lambda session: True,
            lambda job: ("ada@london", THERE) if job == JOB else None,
            lambda: UtcS(time.time()),
            self.lines.append,
            ObjectRoom(1 << 30),
            folder / name,
            4.0,
            FreeBooks(),
        )
        self.carrier = CarrierProcess(
            CarrierSettings(name, listen, folder=str(self.folder)),
            lambda: [self.key.public],
            self.keeper.for_agents,
            self.lines.append,
        )

    async def put(self, value):
        """Put a value for project risk; return its digest and size."""
        assert await self.keeper.ready()
        body = make_body(value)
        file = create(body.size)
        file.write(body.pieces())
        file.seal()
        ask = PutObject(1, file.size, "", None)
        answer, _ = await trio.to_thread.run_sync(self._ask, ask, "risk", file.descriptor)
        assert isinstance(answer, ObjectKept)
        return answer.digest, file.size

    def _ask(self, message, scope, file=-1):
        connection = BlockingObjectSocket(self.keeper.address, TIMEOUT_S)
        try:
            connection.ask(OpenHost(self.keeper.ticket(1, "ada", scope)))
            return connection.ask(message, file)
        finally:
            connection.close()

    async def get(self, digest, scope=THERE):
        """Return the bytes of an object."""
        answer, file = await trio.to_thread.run_sync(self._ask, GetObject(1, scope, digest), scope)
        assert isinstance(answer, ObjectHere), answer
        try:
            return os.pread(file, answer.size, 0)
        finally:
            os.close(file)

    def ticket(self, digest, bytes_, to="paris", **changes):
        now = time.time()
        ticket = TransferTicket(
            *(secrets.token_hex(16), "f" * 32, self.name, to, digest, bytes_, "risk", "ada"),
            *("c-1", UtcS(now), UtcS(now + TICKET_S)),
        )
        return seal_ticket(replace(ticket, **changes), self.key)


@asynccontextmanager
async def two_banks(folder, listen="tls+tcp://127.0.0.1:0"):
    leaves = {site: make_leaf(site, ["127.0.0.1"], UtcS(time.time())) for site in SITES}
    banks = [
        Bank("london", folder, leaves, listen),
        Bank("paris", folder, leaves, ""),
    ]
    with trio.fail_after(TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            for bank in banks:
                bank.keeper.look()
                nursery.start_soon(bank.keeper.run)
                assert await bank.keeper.ready()
                nursery.start_soon(bank.carrier.run)
            assert await banks[0].carrier.ready()
            try:
                yield banks
            finally:
                for bank in banks:  # so that no object host is left for a next run
                    bank.keeper.catalogue.clear(UtcS(0.0))
            nursery.cancel_scope.cancel()


def bring(london, paris, digest, size, ticket):
    sources = [PullSource("london", london.carrier.address, ticket)]
    return paris.carrier.pull(THERE, digest, size, "ada@london", JOB, sources)


@pytest.mark.parametrize("listen", ["tls+tcp://127.0.0.1:0", "tcp://127.0.0.1:0"])
def test_an_object_comes_whole_and_is_held_by_the_job_it_came_for(tmp_path, listen):
    async def check():
        async with two_banks(tmp_path, listen) as (london, paris):
            value = [os.urandom(3 * BLOCK_BYTES + 17), b"x" * (9 * BLOCK_BYTES)]
            digest, size = await london.put(value)
            found = await bring(london, paris, digest, size, london.ticket(digest, size))
            assert found.reason == ""
            assert await paris.get(digest) == await london.get(digest, "risk")
            held = paris.keeper.catalogue.find(THERE, digest)
            assert held.jobs == {JOB}
            assert not held.results
            paris.keeper.sweep(set())  # the job is over
            assert paris.keeper.catalogue.find(THERE, digest) is None
            [(site, moved)] = found.moved
            assert site == "london"
            assert moved < size  # equal blocks moved once
            assert moved > 3 * BLOCK_BYTES

    trio.run(check)


def test_a_small_object_comes(tmp_path):
    async def check():
        async with two_banks(tmp_path) as (london, paris):
            digest, size = await london.put("small")
            found = await bring(london, paris, digest, size, london.ticket(digest, size))
            assert found.reason == ""
            assert await paris.get(digest) == await london.get(digest, "risk")

    trio.run(check)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"expires_s": UtcS(10.0)}, "has expired"),
        ({"source": "rome"}, "the ticket is for site rome, and this is london"),
        ({"to": "rome"}, "the ticket is for site rome, which shows another leaf"),
        ({"scope": "secret"}, "does not have object"),
        ({"size": 7}, "bytes and not 7"),
    ],
)
def test_a_ticket_that_is_not_for_this_is_refused(tmp_path, changes, reason):
    async def check():
        async with two_banks(tmp_path) as (london, paris):
            digest, size = await london.put("small")
            ticket = london.ticket(digest, size, **changes)
            found = await bring(london, paris, digest, size, ticket)
            assert reason in found.reason
            assert "london" in found.reason
            assert paris.keeper.catalogue.find(THERE, digest) is None
            forged = seal_ticket(
                TransferTicket(
                    *("0" * 32, "f" * 32, "london", "paris", digest, size, "risk", "ada", ""),
                    *(UtcS(time.time()), UtcS(time.time() + 60)),
                ),
                paris.key,
            )
            found = await bring(london, paris, digest, size, forged)
            assert "not signed by its site" in found.reason

    trio.run(check)


def test_a_site_that_is_cut_off_gets_nothing_more(tmp_path):
    async def check():
        async with two_banks(tmp_path) as (london, paris):
            digest, size = await london.put("small")
            before = london.ticket(digest, size)
            await london.carrier.cut("paris", "site paris is expelled here", UtcS(time.time()))
            found = await bring(london, paris, digest, size, before)
            assert "site paris is expelled here" in found.reason
            later = london.ticket(digest, size, issued_s=UtcS(time.time() + 1))  # approved again
            found = await bring(london, paris, digest, size, later)
            assert found.reason == ""

    trio.run(check)


def test_strangers_are_ended_soon_and_shut_nobody_out(tmp_path):
    async def check():
        async with two_banks(tmp_path) as (london, paris):
            digest, size = await london.put("small")
            host, port = london.carrier.address.removeprefix("tls+tcp://").split(":")
            idle = [socket.create_connection((host, int(port))) for _ in range(100)]
            found = await bring(london, paris, digest, size, london.ticket(digest, size))
            assert found.reason == ""
            for each in idle:
                each.settimeout(TIMEOUT_S)
            began = trio.current_time()
            ends = [await trio.to_thread.run_sync(read_end, each) for each in idle]
            assert ends == [b""] * 100
            assert trio.current_time() - began < TIMEOUT_S / 2
            junk = socket.create_connection((host, int(port)))
            junk.sendall(os.urandom(4096))
            junk.settimeout(TIMEOUT_S)
            await trio.to_thread.run_sync(read_end, junk)
            found = await bring(london, paris, digest, size, london.ticket(digest, size))
            assert found.reason == ""

    trio.run(check)


def read_end(connection):
    """Read until the other end closes; what TLS answers to junk does not matter."""
    with connection:
        try:
            while connection.recv(4096):
                pass
        except ConnectionError:
            pass
    return b""


def test_a_stranger_with_tls_and_a_stolen_ticket_gets_nothing(tmp_path):
    async def check():
        async with two_banks(tmp_path) as (london, paris):
            digest, size = await london.put("small")
            ticket = london.ticket(digest, size)
            context = dialler_context("", str(paris.folder / "pins" / "london.pem"))

            def steal():
                stream = dial_bulk(london.carrier.address, context, "london")
                try:
                    with pytest.raises(StreamRefused, match="which shows another leaf"):
                        stream.open(ticket)
                finally:
                    stream.close()

            await trio.to_thread.run_sync(steal)

    trio.run(check)


def test_a_ticket_can_fetch_its_object_only_a_few_times(tmp_path):
    async def check():
        async with two_banks(tmp_path) as (london, paris):
            digest, size = await london.put(os.urandom(100_000))
            ticket = london.ticket(digest, size)
            reasons = []
            for _ in range(6):
                found = await bring(london, paris, digest, size, ticket)
                reasons.append(found.reason)
            assert reasons[:3] == ["", "", ""]
            assert "too often" in reasons[-1] or "ask for another one" in reasons[-1]

    trio.run(check)


def test_a_transfer_that_is_cut_off_goes_on_where_it_was(tmp_path):
    """A relay in front of the bulk port ends each connection after some megabytes."""

    async def check():
        async with two_banks(tmp_path, "tcp://127.0.0.1:0") as (london, paris):
            digest, size = await london.put(os.urandom(12 * BLOCK_BYTES))
            relay = CuttingRelay(london.carrier.address, 5 * BLOCK_BYTES)
            source = PullSource("london", relay.address, london.ticket(digest, size))
            try:
                found = await paris.carrier.pull(THERE, digest, size, "ada@london", JOB, [source])
            finally:
                relay.close()
            assert found.reason == ""
            assert dict(found.moved)["london"] <= size  # no block was counted twice
            assert relay.cuts > 0

    trio.run(check)


class CuttingRelay:
    """Passes connections on, and ends each of the first four after so many bytes."""

    def __init__(self, address, bytes_max):
        host, port = address.removeprefix("tcp://").split(":")
        self._to, self._max, self.cuts = (host, int(port)), bytes_max, 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self._count = 0
        self._open = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                one, _ = self._server.accept()
            except OSError:
                return
            self._count += 1
            other = socket.create_connection(self._to)
            most = self._max if self._count <= 4 else 1 << 40
            self._open += (one, other)
            for a, b, left in ((one, other, 1 << 40), (other, one, most)):
                threading.Thread(target=self._pass, args=(a, b, left), daemon=True).start()

    def _pass(self, a, b, left):
        try:
            while data := a.recv(1 << 16):
                left -= len(data)
                if left < 0:
                    self.cuts += 1
                    break
                b.sendall(data)
        except OSError:
            pass
        for each in (a, b):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self):
        shut(self._open)


def shut(sockets):
    """End sockets that threads may block in."""
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


class LyingHolder:
    """A bulk port that sends the right manifest and wrong blocks."""

    def __init__(self, data):
        self._manifest = make_manifest(parts_of(memoryview(data)))
        self._where = BlockMap(self._manifest, len(data))
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open = [self._server]
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                one, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._lie, args=(one,), daemon=True).start()

    def _lie(self, one):
        self._open.append(one)
        stream = bulk_socket.BulkSocket(one)
        try:
            stream.hello()
            stream.send(frame(FrameKind.MANIFEST, self._manifest.to_bytes()))
            while (wanted := stream.wanted()) is not None:
                for first, stop in read_ranges(wanted, len(self._manifest.blocks)):
                    for number in range(first, stop):
                        _, length = self._where.where(number)
                        stream.send(frame(FrameKind.BLOCK, bytes(length), number))
        except (OSError, ProtocolError):
            pass

    def close(self):
        shut(self._open)


def test_a_lying_holder_is_named_and_the_object_comes_from_another(tmp_path):
    async def check():
        async with two_banks(tmp_path, "tcp://127.0.0.1:0") as (london, paris):
            value = os.urandom(6 * BLOCK_BYTES)
            digest, size = await london.put(value)
            liar = LyingHolder(await london.get(digest, "risk"))
            good = PullSource("london", london.carrier.address, london.ticket(digest, size))
            bad = PullSource("rome", liar.address, b"any")
            try:
                found = await paris.carrier.pull(
                    THERE, digest, size, "ada@london", JOB, [bad, good]
                )
                assert found.reason == ""
                assert dict(found.moved)["rome"] == 0
                assert await paris.get(digest) == await london.get(digest, "risk")
                paris.keeper.sweep(set())
                found = await paris.carrier.pull(THERE, digest, size, "ada@london", JOB, [bad])
                assert "rome: block" in found.reason
            finally:
                liar.close()

    trio.run(check)


def test_a_carrier_that_is_killed_is_started_again_and_holds_nothing(tmp_path):
    async def check():
        async with two_banks(tmp_path) as (london, paris):
            digest, size = await london.put(os.urandom(4 * BLOCK_BYTES))
            assert await paris.carrier.ready()
            for bank in (london, paris):
                before = bank.carrier.pid
                os.kill(before, signal.SIGKILL)
                while bank.carrier.pid == before:  # noqa: ASYNC110
                    await trio.sleep(0.01)
                assert await bank.carrier.ready()
            found = await bring(london, paris, digest, size, london.ticket(digest, size))
            assert found.reason == ""
            assert any("has ended" in line for line in london.lines)

    trio.run(check)


def test_a_pull_that_is_cancelled_ends(tmp_path):
    async def check():
        async with two_banks(tmp_path, "tcp://127.0.0.1:0") as (_, paris):
            silent = socket.create_server(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
            assert await paris.carrier.ready()
            with trio.move_on_after(0.5):
                await paris.carrier.pull(
                    *(THERE, b"\x02" + bytes(32), 100, "ada@london", JOB),
                    [PullSource("london", address, b"t")],
                )
            connection, _ = silent.accept()
            connection.settimeout(SILENCE_S / 2)  # long before the carrier gives up by itself
            await trio.to_thread.run_sync(read_end, connection)
            silent.close()

    trio.run(check)


def test_a_tls_port_refuses_a_leaf_that_is_not_pinned(tmp_path):
    async def check():
        async with two_banks(tmp_path) as (london, paris):
            other = tmp_path / "other.pem"
            leaf = make_leaf("paris", ["127.0.0.1"], UtcS(time.time()))
            write_private(other, leaf.pem)
            context = dialler_context(str(other), str(paris.folder / "pins" / "london.pem"))

            def dial():
                stream = dial_bulk(london.carrier.address, context, "london")
                try:
                    stream.open(b"t")
                finally:
                    stream.close()

            with pytest.raises((ssl.SSLError, ConnectionError)):
                await trio.to_thread.run_sync(dial)
            own = dialler_context(
                str(paris.folder / "leaf.pem"), str(london.folder / "pins" / "paris.pem")
            )
            with pytest.raises(ssl.SSLError):  # it is London that answers, and not Paris
                await trio.to_thread.run_sync(dial_bulk, london.carrier.address, own, "paris")

    trio.run(check)


@pytest.mark.skipif(not os.path.exists("/proc/self/limits"), reason="needs /proc")
def test_a_carrier_keeps_no_object_that_it_has_served_and_raises_its_limit(tmp_path):
    async def check():
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(256, soft // 2), hard))
        try:
            async with two_banks(tmp_path) as (london, paris):
                open_ones = []
                for number in range(6):
                    digest, size = await london.put(f"object {number}")
                    for _ in range(2):
                        ticket = london.ticket(digest, size)
                        found = await bring(london, paris, digest, size, ticket)
                        assert found.reason == ""
                        paris.keeper.sweep(set())  # so that it is fetched again
                    while files_of(london.carrier.pid):  # noqa: ASYNC110 - until its streams end
                        await trio.sleep(0.01)
                    open_ones.append(len(os.listdir(f"/proc/{london.carrier.pid}/fd")))
                assert open_ones[-1] <= open_ones[0] + 1
                with open(f"/proc/{london.carrier.pid}/limits") as file:  # noqa: ASYNC230
                    limits = file.read()
                [line] = [each for each in limits.splitlines() if "open files" in each]
                assert int(line.split()[3]) == min(hard, DESCRIPTORS_MAX)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    trio.run(check)


def files_of(pid):
    """Return the descriptors of objects that a process has open."""
    found = []
    for each in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/{pid}/fd/{each}"))
    return [each for each in found if "gridfed-object" in each]


def test_many_streams_of_one_object_open_it_at_once(tmp_path):
    async def check():
        async with two_banks(tmp_path, "tcp://127.0.0.1:0") as (london, _):
            digest, size = await london.put(os.urandom(1000))
            lengths = []

            def ask(ticket):
                stream = dial_bulk(london.carrier.address)
                try:
                    lengths.append(len(stream.open(ticket)))
                finally:
                    stream.close()

            async with trio.open_nursery() as nursery:
                for _ in range(12):
                    ticket = london.ticket(digest, size)
                    nursery.start_soon(trio.to_thread.run_sync, ask, ticket)
            assert len(lengths) == 12

    trio.run(check)


def test_a_want_outside_of_the_object_ends_the_stream(tmp_path):
    async def check():
        async with two_banks(tmp_path, "tcp://127.0.0.1:0") as (london, _):
            digest, size = await london.put("small")
            ticket = london.ticket(digest, size)

            def ask():
                stream = dial_bulk(london.carrier.address)
                stream.open(ticket)
                stream.send(frame(FrameKind.WANT, pack_ranges([(0, 1_000)])))
                try:
                    return stream.wanted()
                finally:
                    stream.close()

            assert await trio.to_thread.run_sync(ask) is None

    trio.run(check)


def test_what_is_no_bulk_stream_is_closed(tmp_path):
    async def check():
        async with two_banks(tmp_path, "tcp://127.0.0.1:0") as (london, _):
            host, port = london.carrier.address.removeprefix("tcp://").split(":")
            for said in (b"GET / HTTP/1.1\r\n\r\n", HELLO + b"\xff" * 100, HELLO):
                connection = socket.create_connection((host, int(port)))
                connection.settimeout(TIMEOUT_S)
                connection.sendall(said)
                await trio.to_thread.run_sync(read_end, connection)

    trio.run(check)


def test_a_carrier_that_hangs_is_killed_and_its_transfers_begin_again(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.objects.bulk.carrier_process.BEAT_S", 0.5)

    async def check():
        async with two_banks(tmp_path) as (london, paris):
            assert await paris.carrier.ready()
            hung = paris.carrier.pid
            os.kill(hung, signal.SIGSTOP)
            digest, size = await london.put("small")
            found = await bring(london, paris, digest, size, london.ticket(digest, size))
            assert found.reason == ""
            assert paris.carrier.pid not in (0, hung)
            assert any("has not answered" in line for line in paris.lines)
            assert str(hung) not in os.listdir("/proc")
            assert not any("has not answered" in line for line in london.lines)

    trio.run(check)
