"""Times are written in one way by all commands: for people in the site's zone, named once."""

import ast
import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import gateway.cli
from gateway.cli.main import cli
from gateway.cli.shared import show

FOLDER = Path(gateway.cli.__file__).parent
# Modules that write times by other functions than those of `show`, and why.
OWN = {
    "shared/show.py": "these are the functions",
    "shared/envelope.py": "JSON",
    "shared/moments.py": "reads times",
    "operate/log_lines.py": "the log",
    "inspect/logs.py": "JSON",
    "inspect/windows.py": "the clock of a window of another zone",
    "inspect/tariff.py": "the clock of a tariff of another zone",
    "books/between.py": "a value of --from, to continue with",
}
NOON_S = 1_782_900_000.0  # 2026-07-01 10:00:00 UTC
JOB = "0" * 32


def modules():
    return sorted(FOLDER.rglob("*.py"))


def calls(tree, name):
    return [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and isinstance(each.func.value, ast.Name)
        and f"{each.func.value.id}.{each.func.attr}" == name
    ]


@pytest.mark.parametrize("path", modules(), ids=lambda each: each.relative_to(FOLDER).as_posix())
def test_a_module_writes_times_by_the_functions_for_it(path):
    tree, name = ast.parse(path.read_text()), path.relative_to(FOLDER).as_posix()
    if name in OWN:
        return
    for each in ast.walk(tree):
        if isinstance(each, ast.Attribute):
            assert each.attr not in ("fromtimestamp", "strftime", "isoformat"), each.lineno
    if calls(tree, "show.when"):
        assert calls(tree, "show.timed"), "a table of times has no heading with their zone"
    for each in ast.walk(tree):
        is_text = isinstance(each, ast.Constant) and isinstance(each.value, str)
        assert not (is_text and each.value.startswith((" UTC", ", UTC"))), each.lineno


def answer(verb, **_details):
    """The answers of a gateway, of a site in London."""
    rule = {"change": 1, "author": "ann", "source": "command", "reason": "", "from_s": NOON_S}
    change = {**rule, "until_s": NOON_S, "cancelled_s": None, "ends": 0, "edits": []}
    return {
        "status": {"zone": "Europe/London", "state": "up"},
        "drains": [
            {"kind": "host", "name": "h", "by": "ann", "workers": 1, "in_flight": 0,
             "since_s": NOON_S}
        ],
        "reservations": [
            {"id": "r1", "site": "london", "pool": "p", "state": "booked", "slots": 1,
             "from_s": NOON_S, "until_s": NOON_S, "who": "ours", "price_nanos": 1,
             "total_nanos": 1, "billed_nanos": None, "used_ns": 0, "unused_ns": 0,
             "currency": "USD"}
        ],
        "tokens": [
            {"id": "t1", "user": "ann", "scopes": ["submit"], "projects": None,
             "made_at_s": NOON_S, "expires_at_s": NOON_S, "used_at_s": None, "used_from": "",
             "state": "valid"}
        ],
        "rule_history": [{**change, "edits": [
            {"kind": "window", "pool": "p", "name": "w", "before": None, "after": {"a": 1}}
        ]}],
        "payments": [
            {"site": "paris", "reference": "x", "at_s": NOON_S, "direction": "", "amount": "",
             "currency": "", "through": "", "state": "", "theirs": "", "note": ""}
        ],
    }[verb]  # fmt: skip


VIEWS = [
    ["drain", "--list"],
    ["reservations"],
    ["tokens", "list"],
    ["rules", "history"],
    ["payments"],
]


class GatewayOfLondon:
    """As much of a client as a question of a command needs."""

    gateway = {"site": "london"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    ask = staticmethod(answer)


@pytest.mark.parametrize("words", VIEWS, ids=" ".join)
def test_a_table_of_times_names_the_zone_of_the_site_once(words, monkeypatch):
    monkeypatch.setattr("gateway.cli.shared.common.Client", lambda *_, **__: GatewayOfLondon())
    where = ["--gateway", "ipc:///none"]
    said = CliRunner().invoke(cli, [*words, *where], catch_exceptions=False).stdout
    assert said.count("Europe/London") == 1, said
    assert "2026-07-01 11:00:00" in said
    assert "10:00:00" not in said


@pytest.mark.parametrize("words", VIEWS, ids=" ".join)
def test_json_has_no_time_of_a_zone(words, monkeypatch):
    monkeypatch.setattr("gateway.cli.shared.common.Client", lambda *_, **__: GatewayOfLondon())
    where = ["--gateway", "ipc:///none", "--json"]
    found = json.loads(CliRunner().invoke(cli, [*words, *where]).stdout)
    assert found["at"].endswith("Z")
    assert NOON_S in [
        value for row in found["rows"] for value in row.values() if isinstance(value, float)
    ]
    assert "11:00:00" not in json.dumps(found["rows"])


def test_a_time_of_an_older_gateway_is_utc():
    with click.Context(cli):
        assert show.timed("from") == "from, UTC"
        assert show.when(NOON_S) == "2026-07-01 10:00:00"
        assert show.when(1e18) == show.moment(1e18) == "never"
        assert show.when(None) == show.moment(None) == ""
