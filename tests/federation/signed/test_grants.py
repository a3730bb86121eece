"""Grants: each hop narrows; a hop that widens, cuts, reorders or borrows is refused."""

import dataclasses

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pure.site_keys import FEDERATION, NOW_S, KnownSites, key

from federation.errors import ProtocolError
from federation.signed.grants import HOPS_MAX, GrantBounds, Purpose, check, issue, pass_on
from federation.signed.identity import TrustRefusal, Untrusted

SITES = ("a-site", "b-site", "c-site", "d-site", "e-site")
PURPOSE = Purpose(FEDERATION, "a-site", "ada", "risk", "job-1", b"f" * 32, "USD")
BOUNDS = GrantBounds(
    "b-site", "c-1", 1000, NOW_S + 3600, HOPS_MAX, frozenset({"eu", "us"}), frozenset(SITES)
)


def known(site):
    return KnownSites(site, *SITES)


def to(target, **changes):
    return dataclasses.replace(BOUNDS, target=target, **changes)


def show(raw, site, now_s=NOW_S, trust=None):
    """Check it at a site, shown by the one before it."""
    sender = SITES[SITES.index(site) - 1]
    return check(raw, sender, trust or known(site), now_s)


def walk(*steps, first=BOUNDS):
    """A chain through these steps: each GrantBounds is signed by the target of the one before."""
    raw = issue(PURPOSE, first, key("a-site"))
    for bounds in steps:
        grant = show(raw, _target(raw))
        raw = pass_on(grant, bounds, key(grant.bounds.target))
    return raw


def _target(raw):
    return msgpack.unpackb(msgpack.unpackb(raw)[-1][1])["target"]


def refusal(raw, site, now_s=NOW_S, trust=None):
    with pytest.raises(Untrusted) as caught:
        show(raw, site, now_s, trust)
    return caught.value.refusal


def test_the_origin_allows_its_neighbour():
    grant = show(issue(PURPOSE, BOUNDS, key("a-site")), "b-site")
    assert (grant.purpose, grant.bounds, grant.path) == (PURPOSE, BOUNDS, ("a-site",))


def test_each_hop_narrows_and_the_last_sees_the_way():
    second = to("c-site", max_cost_nanos=900, hops_left=1, regions=frozenset({"eu"}))
    third = to("d-site", max_cost_nanos=800, hops_left=0, regions=frozenset({"eu"}))
    raw = walk(second, third)
    grant = show(raw, "d-site")
    assert (grant.bounds, grant.path) == (third, ("a-site", "b-site", "c-site"))
    assert len(raw) < 2048


names = st.sampled_from(["eu", "us", "jp"])


@st.composite
def narrowings(draw):
    """Two GrantBounds, the second no wider than the first."""
    regions = draw(st.none() | st.frozensets(names, min_size=1))
    sites = draw(st.none() | st.just(frozenset(SITES)) | st.just(frozenset({"b-site", "c-site"})))
    wide = GrantBounds(
        "b-site",
        "c-1",
        draw(st.integers(0, 10**12)),
        NOW_S + draw(st.integers(1, 10**6)),
        draw(st.integers(1, HOPS_MAX)),
        regions,
        sites,
    )
    less = (
        st.none() | st.frozensets(names, min_size=1)
        if regions is None
        else st.frozensets(st.sampled_from(sorted(regions)), min_size=1)
    )
    fewer = draw(st.booleans())
    narrow = GrantBounds(
        "c-site",
        "c-2",
        draw(st.integers(0, wide.max_cost_nanos)),
        NOW_S + draw(st.integers(1, int(wide.expires_s - NOW_S))),
        draw(st.integers(0, wide.hops_left - 1)),
        draw(less),
        frozenset({"c-site"}) if fewer else sites,
    )
    return wide, narrow


@settings(max_examples=150)
@given(narrowings())
def test_any_narrowing_is_accepted(pair):
    wide, narrow = pair
    assert show(walk(narrow, first=wide), "c-site").bounds == narrow


