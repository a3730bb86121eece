"""With --json every command prints one form: docs/json.md."""

import json
import re
import time
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from support.answers import check_schema
from support.command import quick
from support.members import MemberSite

from gateway.cli.main import cli
from gateway.cli.shared.envelope import SCHEMA

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]
# What can't be shown on two sites that have traded nothing; the form is printed in one place.
NOT_RUN = {
    "gateway": "it stays: wait_ready() of every other test reads its form",
    "up": "likewise",
    "worker": "it stays; shown by itself below",
    "db restore": "needs a file of db backup and an empty folder; as db backup",
    "db move": "likewise",
    "logs": "prints a JSON object for each line of output, so that it can follow",
    "leave": "ends the federation that the others need",
}


def leaves(group, before=()):
    """Every command that does something, by its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield " ".join((*before, name)), command
            yield from leaves(command, (*before, name))
        else:
            yield " ".join((*before, name)), command


PLUG_INS = entry_points(group="gridfed.commands").names  # their adapters test them
LEAVES = {name: each for name, each in leaves(cli) if name.split()[0] not in PLUG_INS}


def test_every_command_has_its_json():
    def options(command):
        return {text for each in command.params for text in (*each.opts, *each.secondary_opts)}

    assert {name for name, command in LEAVES.items() if "--json" not in options(command)} == set()


def test_the_documented_schema_is_that_of_the_code():
    text = (ROOT / "docs/json.md").read_text()
    [shown] = re.findall(r"```json\n(\{\n  \"\$schema\".*?)```", text, re.DOTALL)
    assert json.loads(shown) == SCHEMA


@pytest.fixture  # for each test its own: the commands of one stop a gateway and expel a site
def sites(tmp_path_factory):
    folder = tmp_path_factory.mktemp("json")
    london = MemberSite(folder, "london", 1, "0.04 USD", extra=RULES)
    lyon = MemberSite(folder, "lyon", 1, "0.04 USD")
    yield london, lyon
    for site in (london, lyon):
        site.gateway.stop()


RULES = """
[fair_share]
each = "project"

