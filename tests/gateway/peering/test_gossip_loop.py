"""A site's place in the gossip: the site at fault for a bad advert, and the adverts for each."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.pure.town import UTC_S, Town

from federation.errors import ProtocolError
from federation.membership.gossip import (
    Bulletin,
    BulletinNotice,
    Bulletins,
    Gossip,
    MemberState,
    MemberUpdate,
    News,
    Topic,
    to_plain,
)
from federation.messages.adverts import PoolAdvert, SiteAdvert
from federation.messages.messages import Advert, GossipMessage
from federation.messages.wire import pack, unpack
from federation.signed.envelopes import ALL
from federation.signed.identity import Untrusted
from gateway.peering.gossip_loop import ADVERT, GossipLoop, _differs
from gateway.runtime.environment import RuntimeEnvironment
from policies.disclosure import SHOW_ALL, Disclosure
from simulations.world.peers import SimRoll

SITES = ("london", "paris", "tokyo")


class Member:
    """London's gossip loop; its lines for people are in `said`, and its messages in `carried`."""

    def __init__(self, *shows: Disclosure) -> None:
        self.roll = SimRoll("london", SITES[1:], 5)
        self.tokyo = {boot: SimRoll("tokyo", SITES[:2], boot) for boot in (7, 8)}
        self.said: list[str] = []
        self.carried: list[tuple[str, GossipMessage | Advert]] = []
        exchange = Town().build("london", 1, 1).exchange
        self.market = exchange.market
        self.gossip = GossipLoop(
            SimpleNamespace(registry=self.roll),  # type: ignore[arg-type]
            exchange,
            RuntimeEnvironment(lambda: 0.0, lambda: UTC_S, bytes),
            carry=lambda site, message: self.carried.append((site, message)),
            say=self.said.append,
            shows=shows or SHOW_ALL,
        )
        lives = MemberUpdate("tokyo", MemberState.ALIVE, 1)
        self.gossip.hear("paris", GossipMessage(pack(to_plain(Gossip(News((lives,)))))))

    def adverts(self, reader: str) -> list[SiteAdvert]:
        """The adverts that were shown to a site alone."""
        verifier = SimRoll(reader, SITES, 1).verifier
        return [
            SiteAdvert.from_plain(unpack(verifier.open(message.envelope, UTC_S).body, 1 << 16))
            for site, message in self.carried
            if site == reader and isinstance(message, Advert)
        ]

    def show_alone(
        self, pools: int, version: int, *, to: str = "london", by: str = "tokyo"
    ) -> None:
        """Tokyo shows so many pools to one site alone; `by` carries it."""
        tokyo = self.tokyo[7]
        shown = tuple(PoolAdvert(f"p{at}", 4, 10**9, "USD") for at in range(pools))
        advert = SiteAdvert("tokyo", version, UTC_S, 60.0, shown, to)
        body = tokyo.sealer.seal(ADVERT, to, pack(advert.to_plain()), UTC_S)
        self.gossip.hear(by, Advert(body))

    def pass_on(self, version: int, *, boot: int = 7, issued_s: float = UTC_S) -> None:
        """Paris passes on an advert of tokyo."""
        tokyo = self.tokyo[boot]
        advert = SiteAdvert("tokyo", version, issued_s, 60.0, ())
        body = tokyo.sealer.seal(ADVERT, ALL, pack(advert.to_plain()), UTC_S)
        bulletin = Bulletin(BulletinNotice(Topic("tokyo", ADVERT), boot, version), body)
        self.gossip.hear("paris", GossipMessage(pack(to_plain(Bulletins((bulletin,))))))


def test_an_advert_of_a_former_life_is_left_out_and_who_passed_it_on_is_not_to_blame() -> None:
    member = Member()
    member.roll.meet("tokyo", 8)
    member.pass_on(1, boot=7)
    assert not member.market.has_others


def test_an_advert_from_a_clock_that_runs_ahead_is_not_dealt_by() -> None:
    member = Member()
    member.pass_on(1, issued_s=UTC_S + 10)
    assert not member.market.has_others
    assert [line for line in member.said if "ahead of the local clock" in line]


