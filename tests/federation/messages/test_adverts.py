"""Adverts: written ones are read back, and all others are refused."""

import math
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pure.market import NOW_S, make_advert, make_pool

from federation.errors import ProtocolError
from federation.messages import adverts
from federation.messages.adverts import (
    AdvertisedWindow,
    Outlook,
    PoolAdvert,
    PriceChange,
    SiteAdvert,
    TagPrice,
)
from federation.messages.wire import pack, unpack

FULL = make_pool(
    "gpu",
    slots_free=3,
    tasks_queued=7,
    load_slot_s=12.5,
    work_rate=40.0,
    arrival_rate=41.0,
    next_price=PriceChange(5, NOW_S + 60),
    tags={"linux": True, "gpu": 4, "memory": 1.5},
    free_tags={"gpu": 1},
    pythons=("3.11", "3.12"),
    region="eu-west",
    jurisdiction="IE",
    carbon_g_per_kwh=0.0,
    slot_watts=2.4,
    windows=(AdvertisedWindow(0.0, 10.0, 5, 1), AdvertisedWindow(10.0, 20.0, 6, 2)),
    projects=frozenset({"risk"}),
    sites=frozenset(),
    rtt_s=0.01,
    link_bytes_s=1e9,
    tag_prices={"gpu": TagPrice(1_200, 1_100_000)},
    preemptible=400_000,
    minimum_nanos=100,
    step_ns=10**8,
    carbon_ahead=Outlook(NOW_S, 1800.0, (0, 2250, 50_000)),
    slots_cold=2,
    start_s=90.0,
    slot_work_s=1200.0,
    draining=True,
    inputs=True,
    labels=True,
    receive_nanos=11,
    send_nanos=12,
)


def test_a_site_drains_if_all_its_pools_do_and_an_older_one_does_not_say():
    plain = make_pool("one").to_plain()
    assert "draining" not in plain  # nothing is said to readers that don't know the word
    up, down = PoolAdvert.from_plain(plain), replace(make_pool("two"), draining=True)
    for pools, drains in (((up, down), False), ((down,), True), ((up,), False), ((), False)):
        assert replace(make_advert("a"), pools=pools).draining is drains


def body(**changes):
    return make_pool().to_plain() | changes


def site_body(**changes):
    return make_advert("a").to_plain() | changes


names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)
amounts = st.floats(0, 1e12) | st.integers(0, 10**12)
pools = st.builds(
    PoolAdvert,
    names,
    slots_total=st.integers(10, 10**8),
    price_nanos=st.integers(0, 2**63 - 1),
    currency=st.sampled_from(["USD", "EUR"]),
    slots_free=st.integers(0, 10),
    tasks_queued=st.integers(0, 2**63 - 1),
    load_slot_s=st.floats(0, 1e12),
    work_rate=st.none() | st.floats(0, 1e12),
    next_price=st.none() | st.builds(PriceChange, st.integers(0, 2**63 - 1), st.floats(0, 1e12)),
    tags=st.dictionaries(names, st.just(True) | amounts, max_size=5),
    pythons=st.sampled_from([(), ("3.11",), ("3.11", "3.12")]),
    projects=st.none() | st.frozensets(names, max_size=4),
    carbon_g_per_kwh=st.none() | st.floats(0, 1e12),
    carbon_ahead=st.none()
    | st.builds(
        Outlook,
        st.floats(0, 1e12),
        st.floats(1, 86_400),
        st.lists(st.integers(0, 50_000), min_size=1, max_size=96).map(tuple),
    ),
)


@given(st.lists(pools, max_size=4, unique_by=lambda pool: pool.pool).map(tuple), names)
def test_what_is_written_is_read_back(some, audience) -> None:
    doors = ("tls+tcp://gw.a:7461",)
    bulk = "tls+tcp://gw.a:7464"
    advert = SiteAdvert("a", 7, NOW_S, 30.0, some, audience, doors, bulk=bulk, jurisdiction="EU")
    assert SiteAdvert.from_plain(unpack(pack(advert.to_plain()), 1 << 20)) == advert


def test_every_field_of_a_pool_travels() -> None:
    assert PoolAdvert.from_plain(unpack(pack(FULL.to_plain()), 1 << 20)) == FULL
    assert set(FULL.to_plain()) == set(PoolAdvert.__slots__)


