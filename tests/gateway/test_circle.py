"""A site's place in the gossip: whose fault it is when an advert can't be taken."""

from types import SimpleNamespace

import pytest
from town import UTC_S, Town

from federation.adverts import SiteAdvert
from federation.envelopes import ALL
from federation.gossip import (
    Bulletin,
    Bulletins,
    Claim,
    Gossip,
    News,
    Notice,
    State,
    Topic,
    to_plain,
)
from federation.identity import Untrusted
from federation.wire import pack
from gateway.circle import ADVERT, Circle
from gateway.surroundings import Surroundings
from simulations.world.peers import Roll

SITES = ("london", "paris", "tokyo")


class Member:
    """London's circle; what it says to people is in `said`."""

    def __init__(self) -> None:
        self.roll = Roll("london", SITES[1:], 5)
        self.said: list[str] = []
        exchange = Town().build("london", 1, 1).exchange
        self.market = exchange.market
        self.circle = Circle(
            SimpleNamespace(registry=self.roll, keep=lambda sites: None),  # type: ignore[arg-type]
            exchange,
            Surroundings(lambda: 0.0, lambda: UTC_S, bytes),
            carry=lambda site, message: None,
            say=self.said.append,
        )
        lives = Claim("tokyo", State.ALIVE, 1)
        self.circle.hear("paris", pack(to_plain(Gossip(News((lives,))))))

    def pass_on(self, version: int, *, boot: int = 7, issued_s: float = UTC_S) -> None:
        """Paris passes on an advert of tokyo."""
        tokyo = Roll("tokyo", SITES[:2], boot)
        advert = SiteAdvert("tokyo", version, issued_s, 60.0, ())
        body = tokyo.sealer.seal(ADVERT, ALL, pack(advert.to_plain()), UTC_S)
        bulletin = Bulletin(Notice(Topic("tokyo", ADVERT), boot, version), body)
        self.circle.hear("paris", pack(to_plain(Bulletins((bulletin,)))))


def test_an_advert_of_a_former_life_is_left_out_and_who_passed_it_on_is_not_to_blame() -> None:
    member = Member()
    member.roll.meet("tokyo", 8)
    member.pass_on(1, boot=7)
    assert not member.market.has_others


def test_an_advert_from_a_clock_that_runs_ahead_is_not_dealt_by() -> None:
    member = Member()
    member.pass_on(1, issued_s=UTC_S + 10)
    assert not member.market.has_others
    assert [line for line in member.said if "ahead of our clock" in line]


def test_an_advert_that_its_site_did_not_sign_is_its_carriers_fault() -> None:
    member = Member()
    forged = Roll("tokyo", SITES[:2], 7)
    forged.sealer.key = Roll("paris", (), 1).signing_key
    body = forged.sealer.seal(ADVERT, ALL, b"", UTC_S)
    bulletin = Bulletin(Notice(Topic("tokyo", ADVERT), 7, 1), body)
    with pytest.raises(Untrusted):
        member.circle.hear("paris", pack(to_plain(Bulletins((bulletin,)))))
