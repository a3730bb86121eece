"""Pinned leaves on real sockets: mutual TLS by nng lets in the leaves in the book, and no other."""

import select
import threading
import time
from dataclasses import replace

import pytest
from support.processes import Relay, wait_until

from federation.sessions.nng import NngLink, NngPort
from federation.transport import TlsSettings
from gateway.trust.certificates import fetch_leaf, make_leaf
from gateway.trust.keys import Generation, dialler_tls, write_leaf, write_pins

pytestmark = [pytest.mark.slow, pytest.mark.real]

DEADLINE_S = 200.0
NOW_S = time.time()


class Gateway:
    """A site's folder, and the sockets that it opens with it."""

    def __init__(self, folder, site, valid_s=86400.0, now_s=NOW_S, hosts=()):
        self.folder = folder
        self.site = site
        self.leaf = make_leaf(site, hosts, now_s, valid_s)
        self.show(self.leaf)

    def show(self, leaf):
        write_leaf(self.folder, Generation(bytes(32), leaf))

    def believe(self, *others, leaves=None):
        pins = {each.site: (each.leaf.certificate,) for each in (self, *others)}
        return write_pins(self.folder, {**pins, **(leaves or {})})

    def listen(self, changed):
        tls = TlsSettings(str(self.folder / "leaf.pem"), str(self.folder / "pins.pem"))
        return NngPort(["tls+tcp://127.0.0.1:0"], changed, tls)

    def dial(self, address, site, changed, **changes):
        return NngLink(address, changed, replace(dialler_tls(self.folder, site), **changes))


@pytest.fixture
def gateways(tmp_path):
    london = Gateway(tmp_path / "london", "london")
    paris = Gateway(tmp_path / "paris", "paris")
    london.believe(paris)
    paris.believe(london)
    return london, paris


@pytest.fixture
def opened():
    """Closes the sockets that a test opened."""
    made = []
    yield lambda each: made.append(each) or each
    for each in reversed(made):
        each.close()


def nothing():
    """The tests look for themselves."""


def comes_through(port, link):
    """Whether a frame of the link arrives at the port, before the link has failed for good."""
    until = time.monotonic() + DEADLINE_S
    sent = False
    while time.monotonic() < until:
        if link.is_up and not sent:
            sent = link.send(b"hello")
        if port.receive():
            return True
        if link.is_lost:
            return bool(port.receive())
        select.select([port.fileno()], [], [], 0.05)
    raise AssertionError("neither in nor out")


def stays_out(port, dial):
    """Nothing of a link arrives: it is cut off, dials again, and is cut off again."""
    with Relay(port.addresses[0]) as relay:
        link = dial(relay.address)

        def is_cut_twice():
            if link.is_up:
                link.send(b"let me in")
            assert port.receive() == []
            return relay.cut >= 2

        wait_until(is_cut_twice, "the refusal")


def test_a_pinned_site_comes_in(gateways, opened):
    london, paris = gateways
    port = opened(london.listen(nothing))
    assert comes_through(port, opened(paris.dial(port.addresses[0], "london", nothing)))


def test_a_site_with_its_next_leaf_comes_in_while_both_are_pinned(gateways, opened):
    london, paris = gateways
    following = make_leaf("paris", [], NOW_S)
    london.believe(leaves={"paris": (paris.leaf.certificate, following.certificate)})
    port = opened(london.listen(nothing))
    assert comes_through(port, opened(paris.dial(port.addresses[0], "london", nothing)))
    paris.show(following)
    assert comes_through(port, opened(paris.dial(port.addresses[0], "london", nothing)))


def test_a_listener_with_its_next_leaf_is_believed_while_both_are_pinned(gateways, opened):
    london, paris = gateways
    following = make_leaf("london", [], NOW_S)
    paris.believe(leaves={"london": (london.leaf.certificate, following.certificate)})
    london.show(following)
    port = opened(london.listen(nothing))
    assert comes_through(port, opened(paris.dial(port.addresses[0], "london", nothing)))


def test_no_certificate_no_entry(gateways, opened):
    london, paris = gateways
    port = opened(london.listen(nothing))
    stays_out(port, lambda at: opened(paris.dial(at, "london", nothing, certificate_file=None)))


def test_another_key_under_a_pinned_name_stays_out(gateways, opened):
    london, paris = gateways
    port = opened(london.listen(nothing))
    paris.show(make_leaf("paris", [], NOW_S))
    stays_out(port, lambda at: opened(paris.dial(at, "london", nothing)))


def test_a_site_that_is_not_pinned_stays_out(gateways, opened, tmp_path):
    london, _ = gateways
    lyon = Gateway(tmp_path / "lyon", "lyon")
    lyon.believe(london)
    port = opened(london.listen(nothing))
    stays_out(port, lambda at: opened(lyon.dial(at, "london", nothing)))


def test_an_expired_leaf_stays_out(gateways, opened, tmp_path):
    london, _ = gateways
    lyon = Gateway(tmp_path / "lyon", "lyon", valid_s=60.0, now_s=NOW_S - 3600)
    lyon.believe(london)
    london.believe(lyon)
    port = opened(london.listen(nothing))
    stays_out(port, lambda at: opened(lyon.dial(at, "london", nothing)))


def test_a_leaf_of_tomorrow_stays_out(gateways, opened, tmp_path):
    london, _ = gateways
    lyon = Gateway(tmp_path / "lyon", "lyon", now_s=NOW_S + 86400)
    lyon.believe(london)
    london.believe(lyon)
    port = opened(london.listen(nothing))
    stays_out(port, lambda at: opened(lyon.dial(at, "london", nothing)))


def test_a_listener_with_another_key_is_not_believed(gateways, opened):
    london, paris = gateways
    london.show(make_leaf("london", [], NOW_S))
    port = opened(london.listen(nothing))
    stays_out(port, lambda at: opened(paris.dial(at, "london", nothing)))


def test_a_pinned_site_does_not_pass_for_another_by_a_name_in_its_leaf(gateways, opened, tmp_path):
    london, paris = gateways
    lyon = Gateway(tmp_path / "lyon", "lyon", hosts=["london"])
    lyon.believe(paris)
    paris.believe(london, lyon)
    port = opened(lyon.listen(nothing))
    stays_out(port, lambda at: opened(paris.dial(at, "london", nothing)))
    assert comes_through(port, opened(paris.dial(port.addresses[0], "lyon", nothing)))


def test_an_unpinned_site_is_out_once_the_port_is_opened_anew(gateways, opened):
    london, paris = gateways
    port = london.listen(nothing)
    assert comes_through(port, opened(paris.dial(port.addresses[0], "london", nothing)))
    port.close()
    london.believe()
    port = opened(london.listen(nothing))
    stays_out(port, lambda at: opened(paris.dial(at, "london", nothing)))


def test_a_joiner_can_fetch_the_leaf_of_a_listener_that_asks_for_none(gateways, opened):
    london, paris = gateways
    tls = TlsSettings(str(london.folder / "leaf.pem"))
    port = opened(NngPort(["tls+tcp://127.0.0.1:0"], nothing, tls))
    host, _, number = port.addresses[0].removeprefix("tls+tcp://").rpartition(":")
    fetched = []
    thread = threading.Thread(target=lambda: fetched.append(fetch_leaf(host, int(number), 10)))
    thread.start()
    thread.join(DEADLINE_S)
    assert fetched == [london.leaf.certificate]
    assert comes_through(port, opened(paris.dial(port.addresses[0], "london", nothing)))
