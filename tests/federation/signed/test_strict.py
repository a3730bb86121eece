"""Signed bodies are read in one way or not at all."""

import math
from dataclasses import dataclass

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.errors import ProtocolError
from federation.signed import strict

LIMIT = 1 << 16


@dataclass(frozen=True)
class Thing:
    name: str
    size: int
    tags: frozenset | None


THING = strict.Form(
    Thing,
    {
        "name": strict.line(10),
        "size": strict.count,
        "tags": strict.subset(strict.line(10), 3),
    },
    1000,
)
CLOSED = strict.Form(Thing, THING._checks, 1000, closed=True)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a signed body"),
        (b"\x80\x80", "extra data"),
        (b"\x82\xa1a\x01\xa1a\x02", "'a' appears twice"),
        (b"\x81\x01\x01", "not allowed"),
        (b"\x81\xc4\x01a\x01", "not text"),
        (b"\xc7\x00\x05", "extension"),
        (b"\xc7\x00\xff", "timestamp"),
        (b"\xd6\xff\x00\x00\x00\x00", "max_ext_len"),
        (msgpack.packb(math.nan), "not finite"),
        (msgpack.packb([{"a": -math.inf}]), "not finite"),
        (msgpack.packb(2**63), "too large"),
        (b"\xdf\xff\xff\xff\xff", "max_map_len"),
        (b"\xc6\xff\xff\xff\xff", "max_bin_len|incomplete"),
        (b"\xa1\xff", "utf-8"),
        (b"\x91" * 20 + b"\x90", "nesting"),
        (b"\x91" * 5000 + b"\x90", "not a signed body"),
        (bytes(LIMIT + 1), "over the limit"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(data, why):
    with pytest.raises(ProtocolError, match=why):
        strict.decode(data, LIMIT)


def test_the_deepest_and_largest_that_is_allowed():
    deep = b"\x91" * (strict.DEPTH_MAX - 1) + b"\x07"
    assert strict.decode(deep, LIMIT) is not None
    assert strict.decode(msgpack.packb(2**63 - 1), LIMIT) == 2**63 - 1


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(plain)
def test_plain_data_comes_back_as_it_was(value):
    assert strict.decode(msgpack.packb(value), LIMIT) == value


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_noise_is_refused_or_plain(data):
    try:
        strict.decode(data, LIMIT)
        THING.decode(data)
    except ProtocolError:
        pass


def test_a_form_reads_what_it_wrote():
    for tags in (None, frozenset({"a", "b"})):
        thing = Thing("x", 3, tags)
        assert THING.decode(THING.encode(thing)) == thing


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": 5}, "'name'"),
        ({"name": "two\nlines"}, "'name'"),
        ({"name": "turned\u202e"}, "'name'"),
        ({"size": -1}, "'size'"),
        ({"size": True}, "'size'"),
        ({"size": 1.0}, "'size'"),
        ({"tags": []}, "'tags'"),
        ({"tags": ["a", "a"]}, "repeated"),
        ({"tags": ["a", "b", "c", "d"]}, "'tags'"),
    ],
)
def test_a_wrong_field_is_named(change, why):
    body = {"name": "x", "size": 3, "tags": None, **change}
    with pytest.raises(ProtocolError, match=why):
        THING.decode(msgpack.packb(body))


def test_a_missing_field_is_named():
    with pytest.raises(ProtocolError, match="'size' is missing"):
        THING.decode(msgpack.packb({"name": "x", "tags": None}))


def test_a_closed_form_refuses_what_it_does_not_know():
    body = msgpack.packb({"name": "x", "size": 3, "tags": None, "only_on": "monday"})
    assert THING.decode(body).name == "x"
    with pytest.raises(ProtocolError, match="unknown field 'only_on'"):
        CLOSED.decode(body)


def test_nothing_is_encoded_that_another_would_refuse():
    with pytest.raises(ValueError, match="'name'"):
        THING.encode(Thing("much too long", 3, None))
    with pytest.raises(ValueError, match="over the limit of 5"):
        strict.Form(Thing, THING._checks, 5).encode(Thing("x", 3, None))


@pytest.mark.parametrize("value", [b"x", [b"x"], [b"x", "y"], [b"x", b"y", b"z"], {"a": b"x"}])
def test_parts_are_so_many_byte_strings(value):
    with pytest.raises(ProtocolError, match="body signature"):
        strict.decode_parts(msgpack.packb(value), 100, "body signature")