WIDER = {
    "max_cost_nanos": st.integers(1001, 10**15),
    "expires_s": st.floats(NOW_S + 3601, NOW_S + 1e9),
    "hops_left": st.integers(2, HOPS_MAX),
    "regions": st.none() | st.frozensets(names, min_size=1).map(lambda each: each | {"jp"}),
    "sites": st.none() | st.just(frozenset({"c-site", "z-site"})),
}


@settings(max_examples=150)
@given(st.data())
def test_any_widening_is_refused(data):
    first = dataclasses.replace(BOUNDS, hops_left=2)
    field = data.draw(st.sampled_from(sorted(WIDER)))
    change = {"hops_left": 1, field: data.draw(WIDER[field])}
    wider = dataclasses.replace(first, target="c-site", **change)
    grant = show(walk(first=first), "b-site")
    with pytest.raises(Untrusted, match="widened"):
        pass_on(grant, wider, key("b-site"))
    assert refusal(_append(grant.raw, wider, "b-site"), "c-site") is TrustRefusal.WIDENED


def _append(raw, bounds, signer, parent=None):
    """An entry that a site which breaks the rules would append."""
    from federation.signed import grants

    blocks = msgpack.unpackb(raw)
    about = parent or grants._Block(*blocks[-1]).hash()
    encoded = grants._BOUNDS.encode(bounds)
    signature = key(signer).sign(grants._HOP, about, encoded)
    return msgpack.packb([*blocks, [about, encoded, signature]])


def chain():
    return walk(to("c-site", hops_left=2), to("d-site", hops_left=1), to("e-site", hops_left=0))


def test_no_block_can_be_dropped():
    blocks = msgpack.unpackb(chain())
    assert show(chain(), "e-site").path == SITES[:4]
    for gone in range(4):
        raw = msgpack.packb(blocks[:gone] + blocks[gone + 1 :])
        with pytest.raises(ProtocolError):
            show(raw, "e-site")


@given(st.permutations(range(4)))
def test_no_blocks_can_change_places(way):
    blocks = msgpack.unpackb(chain())
    if way != sorted(way):
        with pytest.raises(ProtocolError):
            show(msgpack.packb([blocks[at] for at in way]), "e-site")


def test_a_stranger_can_not_pass_it_on():
    raw = issue(PURPOSE, BOUNDS, key("a-site"))
    for signer in ("a-site", "c-site", "mallory"):
        appended = _append(raw, to("c-site", hops_left=1), signer)
        assert refusal(appended, "c-site") is TrustRefusal.BAD_SIGNATURE


def test_nobody_can_cut_it_back_to_a_wider_block_and_go_on_from_there():
    narrowed = walk(to("c-site", max_cost_nanos=5, hops_left=1))
    cut = msgpack.packb(msgpack.unpackb(narrowed)[:1])
    assert refusal(cut, "c-site") is TrustRefusal.WRONG_DESTINATION
    borrowed = _append(cut, to("d-site", hops_left=1), "c-site")
    assert refusal(borrowed, "d-site") is TrustRefusal.BAD_SIGNATURE


def test_a_block_belongs_to_one_chain():
    other = issue(dataclasses.replace(PURPOSE, job="job-2"), BOUNDS, key("a-site"))
    block = msgpack.unpackb(walk(to("c-site", hops_left=1)))[1]
    mixed = msgpack.packb([*msgpack.unpackb(other), block])
    assert refusal(mixed, "c-site") is TrustRefusal.WRONG_PARENT


def test_a_first_block_does_not_pass_for_a_later_one_nor_the_other_way():
    blocks = msgpack.unpackb(walk(to("c-site", hops_left=1)))
    with pytest.raises(ProtocolError):
        show(msgpack.packb([blocks[1]]), "c-site")
    with pytest.raises(ProtocolError):
        show(msgpack.packb([blocks[0], blocks[0]]), "b-site")


def test_no_byte_can_be_changed():
    raw = walk(to("c-site", hops_left=1))
    for at in range(len(raw)):
        spoilt = bytearray(raw)
        spoilt[at] ^= 0x01
        with pytest.raises(ProtocolError):
            show(bytes(spoilt), "c-site")


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_noise_is_no_grant(data):
    for raw in (data, msgpack.packb([[data, data, bytes(64)]])):
        with pytest.raises(ProtocolError):
            show(raw, "b-site")


