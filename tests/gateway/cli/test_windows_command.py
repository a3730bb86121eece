"""`[[pool.window]]` and `[calendar.*]` of a file, and the output of `gridfed windows`."""

import os

import click
import pytest
from click.testing import CliRunner
from support.answers import answer

from gateway.base.values import ConfigError
from gateway.cli.inspect import windows as windows_command
from gateway.cli.main import cli
from gateway.cli.operate.rules import window
from gateway.cli.operate.rules.window import by_option
from gateway.config.site import load
from policies.access.claims import Amount, Claim, Claims
from policies.parties import OTHERS, Owner, read_party

FILE = """\
[site]
name = "london"

[calendar.london]
holidays = "london.txt"
dates = ["2026-12-24 12:30"]

[[pool]]
name = "fast"
claims = [ { who = "others", borrows = "50%" } ]

[[pool.window]]
name = "risk run"
days = "business"
from = "17:00"
to = "23:00"
zone = "Europe/London"
calendar = "london"
follows_work = true
never = ["2026-11-27"]
drain_lead_s = 600
grace_s = 30
claims = [
  { who = "others", borrows = 0 },
  { who = "project:risk", guaranteed = "80%", lends = 0 },
]

[[pool.window]]
name = "month end"
days = "business -1"
from = "12:00"
priority = 5
price_factor = 1.5
preempt = false

[[pool.window]]
name = "batch"
cron = "0 2 * * sat"
lasts_s = 14400

[[pool]]
name = "slow"
"""


@pytest.fixture
def write(tmp_path):
    """Write the file, with something in it replaced; its path."""

    def write(old="", new="", holidays="2026-12-25\n"):
        assert old in FILE
        (tmp_path / "london.txt").write_text(holidays)
        path = tmp_path / "gateway.toml"
        path.write_text(FILE.replace(old, new, 1) if old else FILE)
        return str(path)

    return write


def windows(*options):
    return CliRunner().invoke(cli, ["windows", *options])


def holds(path, *options):
    done = windows("--config", path, "--json", *options)
    assert done.exit_code == 0, done.output
    found = {each["pool"]: each["holds"] for each in answer(done.stdout)["rows"]}
    return [(each["window"], each["instead_of"]) for each in found["fast"]]


def test_a_file_is_read(write):
    fast, slow = load(write()).pools
    assert slow.plan.is_trivial
    assert fast.plan.base == Claims((Claim(OTHERS, borrows=Amount(part=5_000)),))
    run, month_end, batch = fast.plan.windows
    assert run.claims.named[1] == Claim(
        read_party("project:risk"), Amount(part=8_000), lends=Amount(0)
    )
    assert (run.drain_lead_s, run.grace_s, run.preempts, run.place) == (600, 30, True, "line 12: ")
    assert (month_end.price_factor, month_end.preempts) == (1_500_000, False)
    assert (batch.when.fields, batch.when.lasts_s) == ("0 2 * * sat", 14_400)
    assert run.claims.levels(10)[run.claims.of(Owner("b@x", site="x"))].most == 0


@pytest.mark.parametrize(
    ("moment", "row"),
    [
        ("2026-11-25T16:59:59", (None, [])),
        ("2026-11-25T17:00", ("risk run", [])),
        ("2026-11-27T18:00", (None, [])),  # never then
        ("2026-11-28T03:00", ("batch", [])),
        ("2026-11-30T18:00", ("month end", ["risk run"])),
        ("2026-12-24T12:30", ("risk run", [])),  # a half day
        ("2026-12-25T18:00", (None, [])),  # a holiday, by the file
    ],
)
def test_what_holds_at_a_moment_and_who_does_not(write, moment, row):
    assert holds(write(), "--at", moment) == [row]


def test_what_holds_in_time_to_come(write):
    found = holds(write(), "--at", "2026-11-28", "--next", "4d")
    names = [name for name, _ in found]
    assert names == [None, "batch", None, "month end", None, "risk run", None]


