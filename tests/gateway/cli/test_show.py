"""Tables for people: numbers on the right, nothing cut, no wider than the terminal."""

import io
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

import gateway.cli
from gateway.cli.books import between
from gateway.cli.inspect import jobs
from gateway.cli.main import cli
from gateway.cli.operate import scale
from gateway.cli.shared import rule_changes, show

DASH = "\N{EN DASH}"
COLUMNS = [
    *("site", "currency", "opening", "sold", "refunded", "bought", "credited", "paid", "received"),
    *("balance", "balance_nanos", "held_sold", "held_bought", "sold_tasks", "bought_tasks"),
    *("agreed_until", "closed_until", "written_off", "unconfirmed", "to_confirm"),
]


@pytest.fixture
def printed(monkeypatch):
    """The output to a terminal of 100 characters."""
    screen = io.StringIO()
    monkeypatch.setattr(show, "console", lambda: Console(file=screen, width=100, no_color=True))
    monkeypatch.setattr(show.click, "echo", lambda text="", err=False: print(text, file=screen))
    return screen.getvalue


def test_no_cell_makes_a_row_of_its_own_or_moves_the_cursor(printed):
    evil = "a\nunpaid  1,000 USD\x1b[2J\x9b31m\u202eb"
    show.table(("name", "cost\x07"), [[evil, "5 USD"]], "")
    shown = printed()
    assert r"a\nunpaid  1,000 USD\x1b[2J\x9b31m\u202eb" in shown
    assert len(shown.splitlines()) == 2
    assert shown.replace("\n", "").isprintable()


def test_the_command_line_prints_for_people_by_one_function_that_cleans():
    folder = Path(gateway.cli.__file__).parent
    found = {
        f"{path.name}: {line.strip()}"
        for path in folder.rglob("*.py")
        for line in path.read_text().splitlines()
        if "click.echo(" in line and not re.search(r"to_csv|shlex|json\.dumps", line)
    }
    assert found == {
        'common.py: click.echo(clean_lines(f"gridfed: {error}", indent="  "), err=True)',
        "show.py: click.echo(words.clean(text), err=err)",
        "show.py: click.echo()",
    }


@pytest.mark.parametrize(
    ("cells", "is_number"),
    [
        (["1", "2,000", "-0.5", ""], True),
        (["12.5 USD", "-3 EUR"], True),
        (["81.0 %", DASH], True),
        (["", ""], False),
        ([], False),
        (["1", "n/a"], False),
        (["2026-11-22 10:00:00"], False),
        (["risk"], False),
        (["0.04 USD at paris/gpu"], False),
    ],
)
def test_what_is_a_column_of_numbers(cells, is_number):
    assert show.is_numeric(cells) is is_number


def test_numbers_stand_on_the_right_and_texts_on_the_left(printed):
    show.table(("name", "cost", "when"), [["a", "5 USD", "x"], ["bcdef", "1,234 USD", ""]], "")
    assert printed().splitlines() == [
        "name        cost  when",
        "a          5 USD  x   ",
        "bcdef  1,234 USD      ",
    ]


def test_digits_stand_below_digits_and_names_stay_as_they_are():
    rows = [
        ["1.5", "0.00000008", "0", "2.5 USD", "\N{EN DASH}"],
        ["2", "-12", "7", "1 EUR", "1.25"],
    ]
    assert show.aligned(rows, 1) == [
        ["1.5", "0.00000008", "0", "2.5 USD", "\N{EN DASH}"],
        ["2", "-12.00000000", "7", "1 EUR", "1.25"],
    ]
    assert show.aligned([], 1) == []


def test_what_is_to_be_copied_is_quoted_and_brackets_stay_brackets(printed):
    columns = ["site", "currency", "balance", "balance_nanos"]
    found = {"columns": columns, "rows": [["paris", "USD", "5", 5 * 10**9]]}
    booked = {"direction": "paid", "currency": "USD", "reference": "wire 12; x [a]"}
    (line,) = between.overpaid_lines(found, booked)
    assert show.clean(line).endswith("gridfed settle paris --undo 'wire 12; x [a]'")
    show.table(["[b]"], [["[red]x[/red]"]], "")
    assert printed().split() == ["[b]", "[red]x[/red]"]


def test_columns_that_do_not_fit_go_on_below_with_their_keys():
    columns = ["site", "a", "b", "c", "a long heading"]
    cells = [["paris", "1" * 10, "2" * 10, "3" * 30, ""]]
    # 5 for the key, and 12 for the first two.
    assert show.fitted(columns, cells, 1, 29) == [[0, 1, 2], [0, 3], [0, 4]]
    assert show.fitted(columns, cells, 1, 28) == [[0, 1], [0, 2], [0, 3], [0, 4]]
    assert show.fitted(columns, cells, 1, 10_000) == [[0, 1, 2, 3, 4]]
    assert show.fitted(columns, cells, 1, 5) == [[0, 1], [0, 2], [0, 3], [0, 4]]
    assert show.fitted(["site"], [["paris"]], 1, 80) == [[0]]


def statement(**amounts):
    row = dict.fromkeys(COLUMNS, "0") | {"site": "paris", "currency": "USD", "sold_tasks": 0}
    row |= {"balance_nanos": 0, "bought_tasks": 0, "agreed_until": "", "closed_until": ""}
    return {"columns": COLUMNS, "rows": [list((row | amounts).values())], "as_of_s": 0.0}


