"""Symphony's table follows the rule of all tables for keys with a unit in their names."""

from dataclasses import fields

import pytest
from contracts.units import check_time, times

from gateway.grids.symphony.settings import SymphonySettings

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
KEYS = [each.name for each in fields(SymphonySettings)]


@pytest.mark.parametrize("key", times(KEYS))
def test_a_time_is_a_number_of_the_unit_in_its_name_or_has_a_unit(tmp_path, key):
    check_time(tmp_path, SYMPHONY, key)