def test_people_see_times_there_and_who_may_use_what(write):
    done = windows("fast", "--config", write(), "--at", "2026-11-30", "--next", "2d")
    assert done.exit_code == 0
    assert "Tue 17:00 GMT" in done.stdout
    assert "Tue 23:00 GMT" in done.stdout  # when it ends, too
    assert "project:risk: guaranteed 80%, lends 0 of it" in done.stdout
    assert "risk run (priority 0): business, 17:00 to 23:00 Europe/London" in done.stdout
    assert "slow" not in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            'to = "23:00"',
            'to = "17:00"',
            "line 12: [[pool.window]] 'risk run' of fast: a window ends when it begins",
        ),
        ('"Europe/London"', '"Europe/Lodnon"', "zone: 'Europe/Lodnon' is not a time zone"),
        ('calendar = "london"', 'calendar = "paris"', "calendar 'paris' not found; known "
         "calendars: london"),
        ("priority = 5", 'days2 = "mon"', "line 32: [[pool.window]] 'month end' of fast: unknown "
         "key 'days2'"),
        ('"others", borrows = 0', '"other", borrows = 0', "claims[1].who: 'other' is not a party"),
        ("80%", "180%", "claims[2].guaranteed: '180%' is not a number of slots"),
        ('name = "batch"', 'name = "risk run"', "line 8: [[pool]] fast: two windows are named"),
        ('name = "batch"', "", "it needs a name of 1 to 60"),
        ("0 2 * * sat", "0 2 * * 6", "cron: days of the week must be names"),
        ("0 2 * * sat", "0 2 30 feb *", "cron: '0 2 30 feb *' never occurs"),
        ("lasts_s = 14400", "", "lasts_s must be a number"),
        ("lasts_s = 14400", 'lasts_s = 14400\nto = "04:00"', "cron and to exclude each other"),
        ("grace_s = 30", "grace_s = 30\nlasts_s = 60", "lasts_s needs cron"),
        ('days = "business"', 'days = "busy"', "days: 'busy' is not a set of days"),
        ("2026-11-27", "27.11.2026", "never: '27.11.2026' is not a date"),
        ("drain_lead_s = 600", "drain_lead_s = -1", "drain_lead_s is -1"),
        ('holidays = "london.txt"', 'holidays = "rome.txt"', "rome.txt: it can't be read"),
        ("12:30", "12.30", "line 6: [calendar.london]: dates: line 1: '12.30' is not a time"),
        ('"50%"', '"half"', "line 10: [[pool]] fast: claims[1].borrows: 'half' is not a number"),
        ("follows_work = true", 'follows_work = "yes"', "follows_work must be true or false"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_said_with_its_line(write, old, new, complaint):
    path = write(old, new)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert complaint in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_rubbish_in_a_holiday_file_is_said_with_both_lines(write):
    with pytest.raises(
        ConfigError, match=r"line 5: \[calendar.london\]: holidays, .*: line 2: 'x'"
    ):
        load(write(holidays="2026-12-25\nx\n"))


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("~nobody-of-this-name/london.txt", "No such file"),
        ("/dev/zero", "it is not a regular file"),
        ("pipe", "it is not a regular file"),
    ],
)
def test_holidays_that_are_in_no_file_are_said(write, tmp_path, name, complaint):
    os.mkfifo(tmp_path / "pipe")
    path = write('holidays = "london.txt"', f'holidays = "{name}"')
    with pytest.raises(ConfigError, match=rf"\[calendar.london\]: holidays, .*: .*{complaint}"):
        load(path)


def test_a_mark_of_the_byte_order_is_no_holiday(write):
    load(write(holidays="\ufeff2026-12-25\n"))


def test_windows_of_one_priority_that_meet_are_refused_with_the_moment(write):
    done = windows("--config", write("priority = 5", "priority = 0"), "--at", "2026-11-01")
    assert done.exit_code == 2
    assert "line 28: [[pool.window]] 'month end' of fast: it is open at" in done.output
    assert "2026-11-30 17:00:00 UTC, as is 'risk run'" in done.output
    assert "raise the priority of one of them" in done.output


