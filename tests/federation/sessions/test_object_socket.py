"""Messages with descriptors (federation.sessions.object_socket)."""

import os

import pytest

from federation.errors import ProtocolError
from federation.messages.objects import GetObject, ObjectHere, ObjectMissing
from federation.sessions.object_socket import FILES_MAX, ObjectFrames, encode_frame


@pytest.fixture
def file():
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC)
    yield descriptor
    os.close(descriptor)


def is_open(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_messages_get_their_descriptors_in_order_however_the_bytes_are_cut(file):
    messages = [ObjectHere(1, 10), ObjectMissing(2, "gone"), ObjectHere(3, 20)]
    data = b"".join(map(encode_frame, messages))
    frames, files, found = ObjectFrames(), [os.dup(file), os.dup(file)], []
    found += frames.feed(data[:5], files[:1])
    for at in range(5, len(data)):
        found += frames.feed(data[at : at + 1], files[1:] if at == 20 else [])
    assert found == list(zip(messages, [files[0], -1, files[1]], strict=True))
    for each in files:
        os.close(each)


def test_a_message_without_its_descriptor_is_refused():
    with pytest.raises(ProtocolError, match="descriptor"):
        list(ObjectFrames().feed(encode_frame(ObjectHere(1, 10)), []))


def test_descriptors_without_a_message_are_bounded_and_closed(file):
    frames = ObjectFrames()
    files = [os.dup(file) for _ in range(FILES_MAX + 1)]
    with pytest.raises(ProtocolError, match="more descriptors"):
        list(frames.feed(encode_frame(GetObject(1, "", b"")), files))
    frames.close()
    assert not any(map(is_open, files))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0\0\1\x80"])
def test_nonsense_is_refused(data):
    with pytest.raises(ProtocolError):
        list(ObjectFrames().feed(data, []))
