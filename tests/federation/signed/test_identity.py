"""Keys, signatures, fingerprints, text, and the hello between two gateways."""

import dataclasses
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pure.site_keys import FEDERATION, key

from federation.signed import identity
from federation.signed.identity import (
    Meeting,
    PipeSide,
    TrustRefusal,
    Untrusted,
    fingerprint,
    from_text,
    public_key,
    same_fingerprint,
    signed_bytes,
    to_text,
    verify,
)

LONDON, PARIS = key("london"), key("paris")
MEETING = Meeting(FEDERATION, "london", "paris", 7, 9, b"n" * 16, b"m" * 16)


def test_a_signature_is_for_its_key_domain_and_parts_alone():
    signature = LONDON.sign("card", b"one", b"two")
    assert verify(LONDON.public, signature, "card", b"one", b"two")
    assert not verify(PARIS.public, signature, "card", b"one", b"two")
    assert not verify(LONDON.public, signature, "hello", b"one", b"two")
    assert not verify(LONDON.public, signature, "card", b"onet", b"wo")
    assert not verify(LONDON.public, signature, "card", b"onetwo")
    assert not verify(LONDON.public, signature[:-1], "card", b"one", b"two")
    assert not verify(b"short", signature, "card", b"one", b"two")


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_different_parts_make_different_signed_bytes(one, other):
    assert (signed_bytes("d", *one) == signed_bytes("d", *other)) == (one == other)


PRIME = 2**255 - 19


@pytest.mark.parametrize("y", sorted(identity._SMALL_ORDER_Y))
@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("offset", [0, PRIME])
def test_a_key_that_anybody_can_sign_for_is_no_key(y, sign, offset):
    if y + offset >= 2**255:
        offset = 0
    raw = (y + offset | sign << 255).to_bytes(32, "little")
    forged = b"\x01" + bytes(63)
    assert not any(verify(raw, forged, "card", b"%d" % at) for at in range(64))
    with pytest.raises(ValueError, match="weak key"):
        public_key(raw)


def test_the_secret_is_not_shown():
    seed = bytes(range(32))
    shown = repr(identity.SiteKey(seed)) + str(identity.SiteKey(seed))
    assert seed.hex() not in shown
    assert repr(seed) not in shown


def test_a_fingerprint_is_of_the_name_and_the_key():
    shown = fingerprint("london", LONDON.public)
    assert len(shown.replace("-", "")) == 52
    assert {len(group) for group in shown.split("-")} == {4}
    assert shown != fingerprint("paris", LONDON.public)
    assert shown != fingerprint("london", PARIS.public)
    assert same_fingerprint(shown, shown.lower().replace("-", " "))
    assert not same_fingerprint(shown, fingerprint("london", PARIS.public))
    assert not same_fingerprint(shown, shown[:-1])
    assert not same_fingerprint(shown, "")
    assert not same_fingerprint(shown, "ä")


@given(st.binary(max_size=200))
def test_text_comes_back_whatever_the_way_does_to_its_spaces(payload):
    text = to_text("gfx1", payload)
    assert text.isascii()
    assert text == text.lower()
    wrapped = "\n ".join(text[at : at + 20] for at in range(0, len(text), 20))
    assert from_text("gfx1", wrapped, 2000) == payload
    assert from_text("gfx1", text.upper(), 2000) == payload


@settings(max_examples=300)
@given(st.data())
def test_text_with_a_wrong_character_is_noticed(data):
    text = to_text("gfx1", b"a secret of some length")
    at = data.draw(st.integers(0, len(text) - 1))
    wrong = data.draw(st.sampled_from("abcdefghijklmnopqrstuvwxyz234567_-0"))
    spoilt = text[:at] + wrong + text[at + 1 :]
    if spoilt == text:
        return
    with pytest.raises(Untrusted) as caught:
        from_text("gfx1", spoilt, 2000)
    assert caught.value.refusal is TrustRefusal.ALTERED


@pytest.mark.parametrize(
    "spoil", [lambda t: t[:-1], lambda t: t + "a", lambda t: t[:10], str.strip]
)
def test_text_that_is_cut_or_of_another_kind_is_noticed(spoil):
    prefix = "gfy1" if spoil is str.strip else "gfx1"
    with pytest.raises(Untrusted, match="altered"):
        from_text(prefix, spoil(to_text("gfx1", b"payload")), 2000)


def test_text_is_bounded():
    with pytest.raises(Untrusted, match="more than 10 characters"):
        from_text("gfx1", to_text("gfx1", b"payload"), 10)


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text):
    with pytest.raises(Untrusted):
        from_text("gfx1", text, 2000)


def test_each_side_of_a_meeting_proves_itself():
    MEETING.check([LONDON.public], PipeSide.DIALLER, MEETING.sign(LONDON, PipeSide.DIALLER))
    MEETING.check(
        [LONDON.public, PARIS.public], PipeSide.LISTENER, MEETING.sign(PARIS, PipeSide.LISTENER)
    )


def test_a_proof_can_not_be_turned_round_or_made_by_another():
    with pytest.raises(Untrusted, match="dialler did not prove the identity of 'london'"):
        MEETING.check([LONDON.public], PipeSide.DIALLER, MEETING.sign(LONDON, PipeSide.LISTENER))
    with pytest.raises(Untrusted, match="bad-signature"):
        MEETING.check([LONDON.public], PipeSide.DIALLER, MEETING.sign(PARIS, PipeSide.DIALLER))
    with pytest.raises(Untrusted, match="bad-signature"):
        MEETING.check([], PipeSide.DIALLER, MEETING.sign(LONDON, PipeSide.DIALLER))


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Meeting)])
def test_a_proof_is_of_this_meeting_alone(field):
    value = getattr(MEETING, field)
    other = value + 1 if isinstance(value, int) else value + value[:1]
    proof = MEETING.sign(LONDON, PipeSide.DIALLER)
    with pytest.raises(Untrusted):
        dataclasses.replace(MEETING, **{field: other}).check(
            [LONDON.public], PipeSide.DIALLER, proof
        )


@pytest.mark.real
def test_a_client_does_not_load_any_of_it():
    code = "from federation import Client; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not {name for name in loaded if name.startswith("cryptography")}
    assert "federation.signed.identity" not in loaded
