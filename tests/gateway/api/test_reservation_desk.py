"""Reserving at other sites, refusals included; and the reservations that each caller is shown."""

from types import SimpleNamespace

import pytest

from federation.signed.tokens import Scope
from gateway.api import reservation_desk
from gateway.config.site import SiteConfig
from gateway.ledger.db.reservations.records import ReservationKept
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.trust.rights import Asker, asker_of, right_to
from policies.access.entitlements import EntitlementRule, Entitlements
from policies.parties import Owner, read_party
from policies.reservations.reservations import CantReserve
from policies.tariffs import Tariff
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore

NOON = 43_200.0
WISH = {"slots": 1, "lasts_s": 60.0, "sites": ["paris"]}


async def test_who_may_use_no_other_site_reserves_at_none():
    broker = Broker({"fast": Tariff(10**9, "USD", "1")})
    rule = EntitlementRule(True, (read_party("user:ann"),), frozenset({"fast"}))
    known = events.EntitlementsKnown(Entitlements((rule,)), {"fast": frozenset()})
    broker.handle(known, NOON)
    site = SimpleNamespace(
        broker=broker,
        config=SiteConfig(name="london"),
        runtime=SimpleNamespace(utc_s=lambda: NOON),
        peers=SimpleNamespace(registry=SimpleNamespace(approved={"paris"})),
    )
    asker = Asker(1, "ann")
    with pytest.raises(CantReserve, match="no pools of other sites: see `gridfed can ann`"):
        await reservation_desk.reserve(site, asker, WISH)


def kept(number, user):
    """The record of a reservation that is over."""
    name = f"r-{number:04}"
    until_s = NOON - number
    return ReservationKept(
        *("sell", name, "", name, 1, "ended", "fast", f"user:{user}", 1, until_s - 60, until_s),
        *(10**9, "USD", 0, 0, user, "", "", until_s - 90, 30.0),
    )  # fmt: skip


async def test_who_has_few_reservations_among_many_of_others_is_shown_them_all(monkeypatch):
    monkeypatch.setattr(reservation_desk, "LISTED_MAX", 10)
    disk = Disk()
    disk.commit([kept(at, "ann" if at % 25 == 24 else "bob") for at in range(100)], durable=True)
    store = MemoryStore(disk)

    async def read(find, *arguments):
        return find(*arguments)

    runtime = SimpleNamespace(utc_s=lambda: NOON)
    site = SimpleNamespace(
        store=store, read=read, runtime=runtime, config=SiteConfig(name="london")
    )
    found = await reservation_desk.reservations(site, Asker(1, "ann"), {"all": True})
    assert [row["id"] for row in found] == ["r-0099", "r-0074", "r-0049", "r-0024"]
    others = await reservation_desk.reservations(site, Asker(1, "bob"), {"all": True})
    assert len(others) == 10


async def test_a_token_of_one_project_neither_shows_nor_ends_reservations_of_another():
    mine = SimpleNamespace(
        by=Owner("ann", project="risk"), who=read_party("user:ann"), left_at_s=None, state="open"
    )
    site = SimpleNamespace(
        config=SiteConfig(name="london"),
        runtime=SimpleNamespace(utc_s=lambda: NOON),
        server=SimpleNamespace(
            buying=SimpleNamespace(find=lambda _name: None),
            bookings=SimpleNamespace(open={"r-1": mine}),
        ),
    )
    narrow = Asker(1, "ann", projects=frozenset({"fx"}))
    assert not reservation_desk._is_shown(site, narrow, mine)
    assert reservation_desk._is_shown(site, Asker(1, "ann"), mine)
    with pytest.raises(CantReserve, match="no open reservation 'r-1' of yours"):
        await reservation_desk.unreserve(site, narrow, {"reservation": "r-1"})


async def test_a_token_at_our_own_socket_does_not_order_as_the_operator():
    """Neither to cancel another user's reservation, nor to reserve for another user."""
    bobs = SimpleNamespace(by=Owner("bob"), who=read_party("user:bob"), left_at_s=NOON)
    site = SimpleNamespace(
        config=SiteConfig(name="london"),
        runtime=SimpleNamespace(utc_s=lambda: NOON),
        server=SimpleNamespace(
            buying=SimpleNamespace(find=lambda _name: None),
            bookings=SimpleNamespace(open={"r-1": bobs}),
        ),
    )
    peer = SimpleNamespace(handle=1, user="ann", is_local=True)
    scopes = {Scope.SUBMIT, Scope.CANCEL}
    token = SimpleNamespace(projects=None, allows=lambda scope, *_: scope in scopes)
    holder = asker_of(peer, token, right_to("reserve"), {})
    operator = asker_of(peer, None, right_to("reserve"), {})
    with pytest.raises(CantReserve, match="of yours"):
        await reservation_desk.unreserve(site, holder, {"reservation": "r-1"})
    with pytest.raises(CantReserve, match="is cancelled already"):
        await reservation_desk.unreserve(site, operator, {"reservation": "r-1"})
    with pytest.raises(CantReserve):
        reservation_desk._whose(site, holder, {"who": "user:bob"})
    who, by = reservation_desk._whose(site, operator, {"who": "user:bob"})
    assert (str(who), by.user) == ("user:bob", "bob")
