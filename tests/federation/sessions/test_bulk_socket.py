"""The pace of a bulk stream (federation.sessions.bulk_socket)."""

import contextlib
import os
import socket
import threading

import pytest

from federation.errors import ProtocolError
from federation.sessions import bulk_socket
from federation.sessions.bulk_socket import BulkSocket

TIMEOUT_S = 60.0


@pytest.fixture
def ends(monkeypatch):
    """Yield both ends of a stream that may be silent for 2 s, and the event that ends the test."""
    monkeypatch.setattr(bulk_socket, "SILENCE_S", 2.0)
    ours, theirs = socket.socketpair()
    theirs.settimeout(TIMEOUT_S)
    is_over = threading.Event()
    yield BulkSocket(ours), theirs, is_over
    is_over.set()
    ours.close()
    theirs.close()


def drip(act, is_over):
    """Act ten times a second in a thread, until the test is over."""

    def run():
        with contextlib.suppress(OSError):
            while not is_over.wait(0.1):
                act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_bytes_that_come_one_by_one_end_the_stream(ends):
    stream, other, is_over = ends
    thread = drip(lambda: other.send(b"x"), is_over)
    with pytest.raises(ProtocolError, match="too slow: 1,000 bytes took over 2 s"):
        stream.content(1_000)
    is_over.set()
    thread.join(TIMEOUT_S)


def test_bytes_that_are_taken_one_by_one_end_the_stream(ends, monkeypatch, tmp_path):
    stream, other, is_over = ends
    monkeypatch.setattr(bulk_socket, "PACE_BYTES_S", 1 << 30)
    length = 4 << 20
    (tmp_path / "object").write_bytes(bytes(length))
    file = os.open(tmp_path / "object", os.O_RDONLY)
    thread = drip(lambda: other.recv(COPY), is_over)
    try:
        with pytest.raises(ProtocolError, match="too slow: 4,194,304 bytes took over 2 s"):
            stream.send_block(0, file, 0, length)
    finally:
        os.close(file)
        is_over.set()
        thread.join(TIMEOUT_S)


def test_a_block_has_the_time_that_it_takes_at_the_least_pace(ends, monkeypatch):
    stream, other, is_over = ends
    monkeypatch.setattr(bulk_socket, "PACE_BYTES_S", 2)  # 30 bytes may take 17 s
    thread = drip(lambda: other.send(b"x"), is_over)
    assert stream.content(30) == b"x" * 30
    is_over.set()
    thread.join(TIMEOUT_S)


COPY = 16 << 10
