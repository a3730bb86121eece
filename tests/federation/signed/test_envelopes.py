"""Envelopes: opened once, by the addressee, fresh, and as they were sealed."""

import dataclasses

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pure.site_keys import FEDERATION, NOW_S, KnownSites, key

from federation.errors import ProtocolError
from federation.signed.envelopes import (
    _DOMAIN,
    ALL,
    WINDOW,
    EnvelopeLimits,
    Header,
    Sealer,
    Verifier,
)
from federation.signed.identity import TrustRefusal, Untrusted


def sealer(site="london", boot=1, signer=None, federation=FEDERATION):
    return Sealer(federation, site, boot, key(signer or site))


def verifier(**limits):
    return Verifier(KnownSites("paris", "london"), EnvelopeLimits(**limits))


def refusal(opener, raw, now_s=NOW_S):
    with pytest.raises(Untrusted) as caught:
        opener.open(raw, now_s)
    return caught.value.refusal


def test_what_was_sealed_is_opened():
    raw = sealer().seal("quote", "paris", b"body", NOW_S)
    opened = verifier().open(raw, NOW_S + 1)
    assert opened.header == Header(FEDERATION, "quote", "london", "paris", 1, 1, NOW_S)
    assert (opened.body, opened.raw) == (b"body", raw)


def test_what_is_for_all_is_for_us():
    assert verifier().open(sealer().seal("advert", ALL, b"", NOW_S), NOW_S).header.to == ALL


def test_once_is_enough():
    opener, raw = verifier(), sealer().seal("quote", "paris", b"body", NOW_S)
    opener.open(raw, NOW_S)
    assert refusal(opener, raw) is TrustRefusal.REPLAYED
    assert refusal(opener, raw, NOW_S + 60) is TrustRefusal.REPLAYED


def test_who_joins_anew_in_the_same_life_goes_on_counting():
    opener, before = verifier(), sealer()
    opener.open(before.seal("quote", "paris", b"one", NOW_S), NOW_S)
    after = sealer()
    after.go_on_from(before)
    assert opener.open(after.seal("quote", "paris", b"two", NOW_S), NOW_S).header.sequence == 2


def test_an_old_recording_is_stale_even_to_who_has_forgotten():
    raw = sealer().seal("quote", "paris", b"body", NOW_S)
    assert refusal(verifier(), raw, NOW_S + 901) is TrustRefusal.STALE
    assert verifier().open(raw, NOW_S + 900).body == b"body"


def test_the_future_is_not_believed():
    raw = sealer().seal("quote", "paris", b"body", NOW_S + 31)
    assert refusal(verifier(), raw) is TrustRefusal.AHEAD
    assert verifier().open(raw, NOW_S + 1).body == b"body"


def test_another_site_or_federation_is_not_meant():
    assert refusal(verifier(), sealer().seal("quote", "lyon", b"", NOW_S)) is (
        TrustRefusal.WRONG_DESTINATION
    )
    foreign = sealer(federation="others-1").seal("quote", "paris", b"", NOW_S)
    assert refusal(verifier(), foreign) is TrustRefusal.WRONG_FEDERATION


def test_strangers_and_forgers_are_refused():
    stranger = sealer("lyon").seal("quote", "paris", b"", NOW_S)
    assert refusal(verifier(), stranger) is TrustRefusal.UNKNOWN_SITE
    forged = sealer("london", signer="lyon").seal("quote", "paris", b"", NOW_S)
    assert refusal(verifier(), forged) is TrustRefusal.BAD_SIGNATURE


def test_a_forgery_does_not_use_up_the_number_of_the_real_one():
    opener = verifier()
    forged = sealer("london", signer="lyon").seal("quote", "paris", b"forged", NOW_S)
    assert refusal(opener, forged) is TrustRefusal.BAD_SIGNATURE
    assert opener.open(sealer().seal("quote", "paris", b"real", NOW_S), NOW_S).body == b"real"


CHANGES = {
    "federation": "others-1",
    "kind": "contract",
    "source": "lyon",
    "to": ALL,
    "boot": 2,
    "sequence": 9,
    "issued_s": NOW_S + 5,
}


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Header)])
def test_nothing_in_the_header_can_be_relabelled(field):
    header, body, signature = msgpack.unpackb(sealer().seal("quote", "paris", b"body", NOW_S))
    changed = {**msgpack.unpackb(header), field: CHANGES[field]}
    raw = msgpack.packb([msgpack.packb(changed), body, signature])
    opener = Verifier(KnownSites("paris", "london", "lyon", federation=changed["federation"]))
    assert refusal(opener, raw) is TrustRefusal.BAD_SIGNATURE


def test_no_byte_can_be_changed_and_none_left_out():
    raw = sealer().seal("quote", "paris", b"body", NOW_S)
    for at in range(len(raw)):
        spoilt = bytearray(raw)
        spoilt[at] ^= 0x04
        with pytest.raises(ProtocolError):
            verifier().open(bytes(spoilt), NOW_S)
        with pytest.raises(ProtocolError):
            verifier().open(raw[:at], NOW_S)


def test_bytes_can_not_move_between_header_and_body():
    header, body, signature = msgpack.unpackb(sealer().seal("quote", "paris", b"body", NOW_S))
    raw = msgpack.packb([header + body[:1], body[1:], signature])
    with pytest.raises(ProtocolError):
        verifier().open(raw, NOW_S)


@settings(max_examples=200)
@given(st.binary(max_size=200), st.binary(max_size=80))
def test_noise_is_no_envelope(one, other):
    for raw in (one, msgpack.packb([one, other, bytes(64)])):
        with pytest.raises(ProtocolError):
            verifier().open(raw, NOW_S)


