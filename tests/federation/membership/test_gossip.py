"""Messages of the federation's gossip: written ones are read back, and all others are refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.errors import ProtocolError
from federation.membership import gossip
from federation.membership.gossip import (
    Ack,
    Bulletin,
    BulletinNotice,
    Bulletins,
    Gossip,
    GossipExchange,
    MemberState,
    MemberUpdate,
    Nack,
    News,
    Ping,
    PingRequest,
    Topic,
    Want,
    from_plain,
    to_plain,
)
from federation.messages.wire import pack, unpack

sites = st.from_regex(r"[a-z0-9-]{3,40}", fullmatch=True)
numbers = st.integers(0, 2**62)
topics = st.builds(Topic, sites, st.from_regex(r"[!-~]{0,64}", fullmatch=True))
updates = st.builds(MemberUpdate, sites, st.sampled_from(MemberState), numbers, st.just("") | sites)
notices = st.builds(BulletinNotice, topics, numbers, numbers)
bulletins = st.builds(Bulletin, notices, st.binary(min_size=1, max_size=40))
news = st.builds(
    News, st.lists(updates, max_size=3).map(tuple), st.lists(notices, max_size=3).map(tuple)
)
messages = st.one_of(
    st.builds(Ping, numbers, news),
    st.builds(Ack, numbers, news),
    st.builds(Nack, numbers, news),
    st.builds(PingRequest, numbers, sites, news),
    st.builds(Gossip, news),
    st.builds(GossipExchange, st.booleans(), news),
    st.builds(Want, st.lists(topics, max_size=3).map(tuple)),
    st.builds(Bulletins, st.lists(bulletins, max_size=3).map(tuple)),
)


@settings(max_examples=30)
@given(messages)
def test_what_is_written_is_read_back(message) -> None:
    assert from_plain(unpack(pack(to_plain(message)), 1 << 20)) == message


@settings(max_examples=30)
@given(updates | notices | bulletins)
def test_nothing_is_longer_on_the_wire_than_it_says(item) -> None:
    assert len(pack(item.to_plain())) <= item.size_bytes


@settings(max_examples=30)
@given(messages)
def test_what_a_newer_site_adds_at_the_end_is_ignored(message) -> None:
    assert from_plain([*to_plain(message), "new"]) == message


@settings(max_examples=30)
@given(st.recursive(st.none() | st.integers() | st.text() | st.binary(), st.lists))
def test_nonsense_is_refused_as_such(value) -> None:
    with pytest.raises(ProtocolError):
        from_plain([value, "ping"])


GOOD_CLAIM = ["site-a", 0, 1, ""]
GOOD_NOTICE = ["site-a", "gpu", 1, 1]


@pytest.mark.parametrize(
    "plain",
    [
        "ping",
        [],
        ["none"],
        ["ping"],
        ["ping", -1, [[], []]],
        ["ping", True, [[], []]],
        ["ping", 2**63, [[], []]],
        ["ping", 1, []],
        ["ask", 1, "UPPER", [[], []]],
        ["gossip", [[["site-a", 4, 1, ""]], []]],
        ["gossip", [[["site-a", 0, 2**62 + 1, ""]], []]],
        ["gossip", [[["site-a", 0, 1.0, ""]], []]],
        ["gossip", [[["../etc", 0, 1, ""]], []]],
        ["gossip", [[["site-a", 0, 1, "b"]], []]],
        ["gossip", [[["site-a", 0, 1]], []]],
        ["gossip", [[GOOD_CLAIM] * (gossip.UPDATES_MAX + 1), []]],
        ["gossip", [[], [GOOD_NOTICE] * (gossip.NOTICES_MAX + 1)]],
        ["gossip", [[], [["site-a", "a b", 1, 1]]]],
        ["gossip", [[], [["site-a", "x" * 65, 1, 1]]]],
        ["exchange", 1, [[], []]],
        ["want", [["site-a", "gpu"]] * (gossip.TOPICS_ASKED_MAX + 1)],
        ["want", [["site-a"]]],
        ["bulletins", [GOOD_NOTICE]],
        ["bulletins", [[*GOOD_NOTICE, b""]]],
        ["bulletins", [[*GOOD_NOTICE, "text"]]],
        ["bulletins", [[*GOOD_NOTICE, bytes(gossip.BULLETIN_BYTES_MAX + 1)]]],
    ],
)
def test_what_breaks_a_bound_is_refused(plain) -> None:
    with pytest.raises(ProtocolError):
        from_plain(plain)
