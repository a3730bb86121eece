"""Reserving at other sites: for whom that is not."""

from types import SimpleNamespace

import pytest

from gateway import events, reservation_desk
from gateway.broker import Broker
from gateway.config import SiteConfig
from gateway.rights import Asker
from policies.entitlements import Entitlements, Rule
from policies.parties import read_party
from policies.reservations import CantReserve
from policies.tariffs import Tariff

NOON = 43_200.0
WISH = {"slots": 1, "lasts_s": 60.0, "sites": ["paris"]}


async def test_who_may_use_no_other_site_reserves_at_none():
    broker = Broker({"fast": Tariff(10**9, "USD", "1")})
    rule = Rule(True, (read_party("user:ann"),), frozenset({"fast"}))
    known = events.EntitlementsKnown(Entitlements((rule,)), {"fast": frozenset()})
    broker.handle(known, NOON)
    site = SimpleNamespace(
        broker=broker,
        config=SiteConfig(name="london"),
        surroundings=SimpleNamespace(utc_s=lambda: NOON),
        peers=SimpleNamespace(registry=SimpleNamespace(approved={"paris"})),
    )
    asker = Asker(1, "ann")
    with pytest.raises(CantReserve, match="ann may use no pools of other sites: `gridfed can ann`"):
        await reservation_desk.reserve(site, asker, WISH)
