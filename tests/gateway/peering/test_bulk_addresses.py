"""Where a site's bulk port may be dialled (gateway.peering.bulk_addresses)."""

import pytest

from federation.clocks import UtcS
from gateway.peering.bulk_addresses import ADDRESSES_MAX, WITHIN_S, BulkAddresses

PORT = "tls+tcp://gw.london:7464"
NOW_S = UtcS(1_000.0)


def ways(advertised="", card=("tls+tcp://gw.london:7463",)):
    return BulkAddresses(lambda _site: advertised, lambda _site: card)


@pytest.mark.parametrize(
    "address", [PORT, "tls+tcp://127.0.0.1:22", "tls+tcp://gw.london:22", "tls+tcp://10.0.0.1:7464"]
)
def test_the_address_of_the_advert_alone_is_dialled(address):
    found = ways(PORT).why_not("london", address, NOW_S)
    assert (found == "") is (address == PORT)


@pytest.mark.parametrize(
    ("address", "is_good"),
    [
        (PORT, True),
        ("tls+tcp://127.0.0.1:7464", False),
        ("tls+tcp://localhost:7464", False),
        ("tls+tcp://[::1]:7464", False),
        ("tls+tcp://192.168.0.1:7464", False),
        ("tls+tcp://db.paris:5432", False),
    ],
)
def test_a_site_of_an_older_version_has_it_at_a_host_of_its_card(address, is_good):
    assert ways().is_named("london", address) is is_good
    assert not ways(card=()).is_named("london", address)


def test_few_addresses_of_a_site_are_dialled_in_an_hour():
    """Each advert may name another one: a scan of ports by adverts, if a slow one."""
    now: list[str] = []
    found = BulkAddresses(lambda _site: now[-1], lambda _site: ())

    def why_not(port, at_s=NOW_S, site="london"):
        now.append(f"tls+tcp://gw.london:{port}")
        return found.why_not(site, now[-1], at_s)

    assert not any(why_not(port) for port in range(1, ADDRESSES_MAX + 1))
    assert "has named over 8 bulk ports within an hour" in why_not(100)
    assert not why_not(1)
    assert not why_not(100, site="paris")
    assert not why_not(100, UtcS(NOW_S + WITHIN_S))
