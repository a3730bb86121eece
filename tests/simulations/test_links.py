"""Links over the simulated network keep their promises about sites that break the protocol."""

import re

import pytest

from federation.messages.messages import Ask
from simulations.scenarios import SCENARIOS
from simulations.world.gateway import Gateway
from simulations.world.world import World


@pytest.fixture
def world() -> World:
    world = World(SCENARIOS["lost_site"](7), 7, invariants=())
    for name in ("london", "paris"):
        world.sites[name].start()
    return world


def _links(world: World):
    site = world.sites["london"]
    assert isinstance(site, Gateway)
    assert site.peers is not None
    return site.peers.links


def test_a_site_that_breaks_the_protocol_is_dialled_ever_more_seldom(world: World) -> None:
    links, waits_s = _links(world), []
    for _ in range(5):
        since_s = world.clock.now_s
        world.clock.run(since_s + 60.0, lambda: "paris" in links.up, look_s=0.01)
        waits_s.append(world.clock.now_s - since_s)
        links.punish("paris", "nonsense")
        links.keep(["paris"])
    assert waits_s[1:] == pytest.approx([1, 2, 4, 8], abs=0.5)
    told = [each.note for each in world.trace.entries if each.what == "loses a link"]
    assert told[2] == "to paris: nonsense; in back-off for 4 s"


def test_a_gateway_that_makes_no_sense_is_dialled_ever_more_seldom(world: World) -> None:
    links, dials = _links(world), []
    network = world.network
    dial = network.dial

    def watched(source, target, *rest):
        link = dial(source, target, *rest)
        if (source, target) == ("london", "paris"):
            dials.append(world.clock.now_s)
            link.receive = lambda: [b"\xc1"]
        return link

    network.dial = watched
    links.keep(["paris"])
    world.clock.run(20.0, lambda: False)
    assert 3 <= len(dials) <= 6
    assert "protocol error" in next(e.note for e in world.trace.entries if e.what == "hangs up")


def test_what_is_posted_to_a_site_that_broke_the_protocol_waits_not_for_ever(world: World) -> None:
    links = _links(world)
    for _ in range(8):
        links.punish("paris", "nonsense")
    links.post("paris", Ask(1, "status", {}))
    world.clock.run(40.0, lambda: False)
    told = [each.note for each in world.trace.entries if each.what == "loses a link"]
    assert any(re.search(r"in back-off for [\w. ]+: nonsense", each) for each in told)
    assert "paris" not in links.up