def test_a_statement_fits_a_terminal_whatever_its_amounts_are(printed):
    amounts = dict.fromkeys(COLUMNS[2:10], "-123456789.123456789") | {"written_off": "77.125"}
    dates = {"agreed_until": "2026-11-21", "closed_until": "2026-10-31", "sold_tasks": 1_000_000}
    held = dict.fromkeys(("held_sold", "held_bought"), "123456789.123456789")
    between.show_statement(statement(**amounts, **dates, **held, balance_nanos=-1))
    lines = printed().splitlines()
    assert all(cell_len(line) <= 100 for line in lines)
    said = printed()
    assert said.count("-123456789.12") == 8
    for words in ("123456789.12", *map(str, dates.values()), "77.12", "we owe paris"):
        assert words in said
    heading = next(line for line in lines if line.startswith("site"))
    assert heading.split()[:3] == ["site", "currency", "balance"]


def test_a_statement_leaves_out_what_nothing_is_in(printed):
    between.show_statement(statement(sold="5", balance="5", balance_nanos=5 * 10**9))
    heading = printed().splitlines()[0].split("  ")
    found = [each.strip() for each in heading if each.strip()]
    assert found == [
        *("site", "currency", "balance", "held sold", "held bought", "agreed until"),
        *("closed until", "sold"),
    ]


def test_that_no_day_is_agreed_on_yet_is_explained(printed):
    between.show_statement(statement(sold="5"))
    between.show_statement(statement(sold="5", agreed_until="2026-11-21"))
    assert printed().count("no day is agreed with paris yet") == 1


def test_among_jobs_one_that_may_wait_for_ever_says_why(monkeypatch):
    row = {name: name for name in ("id", "name", "user", "project", "state", "cost")}
    row |= dict.fromkeys(("done", "failed", "cancelled", "total", "tasks", "wall_ns"), 0)
    row |= {"submitted_at_s": 0.0, "ended_at_s": None}
    row |= {"estimated_cost": "", "why_waiting": [{"text": "no known pool charges in GBP"}]}
    monkeypatch.setattr(jobs, "ask", lambda *_, **__: [row, row | {"why_waiting": []}])
    said = CliRunner().invoke(cli, ["jobs"]).output
    assert said.splitlines()[3:] == ["id is waiting: no known pool charges in GBP"]


def test_what_a_grid_says_of_a_pool_does_not_move_the_cursor(monkeypatch):
    none = dict.fromkeys(("wanted", "busy", "max", "start_s", "slot_s", "tasks", "cancel"), 0)
    slots = dict.fromkeys(("ready", "starting", "queued", "draining"), 0)
    row = none | {"pool": "hpc", "kind": "slurm", "slots": slots, "start": 1, "pilot_slots": 1}
    row |= {"drain": 0, "dry_run": True, "barred": "", "failed": "", "why": ["\x1b[2J"]}
    found = {"pools": [row | {"trouble": "no\x1b[1A such host"}]}
    monkeypatch.setattr(scale, "ask", lambda *_, **__: found)
    result = CliRunner().invoke(cli, ["scale", "--why"])
    assert result.output.splitlines()[2:] == [
        "hpc: the grid can't be reached: no\\x1b[1A such host",
        "hpc: dry run: nothing is started or stopped",
        "hpc: \\x1b[2J",
        "hpc: would start 1 pilot, 1 slot",
    ]


@pytest.mark.parametrize("digits", [20, 5_000])
@pytest.mark.parametrize("verb", [["dispute"], ["answer", "--reject"]])
def test_a_delivery_of_no_possible_number_is_a_mistake_of_the_command_line(verb, digits):
    only = "9" * digits + "/1"
    result = CliRunner().invoke(cli, [*verb, "c", "--reason", "x", "--only", only])
    assert (result.exit_code, result.exc_info[0]) == (2, SystemExit)
    assert "write EPOCH/FIRST" in result.output


@pytest.mark.parametrize(
    ("epoch_s", "text"),
    [
        (None, ""),
        (0.0, "1970-01-01 00:00:00"),
        (253_402_300_799.0, "9999-12-31 23:59:59"),
        (253_402_300_800.0, "never"),
        (1e12, "never"),
        (float("inf"), "never"),
        (float("nan"), "never"),
    ],
)
def test_a_moment_that_another_site_made_up_ends_no_table(epoch_s, text):
    assert show.when(epoch_s) == text


@pytest.mark.parametrize(
    ("since_s", "text"),
    [(-5, "0 s"), (0.9, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"),
     (86_399, "23 h"), (86_400, "1 d"), (40 * 86_400, "40 d")],
)  # fmt: skip
def test_how_long_ago_is_in_the_largest_unit(since_s, text):
    assert show.ago(1_800_000_000.0, 1_800_000_000.0 + since_s) == text


def test_what_has_not_happened_is_no_time_ago():
    assert show.ago(None, 5.0) == ""
    assert show.ago(float("inf"), 5.0) == ""


def test_hours_of_a_window_are_shown_in_its_zone_and_in_that_of_the_site(printed):
    row = {"pool": "p", "from_s": 1.8e9, "until_s": 1.8e9 + 3600, "before": "", "after": "night"}
    found = {"windows": [row], "prices": [], "later": []}
    rule_changes.say_change(found, "Asia/Tokyo")
    shown = printed()
    assert "from, UTC" in shown
    assert "in Asia/Tokyo" in shown
    assert "2027-01-15 08:00:00" in shown
    assert "2027-01-15 17:00 to 18:00" in shown
    rule_changes.say_change(found, "UTC")
    assert printed().count("Asia/Tokyo") == 1