[[alert]]
name = "dear"
kind = "price"
limit = "9 USD"
command = ["/bin/true"]
"""


def test_commands_find_the_gateway_by_its_configuration(sites, monkeypatch):
    london, lyon = sites
    monkeypatch.delenv("GRIDFED_GATEWAY", raising=False)
    site = lambda *words: json.loads(quick(*words, "--json"))["site"]  # noqa: E731
    assert site("status", "--config", str(london.config)) == "london"
    assert site("jobs", *lyon.where) == "lyon"
    monkeypatch.setenv("GRIDFED_CONFIG_DIR", str(lyon.folder))
    assert site("workers") == site("known") == "lyon"
    assert site("status", "--config", str(london.config)) == "london"
    # An order to a gateway that is named goes there, and not to the site of the configuration.
    assert site("known", "--gateway", london.address) == "london"
    monkeypatch.setenv("GRIDFED_GATEWAY", london.address)
    assert site("status") == "london"


def commands(folder, london, lyon):
    """The commands in an order that works, each with arguments; and lists of commands after it."""
    at, of_file = ("--gateway", london.address), ("--config", str(london.config))
    here, there = london.where, lyon.where
    with london.client() as client:
        job = client.submit_job(abs, [-1, -2])
        job.wait(200)
        id_ = job.id
    yield "init", ("--site", "tokyo", "--config-dir", str(folder / "tokyo"))
    invitation = yield "invite", tuple(here)
    yield "join", (invitation["invitation"], *there)
    yield "approve", ("lyon", lyon.fingerprint, *here)
    quick("approve", "london", london.fingerprint, *there)
    yield "known", tuple(here)
    yield "trust", ("lyon", "--may-run", "all", *here)
    yield "token", ("--user", "ann", *here)
    yield "tokens list", tuple(here)
    yield "tokens revoke", ("--user", "ann", *here)
    for name in (
        "status",
        "jobs",
        "workers",
        "sites",
        "pools",
        "deals",
        "explain",
        "shares",
        "objects list",
    ):
        yield name, at
    for name in ("budgets", "alerts", "payments", "disputes", "reservations", "scale", "reload"):
        yield name, at
    yield "alerts test", ("dear", *at)
    yield "job", (id_, *at)
    yield "forget", (id_, *at)
    with london.client() as client:
        id_ = client.submit_job(time.sleep, [100.0]).id
    yield "hold", (id_, *at)
    yield "release", (id_, *at)
    yield "prioritise", (id_, "2", *at)
    yield "cancel", (id_, "--stop", *at)
    yield "can", ("ann", *at)
    yield "drain", ("--all", "--yes", *at)
    quick("drain", "--all", "--undo", *at)
    for name in ("cost", "usage", "carbon", "savings", "utilisation", "showback"):
        yield f"report {name}", at
    for name in ("statement", "margin"):
        yield f"report {name}", at
    yield "report page", (str(folder / "page.html"), *at)
    yield "window add", ("local", "noon", "--from", "12:00", "--to", "13:00", *at)
    yield "window change", ("local", "noon", "--to", "14:00", *at)
    yield "window list", at
    yield "window history", at
    yield "window end", ("local", "noon", *at)
    (folder / "rules.toml").write_text('[[pool]]\nname = "local"\nprice = "0.05 USD"\n')
    yield "rules apply", (str(folder / "rules.toml"), *at)
    yield "rules take-groups", ("staff=root", *at)
    yield "rules list", at
    yield "rules history", at
    planned = yield "rules remove", ("price", "--pool", "local", "--at", "2031-01-01", *at)
    yield "rules cancel", (str(planned["change"]), *at)
    yield "rules export", at
    yield "windows", of_file
    yield "tariff show", of_file
    yield "tariff ownership", ("--hardware", "1000")
    yield "audit", of_file
    yield "db backup", (str(folder / "backup.db"), *of_file)
    for name in ("focus", "usage-record", "car", "apel", "apel-summary", "apel-sync"):
        yield f"export {name}", ("--out", str(folder / name), *of_file)
    yield "export focus-check", (str(folder / "focus"),)
    yield "check", (str(london.config), "--offline")
    yield "rotate", tuple(here)
    yield "expel", ("lyon", "--yes", *here)
    yield "keep", ("lyon", *here)
    london.gateway.stop()
    yield "db upgrade", of_file
    yield "db roll-up", ("--days", "30", "--yes", *of_file)


@pytest.mark.slow
def test_what_every_command_prints_is_by_the_schema(sites, tmp_path):
    done, wrong = set(), {}
    script = commands(tmp_path, *sites)
    found = None
    while True:
        try:
            name, arguments = script.send(found)
        except StopIteration:
            break
        result = CliRunner().invoke(cli, [*name.split(), *arguments, "--json"])
        done.add(name)
        try:
            whole = json.loads(result.stdout)
            check_schema(whole, SCHEMA)
            assert whole["command"] == name
            found = whole.get("data")
        except (ValueError, AssertionError) as error:
            wrong[name] = (str(error)[:200], result.output[:300], repr(result.exception))
    assert wrong == {}
    answered = {" ".join(case[1]) for case in CANNED}
    assert set(LEAVES) - done == (set(NOT_RUN) | answered) & set(LEAVES)


STATEMENT = {"columns": ["site", "currency"], "rows": [["paris", "USD"]], "as_of_s": 1.0}
OVER = {"state": "agreed", "site": "paris", "details": "", "payments": []}
# What needs trade between sites, a slice or a grid: the command's module, words, options, answer.
CANNED = [
    ("books.between", ["deliveries"], ["paris"], {"rows": [{"at_s": 1.0}], "is_cut": True}),
    ("books.between", ["reconcile"], ["paris"], OVER),
    ("books.between", ["dispute"], ["c", "--reason", "late"], [{"site": "paris"}]),
    ("books.between", ["answer"], ["c", "--accept", "--reason", "late"], [{"site": "paris"}]),
    ("books.between", ["settle"], ["paris", "--undo", "a", "--yes"], STATEMENT),
    ("inspect.reserve", ["reserve"], ["--slots", "1", "--for", "2h"], [{"id": "r1"}]),
    ("inspect.budgets", ["budgets", "write-off"], ["risk", "paris", "--yes"], {"freed": "1 USD"}),
    ("inspect.objects", ["objects", "drop"], ["curves"], {"freed": True, "text": "it is gone"}),
    ("operate.scale", ["pool", "test"], ["hpc"], {"steps": [["list", "2"]], "failed": ["a", "b"]}),
]


@pytest.mark.parametrize(("module", "words", "options", "found"), CANNED)
def test_what_needs_more_than_a_site_is_by_the_schema_too(
    monkeypatch, module, words, options, found
):
    monkeypatch.setattr(f"gateway.cli.{module}.ask", lambda *_, **__: found)
    whole = json.loads(CliRunner().invoke(cli, [*words, *options, "--json"]).stdout)
    check_schema(whole, SCHEMA)
    assert whole["command"] == " ".join(words)


def test_a_worker_says_as_json_that_it_has_joined(shared_site):
    worker = shared_site.add_worker(1, "--json", "--name", "shown")
    try:
        ready = worker.wait_ready()
    finally:
        worker.stop()
    assert (ready["ready"], ready["name"]) == (True, "shown")