def test_defaults_are_not_sent() -> None:
    plain = PoolAdvert("p", 1, 2, "USD").to_plain()
    assert plain == {"pool": "p", "slots_total": 1, "price_nanos": 2, "currency": "USD"}


def test_unknown_fields_are_ignored() -> None:
    assert SiteAdvert.from_plain(site_body(later="x")).site == "a"
    assert PoolAdvert.from_plain(body(later="x")) == make_pool()


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"pool": ""}, "pool"),
        ({"pool": "p" * 61}, "pool"),
        ({"pool": "a\nb"}, "pool"),
        ({"pool": b"p"}, "pool"),
        ({"slots_total": -1}, "slots_total"),
        ({"slots_total": 1.0}, "slots_total"),
        ({"slots_total": True}, "slots_total"),
        ({"slots_total": 10**9}, "slots_total"),
        ({"tag_prices": {"gpu": [1]}}, "tag_prices"),
        ({"tag_prices": {"a,b": [1, 1]}}, "tag_prices"),
        ({"tag_prices": {"gpu": [1, 10**10]}}, "tag_prices"),
        ({"preemptible": -1}, "preemptible"),
        ({"minimum_nanos": 2**63}, "minimum_nanos"),
        ({"step_ns": 3601 * 10**9}, "step_ns"),
        ({"slots_free": 101}, "slots_free"),
        ({"price_nanos": -1}, "price_nanos"),
        ({"price_nanos": 2**63}, "price_nanos"),
        ({"currency": "usd"}, "currency"),
        ({"load_slot_s": math.nan}, "load_slot_s"),
        ({"load_slot_s": math.inf}, "load_slot_s"),
        ({"load_slot_s": -1.0}, "load_slot_s"),
        ({"load_slot_s": "1"}, "load_slot_s"),
        ({"work_rate": math.inf}, "work_rate"),
        ({"next_price": [1]}, "next_price"),
        ({"next_price": [1, math.nan]}, "next_price"),
        ({"tags": {"gpu": -1}}, "tags"),
        ({"tags": {"gpu": False}}, "tags"),
        ({"tags": {"a,b": True}}, "tags"),
        ({"tags": {"a=b": True}}, "tags"),
        ({"tags": {"": True}}, "tags"),
        ({"tags": {str(n): True for n in range(65)}}, "tags"),
        ({"tags": ["gpu"]}, "tags"),
        ({"free_tags": {"gpu": True}}, "free_tags"),
        ({"pythons": ["3.11"] * 17}, "pythons"),
        ({"pythons": "3.11"}, "pythons"),
        ({"pythons": [311]}, "pythons"),
        ({"windows": [[0, 10, 1, 1], [9, 20, 1, 1]]}, "windows"),
        ({"windows": [[10, 10, 1, 1]]}, "windows"),
        ({"windows": [[0, 10, 1]]}, "windows"),
        ({"windows": [[n, n + 1, 1, 1] for n in range(33)]}, "windows"),
        ({"projects": ["p"] * 257}, "projects"),
        ({"sites": [1]}, "sites"),
        ({"link_bytes_s": 0.9}, "link_bytes_s"),
        ({"rtt_s": 3601}, "rtt_s"),
        ({"slots_cold": -1}, "slots_cold"),
        ({"draining": 1}, "draining must be true or false"),
        ({"slots_cold": 10**7}, "slots_free and slots_cold are more than slots_total"),
        ({"start_s": float("nan")}, "start_s"),
        ({"start_s": 31 * 86_400.0}, "start_s"),
        ({"slot_work_s": float("inf")}, "slot_work_s"),
        ({"carbon_g_per_kwh": math.nan}, "carbon_g_per_kwh"),
        ({"slots_cold": 101}, "slots_free and slots_cold are more than slots_total"),
        ({"slots_cold": 1}, "slots_free and slots_cold are more than slots_total"),
        ({"start_s": -1.0}, "start_s"),
        ({"carbon_ahead": [0, 3600]}, "carbon_ahead"),
        ({"carbon_ahead": [0, 3600, []]}, "carbon_ahead must have at least one step"),
        ({"carbon_ahead": [0, 3600, [1] * 97]}, "carbon_ahead"),
        ({"carbon_ahead": [0, 3600, [50_001]]}, "carbon_ahead"),
        ({"carbon_ahead": [0, 3600, [-1]]}, "carbon_ahead"),
        ({"carbon_ahead": [0, 3600, [1.5]]}, "carbon_ahead"),
        ({"carbon_ahead": [0, 0.9, [1]]}, "carbon_ahead"),
        ({"carbon_ahead": [0, 86_401, [1]]}, "carbon_ahead"),
        ({"carbon_ahead": [math.nan, 3600, [1]]}, "carbon_ahead"),
        ({"carbon_ahead": [-1, 3600, [1]]}, "carbon_ahead"),
    ],
)
def test_what_is_wrong_with_a_pool_is_named(changes, place) -> None:
    with pytest.raises(ProtocolError, match=place):
        PoolAdvert.from_plain(body(**changes))
    with pytest.raises(ProtocolError, match=f"pools .*{place}"):
        SiteAdvert.from_plain(site_body(pools=[body(**changes)]))


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"site": ""}, "site"),
        ({"version": -1}, "version"),
        ({"version": 1.5}, "version"),
        ({"issued_s": math.nan}, "issued_s"),
        ({"valid_s": 0}, "valid_s"),
        ({"valid_s": 86_401}, "valid_s"),
        ({"pools": {}}, "pools"),
        ({"pools": [body(), body()]}, "twice"),
        ({"pools": [body(pool=str(n)) for n in range(65)]}, "pools"),
        ({"pools": [1]}, "pools"),
        ({"audience": 3}, "audience"),
        ({"bulk": "tcp://gw:1"}, "bulk must be an address such as tls"),
        ({"bulk": "tls+tcp://gw"}, "bulk"),
        ({"bulk": ["tls+tcp://gw:1"]}, "bulk"),
        ({"doors": "tls+tcp://gw:1"}, "doors"),
        ({"doors": ["tcp://gw:1"]}, "doors must be addresses such as tls"),
        ({"doors": ["ipc:///tmp/gw.sock"]}, "doors"),
        ({"doors": ["tls+tcp://gw"]}, "doors"),
        ({"doors": ["tls+tcp://gw:1"] * 5}, "at most 4"),
    ],
)
def test_what_is_wrong_with_an_advert_is_named(changes, place) -> None:
    with pytest.raises(ProtocolError, match=place):
        SiteAdvert.from_plain(site_body(**changes))


