"""`gridfed report` without a gateway: its refusals before it asks, and its output."""

import pytest
from click.testing import CliRunner
from support.answers import answer

from gateway.cli.books import report as reporting
from gateway.cli.books.report import report_of
from gateway.cli.main import cli

DASH = "\N{EN DASH}"
ANSWER = {
    "kind": "cost",
    "columns": ["project", "currency", "tasks", "wall_ns", "cost_nanos", "cost", "slot_h"],
    "rows": [
        ["[b]risk[/b]\x1b[2J", "USD", 1000, 2_500_000_000, str(2**70), "1180591620717.4", "0.5"],
        [None, "USD", 0, 0, 0, "0", None],
    ],
    "totals": [[None, "USD", 1000, 2_500_000_000, str(2**70), "1180591620717.4", "0.5"]],
    "facts": {"as_of_s": 1.0},
    "notes": ["as of some time"],
}


@pytest.fixture
def told(monkeypatch):
    """The request that a gateway would get."""
    asked = []

    def ask(_reach, verb, **details):
        asked.append((verb, details))
        return ANSWER

    monkeypatch.setattr(reporting, "ask", ask)
    return asked


def run(*arguments):
    return CliRunner().invoke(cli, ["report", *arguments])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["profit"], "No such command 'profit'"),
        (["cost", "--by", "user,colour"], "no report by 'colour': choose from user"),
        (["cost", "--where", "colour=red"], "no report by 'colour'"),
        (["cost", "--where", "user"], "write KEY=VALUE"),
        (["cost", "--where", "month=May"], "use a form such as 2026-11"),
        (["cost", "--csv", "--json"], "only one of"),
        (["cost", "--csv", "--parquet", "x"], "only one of"),
        (["cost", "--from", "9999-12-31", "--to", "9999-12-31"], "write 2026-11-20"),
        (["cost", "--from", "2026-11-21", "--to", "2026-11-20"], "is not before"),
        (["savings", "--static-price", "3"], "is not an amount"),
        (["savings", "--static-price", "-3 USD"], "negative"),
        (["cost", "--static-price", "3 USD"], "No such option"),
        (["utilisation", "--all"], "No such option"),
    ],
)
def test_what_is_wrong_is_told_before_anybody_is_asked(told, arguments, complaint):
    result = run(*arguments)
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())
    assert not told


def test_a_gateway_is_asked_what_was_written(told):
    arguments = ["--by", " user, tag:gpu ,", "--where", "project=a=b", "--where", "group="]
    run("savings", *arguments, "--from", "2026-11-20", "--to", "2026-11-20")
    run("cost", "--by", "", "--to", "2026-11-20T18:30")
    run("carbon", "--by", "", "--all")
    assert told == [
        (
            "report",
            {
                "kind": "savings",
                "by": ["user", "tag:gpu"],
                "where": [["project", "a=b"], ["group", ""]],
                "start_s": 1_795_132_800.0,
                "end_s": 1_795_219_200.0,
            },
        ),
        ("report", {"kind": "cost", "by": [], "where": [], "end_s": 1_795_199_400.0}),
        ("report", {"kind": "carbon", "by": [], "where": [], "whose": "all"}),
    ]


def test_people_see_amounts_that_they_can_read_and_nothing_moves_their_cursor(told):
    lines = run("cost").output.splitlines()
    heading = lines[0].split()
    assert heading == ["project", "currency", "tasks", "wall", "s", "cost", "slot", "h"]
    assert lines[1].split() == [
        "[b]risk[/b]\\x1b[2J",
        "USD",
        "1,000",
        "2.500",
        "1180591620717.40",
        "0.5000",
    ]
    assert lines[2].split() == ["USD", "0", "0.000", "0.00", DASH]  # a number that is not known
    assert lines[3].split()[0] == "total"
    assert lines[4] == "as of some time"


@pytest.mark.parametrize("form", [[], ["--csv"], ["--json"]])
def test_a_tag_may_have_the_name_of_an_amount(monkeypatch, form):
    found = {
        "columns": ["tag:mem_bytes", "currency", "tasks"],
        "rows": [["yes", "USD", 1]],
        "totals": [["", "USD", 1]],
        "facts": {},
        "notes": [],
    }
    monkeypatch.setattr(reporting, "ask", lambda *_, **__: found)
    result = run("cost", "--by", "tag:mem_bytes", *form)
    assert result.exit_code == 0, result.output
    assert "yes" in result.output


def test_numbers_beyond_64_bits_are_numbers_again(told):
    assert report_of(ANSWER).rows[0][4] == 2**70
    assert answer(run("cost", "--json").output)["rows"][0]["cost_nanos"] == 2**70
    assert str(2**70) in run("cost", "--csv").output


def test_parquet_is_written_whole_and_for_nobody_else(told, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    assert "2 rows written" in run("cost", "--parquet", str(path)).output
    assert parquet.read_table(path).num_rows == 2
    assert path.stat().st_mode & 0o777 == 0o600
    assert [*tmp_path.iterdir()] == [path]


def test_parquet_that_can_not_be_written_is_a_failure_in_words(told):
    result = run("cost", "--parquet", "/no/such/folder/x.parquet")
    assert result.exit_code == 1
    assert "/no/such/folder" in result.output or "pyarrow" in result.output


def test_a_column_of_one_currency_has_as_many_digits_as_its_smallest_amount_needs(monkeypatch):
    rows = [["a", "USD", "12.345678901"], ["b", "USD", "0.000308"], ["c", "JPY", "1200.4"]]
    found = {"columns": ["user", "currency", "cost"], "rows": rows, "totals": rows[:1]}
    monkeypatch.setattr(reporting, "ask", lambda *_, **__: {**found, "facts": {}, "notes": []})
    lines = [line.split() for line in run("cost").stdout.splitlines()[1:4]]
    assert [line[2] for line in lines] == ["12.34568", "0.00031", "1200.00000"]
    exact = [line.split()[2] for line in run("cost", "--exact").stdout.splitlines()[1:3]]
    assert exact == ["12.345678901", "0.000308000"]
