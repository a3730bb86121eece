"""Messages: sent ones arrive, faulty ones are refused with the place of the fault."""

import dataclasses

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pure.examples import example

from federation.errors import ProtocolError
from federation.messages.messages import HANDSHAKE, MESSAGES
from federation.messages.wire import DEPTH_MAX, UnknownMessage, pack, unpack

LIMIT = 1 << 20

KINDS = [*HANDSHAKE.classes, *MESSAGES.classes]


def catalogue(cls):
    return HANDSHAKE if cls in HANDSHAKE.classes else MESSAGES


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_every_message_survives_the_way(cls):
    message = example(cls)
    assert catalogue(cls).decode(catalogue(cls).encode(message), LIMIT) == message


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_unknown_fields_are_ignored(cls):
    body = msgpack.unpackb(catalogue(cls).encode(example(cls)))
    body["new"] = 1
    assert catalogue(cls).decode(pack(body), LIMIT) == example(cls)


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_each_field_is_checked(cls):
    for field in dataclasses.fields(cls):
        if cls.__annotations__[field.name] == "Anything":
            continue
        body = msgpack.unpackb(catalogue(cls).encode(example(cls)))
        body[field.name] = [["x", {}]]
        with pytest.raises(ProtocolError, match=field.name):
            catalogue(cls).decode(pack(body), LIMIT)


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_a_party_of_an_earlier_version_may_leave_out_each_field_that_has_a_default(cls):
    message = example(cls)
    for field in dataclasses.fields(cls):
        has_factory = field.default_factory is not dataclasses.MISSING
        if field.default is dataclasses.MISSING and not has_factory:
            continue
        body = msgpack.unpackb(catalogue(cls).encode(message), strict_map_key=False)
        del body[field.name]
        default = field.default_factory() if has_factory else field.default
        expected = dataclasses.replace(message, **{field.name: default})
        assert catalogue(cls).decode(pack(body), LIMIT) == expected


def texts(cls):
    """The fields that are text, or hold some, each with values that have a NUL somewhere in it."""
    for value in ("a\0b", "\0"):
        bad = {
            "Text": [value],
            "Names": [["paris", value]],
            "Texts": [[value]],
            "Plain": [{"a": [{"b": value}]}, {value: 1}],
        }
        for field in dataclasses.fields(cls):
            for wrong in bad.get(field.type, ()):
                yield field.name, wrong


@pytest.mark.parametrize("cls", [cls for cls in KINDS if any(texts(cls))], ids=lambda cls: cls.kind)
def test_no_text_has_a_character_that_a_database_can_not_hold(cls):
    for name, wrong in texts(cls):
        data = catalogue(cls).encode(dataclasses.replace(example(cls), **{name: wrong}))
        with pytest.raises(ProtocolError, match=name):
            catalogue(cls).decode(data, LIMIT)


NESTS = [(b"\x91", b"\x90"), (b"\x81\xa1a", b"\x80")]  # lists in a list, maps in a map


def nested(cls, name, outer, inner, depth):
    """A message with so many lists or maps in each other in one field, as its bytes."""
    is_map = cls.__annotations__[name] == "Plain"
    mark = {"a": "in here"} if is_map else "in here"
    data = catalogue(cls).encode(dataclasses.replace(example(cls), **{name: mark}))
    return data.replace(pack("in here"), outer * (depth - 1 - is_map) + inner)


@pytest.mark.parametrize("nest", NESTS, ids=["lists", "maps"])
@pytest.mark.parametrize(
    ("cls", "name"),
    [
        pytest.param(cls, field.name, id=f"{cls.kind}-{field.name}")
        for cls in KINDS
        for field in dataclasses.fields(cls)
        if field.type in ("Plain", "Anything")
    ],
)
def test_what_is_nested_too_deep_is_refused_however_deep_it_is(cls, name, nest):
    for depth in (DEPTH_MAX + 1, 300, 1_000, 100_000):
        with pytest.raises(ProtocolError):
            catalogue(cls).decode(nested(cls, name, *nest, depth), LIMIT)
    catalogue(cls).decode(nested(cls, name, *nest, DEPTH_MAX), LIMIT)


@pytest.mark.parametrize("wrong", [{}, [1], [{"a": []}], [{"a": {}}], [{"a": "b\0"}], None])
def test_what_a_worker_tells_of_a_slot_is_one_map_of_plain_values(wrong):
    # It is put into the answer for who asks about workers: deeper, it would end the asker.
    with pytest.raises(ProtocolError, match="slots"):
        MESSAGES.decode(pack({"t": "pulse", "slots": wrong}), LIMIT)


def test_half_a_surrogate_pair_is_no_text():
    with pytest.raises(ProtocolError):
        unpack(b"\xa3\xed\xa0\x80", LIMIT)


def test_an_unknown_kind_is_told_apart():
    with pytest.raises(UnknownMessage) as caught:
        MESSAGES.decode(pack({"t": "from the future"}), LIMIT)
    assert caught.value.kind == "from the future"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        pack([]),
        pack({}),
        pack({"t": 5}),
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\x7f\xff\xff\xff",
        b"\x81" * 100_000,
        b"\xc9\xff\xff\xff\xff\x01",
        b"\x82\x91\x01\x02",
        pack({"t": "bye", "reason": "x"})[:-1],
        pack({"t": "bye", "reason": "x"}) + b"x",
        b"\x81\xa1t\xd9\x03\xff\xfe\xfd",
    ],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(ProtocolError):
        MESSAGES.decode(data, LIMIT)


def test_what_is_too_large_is_not_even_looked_at():
    with pytest.raises(ProtocolError, match="over the limit"):
        unpack(bytes(101), 100)


@given(st.binary(max_size=400))
@settings(max_examples=500, deadline=None)
def test_random_bytes_never_do_worse_than_a_protocol_error(data):
    try:
        MESSAGES.decode(data, LIMIT)
    except ProtocolError:
        return


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**64 - 1, -1, True, "1", None, 1e300]
)
def test_counts_and_numbers_are_sound(value):
    with pytest.raises(ProtocolError):
        MESSAGES.decode(pack({"t": "close", "job": "j", "total": value}), LIMIT)