@pytest.mark.parametrize("name", ["site", "version", "issued_s", "valid_s", "pools"])
def test_what_is_missing_is_named(name) -> None:
    plain = site_body()
    del plain[name]
    with pytest.raises(ProtocolError, match=f"{name} is missing"):
        SiteAdvert.from_plain(plain)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.sampled_from(sorted(PoolAdvert.__slots__)), anything)
def test_whatever_arrives_is_an_advert_or_a_protocol_error(name, value) -> None:
    try:
        pool = PoolAdvert.from_plain(body(**{name: value}))
    except ProtocolError:
        return
    assert PoolAdvert.from_plain(pool.to_plain()) == pool


@given(anything)
def test_what_is_no_map_is_refused(value) -> None:
    with pytest.raises(ProtocolError):
        SiteAdvert.from_plain(value)


def test_the_newest_version_wins_and_of_one_version_the_one_for_the_reader() -> None:
    old, new = make_advert("a", version=1), make_advert("a", version=2)
    private = SiteAdvert("a", 1, NOW_S, 60.0, (), audience="b")
    assert new.supersedes(old)
    assert not old.supersedes(new)
    assert not old.supersedes(old)
    assert private.supersedes(old)
    assert not old.supersedes(private)
    assert new.supersedes(private)


def test_a_large_site_fits_into_the_bytes_that_are_allowed() -> None:
    ahead = Outlook(NOW_S, 1800.0, (adverts.DG_PER_KWH_MAX,) * adverts.OUTLOOK_STEPS_MAX)
    usual = {name: getattr(FULL, name) for name in ("tags", "windows")}
    some = tuple(
        make_pool(f"pool-{n}", carbon_ahead=ahead, **usual) for n in range(adverts.POOLS_MAX)
    )
    assert len(msgpack.packb(make_advert("a", *some).to_plain())) < adverts.ADVERT_BYTES_MAX