def test_windows_that_begin_and_end_too_often_are_refused(write):
    busy = """
[[pool.window]]
name = "busy"
cron = "*/2 * * * *"
lasts_s = 60
priority = 1
"""
    done = windows("--config", write("[[pool.window]]", f"{busy}[[pool.window]]"))
    assert done.exit_code == 2
    assert "[[pool.window]] 'busy' of fast: the windows of this pool begin" in done.output


@pytest.mark.parametrize("moment", ["1969-12-31", "9999-06-01", "0001-01-01"])
def test_moments_of_which_no_calendar_knows_are_refused(write, moment):
    done = windows("--config", write(), "--at", moment)
    assert done.exit_code == 2
    assert "windows are shown from 1970 to 9997" in done.output
    assert windows("--config", write(), "--at", "9997-06-01", "--next", "400d").exit_code == 0


def test_a_pool_that_there_is_not_is_said(write):
    done = windows("medium", "--config", write())
    assert "no pool 'medium' here; known pools: fast, slow" in done.output


def test_a_window_of_several_tables_is_one_window(write):
    assert "fast: 3 windows\n" in windows("--config", write()).output
    twice = (
        'name = "batch"\nvalid_until = "2027-01-01"\ncron = "0 1 * * sat"\nlasts_s = 60\n\n'
        '[[pool.window]]\nname = "batch"\nvalid_from = "2027-01-01"\n'
    )
    path = write('name = "batch"\n', twice)
    assert "fast: 3 windows in 4 versions\n" in windows("--config", path).output


def test_a_change_of_a_window_in_the_past_is_refused_for_its_time(monkeypatch):
    monkeypatch.setattr(window, "ask", lambda *_, **__: {"rules": []})
    monkeypatch.setattr(window, "at_details", lambda *_: {"at_s": 1_577_836_800.0})
    order = ["change", "small", "night", "--to", "23:00", "--at", "2020-01-01T00:00Z"]
    result = CliRunner().invoke(cli, ["window", *order])
    assert "--at: the time is past: a change takes effect now or later" in result.output


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nosuch", "pool small has no window 'nosuch'; its windows: risk run, night"),
        ("nigth", "no window 'nigth' (did you mean 'night'?); its windows: risk run, night"),
    ],
)
def test_the_end_of_a_window_that_there_is_not_names_those_of_the_pool(monkeypatch, name, said):
    there = {"rules": [{"name": "risk run"}, {"name": "night"}]}
    monkeypatch.setattr(window, "ask", lambda *_, **__: there)
    changes = []
    monkeypatch.setattr(window, "change_rules", lambda edits, **_: changes.append(edits))
    done = CliRunner().invoke(cli, ["window", "end", "small", name])
    assert done.exit_code == 1
    assert said in done.output
    assert CliRunner().invoke(cli, ["window", "end", "small", "night"]).exit_code == 0
    assert [each["name"] for [each] in changes] == ["night"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("[[pool.window]] 'a' of p: zone: 'Mars' is none", "--zone: 'Mars' is none"),
        ("line 7: [[pool.window]] 'a' of p: follows_work must", "--follows-work must"),
        ("[[pool.window]] 'a' of p: claims[2].who: no", "--claim 2.who: no"),
        ("[[pool.window]] 'a' of p: it is open at", "[[pool.window]] 'a' of p: it is open at"),
        ("one\n[[pool.window]] 'a' of p: to: 9x", "one\n--to: 9x"),
    ],
)
def test_mistakes_of_a_window_name_the_option(told, said):
    assert by_option(told) == said


def test_without_a_configuration_the_gateway_that_runs_is_asked(tmp_path, monkeypatch):
    for name in ("GRIDFED_GATEWAY", "GRIDFED_CONFIG_DIR", "GRIDFED_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    asked = []

    def zone_of(reach):
        asked.append(reach.address)
        raise click.ClickException("it was asked")

    monkeypatch.setattr(windows_command, "site_zone", zone_of)
    found = CliRunner().invoke(cli, ["windows"])
    assert "it was asked" in found.output
    assert asked == [None]
    found = CliRunner().invoke(cli, ["windows", "--file-only"])
    assert "there is no configuration: choose it with --config FILE" in found.output
