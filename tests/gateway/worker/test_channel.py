"""Messages between agent and slot: cut anywhere, or nonsense."""

import itertools
import socket

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gateway.worker.channel import (
    BlockingChannel,
    ChannelClosedError,
    Decoder,
    NonsenseError,
    encode,
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
    """Whoever reaches its end could else say that he was stopped, and pay nothing."""
    assert is_part([[b""], [[0, kind, "", b""]], [], 1, 2, 3, True]) == is_good
