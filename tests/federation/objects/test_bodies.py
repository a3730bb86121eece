"""The bytes of objects (federation.objects.bodies)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import SerializationError
from federation.objects import bodies
from federation.objects.bodies import BadBody, load, make_body, read_layout

plain = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


def laid_out(value):
    body = make_body(value)
    data = bytearray(body.size)
    for offset, piece in body.pieces():
        data[offset : offset + len(piece)] = piece
    return memoryview(bytes(data))


@given(plain)
def test_values_come_back(value):
    assert load(laid_out(value)) == value


def test_large_buffers_stand_beside_the_pickle_and_are_read_only_views_of_the_file():
    array = np.arange(100_000.0)
    view = laid_out({"a": array, "b": [array[:10].copy(), 1]})
    found = load(view)
    np.testing.assert_array_equal(found["a"], array)
    assert not found["a"].flags.writeable
    assert np.shares_memory(found["a"], np.frombuffer(view, dtype=np.uint8))
    assert found["a"].__array_interface__["data"][0] % 16 == 0
    with pytest.raises(ValueError, match="read-only"):
        found["a"][0] = 1


def test_nothing_is_copied_to_measure_a_value():
    array = np.zeros(1000)
    body = make_body(array)
    assert np.shares_memory(np.frombuffer(body.parts[1]), array)


def test_arrays_that_are_not_contiguous_go_into_the_pickle():
    array = np.arange(100).reshape(10, 10)[::2, ::3]
    np.testing.assert_array_equal(load(laid_out(array)), array)


def test_more_buffers_than_parts_stay_in_the_pickle(monkeypatch):
    monkeypatch.setattr(bodies, "PARTS_MAX", 3)
    arrays = [np.full(3, at) for at in range(6)]
    body = make_body(arrays)
    assert len(body.parts) == 3
    assert [list(each) for each in load(laid_out(arrays))] == [[at] * 3 for at in range(6)]


def test_a_value_that_can_not_be_pickled_is_named():
    with pytest.raises(SerializationError, match="generator"):
        make_body(each for each in [])


@pytest.mark.parametrize("at", range(0, 40, 3))
def test_changed_headers_are_refused_and_open_nothing(at):
    whole = bytearray(laid_out([1, 2]))
    whole[at] ^= 0xFF
    try:
        read_layout(memoryview(whole))
    except BadBody:
        return
    assert at >= 11  # behind the magic and the length a change may be another valid header


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_refused(data):
    with pytest.raises(BadBody):
        read_layout(memoryview(data))
    with pytest.raises(BadBody):
        read_layout(memoryview(bodies.MAGIC + data))


def test_a_shortened_object_is_refused():
    view = laid_out(np.zeros(100))
    with pytest.raises(BadBody, match="fill"):
        read_layout(view[:-1])
