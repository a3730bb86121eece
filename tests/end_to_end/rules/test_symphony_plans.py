"""A plan of Symphony's takes the place of a pool's windows."""

import pytest
from support.answers import answer
from support.command import quick

pytestmark = pytest.mark.real

CONFIG = """\
[site]
name = "london"

[[pool]]
name = "local"
kind = "local"
slots = 1

[[pool.window]]
name = "night"
from = "22:00"
to = "06:00"
"""
PLAN = """\
consumer,from,to,owned,lends,borrows
/Risk,18:00,08:00,80,,0
/Risk,08:00,18:00,20,10,
"""


def test_a_symphony_plan_takes_the_place_of_the_windows_that_were(make_site):
    site = make_site(0, config=CONFIG)

    def gridfed(*arguments, code=0):
        text = quick(*arguments, code=code, GRIDFED_GATEWAY=site.address)
        return answer(text) if "--json" in arguments else text

    plan = site.folder / "plan.csv"
    plan.write_text(PLAN)
    tables = site.folder / "plan.toml"
    tables.write_text(quick("symphony", "windows", str(plan), "--pool", "local"))
    gridfed("rules", "apply", str(tables), "--replace-windows", "--source", "symphony plan")
    found = gridfed("window", "list", "--json")["rows"]
    assert "night" not in {each["name"] for each in found}
    assert {each["change"]["source"] for each in found} == {"symphony plan"}
    assert found[0]["content"][0]["claims"][0]["who"] == "project:risk"
    refused = gridfed("rules", "apply", str(tables), "--source", "file", code=1)
    assert "source must be" in refused
