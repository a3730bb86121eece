"""Results that stay at their site (federation.objects.left, and their pickles)."""

import pickle

import numpy as np
import pytest

from federation.objects.bodies import body_of, load
from federation.objects.left import LEFT, WHOLE, left_in, left_value, read_left
from federation.objects.manifests import SHA256
from federation.payload import pickle_result

DIGEST = bytes([SHA256]) + b"d" * 32


def test_a_value_that_stands_for_an_object_is_told_from_pickles():
    value = left_value(DIGEST, 1 << 40)
    assert read_left(value) == (DIGEST, 1 << 40)
    pickled = pickle.dumps(LEFT)
    for other in (
        b"",
        LEFT,
        WHOLE + DIGEST,
        value + b"x",
        value[:-1],
        pickled,
        LEFT + b"\xff" * 41,
    ):
        assert read_left(other) is None
    assert left_in([b"", value, pickled, LEFT, value]) == [DIGEST, DIGEST]


@pytest.mark.parametrize(
    ("value", "inline_max", "is_body"),
    [
        (None, 100, False),
        (None, -1, True),
        (np.ones(10), 1000, False),
        (np.ones(100_000), 1 << 20, False),  # its buffer goes back into the pickle
        (np.ones(100_000), 1 << 19, True),
        ("x" * 2000, 1000, True),
        ([np.ones(100_000), "x"], 1000, True),
    ],
)
def test_a_result_is_a_pickle_up_to_a_size_and_an_object_above_it(value, inline_max, is_body):
    packed = pickle_result(value, inline_max)
    assert isinstance(packed, bytes) != is_body
    if isinstance(packed, bytes):
        found = pickle.loads(packed)
    else:
        body = body_of(*packed)
        data = bytearray(body.size)
        for offset, piece in body.pieces():
            data[offset : offset + len(piece)] = piece
        found = load(memoryview(data))
    np.testing.assert_equal(found, value)


def test_what_can_not_be_pickled_raises_as_ever():
    with pytest.raises(TypeError, match="generator"):
        pickle_result((each for each in []), 100)
