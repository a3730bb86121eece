"""One rule for units: every key that has a unit in its name takes plain numbers, and texts too."""

from dataclasses import fields

import pytest

from gateway.base.values import ConfigError
from gateway.config.alerts import AlertPace
from gateway.config.books import BookRules
from gateway.config.carbon import HttpConfig
from gateway.config.contracts import DealRules
from gateway.config.environments import EnvironmentRules
from gateway.config.federation import FederationConfig
from gateway.config.limits import LIMITS
from gateway.config.reservations import KEYS as OF_RESERVATIONS
from gateway.config.site import SiteConfig, load
from gateway.grids.kinds import Installed
from gateway.grids.symphony.settings import SymphonySettings
from policies.placement.asks import Preferences

SYMPHONY = """\
[[pool]]
name = "p"
kind = "symphony"
[pool.symphony]
way = "rest"
application = "a"
url = "https://sym:8050"
login_file = "/etc/gridfed/login"
slots = 4"""
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
    (SYMPHONY, [each.name for each in fields(SymphonySettings)]),
]
ENDS_OF_TIMES = ("_s", "hours", "_days")
TIMES = [(t, k) for t, ks in TABLES for k in ks if k.endswith(ENDS_OF_TIMES) and "_per_" not in k]
SIZES = [(table, key) for table, keys in TABLES for key in keys if "bytes" in key]


def told(tmp_path, table, key, value):
    """What is said of a value; empty if it is taken."""
    path = tmp_path / "gateway.toml"
    path.write_text(f"{table}\n{key} = {value}\n")
    try:
        load(str(path), Installed())
    except ConfigError as error:
        return str(error)
    return ""


def test_the_keys_are_found():
    assert len(TIMES) >= 40, TIMES
    assert len(SIZES) >= 12, SIZES


@pytest.mark.parametrize(("table", "key"), TIMES)
def test_a_time_is_a_number_of_the_unit_in_its_name_or_has_a_unit(tmp_path, table, key):
    """A value out of the key's bounds is told so, and is not refused for its form."""
    for value in ("3", '"3 s"', '"04:00:00"', '"2h"'):
        said = told(tmp_path, table, key, value)
        assert not said or f"{key} is " in said, said
    assert "is not a length of time" in told(tmp_path, table, key, '"soon"')


@pytest.mark.parametrize(("table", "key"), SIZES)
def test_a_size_is_a_number_of_bytes_or_has_a_unit(tmp_path, table, key):
    for value in ("1073741824", '"1 GiB"', '"500M"'):
        said = told(tmp_path, table, key, value)
        assert not said or f"{key} is " in said, said
    assert "is not a size" in told(tmp_path, table, key, '"large"')