def test_it_must_be_for_us_in_time_and_of_our_federation():
    raw = issue(PURPOSE, BOUNDS, key("a-site"))
    assert refusal(raw, "c-site") is TrustRefusal.WRONG_DESTINATION
    assert refusal(raw, "b-site", NOW_S + 3600) is TrustRefusal.EXPIRED
    foreign = issue(dataclasses.replace(PURPOSE, federation="others-1"), BOUNDS, key("a-site"))
    assert refusal(foreign, "b-site") is TrustRefusal.WRONG_FEDERATION


def test_nobody_shows_the_grant_of_another():
    raw = issue(PURPOSE, BOUNDS, key("a-site"))
    with pytest.raises(Untrusted, match="'c-site' presents a grant of site 'a-site'"):
        check(raw, "c-site", known("b-site"), NOW_S)


def test_every_signer_must_be_known():
    raw = walk(to("c-site", hops_left=1))
    assert refusal(raw, "c-site", trust=KnownSites("c-site", "b-site")) is TrustRefusal.UNKNOWN_SITE
    assert refusal(raw, "c-site", trust=KnownSites("c-site", "a-site")) is TrustRefusal.UNKNOWN_SITE


def test_it_survives_the_rotation_of_its_signers_keys():
    raw, trust = issue(PURPOSE, BOUNDS, key("a-site")), known("b-site")
    trust.keys["a-site"], trust.past["a-site"] = (key("new").public,), (key("a-site").public,)
    assert show(raw, "b-site", trust=trust).purpose == PURPOSE


def test_it_does_not_come_back_to_where_it_was():
    grant = show(walk(to("c-site", hops_left=2)), "c-site")
    for target in ("a-site", "b-site", "c-site"):
        back = to(target, hops_left=1)
        with pytest.raises(Untrusted, match="loop"):
            pass_on(grant, back, key("c-site"))
        assert refusal(_append(grant.raw, back, "c-site"), target) is TrustRefusal.LOOP


def test_its_target_must_be_allowed():
    with pytest.raises(Untrusted, match="not among the sites of the grant"):
        issue(PURPOSE, to("b-site", sites=frozenset({"c-site"})), key("a-site"))
    grant = show(walk(), "b-site")
    beyond = to("c-site", hops_left=1, sites=frozenset({"d-site"}))
    assert refusal(_append(grant.raw, beyond, "b-site"), "c-site") is TrustRefusal.WIDENED


def test_no_hops_left_is_no_further():
    grant = show(walk(first=to("b-site", hops_left=0)), "b-site")
    with pytest.raises(Untrusted, match="0 hops left are too many after 0"):
        pass_on(grant, to("c-site", hops_left=0), key("b-site"))


def test_it_is_bounded():
    with pytest.raises(ValueError, match="'hops_left'"):
        issue(PURPOSE, to("b-site", hops_left=HOPS_MAX + 1), key("a-site"))
    with pytest.raises(ProtocolError, match="1 to 4 blocks"):
        show(msgpack.packb(msgpack.unpackb(chain()) * 2), "e-site")
    with pytest.raises(ProtocolError, match="over the limit"):
        show(bytes(1 << 20), "b-site")
    with pytest.raises(ProtocolError, match="a block must be"):
        show(msgpack.packb([msgpack.unpackb(chain())[0][:2]]), "b-site")


def test_a_bound_that_is_not_understood_is_not_ignored():
    from federation.signed import grants

    about = grants._PURPOSE.encode(PURPOSE)
    plain = msgpack.unpackb(grants._BOUNDS.encode(BOUNDS))
    encoded = msgpack.packb({**plain, "gpus_max": 1})
    raw = msgpack.packb([[about, encoded, key("a-site").sign(grants._ORIGIN, about, encoded)]])
    with pytest.raises(ProtocolError, match="unknown field 'gpus_max'"):
        show(raw, "b-site")