def test_a_large_body_is_refused_before_anything_is_checked():
    raw = sealer().seal("quote", "paris", bytes(1001), NOW_S)
    with pytest.raises(ProtocolError, match="the body has 1,001 bytes"):
        verifier(body_bytes_max=1000).open(raw, NOW_S)
    with pytest.raises(ProtocolError, match="over the limit"):
        verifier(body_bytes_max=100).open(raw, NOW_S)


# --- order, windows, boots -----------------------------------------------------------------------


@settings(max_examples=60)
@given(st.permutations(range(40)))
def test_each_is_taken_once_in_whatever_order(way):
    made = sealer()
    sealed = [made.seal("quote", "paris", b"%d" % at, NOW_S) for at in range(40)]
    opener = verifier()
    for at in way:
        assert opener.open(sealed[at], NOW_S).body == b"%d" % at
        assert refusal(opener, sealed[at]) is TrustRefusal.REPLAYED


def test_the_window_ends():
    made, opener = sealer(), verifier()
    sealed = [made.seal("quote", "paris", b"", NOW_S) for _ in range(WINDOW + 2)]
    opener.open(sealed[WINDOW], NOW_S)
    opener.open(sealed[1], NOW_S)  # the oldest that still has a place
    assert refusal(opener, sealed[0]) is TrustRefusal.STALE
    opener.open(sealed[WINDOW + 1], NOW_S)  # takes the place of the one just opened
    assert refusal(opener, sealed[1]) is TrustRefusal.STALE
    assert opener.open(sealed[2], NOW_S).header.sequence == 3


def test_a_leap_forgets_what_lay_between_and_no_more():
    made, opener = sealer(), verifier()
    sealed = [made.seal("quote", "paris", b"", NOW_S) for _ in range(3 * WINDOW)]
    opener.open(sealed[0], NOW_S)
    opener.open(sealed[-1], NOW_S)
    assert refusal(opener, sealed[-1]) is TrustRefusal.REPLAYED
    assert refusal(opener, sealed[0]) is TrustRefusal.STALE
    assert opener.open(sealed[2 * WINDOW], NOW_S).header.sequence == 2 * WINDOW + 1


def test_what_is_for_all_does_not_count_against_what_is_for_us():
    made, opener = sealer(), verifier()
    early = made.seal("advert", ALL, b"", NOW_S)
    for _ in range(2 * WINDOW):
        late = made.seal("quote", "paris", b"", NOW_S)
    opener.open(late, NOW_S)
    assert opener.open(early, NOW_S).header.sequence == 1


def test_two_bodies_under_one_number_are_equivocation():
    opener = verifier()
    opener.open(sealer().seal("advert", ALL, b"cheap", NOW_S), NOW_S)
    other = sealer().seal("advert", ALL, b"dear", NOW_S)
    assert refusal(opener, other) is TrustRefusal.EQUIVOCATION
    assert refusal(opener, sealer(signer="lyon").seal("advert", ALL, b"x", NOW_S)) is (
        TrustRefusal.BAD_SIGNATURE
    )


def test_a_new_boot_begins_anew_and_ends_the_old():
    opener = verifier()
    old = sealer(boot=1)
    opener.open(old.seal("quote", "paris", b"", NOW_S), NOW_S)
    opener.open(sealer(boot=2).seal("quote", "paris", b"", NOW_S), NOW_S)
    assert refusal(opener, old.seal("quote", "paris", b"", NOW_S)) is TrustRefusal.OLD_BOOT


def test_a_hello_ends_the_old_boot_and_a_disk_set_back_is_noticed():
    opener = verifier()
    old = sealer(boot=1).seal("quote", "paris", b"", NOW_S)
    opener.meet("london", 2)
    assert refusal(opener, old) is TrustRefusal.OLD_BOOT
    opener.meet("london", 2)
    with pytest.raises(Untrusted, match="old-boot"):
        opener.meet("london", 1)
    opener.forget("london")
    opener.meet("london", 1)


def test_a_hello_of_the_same_boot_forgets_nothing():
    opener, raw = verifier(), sealer().seal("quote", "paris", b"", NOW_S)
    opener.open(raw, NOW_S)
    opener.meet("london", 1)
    assert refusal(opener, raw) is TrustRefusal.REPLAYED


def test_keys_rotate_under_way():
    known, made = KnownSites("paris", "london"), sealer()
    opener = Verifier(known)
    known.keys["london"] = (key("london").public, key("london-2").public)
    before = made.seal("quote", "paris", b"before", NOW_S)
    made.key = key("london-2")
    after = made.seal("quote", "paris", b"after", NOW_S)
    assert opener.open(after, NOW_S).body == b"after"
    assert opener.open(before, NOW_S).body == b"before"
    known.keys["london"] = (key("london-2").public,)
    made.key = key("london")
    assert refusal(opener, made.seal("quote", "paris", b"", NOW_S)) is TrustRefusal.BAD_SIGNATURE


def test_what_another_kind_of_signature_covers_is_no_envelope():
    header, body, _ = msgpack.unpackb(sealer().seal("quote", "paris", b"body", NOW_S))
    signature = key("london").sign("card", header, body)
    assert _DOMAIN != "card"
    assert (
        refusal(verifier(), msgpack.packb([header, body, signature])) is TrustRefusal.BAD_SIGNATURE
    )


def test_a_kind_or_a_site_that_nobody_would_take_is_not_sealed():
    for kind, to in (("Quote", "paris"), ("quote", "Paris"), ("quote", "")):
        with pytest.raises(ValueError, match=r"'kind'|'to'"):
            sealer().seal(kind, to, b"", NOW_S)
