"""The floor: the minimum cost of the same journey.

The same hops, processes and transport rule as gridfed, and nothing else: no store, no limits, no
accounting, no checks, no retries.

    client ─ Pair1 ─► gateway ─ Pair1 ─► agent ─ socketpair ─► slot     and the same way back

Descriptors are polled and never awaited through pynng. A frame is everything that waits for a pipe,
and the gateway never has more than one unacknowledged frame in flight to any (the transport rule of
docs/protocol.md). Each task is its own bytes in a bundle; the function is sent once; the slot
unpickles, calls and pickles each; the client unpickles each, in order.
"""

import contextlib
import os
import pickle
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgpack
import pynng
import trio

from federation.sessions.nng import limit_threads

limit_threads()  # as gridfed does, or the floor would be higher than necessary
BUNDLE = 1000
AHEAD_BUNDLES = 64
SLOT_BUNDLES = 8  # bundles that an agent may hold a slot
_pack = msgpack.packb


def _unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, raw=False)


def empty(_: int) -> None:
    """Do nothing: the task of all benchmarks of overhead."""


class Peer:
    """One side of a pipe: queued messages go out as one frame once the last was acknowledged."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.under_way = False
        self.owes = False

    def next_frame(self) -> bytes | None:
        """Return a frame of queued messages, or a bare acknowledgement, or None."""
        if self.waiting and not self.under_way:
            frame = _pack([self.owes, self.waiting])
            self.waiting, self.under_way, self.owes = [], True, False
            return bytes(frame)
        if self.owes:
            self.owes = False
            return bytes(_pack([True, []]))
        return None

    def take(self, frame: bytes) -> Any:
        """Return the messages of a frame."""
        acknowledges, messages = _unpack(frame)
        if acknowledges:
            self.under_way = False
        if messages:
            self.owes = True
        return messages


def _receive(sock: Any) -> list[bytes]:
    frames = []
    try:
        while True:
            frames.append(sock.recv(block=False))
    except pynng.TryAgain:
        return frames


# --- the gateway ---------------------------------------------------------------------------------


async def _gateway(address: str) -> None:  # noqa: C901 - a skeleton in one piece
    sock = pynng.Pair1(polyamorous=True, recv_max_size=1 << 26, send_buffer_size=1024)
    sock.listen(address)
    print("ready", flush=True)
    pipes: dict[int, tuple[Any, Peer]] = {}
    agents: dict[int, int] = {}  # pipe → bundles that it may still take
    owner: dict[int, int] = {}  # bundle → pipe of its client
    queue: deque[Any] = deque()
    functions: list[Any] = []
    while True:
        await trio.lowlevel.wait_readable(sock.recv_fd)
        with contextlib.suppress(pynng.TryAgain):
            while True:
                message = sock.recv_msg(block=False)
                pipe = message.pipe.id
                _, peer = pipes.setdefault(pipe, (message.pipe, Peer()))
                for item in peer.take(message.bytes):
                    match item:
                        case ["tasks", number, _]:
                            owner[number] = pipe
                            queue.append(item)
                        case ["done", number, _]:
                            agents[pipe] += 1
                            pipes[owner.pop(number)][1].waiting.append(item)
                        case ["function", _]:
                            functions.append(item)
                            for agent in agents:
                                pipes[agent][1].waiting.append(item)
                        case ["agent", slots]:
                            agents[pipe] = slots * SLOT_BUNDLES
                            peer.waiting.extend(functions)
        while queue and agents:
            agent = max(agents, key=agents.__getitem__)
            if not agents[agent]:
                break
            agents[agent] -= 1
            pipes[agent][1].waiting.append(queue.popleft())
        for handle, peer in pipes.values():
            frame = peer.next_frame()
            if frame is not None:
                sock.send_msg(pynng.Message(frame, handle), block=False)


# --- the agent and its slots ---------------------------------------------------------------------


async def _agent(address: str, slots: int) -> None:  # noqa: C901 - likewise
    link = pynng.Pair1(recv_max_size=1 << 26, send_buffer_size=64)
    link.dial(address, block=True)
    peer = Peer()
    peer.waiting.append(["agent", slots])
    streams = []
    for _ in range(slots):
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "benchmarks.floor", "slot", str(theirs.fileno())]
        subprocess.Popen(command, pass_fds=[theirs.fileno()])  # noqa: ASYNC220
        theirs.close()
        streams.append(trio.SocketStream(trio.socket.from_stdlib_socket(ours)))
    locks = [trio.Lock() for _ in streams]
    backlog: deque[bytes] = deque()
    busy = [0] * slots

    def flush() -> None:
        frame = peer.next_frame()
        if frame is not None:
            link.send(frame, block=False)

    async def listen(index: int) -> None:
        buffer = bytearray()
        while data := await streams[index].receive_some(1 << 18):
            buffer += data
            while len(buffer) >= 4:
                (size,) = struct.unpack_from("!I", buffer)
                if len(buffer) < 4 + size:
                    break
                peer.waiting.append(_unpack(bytes(buffer[4 : 4 + size])))
                del buffer[: 4 + size]
                busy[index] -= 1
                await feed()
            flush()

    async def feed() -> None:
        while backlog:
            index = min(range(slots), key=busy.__getitem__)
            if busy[index] >= 2:
                return
            busy[index] += 1
            data = backlog.popleft()
            async with locks[index]:
                await streams[index].send_all(data)

    flush()
    async with trio.open_nursery() as nursery:
        for index in range(slots):
            nursery.start_soon(listen, index)
        while True:
            await trio.lowlevel.wait_readable(link.recv_fd)
            for frame in _receive(link):
                for item in peer.take(frame):
                    body = _pack(item)
                    data = struct.pack("!I", len(body)) + body
                    if item[0] == "function":
                        for stream, lock in zip(streams, locks, strict=True):
                            async with lock:
                                await stream.send_all(data)
                    else:
                        backlog.append(data)
            await feed()
            flush()


def _slot(descriptor: int) -> None:
    sock = socket.socket(fileno=descriptor)
    function: Any = None
    loads, dumps = pickle.loads, pickle.dumps

    def read(size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = sock.recv(size - len(data))
            if not part:
                os._exit(0)
            data += part
        return bytes(data)

    while True:
        (size,) = struct.unpack("!I", read(4))
        kind, number, *rest = _unpack(read(size))
        if kind == "function":
            function = loads(number)
            continue
        values = [dumps(function(*loads(payload)), 5) for payload in rest[0]]
        body = _pack(["done", number, values])
        sock.sendall(struct.pack("!I", len(body)) + body)


# --- the client ----------------------------------------------------------------------------------


class Floor:
    """The skeleton with so many agents of so many slots; a context manager."""

    def __init__(self, agents: int = 2, slots: int = 1, scheme: str = "ipc") -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gridfed-floor-")
        address = f"ipc://{self._folder.name}/gw.sock"
        if scheme == "tcp":
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        me = [sys.executable, "-m", "benchmarks.floor"]
        root = Path(__file__).parent.parent
        self._processes = [
            subprocess.Popen([*me, "gateway", address], stdout=subprocess.PIPE, cwd=root)
        ]
        assert self._processes[0].stdout is not None
        self._processes[0].stdout.readline()
        for _ in range(agents):
            command = [*me, "agent", address, str(slots)]
            self._processes.append(subprocess.Popen(command, cwd=root))
        self._link = pynng.Pair1(recv_max_size=1 << 26, send_buffer_size=64)
        self._link.dial(address, block=True)
        self._poll = select.poll()
        self._poll.register(self._link.recv_fd, select.POLLIN)
        self._peer = Peer()
        self._numbers = 0
        self._done: dict[int, list[bytes]] = {}
        self._peer.waiting.append(["function", pickle.dumps(empty)])

    def __enter__(self) -> "Floor":
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._folder.cleanup()

    def _pump(self, *, wait: bool) -> None:
        self._flush()
        if wait:
            self._poll.poll(1000)
        for frame in _receive(self._link):
            for _, number, values in self._peer.take(frame):
                self._done[number] = values
        self._flush()

    def _flush(self) -> None:
        frame = self._peer.next_frame()
        if frame is not None:
            self._link.send(frame, block=False)

    def _send(self, payloads: list[bytes]) -> int:
        self._numbers += 1
        self._peer.waiting.append(["tasks", self._numbers, payloads])
        return self._numbers

    def map(self, tasks: int) -> Iterator[Any]:
        """Yield the results of so many empty tasks, in order."""
        ahead: deque[int] = deque()
        first = 0
        while first < tasks or ahead:
            while first < tasks and len(ahead) < AHEAD_BUNDLES:
                stop = min(tasks, first + BUNDLE)
                ahead.append(self._send([pickle.dumps((at,), 5) for at in range(first, stop)]))
                first = stop
                self._pump(wait=False)
            while ahead[0] not in self._done:
                self._pump(wait=True)
            yield from map(pickle.loads, self._done.pop(ahead.popleft()))

    def submit_all(self, tasks: int) -> tuple[float, float]:
        """Submit tasks with a future each; return the seconds of the submissions, and of it all."""
        started_s = time.perf_counter()
        futures: list[Future[Any]] = []
        sent: dict[int, list[Future[Any]]] = {}
        batch: list[bytes] = []
        batch_futures: list[Future[Any]] = []
        for at in range(tasks):
            future: Future[Any] = Future()
            futures.append(future)
            batch.append(pickle.dumps((at,), 5))
            batch_futures.append(future)
            if not self._peer.under_way or len(batch) == BUNDLE:
                sent[self._send(batch)] = batch_futures
                batch, batch_futures = [], []
                self._pump(wait=False)
        if batch:
            sent[self._send(batch)] = batch_futures
        submitted_s = time.perf_counter() - started_s
        while sent:
            self._pump(wait=True)
            for number in list(self._done):
                for future, value in zip(sent.pop(number), self._done.pop(number), strict=True):
                    future.set_result(pickle.loads(value))
        for future in futures:
            future.result()
        return submitted_s, time.perf_counter() - started_s

    def lone(self, count: int) -> list[float]:
        """Return round trips of one task at a time, in seconds."""
        taken = []
        for at in range(count):
            started_s = time.perf_counter()
            number = self._send([pickle.dumps((at,), 5)])
            while number not in self._done:
                self._pump(wait=True)
            pickle.loads(self._done.pop(number)[0])
            taken.append(time.perf_counter() - started_s)
        return taken


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["gateway", where]:
            trio.run(_gateway, where)
        case ["agent", where, count]:
            trio.run(_agent, where, int(count))
        case ["slot", number]:
            sys.modules["benchmarks.floor"] = sys.modules["__main__"]
            _slot(int(number))