def test_an_advert_that_is_not_signed_as_we_know_its_site_is_dropped_and_its_carrier_is_not() -> (
    None
):
    # Who carries it may know newer keys of that site than we do.
    member = Member()
    forged = SimRoll("tokyo", SITES[:2], 7)
    forged.sealer.key = SimRoll("paris", (), 1).signing_key
    body = forged.sealer.seal(ADVERT, ALL, b"", UTC_S)
    gossip = pack(
        to_plain(Bulletins((Bulletin(BulletinNotice(Topic("tokyo", ADVERT), 7, 1), body),)))
    )
    for _ in range(3):
        member.gossip.hear("paris", GossipMessage(gossip))
    assert all(each.is_own for each in member.market.candidates)
    assert sum("paris passed on an invalid bulletin" in line for line in member.said) == 1
    with pytest.raises(Untrusted):
        member.gossip.hear("tokyo", GossipMessage(gossip))


def test_what_a_site_shows_to_us_alone_stands_above_what_it_tells_all() -> None:
    member = Member()
    member.show_alone(2, 1)
    member.pass_on(1)
    assert [each.key for each in member.market.candidates if not each.is_own] == [
        ("tokyo", "p0"),
        ("tokyo", "p1"),
    ]
    member.pass_on(2)
    assert all(each.is_own for each in member.market.candidates)


def test_an_advert_for_another_site_or_by_another_carrier_is_refused() -> None:
    member = Member()
    with pytest.raises(Untrusted):
        member.show_alone(1, 1, to="paris")
    with pytest.raises(ProtocolError):
        member.show_alone(1, 1, by="paris")
    assert not member.market.has_others


def test_an_advert_for_one_site_alone_is_not_passed_on_as_gossip() -> None:
    member = Member()
    tokyo = SimRoll("tokyo", SITES[:2], 7)
    advert = SiteAdvert("tokyo", 1, UTC_S, 60.0, (), "london")
    body = tokyo.sealer.seal(ADVERT, ALL, pack(advert.to_plain()), UTC_S)
    bulletin = Bulletin(BulletinNotice(Topic("tokyo", ADVERT), 7, 1), body)
    with pytest.raises(ProtocolError):
        member.gossip.hear("paris", GossipMessage(pack(to_plain(Bulletins((bulletin,))))))


def test_a_site_shows_a_friend_what_it_hides_from_all() -> None:
    member = Member(Disclosure(readers=frozenset({"paris"})), Disclosure(hidden=True))
    member.gossip.tick()
    (shown,) = member.adverts("paris")
    assert len(shown.pools) == 1
    assert shown.audience == "paris"
    assert member.adverts("tokyo") == []
    held = member.gossip.membership.bulletin(Topic("london", ADVERT))
    assert held is not None
    _, body, _ = unpack(held.body, 1 << 16)
    assert unpack(body, 1 << 16)["pools"] == []


GROWING = PoolAdvert("p", 100, 10**9, "USD", slots_free=10, slots_cold=60, start_s=60.0)


@pytest.mark.parametrize(
    ("changes", "is_news"),
    [
        ({"slots_total": 95, "slots_cold": 55}, False),
        ({"slots_cold": 55}, False),
        ({"slots_cold": 40}, True),
        ({"slots_total": 40, "slots_cold": 0}, True),
        ({"slots_total": 40, "slots_cold": 0, "start_s": 0.0}, True),
        ({"start_s": 65.0}, False),
        ({"start_s": 7_200.0}, True),
    ],
    ids=[
        "some more have work", "some came", "many came", "none can be started", "its grid fails",
        "a start takes a little longer", "its grid has a queue",
    ],
)  # fmt: skip
def test_what_is_news_of_a_pool_that_grows(changes: dict[str, float], is_news: bool) -> None:
    before, now = (
        SiteAdvert("paris", at, UTC_S, 60.0, (pool,))
        for at, pool in enumerate((GROWING, replace(GROWING, **changes)))
    )
    assert _differs(before, now) is is_news


def test_one_slot_more_or_less_of_a_pool_that_does_not_grow_is_news() -> None:
    fixed = replace(GROWING, slots_cold=0, start_s=0.0)
    before, now = (
        SiteAdvert("paris", 1, UTC_S, 60.0, (pool,))
        for pool in (fixed, replace(fixed, slots_total=99))
    )
    assert _differs(before, now)


def test_another_bulk_port_is_news() -> None:
    before = SiteAdvert("paris", 1, UTC_S, 60.0, (GROWING,), bulk="tls+tcp://gw:1")
    assert _differs(before, replace(before, version=2, bulk="tls+tcp://gw:2"))
    assert _differs(before, replace(before, version=2, jurisdiction="EU"))
    assert not _differs(before, replace(before, version=2))
