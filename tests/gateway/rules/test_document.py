"""Rules out of a configuration file, and into it again."""

from datetime import UTC, datetime

import pytest

from gateway.base.values import ConfigError, SettingError
from gateway.config.site import parse, read_file
from gateway.grids.kinds import Installed
from gateway.rules.contents import DEPTH_MAX, to_text
from gateway.rules.document import rules_of, with_rules
from gateway.rules.history import RuleChange, RuleEdit, RuleHistory, RuleKey, RuleKind, difference

FILE = """
[site]
name = "london"

[calendar.london]
holidays = "london.txt"
dates = ["2026-12-24 12:30"]

[[pool]]
name = "risk"
kind = "local"
price = "0.04 USD"
claims = [ { who = "others", borrows = "75%" } ]

[[pool.window]]
name = "night"
from = "22:00"
to = "06:00"
zone = "Europe/London"
calendar = "london"

[[pool.window]]
name = "noon"
from = "12:00"
to = "13:00"
priority = 3

[[pool]]
name = "lab"

[pool.tariff]
step_s = 0.5

[[budget]]
name = "desk"
who = "project:risk"
amount = "10 USD"

[[entitlement]]
allow = "all"
windows = ["night"]
"""
NIGHT = RuleKey(RuleKind.WINDOW, "risk", "night")


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOW_S = at("2026-11-20T00:00")


@pytest.fixture
def file(tmp_path):
    (tmp_path / "london.txt").write_text("2026-12-25 Christmas\n2026-12-28\n")
    path = tmp_path / "gateway.toml"
    path.write_text(FILE)
    return read_file(str(path))


def imported(file, *more):
    edits = difference({}, rules_of(file))
    return RuleHistory([RuleChange(1, NOW_S - 9, NOW_S - 9, "", "file", edits), *more])


def parsed(file, history, utc_s):
    return parse(with_rules(file, rules_of(file), history, utc_s))


def edit(number, key, content, from_s=NOW_S, **more):
    return RuleChange(number, from_s, NOW_S, "ada", "command", (RuleEdit(key, content),), **more)


def test_a_file_with_its_own_rules_is_the_same_configuration_with_the_same_lines(file):
    before, after = parse(file), parsed(file, imported(file), NOW_S)
    assert after == before
    assert [each.place for each in after.pools[0].plan.windows] == ["line 15: ", "line 22: "]
    assert [each.place for each in before.pools[0].plan.windows] == ["line 15: ", "line 22: "]
    assert after.entitlements.rules[0].line == before.entitlements.rules[0].line == 39


def test_holidays_are_among_the_dates_of_their_calendar_once_they_are_rules(file):
    [london] = [each for key, each in rules_of(file).items() if key.kind is RuleKind.CALENDAR]
    assert london == {"dates": ["2026-12-25", "2026-12-28", "2026-12-24 12:30"]}


def test_another_rule_takes_the_place_of_that_of_the_file(file):
    earlier = [{"name": "night", "from": "20:00", "to": "06:00"}]
    history = imported(
        file,
        edit(2, NIGHT, earlier),
        edit(3, RuleKey(RuleKind.PRICE, "risk"), "0.08 USD"),
        edit(4, RuleKey(RuleKind.BUDGET, "", "desk"), None),
        edit(5, RuleKey(RuleKind.CLAIMS, "lab"), [{"who": "others", "borrows": 0}]),
    )
    found = parsed(file, history, NOW_S)
    risk, lab = found.pools
    night, noon = risk.plan.windows
    assert (night.when.from_s, night.place) == (20 * 3600, "")
    assert noon.place == "line 22: "
    assert (risk.price, found.budgets) == ("0.08 USD", ())
    assert not lab.plan.base.is_trivial
    assert parse(file).pools[1].plan.base.is_trivial


def test_a_planned_window_is_in_the_plan_before_its_time(file):
    change_s = at("2026-12-01T00:00")
    closed = [{"name": "night", "from": "00:00", "to": "24:00"}]
    holiday = edit(2, NIGHT, closed, change_s, until_s=at("2026-12-03T00:00"))
    end = RuleChange(3, at("2026-12-03T00:00"), NOW_S, "ada", "command", ends=2)
    plan = parsed(file, imported(file, holiday, end), NOW_S).pools[0].plan
    opened = [
        datetime.fromtimestamp(span.from_s, UTC).strftime("%dT%H")
        for span in plan.spans(at("2026-11-30T12:00"), at("2026-12-04T12:00"))
        if span.window is not None and span.window.name == "night"
    ]
    # Until 1 December and from the 3rd on by night; in between always, but for the noon window.
    assert opened == ["30T22", "01T00", "01T13", "02T13", "03T00", "03T22"]


def test_a_pool_that_the_file_has_no_more_has_no_rules(file):
    history = imported(file, edit(2, RuleKey(RuleKind.PRICE, "gone"), "9 USD"))
    assert [each.name for each in parsed(file, history, NOW_S).pools] == ["risk", "lab"]


def test_what_json_has_no_form_for_is_refused():
    nested = []
    for _ in range(DEPTH_MAX + 1):
        nested = [nested]
    for content in ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, {"slots": float("inf")}, nested):
        with pytest.raises(SettingError):
            to_text(content)


GROWN = """
[[pool]]
name = "cloud"
kind = "processes"

[pool.scale]
min = 2
max = 40
start = "5s"
markup = 1.2
dial_for = "2m"
"""
SCALE = RuleKey(RuleKind.SCALE, "cloud")


@pytest.fixture
def grown(tmp_path):
    path = tmp_path / "grown.toml"
    path.write_text(GROWN)
    return read_file(str(path))


def test_how_a_pool_grows_is_a_rule_and_its_pilots_are_not(grown):
    assert rules_of(grown) == {SCALE: {"min": 2, "max": 40, "markup": 1.2}}
    larger = edit(2, SCALE, {"max": 400, "dry_run": True}, from_s=NOW_S + 10)
    history = imported(grown, larger)

    def scale(utc_s):
        file = with_rules(grown, rules_of(grown), history, utc_s)
        [pool] = parse(file, Installed()).pools
        return pool.scale, file.places.get(("pool", 0, "scale", "max"))

    before, line = scale(NOW_S)
    assert (before.rules.slots_min, before.rules.slots_max, before.markup, line) == (2, 40, 1.2, 8)
    after, line = scale(NOW_S + 10)
    assert (after.rules.slots_min, after.rules.slots_max, after.markup, line) == (
        0,
        400,
        None,
        None,
    )
    assert after.dry_run
    assert (before.start_s, before.dial_for_s) == (after.start_s, after.dial_for_s) == (5.0, 120.0)


def test_a_pool_of_a_grid_is_nothing_without_a_rule_for_its_size(grown):
    history = imported(grown, edit(2, SCALE, None))
    with pytest.raises(ConfigError, match=r"line 6: .*max is missing"):
        parse(with_rules(grown, rules_of(grown), history, NOW_S), Installed())
