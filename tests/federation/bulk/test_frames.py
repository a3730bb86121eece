"""The frames of bulk streams (federation.bulk.frames)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.bulk.frames import (
    FROM_HOLDER,
    FROM_PULLER,
    HEAD_BYTES,
    FrameHead,
    FrameKind,
    frame,
    pack_ranges,
    read_head,
    read_ranges,
    read_reason,
    refused,
)
from federation.errors import ProtocolError
from federation.objects.manifests import BLOCK_BYTES


def test_a_frame_has_a_head_and_its_content():
    sent = frame(FrameKind.WANT, b"abc", 7)
    assert read_head(sent[:HEAD_BYTES], FROM_PULLER) == FrameHead(FrameKind.WANT, 7, 3)
    assert sent[HEAD_BYTES:] == b"abc"


@given(st.binary(max_size=20))
def test_any_bytes_are_a_head_that_is_allowed_or_are_refused(data):
    try:
        found = read_head(data, FROM_PULLER)
    except ProtocolError:
        return
    assert found.length <= FROM_PULLER[found.kind]
    assert found.to_bytes() == data


def test_kinds_of_the_other_side_and_long_frames_are_refused():
    with pytest.raises(ProtocolError, match="kind 4 is not expected"):
        read_head(frame(FrameKind.BLOCK), FROM_PULLER)
    with pytest.raises(ProtocolError, match="kind 1 is not expected"):
        read_head(frame(FrameKind.OPEN), FROM_HOLDER)
    too_long = FrameHead(FrameKind.BLOCK, 0, BLOCK_BYTES + 1)
    with pytest.raises(ProtocolError, match="over the limit"):
        read_head(too_long.to_bytes(), FROM_HOLDER)


def test_ranges_are_of_the_object_and_none_is_wanted_twice():
    assert read_ranges(pack_ranges([(0, 2), (4, 5)]), 5) == [(0, 2), (4, 5)]
    for wrong in ([(0, 6)], [(2, 2)], [(-1, 2)], [], [(0, 3), (0, 3)]):
        with pytest.raises(ProtocolError):
            read_ranges(pack_ranges(wrong), 5)


@given(st.binary(max_size=40))
def test_any_bytes_are_ranges_or_are_refused(data):
    try:
        found = read_ranges(data, 3)
    except ProtocolError:
        return
    assert all(0 <= first < stop <= 3 for first, stop in found)


def test_a_reason_is_one_line():
    sent = refused("no\nsuch \x1b[31m object")
    assert read_reason(sent[HEAD_BYTES:]) == "no such  [31m object"
