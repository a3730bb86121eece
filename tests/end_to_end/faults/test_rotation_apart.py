"""Keys that are rotated while sites are parted: they meet again by themselves."""

import contextlib
import json

import pytest
from support.members import MemberSite, federate, run
from support.processes import wait_until

from gateway.trust.identity_store import TRUST_FILE
from gateway.trust.keys import drop_retired

pytestmark = [pytest.mark.slow, pytest.mark.real]

TIMES = {"rotation_spread_s": 2.0, "rotation_overlap_s": 2.0, "give_up_s": 5.0}


def make(folder, name):
    member = MemberSite(folder, name, 1, "0.01 USD", start=False)
    text = member.config.read_text()
    for key, value in TIMES.items():
        assert f"# {key} = " in text
        text = text.replace(f"# {key} = ", f"{key} = {value} # ")
    member.config.write_text(text)
    member.start()
    return member


def fingerprint(member):
    """Its own, as its operator reads it."""
    return next(
        line.split()[2] for line in run("known", *member.where).splitlines() if " self " in line
    )


def knows(member, other):
    """Whether it holds the newest card of another."""
    return fingerprint(other) in run("known", *member.where)


@contextlib.contextmanager
def federated(folder, *names):
    """Sites that have met."""
    members = []
    try:
        for name in names:
            members.append(make(folder, name))
        for member in members:
            wait_until(lambda m=member: "other gateways connect at" in m.gateway.text(), "its port")
            member.keep_port()
        federate(*members)
        yield members
    finally:
        for member in members:
            member.gateway.stop()


@pytest.fixture
def sites(tmp_path):
    """London and Paris, a federation."""
    with federated(tmp_path, "london", "paris") as members:
        yield members


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_sites_that_were_parted_in_a_rotation_meet_again(sites, force):
    london, paris = sites
    old = fingerprint(london)
    paris.gateway.kill()
    assert "paris" in run("rotate", *force, *london.where)
    if force:
        wait_until(lambda: "have replaced the old" in london.gateway.text(), "the new keys")
        assert fingerprint(london) != old
    london.gateway.kill()
    london.start()
    if not force:
        assert "awaited: paris" in run("known", *london.where)
    paris.start()
    wait_until(lambda: fingerprint(london) != old, "the new keys")
    wait_until(lambda: knows(paris, london), "the new card")
    wait_until(
        lambda: "site paris is alive" in london.gateway.text(), "that London sees Paris again"
    )
    with london.client() as client:
        assert client.options(sites=["paris"]).submit(abs, -3).result(timeout=200) == 3


def leave_as_earlier(member):
    """Make its folder as a rotation by commit af22feb left it: without older keys."""
    folder = member.folder / "federation"
    drop_retired(folder)
    path = folder / TRUST_FILE
    book = json.loads(path.read_text())
    for each in (book["own"], *book["sites"].values()):
        del each["acknowledged"]
    path.write_text(json.dumps(book))


def test_a_site_that_an_earlier_version_has_locked_out_is_met_again(tmp_path):
    """The others, which were started since, have not heard of it, and let none of its dials in."""
    with federated(tmp_path, "london", "paris", "tokyo") as members:
        london, *others = members
        old = fingerprint(london)
        for other in others:
            other.gateway.kill()
        run("rotate", "--force", *london.where)
        wait_until(lambda: "have replaced the old" in london.gateway.text(), "the new keys")
        london.gateway.kill()
        leave_as_earlier(london)
        for member in members:
            member.start()
        assert fingerprint(london) != old
        for other in others:
            wait_until(lambda o=other: knows(o, london), "the new card")
            with other.client() as client:
                assert client.options(sites=["london"]).submit(abs, -3).result(timeout=200) == 3
