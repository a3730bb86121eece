"""Large pickles leave the interpreter to other threads (federation.objects.bands)."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.objects import bands
from federation.objects.bands import JOIN_BYTES, dump_in_pieces, load_in_pieces

BIG = JOIN_BYTES + 1
FRAME_BYTES = 1 << 17  # no piece of many small objects is larger


def dumped(value, buffers=None):
    keep = (lambda _: True) if buffers is None else (lambda each: buffers.append(each.raw()))
    return dump_in_pieces(value, 5, keep)


def joined(pieces):
    return memoryview(b"".join(pieces))


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_large_bytes_are_not_copied(kind):
    value = kind(b"x" * BIG)
    pieces = dumped([value, 1])
    assert any(
        len(each) == BIG and np.shares_memory(np.frombuffer(each, "u1"), np.frombuffer(value, "u1"))
        for each in pieces
    )
    found = load_in_pieces(joined(pieces), [])
    assert found == [value, 1]
    assert type(found[0]) is kind


def test_many_small_values_come_in_small_pieces():
    value = [float(each) for each in range(1_000_000)]
    pieces = dumped(value)
    assert len(pieces) > 50
    assert max(map(len, pieces)) < FRAME_BYTES
    assert load_in_pieces(joined(pieces), []) == value


def test_a_large_array_that_is_not_contiguous_is_copied_once_and_stands_beside_the_pickle():
    array = np.arange(2 * 10**6, dtype=float).reshape(1000, 2000)[::2, ::2]
    buffers: list[memoryview] = []
    pieces = dumped({"a": array}, buffers)
    assert sum(map(len, pieces)) < 1000
    assert [each.nbytes for each in buffers] == [array.nbytes]
    found = load_in_pieces(joined(pieces), buffers)
    np.testing.assert_array_equal(found["a"], array)


def test_a_small_pickle_is_one_piece():
    assert len(dumped([1, b"x" * 100_000])) == 1


def test_a_large_pickle_is_read_in_steps(monkeypatch):
    steps = []

    class Told(bands._Reader):
        def readinto(self, target):
            steps.append(len(target))
            return super().readinto(target)

    monkeypatch.setattr(bands, "_Reader", Told)
    value = b"ab" * BIG
    assert load_in_pieces(joined(dumped(value)), []) == value
    assert max(steps) == len(value)


@pytest.mark.parametrize("protocol", [0, 2, 5])
@given(st.lists(st.integers() | st.text(max_size=9) | st.binary(max_size=9) | st.floats(0, 1)))
def test_every_pickle_is_read_as_it_would_be_in_one_go(protocol, value):
    data = pickle.dumps([value, "x" * 100], protocol)
    assert pickle.load(bands._Reader(memoryview(data))) == [value, "x" * 100]
