"""Objects from host to host: the streams of two carriers, beside plain sockets; TLS and TCP."""

import multiprocessing
import os
import socket
import ssl
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from benchmarks import ours
from benchmarks.harness import alternate, machine, ratio_notes, save
from federation.bulk.pull import BlockPull
from federation.clocks import UtcS
from federation.objects.manifests import BLOCK_BYTES, make_manifest
from federation.objects.segments import create
from federation.sessions.bulk_fetch import BlockFetch, BulkSource
from federation.sessions.bulk_socket import (
    COPY_BYTES,
    BulkSocket,
    dialler_context,
    listener_context,
)
from gateway.objects.bulk.carrier import PULL_STREAMS
from gateway.objects.bulk.serving import OpenedObject, serve_stream
from gateway.trust.certificates import make_leaf

MB: Final = 1_000_000
SIZE: Final = 200 * MB
SITE: Final = "london"
KEPT: Final = "floor, kept"


def carrying(repeats: int, quick: bool) -> None:
    """Move 200 MB over loopback: by the carriers' streams, and by plain sockets in turn."""
    facts = machine()
    size = SIZE // 10 if quick else SIZE
    leaf = make_leaf(SITE, ["127.0.0.1"], UtcS(time.time()))
    kinds = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="gridfed-bench-") as folder:
        (Path(folder) / "leaf.pem").write_bytes(leaf.pem)
        (Path(folder) / "pins.pem").write_text(ssl.DER_cert_to_PEM_cert(leaf.certificate))
        here, there = kinds.Pipe()
        holder = kinds.Process(target=_hold, args=(there, folder, size), daemon=True)
        holder.start()
        digest = here.recv()
        runs = [
            lambda who=who, is_tls=is_tls: _run(here, who, folder, size, digest, is_tls=is_tls)
            for is_tls in (True, False)
            for who in ("floor", KEPT, "gridfed")
        ]
        series = alternate(runs, repeats)
        here.send(None)
        holder.join(10)
    notes = [
        f"One process holds {size // MB} MB in a file in memory, another takes them, on this host. "
        f"The floor is one stream of Python's own sockets, TLS 1.3 with the same certificate: sent "
        f"by {COPY_BYTES // 1024} KiB from that file, and received into one buffer; `{KEPT}` also "
        "writes what it gets to a file in memory. `gridfed` is the "
        f"{PULL_STREAMS} streams of a carrier: each block is hashed, checked, and written to "
        "a file. Processor time is that of both processes: it depends less on what else runs.",
        "",
        *ratio_notes(series, "gridfed", "floor"),
        "",
        *ratio_notes(series, "gridfed", KEPT),
    ]
    save("carrying", facts, series, notes)


def _run(
    here: Connection, who: str, folder: str, size: int, digest: bytes, *, is_tls: bool
) -> list[ours.Row]:
    here.send((who, is_tls))
    port = here.recv()
    context = dialler_context("", f"{folder}/pins.pem") if is_tls else None
    started_s, used_s = time.perf_counter(), time.process_time()
    if who != "gridfed":
        _take_plain(port, context, size, is_kept=who == KEPT)
    else:
        _take_blocks(port, context, size, digest, "tls+tcp" if is_tls else "tcp")
    taken_s, used_s = time.perf_counter() - started_s, time.process_time() - used_s
    used_s += here.recv()
    way = "TLS" if is_tls else "TCP"
    return [
        (who, f"{size // MB} MB over {way}", "MB/s", size / MB / taken_s),
        (who, f"{size // MB} MB over {way}, processor time", "s", used_s),
    ]


def _take_plain(port: int, context: ssl.SSLContext | None, size: int, *, is_kept: bool) -> None:
    connection = socket.create_connection(("127.0.0.1", port))
    if context is not None:
        connection = context.wrap_socket(connection, server_hostname=SITE)
    buffer = memoryview(bytearray(BLOCK_BYTES))
    file = create(size)
    at = 0
    with connection:
        while at < size:
            block = buffer[: size - at]
            got = 0
            while got < len(block):
                got += connection.recv_into(block[got:])
            if is_kept:
                os.pwrite(file.descriptor, block, at)
            at += len(block)
    file.close()


def _take_blocks(
    port: int, context: ssl.SSLContext | None, size: int, digest: bytes, scheme: str
) -> None:
    plan = BlockPull(digest, size)
    file = create(size)
    fetch = BlockFetch(plan, file.descriptor)
    address = f"{scheme}://127.0.0.1:{port}"
    threads = [
        threading.Thread(
            target=fetch.run, args=(BulkSource(f"stream {at}", address, b"t", context, SITE),)
        )
        for at in range(PULL_STREAMS)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert plan.is_done, plan.why_stuck()
    file.close()


def _hold(control: Connection, folder: str, size: int) -> None:
    """Serve one transfer after another; the answer to each is the processor time that it took."""
    segment = create(size)
    segment.write([(0, memoryview(os.urandom(MB) * (size // MB)))])
    view = segment.view()
    found = make_manifest([view])
    manifest = found.to_bytes()
    control.send(found.digest)
    context = listener_context(f"{folder}/leaf.pem", f"{folder}/pins.pem")
    while (order := control.recv()) is not None:
        who, is_tls = order
        listener = socket.create_server(("127.0.0.1", 0))
        control.send(listener.getsockname()[1])
        used_s = time.process_time()
        threads = []
        for _ in range(PULL_STREAMS if who == "gridfed" else 1):
            connection, _ = listener.accept()
            if is_tls:
                connection = context.wrap_socket(connection, server_side=True)
            target: Any = _serve if who == "gridfed" else _send_plain
            arguments = (connection, segment.descriptor, size, found.digest, manifest)
            threads.append(threading.Thread(target=target, args=arguments))
            threads[-1].start()
        for each in threads:
            each.join()
        control.send(time.process_time() - used_s)
        listener.close()


def _send_plain(connection: socket.socket, file: int, size: int, *_: Any) -> None:
    with connection:
        if not isinstance(connection, ssl.SSLSocket):
            connection.sendfile(os.fdopen(os.dup(file), "rb"), 0, size)
            return
        for at in range(0, size, COPY_BYTES):
            connection.sendall(os.pread(file, min(COPY_BYTES, size - at), at))


def _serve(connection: socket.socket, file: int, size: int, digest: bytes, manifest: bytes) -> None:
    opened = OpenedObject(os.dup(file), size, digest, manifest)
    stream = BulkSocket(connection)
    serve_stream(stream, lambda *_: opened, lambda _: True, os.close)
    stream.close()
