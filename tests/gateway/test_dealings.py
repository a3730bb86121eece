"""What a site does about its links to others: whom it keeps, and what a closed one means."""

from types import SimpleNamespace

import pytest
from town import UTC_S, dear_and_cheap

from federation import deals
from gateway.dealings import Dealings
from gateway.links import LinkDown
from gateway.surroundings import Surroundings
from policies.asks import Wishes
from simulations.world.peers import Roll

ABROAD = Wishes(allowed_sites=frozenset({"paris"}))


class Office:
    """London's dealings; whom it keeps a link to is in `kept`."""

    def __init__(self) -> None:
        self.town = dear_and_cheap()
        self.london = self.town.sites["london"]
        self.kept: list[str] = []
        peers = SimpleNamespace(
            registry=Roll("london", ["paris"], 1),
            links=SimpleNamespace(up=[], post=lambda site, message, *, urgent=False: None),
            directory=SimpleNamespace(may_dial=lambda site: True),
            keep=lambda sites: setattr(self, "kept", list(sites)),
            flush=lambda now_s: None,
        )
        reception = SimpleNamespace(
            exchange=self.london.exchange,
            outbox=SimpleNamespace(carrier=None),
            config=SimpleNamespace(federation=None, shows=()),
        )
        clock = Surroundings(lambda: self.town.now_s, lambda: UTC_S + self.town.now_s, bytes)
        self.dealings = Dealings(peers, reception, clock, print)  # type: ignore[arg-type]


@pytest.fixture
def office():
    return Office()


def test_the_links_to_sellers_are_kept_as_long_as_there_is_a_contract(office):
    office.dealings.tick()
    assert "paris" not in office.kept
    office.london.submit(8, wishes=ABROAD)
    office.town.deliver()
    office.dealings.tick()
    assert "paris" in office.kept
    office.town.run(lambda: len(office.london.answers()) == 8)
    office.town.pass_time(30.0)
    assert office.london.exchange.purchases.sellers == set()
    office.dealings.tick()
    assert "paris" not in office.kept


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_site_whose_idle_link_we_closed_is_asked_all_the_same(office, is_idle):
    office.dealings.hear_link(LinkDown("paris", "it is over", is_idle))
    office.london.submit(8, wishes=ABROAD)
    office.town.deliver()
    asked = [m for *_, m in office.town.said if isinstance(m, deals.AskQuote)]
    assert bool(asked) == is_idle
