"""One rule for units: every key that has a unit in its name takes plain numbers, and texts too."""

from dataclasses import fields

import pytest
from contracts.units import check_size, check_time, sizes, times

from gateway.config.alerts import AlertPace
from gateway.config.books import BookRules
from gateway.config.carbon import HttpConfig
from gateway.config.contracts import DealRules
from gateway.config.environments import EnvironmentRules
from gateway.config.federation import FederationConfig
from gateway.config.limits import LIMITS
from gateway.config.reservations import KEYS as OF_RESERVATIONS
from gateway.config.site import SiteConfig
from policies.placement.asks import Preferences

WINDOW = '[[pool]]\nname = "p"\n[[pool.window]]\nname = "w"'
HTTP = '[[pool]]\nname = "p"\n[pool.carbon.http]\nurl = "https://h/x"\nvalue = "v"'
TABLES = [
    ("[site]", [each.name for each in fields(SiteConfig) if each.name == "database_wait_s"]),
    ("[limits]", LIMITS),
    ("[federation]", [each.name for each in fields(FederationConfig)]),
    ("[contracts]", [each.name for each in fields(DealRules) if each.name != "grace_s"]),
    ("[placement]", [each.name for each in fields(Preferences)]),
    ("[books]", [each.name for each in fields(BookRules) if each.name != "day_ms"]),
    ("[alerts]", [each.name for each in fields(AlertPace)]),
    ("[reservations]", OF_RESERVATIONS),
    ('[[pool]]\nname = "p"\nkind = "local"', ["memory_bytes"]),
    ('[[pool]]\nname = "p"\nkind = "local"\n[pool.environments]', EnvironmentRules.__slots__),
    ('[[budget]]\nname = "b"\namount = "1 USD"', ["unknown_s", "slice_s"]),
    ('[[alert]]\nname = "a"\nkind = "unacknowledged"', ["hours"]),
    (WINDOW, ["drain_lead_s", "grace_s", "spill_s"]),
    (f'{WINDOW}\ncron = "0 2 * * *"', ["lasts_s"]),
    ('[[pool]]\nname = "p"\n[pool.tariff]', ["step_s"]),
    (HTTP, [each.name for each in fields(HttpConfig)]),
]
TIMES = [(table, key) for table, keys in TABLES for key in times(sorted(keys))]
SIZES = [(table, key) for table, keys in TABLES for key in sizes(sorted(keys))]


def test_the_keys_are_found():
    assert len(TIMES) >= 37, TIMES
    assert len(SIZES) >= 12, SIZES


@pytest.mark.parametrize(("table", "key"), TIMES)
def test_a_time_is_a_number_of_the_unit_in_its_name_or_has_a_unit(tmp_path, table, key):
    check_time(tmp_path, table, key)


@pytest.mark.parametrize(("table", "key"), SIZES)
def test_a_size_is_a_number_of_bytes_or_has_a_unit(tmp_path, table, key):
    check_size(tmp_path, table, key)
