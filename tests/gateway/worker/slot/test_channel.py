"""Messages between agent and slot: cut anywhere, or nonsense."""

import itertools
import os
import socket
import threading

import hypothesis.strategies as st
import pytest
from hypothesis import given

from federation.messages.wire import TEXT_CHARS_MAX
from gateway.worker.slot.channel import (
    BlockingChannel,
    ChannelClosedError,
    Decoder,
    NonsenseError,
    SendQueue,
    are_said,
    encode,
    encode_parts,
    is_part,
)

MESSAGES = [["ready"], ["part", 1, [b"x" * 300, b""], [], [], 1, 2, 3, True], ["forget", b"d"]]


@given(cuts=st.lists(st.integers(0, 400), max_size=6))
def test_messages_arrive_however_the_bytes_are_cut(cuts):
    data = b"".join(map(encode, MESSAGES))
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    decoder = Decoder()
    found = []
    for low, high in itertools.pairwise(edges):
        found += decoder.feed(data[low:high])
    assert found == MESSAGES


@pytest.mark.parametrize(
    "data",
    [b"\xff" * 8, encode([]), encode([1]), b"\0\0\0\1\xc1", b"\0\0\0\5\xdd\xff\xff\xff\xff"],
)
def test_nonsense_is_named(data):
    with pytest.raises(NonsenseError):
        list(Decoder().feed(data))


def test_the_slots_end_says_when_the_agent_is_gone():
    ours, theirs = socket.socketpair()
    channel = BlockingChannel(theirs)
    for message in MESSAGES:
        ours.sendall(encode(message))
    assert [channel.receive() for _ in MESSAGES] == MESSAGES
    ours.sendall(encode(["ready"])[:-1])
    ours.close()
    with pytest.raises(ChannelClosedError):
        channel.receive()
    channel.close()


@pytest.mark.parametrize(
    ("kind", "is_good"),
    [
        ("error", True),
        ("result", True),
        *((each, False) for each in ("preempted", "cancelled", "crash", "timeout")),
    ],
)
def test_a_slot_can_only_say_that_a_task_failed(kind, is_good):
    """A task that reaches its end could else say that it was stopped, and pay nothing."""
    assert is_part([[b""], [[0, kind, "", b""]], [], 1, 2, 3, True]) == is_good


class Narrow:
    """A socket that takes so many bytes at a time, and none until it was waited for."""

    def __init__(self, room):
        self.room = room
        self.taken = []
        self.objects = set()

    def send(self, view):
        if self.taken and self.taken[-1] is None:
            raise BlockingIOError
        part = view[: self.room]
        self.objects.add(id(view.obj))
        self.taken += [bytes(part), *([None] if len(part) < len(view) else [])]
        return len(part)

    def wait(self):
        if self.taken and self.taken[-1] is None:
            self.taken.pop()


LARGE = bytes(range(256)) * 4096  # 1 MiB


@pytest.mark.parametrize(
    "message",
    [
        *MESSAGES,
        ["chunk", 7, b"d", [LARGE, b"small", LARGE], True, "job", 9, None, 0, "w"],
        ["function", b"d", LARGE],
        ["part", 1, [LARGE], [[0, "error", "text", LARGE]], [], 1, 2, 3, True],
        ["chunk", 7, b"d", [b"x"] * 70_000 + [LARGE], True, "job", 9, None, 0, "w"],
    ],
)
def test_a_message_in_parts_is_the_same_message(message):
    parts = encode_parts(message)
    assert list(Decoder().feed(b"".join(parts))) == [message]


def test_large_byte_strings_are_sent_from_where_they_are():
    outgoing, connection = SendQueue(), Narrow(200_000)
    outgoing.add(encode_parts(["chunk", 0, b"d", [LARGE] * 60, False, "job", 9, None, 0, "w"]))
    outgoing.add(encode_parts(["forget", b"d"]))
    turns = 0
    while outgoing:
        outgoing.send(connection)
        connection.wait()
        turns += 1
    # No turn of the loop sends, or copies, more than the socket takes at once.
    data = b"".join(connection.taken)
    assert [message[0] for message in Decoder().feed(data)] == ["chunk", "forget"]
    assert id(LARGE) in connection.objects
    assert max(map(len, connection.taken)) <= connection.room
    assert turns > 60 * len(LARGE) // connection.room - 60
    assert len(connection.objects) < 200  # headers, and never what is left of a payload


@pytest.mark.parametrize(
    ("rows", "is_good"),
    [
        ([], True),
        ([[0, "a", 1], [7, "b", 2]], True),
        ("rows", False),
        ([[0, "a"]], False),
        ([[0, "a", 3]], False),
        ([[0, "a", True]], False),
        ([[-1, "a", 1]], False),
        ([[0, b"a", 1]], False),
        ([[0, "a" * (TEXT_CHARS_MAX + 1), 1]], False),
    ],
)
def test_what_a_slot_says_its_tasks_print_is_checked(rows, is_good):
    assert are_said(rows) is is_good


def test_rows_are_sent_while_nothing_else_is():
    near, far = socket.socketpair()
    with near, far:
        channel = BlockingChannel(near)
        assert channel.send_said(lambda: [[0, "a", 1]])
        (message,) = Decoder().feed(far.recv(1 << 16))
        assert message == ["said", [[0, "a", 1]]]
        with channel._sending:  # as a signal handler in the middle of `send`
            assert not channel.send_said(lambda: pytest.fail("taken"))
        far.close()
        assert channel.send_said(lambda: [[0, "a", 1]])  # a broken channel is no fault of a print


def test_descriptors_arrive_with_their_messages_however_the_socket_takes_them():
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours.setblocking(False)
    files = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("one", "two")]
    for number, each in enumerate(files):
        os.write(each, bytes([number]))
    queue, channel = SendQueue(), BlockingChannel(theirs)
    queue.add(encode_parts(["chunk", b"x" * 300_000]))
    queue.add(encode_parts(["object", b"1", 1]), files[0])
    queue.add(encode_parts(["object", b"2", 1]), files[1])
    queue.add(encode_parts(["forget", b"d"]))
    for each in files:
        os.close(each)  # the queue has its own
    received = []

    def receive():
        for _ in range(4):
            message = channel.receive()
            received.append((message[0], channel.take_file() if message[0] == "object" else -1))

    reader = threading.Thread(target=receive)
    reader.start()
    while queue:
        queue.send(ours)
    reader.join()
    assert [kind for kind, _ in received] == ["chunk", "object", "object", "forget"]
    taken = [file for _, file in received if file >= 0]
    assert [os.pread(file, 1, 0) for file in taken] == [b"\0", b"\1"]
    for file in taken:
        os.close(file)
    with pytest.raises(ChannelClosedError):
        channel.take_file()
    channel.close()
    ours.close()


def test_a_queue_that_is_discarded_closes_its_descriptors():
    file = os.memfd_create("one", os.MFD_CLOEXEC)
    before = len(os.listdir("/proc/self/fd"))
    queue = SendQueue()
    queue.add([b"x"], file)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    queue.clear()
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(file)
