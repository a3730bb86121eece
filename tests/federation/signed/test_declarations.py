"""Declarations: whole or refused, ordered by serial, cards followed from key to key."""

import dataclasses

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pure.site_keys import FEDERATION, NOW_S, card, key

from federation.errors import ProtocolError
from federation.signed.declarations import (
    DeclarationOrder,
    Expulsion,
    Farewell,
    Revocations,
    next_serial,
    order,
    parse,
    read,
    read_card,
    sign,
)
from federation.signed.identity import TrustRefusal, Untrusted

EXPULSION = sign(
    Expulsion(FEDERATION, "london", "paris", True, "does not pay", 5, NOW_S), key("london")
)
DECLARATIONS = [
    card("london"),
    EXPULSION,
    sign(Farewell(FEDERATION, "london", 5, NOW_S), key("london")),
    sign(Revocations(FEDERATION, "london", ("0" * 16,), 5, NOW_S), key("london")),
]


def keys_of(site):
    return (key("london").public,) if site == "london" else ()


def refusal(call, *args):
    with pytest.raises(Untrusted) as caught:
        call(*args)
    return caught.value.refusal


def test_a_card_is_read_as_it_was_signed():
    made = card("london", ["london", "london-2"])
    assert read_card(made.raw) == made


def test_declarations_are_read_as_they_were_signed():
    for made in DECLARATIONS[1:]:
        assert read(type(made.content), made.raw, keys_of) == ("london", made)


@pytest.mark.parametrize("made", DECLARATIONS, ids=lambda made: type(made.content).__name__)
def test_no_byte_of_a_declaration_can_be_changed(made):
    kind = type(made.content)
    for at in range(len(made.raw)):
        for flip in (0x01, 0x80):
            spoilt = bytearray(made.raw)
            spoilt[at] ^= flip
            with pytest.raises(ProtocolError):
                read(kind, bytes(spoilt), keys_of)


@pytest.mark.parametrize("made", DECLARATIONS, ids=lambda made: type(made.content).__name__)
def test_no_declaration_can_be_cut(made):
    for stop in range(len(made.raw)):
        with pytest.raises(ProtocolError):
            read(type(made.content), made.raw[:stop], keys_of)


@pytest.mark.parametrize("made", DECLARATIONS, ids=lambda made: type(made.content).__name__)
def test_no_declaration_passes_for_one_of_another_kind(made):
    for other in (Expulsion, Farewell, Revocations):
        if other is not type(made.content):
            with pytest.raises(ProtocolError):
                read(other, made.raw, keys_of)


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_noise_is_no_declaration(data):
    wrapped = msgpack.packb([data, bytes(64)])
    for raw in (data, wrapped):
        with pytest.raises(ProtocolError):
            read_card(raw)
        with pytest.raises(ProtocolError):
            read(Expulsion, raw, keys_of)


def test_who_signs_must_be_who_speaks():
    assert refusal(read, Expulsion, EXPULSION.raw, lambda _: (key("paris").public,)) is (
        TrustRefusal.BAD_SIGNATURE
    )
    assert refusal(read, Expulsion, EXPULSION.raw, lambda _: ()) is TrustRefusal.UNKNOWN_SITE


def test_a_card_must_be_signed_by_the_key_it_names_first():
    made = card("london", ["london", "london-2"])
    forged = msgpack.packb([made.body, key("london-2").sign("card", made.body)])
    assert refusal(read_card, forged) is TrustRefusal.BAD_SIGNATURE
    with pytest.raises(ValueError, match="first key"):
        sign(made.content, key("london-2"))


@pytest.mark.parametrize(
    "change",
    [
        {"site": "London"},
        {"site": "ab"},
        {"site": "london\n"},
        {"site": "lo/../don"},
        {"federation": ""},
        {"keys": ()},
        {"keys": (key("london").public,) * 2},
        {"keys": (key("london").public, bytes(32))},
        {"leaves": ()},
        {"leaves": (bytes(5000),)},
        {"addresses": ("tcp://london.example:1",)},
        {"addresses": ("tls+tcp://london.example",)},
        {"addresses": ("tls+tcp://london.example:1\n",)},
        {"addresses": tuple(f"tls+tcp://h{at}:1" for at in range(9))},
        {"contact": "\x1b[2J"},
        {"contact": "x" * 201},
        {"serial": -1},
        {"issued_s": float("nan")},
    ],
)
def test_a_card_that_no_site_would_take_is_not_signed(change):
    wrong = dataclasses.replace(card("london").content, **change)
    with pytest.raises(ValueError, match=next(iter(change))):
        sign(wrong, key("london"))


def test_an_unknown_field_of_a_newer_version_is_let_be():
    plain = msgpack.unpackb(card("london").body)
    body = msgpack.packb({**plain, "colour": "red"})
    raw = msgpack.packb([body, key("london").sign("card", body)])
    assert read_card(raw).content == card("london").content


def test_an_expulsion_can_be_parsed_by_who_has_no_keys():
    assert parse(Expulsion, EXPULSION.raw) == EXPULSION


# --- order ---------------------------------------------------------------------------------------


def test_the_higher_serial_is_the_newer():
    old, new = card("london", serial=1), card("london", serial=2)
    assert order(None, old, NOW_S) is DeclarationOrder.NEWER
    assert order(old, new, NOW_S) is DeclarationOrder.NEWER
    assert order(new, old, NOW_S) is DeclarationOrder.OLDER
    assert order(new, new, NOW_S) is DeclarationOrder.SAME


def test_two_with_one_serial_are_equivocation():
    one, other = card("london"), card("london", contact="elsewhere")
    assert refusal(order, one, other, NOW_S) is TrustRefusal.EQUIVOCATION


def test_a_stranger_can_not_frame_a_site():
    forged = card("london", ["stranger"])
    assert read_card(forged.raw) == forged
    assert refusal(order, card("london"), forged, NOW_S) is TrustRefusal.NOT_SUCCESSOR


def test_the_future_is_not_believed():
    assert order(None, card("london", issued_s=NOW_S + 29), NOW_S) is DeclarationOrder.NEWER
    assert refusal(order, None, card("london", issued_s=NOW_S + 31), NOW_S) is TrustRefusal.AHEAD


def test_keys_rotate_from_card_to_card():
    old = card("london", ["one"], serial=1)
    announced = card("london", ["one", "two"], serial=2)
    after = card("london", ["two"], serial=3)
    assert order(old, announced, NOW_S) is DeclarationOrder.NEWER
    assert order(announced, after, NOW_S) is DeclarationOrder.NEWER
    assert refusal(order, old, after, NOW_S) is TrustRefusal.NOT_SUCCESSOR


def test_a_retired_key_has_nothing_more_to_say():
    after = card("london", ["two"], serial=3)
    thief = card("london", ["one", "thief"], serial=99)
    assert refusal(order, after, thief, NOW_S) is TrustRefusal.NOT_SUCCESSOR


def test_a_card_does_not_follow_one_of_another_federation_or_site():
    for other in (
        card("london", serial=200, federation="others-1"),
        card("paris", ["london"], serial=200),
    ):
        assert refusal(order, card("london"), other, NOW_S) is TrustRefusal.NOT_SUCCESSOR


def test_a_serial_survives_a_disk_that_was_set_back():
    assert next_serial(0, NOW_S) == int(NOW_S)
    assert next_serial(int(NOW_S), NOW_S) == int(NOW_S) + 1
