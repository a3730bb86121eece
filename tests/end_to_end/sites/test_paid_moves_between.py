"""Objects that move between two real sites are on the bill: both have the same, by receipt."""

import sys

import cloudpickle
import numpy as np
import pytest
from support.members import MemberSite, federated, run
from support.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.real]
cloudpickle.register_pickle_by_value(sys.modules[__name__])
WAIT_S = 300.0
RECEIVE_NANOS, SEND_NANOS = 10_000_000_000, 90_000_000_000  # of a GB
PRICES = '\n[objects]\nreceive = "10 USD/GB"\nsend = "90 USD/GB"\n'


def scaled(array, factor):
    """A result as large as its input."""
    return np.random.default_rng(factor).random(array.size) + array


@pytest.fixture
def pair(tmp_path):
    members = (
        MemberSite(tmp_path, "london", 1, "4 USD"),
        MemberSite(tmp_path, "paris", 2, "0.04 USD", PRICES),
    )
    with federated(*members):
        yield members


def by_kind(site):
    """Bytes moved, and their cost, by the report of a site."""
    found = site.ask("report", kind="cost", by=["kind"], whose="all")
    names = [found["columns"].index(name) for name in ("kind", "moved_bytes", "cost_nanos")]
    rows = [[row[at] for at in names] for row in found["rows"]]
    return [tuple(row[1:]) for row in rows if row[0] == "moved"]


def stated(site, other):
    """What the other one owes, by the statement of a site, in nano-units."""
    found = site.ask("statement", sites=[other])
    at = found["columns"].index("balance_nanos")
    return [row[at] for row in found["rows"]]


def restarted(site):
    """Kill -9 of its gateway; it starts again at the same address, and the sites meet."""
    site.gateway.kill()
    site.start()


def test_both_sites_bill_what_has_moved_by_its_receipt(pair):
    london, paris = pair
    with london.client() as client:
        array = np.random.default_rng(1).random(1_000_000)
        ref = client.put(array)
        there = client.options(sites=["paris"])
        found = there.submit(scaled, ref, 2).result(WAIT_S)
        assert found.size == array.size
    least = array.nbytes * (RECEIVE_NANOS + SEND_NANOS) // 10**9

    def agree():
        ours, theirs = by_kind(london), by_kind(paris)
        return ours == theirs and len(ours) == 1 and ours[0][1] >= least

    wait_until(agree, "both have the same bytes and money")
    [(moved, cost)] = by_kind(london)
    assert 2 * array.nbytes <= moved < 2 * array.nbytes + 20_000
    assert least <= cost < least * 101 // 100
    for site in pair:
        restarted(site)
    wait_until(lambda: stated(london, "paris") and stated(paris, "london"), "statements")
    wait_until(
        lambda: stated(london, "paris") == [-each for each in stated(paris, "london")],
        "equal statements",
    )
    assert by_kind(london) == by_kind(paris) == [(moved, cost)]
    assert -stated(london, "paris")[0] > cost  # the slot time is in it, too
    for site in pair:
        run("audit", "--config", str(site.config))
