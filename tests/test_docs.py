"""The documents agree with the code."""

import dataclasses
import re
import subprocess
import sys
import typing
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from federation.engine.dialling import client_file
from federation.errors import FAILURES
from federation.membership import gossip
from federation.membership.probing import GossipSettings
from federation.messages import messages
from federation.messages.messages import BETWEEN_GATEWAYS, HANDSHAKE, MESSAGES
from federation.messages.objects import OBJECT_MESSAGES
from federation.messages.registry import FromBuyer, FromSeller
from gateway.api import books_desk
from gateway.api.desk import TAKES, Desk
from gateway.cli.main import cli
from gateway.config import (
    entitlements,
    fair_share,
    reservations,
    residency,
    scale,
    tariffs,
    windows,
)
from gateway.config.alerts import ALERT_KEYS, AlertPace
from gateway.config.books import BookRules
from gateway.config.budgets import BUDGET_KEYS
from gateway.config.carbon import CarbonConfig, ForecastConfig, HttpConfig, SeriesConfig
from gateway.config.contracts import DealRules
from gateway.config.environments import EnvironmentRules
from gateway.config.federation import FederationConfig
from gateway.config.limits import LIMITS, ObjectLimits
from gateway.config.log import LogConfig
from gateway.config.site import PoolConfig, SiteConfig
from gateway.peering import orders
from gateway.trust import joining
from gateway.trust.rights import RIGHTS
from policies.disclosure import Disclosure
from policies.placement.asks import Preferences

ROOT = Path(__file__).parent.parent


GOSSIP, JOINING = "### What gossip says", "## Joining"


def table_rows(name, *, section=None, without=()):
    """First cell → whole row, of every table of a document, or of one of its sections."""
    rows = {}
    heading = ""
    for line in (ROOT / "docs" / name).read_text().splitlines():
        if line.startswith("#"):
            heading = line
        match = re.match(r"\| `([\w-]+)` \|", line)
        if match and section in (None, heading) and heading not in without:
            rows[match[1]] = line
    return rows


@pytest.mark.parametrize(
    "cls", [*HANDSHAKE.classes, *MESSAGES.classes, *OBJECT_MESSAGES.classes], ids=lambda c: c.kind
)
def test_every_message_and_field_is_in_the_protocol(cls):
    row = table_rows("protocol.md", without=(GOSSIP, JOINING))[cls.kind]
    for field in dataclasses.fields(cls):
        assert f"`{field.name}`" in row


@pytest.mark.parametrize("cls", BETWEEN_GATEWAYS, ids=lambda c: c.kind)
def test_the_sender_of_every_message_between_gateways_is_in_the_protocol(cls):
    cell = table_rows("protocol.md", without=(GOSSIP, JOINING))[cls.kind].split("|")[2]
    for sender, way in ((FromBuyer, "buyer → seller"), (FromSeller, "seller → buyer")):
        assert (way in cell) == issubclass(cls, sender)


@pytest.mark.parametrize(
    ("column", "sentence"), [("sealed", "only inside `sealed`:"), ("urgent", "queued messages:")]
)
def test_the_messages_that_are_sealed_or_urgent_are_listed_in_the_protocol(column, sentence):
    text = (ROOT / "docs" / "protocol.md").read_text()
    listed = text.partition(sentence)[2].partition(".")[0]
    known = {cls.kind for cls in BETWEEN_GATEWAYS if getattr(cls.row, column)}
    assert set(re.findall(r"`([\w-]+)`", listed)) == known


def test_every_verb_and_what_it_takes_is_in_the_trust_document():
    """And every verb there is has a right; one without takes an administrator at the own socket."""
    assert set(RIGHTS) == {
        *Desk(None, None)._verbs,
        *(*books_desk.QUESTIONS, *books_desk.ORDERS, *orders.VERBS),
    }
    text = (ROOT / "docs" / "trust.md").read_text()
    listed = text.partition("| takes | questions and orders |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in listed.splitlines()[2:]]
    found = {verb: takes.strip() for takes, verbs in rows for verb in re.findall(r"`(\w+)`", verbs)}
    assert found == {
        verb: " or ".join(sorted(right.scopes, reverse=True))
        + (", by the gateway's own socket" if right.at_home else "")
        or "any of submit, cancel, report, audit, admin"
        for verb, right in RIGHTS.items()
    }


def test_what_each_question_takes_is_in_the_protocol():
    text = (ROOT / "docs" / "protocol.md").read_text()
    listed = text.partition("Questions (`ask`):")[2].partition("\n\n")[0]
    found = {
        verb: frozenset(re.findall(r"\w+", names))
        for verb, names in re.findall(r"`(\w+)`(?: \{([^}]*)\})?", listed.replace("\n", " "))
        if verb not in ("explain", "ipc")
    }
    assert found == TAKES


def test_the_protocol_has_no_message_that_is_not_there():
    catalogues = (HANDSHAKE, MESSAGES, OBJECT_MESSAGES)
    known = {cls.kind for each in catalogues for cls in each.classes}
    assert set(table_rows("protocol.md", without=(GOSSIP, JOINING))) == known
    assert messages.MESSAGES is MESSAGES


def test_what_is_said_before_and_beside_messages_is_in_the_protocol_too():
    known = {cls.kind for cls in typing.get_args(gossip.Message)}
    assert set(table_rows("protocol.md", section=GOSSIP)) == known
    assert set(table_rows("protocol.md", section=JOINING)) == set(joining.FORMS)


def test_every_setting_is_documented():
    known = {field.name for field in dataclasses.fields(SiteConfig)}
    known = known - {"log"} | {field.name for field in dataclasses.fields(LogConfig)}
    known -= {"rules", "pools", "unread_bytes", "federation", "deals", "preferences", "shows"}
    known -= {"alerts", "books", "groups", "fair_share", "budgets", "credit"}
    known -= {"entitlements", "reservations", "residency", "objects"}
    known -= {"source", "places", "given", "rules_version"}  # of the command line
    known |= set(LIMITS) | {field.name for field in dataclasses.fields(PoolConfig)}
    known = known - {"plan", "grid"} | {"window", "claims"}  # which are read into it
    for table in (CarbonConfig, SeriesConfig, HttpConfig, ForecastConfig):
        known |= {field.name for field in dataclasses.fields(table)}
    known |= {field.name for field in dataclasses.fields(FederationConfig)}
    known |= {field.name for field in dataclasses.fields(DealRules)}
    known |= {field.name for field in dataclasses.fields(Preferences)}
    known |= {field.name for field in dataclasses.fields(BookRules)} - {"day_ms"}
    known |= {field.name for field in dataclasses.fields(Disclosure)}
    known |= {field.name for field in dataclasses.fields(ObjectLimits)}
    known |= {field.name for field in dataclasses.fields(AlertPace)} | ALERT_KEYS | BUDGET_KEYS
    known |= tariffs.KEYS
    known |= reservations.KEYS
    known |= fair_share.KEYS - {"share"} | fair_share.SHARE_KEYS
    assert set(table_rows("configuration.md")) == known


def test_every_setting_of_a_window_is_documented():
    text = (ROOT / "docs" / "windows.md").read_text()
    rows = [re.match(r"\| ((?:`\w+`(?:, )?)+) \|", line) for line in text.splitlines()]
    found = {name for row in rows if row for name in re.findall(r"`(\w+)`", row[1])}
    claim = set(windows.OF_CLAIMS)
    assert found == windows.KEYS - {"claims"} | claim | windows.OF_CALENDARS


def test_every_setting_of_an_entitlement_is_documented():
    text = (ROOT / "docs" / "entitlements.md").read_text()
    rows = [re.match(r"\| ((?:`\w+`(?:, )?)+) \|", line) for line in text.splitlines()]
    found = {name for row in rows if row for name in re.findall(r"`(\w+)`", row[1])}
    assert found == entitlements.KEYS


def test_every_setting_of_a_pool_that_grows_is_documented():
    rows = table_rows("grids.md", section="## Growing and shrinking")
    assert set(rows) == scale.KEYS


def test_every_setting_of_a_tariff_is_documented():
    assert set(table_rows("configuration.md", section="## Prices")) == tariffs.KEYS


def test_every_setting_of_membership_is_documented():
    known = {field.name for field in dataclasses.fields(GossipSettings)}
    assert set(table_rows("membership.md")) == known


def test_the_defaults_of_membership_are_as_documented():
    rows = table_rows("membership.md")
    units = {"1 MiB": 1 << 20, "1 day": 86_400.0}
    for field in dataclasses.fields(GossipSettings):
        shown = rows[field.name].split("|")[2].strip()
        assert units.get(shown, float(shown.split()[0])) == field.default, field.name


def commands_below(group, path=()):
    """Every command, as the words by which it is called, and the command."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands_below(command, (*path, name))


COMMANDS = list(commands_below(cli))


@pytest.mark.parametrize(
    ("words", "command"), COMMANDS, ids=[" ".join(each) for each, _ in COMMANDS]
)
def test_every_command_explains_itself(words, command):
    result = CliRunner().invoke(cli, [*words, "--help"])
    assert result.exit_code == 0
    assert command.help


def test_every_command_is_found_by_the_name_that_it_has():
    words = {words for words, _ in COMMANDS}
    assert {("report", "page"), ("report", "statement"), ("db", "backup"), ("status",)} <= words
    assert all(words[-1] == command.name for words, command in COMMANDS)


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--version"], {"sqlalchemy", "alembic", "trio", "pynng", "gateway.config.site"}),
        (["status", "--help"], {"sqlalchemy", "alembic", "trio", "gateway.config.site"}),
    ],
)
def test_a_command_imports_what_it_needs(words, absent):
    program = (
        "import sys, gateway.command\n"
        f"sys.argv = ['gridfed', *{words!r}]\n"
        "try: gateway.command.main()\n"
        f"except SystemExit: print(sorted({absent!r} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "[]", result.stderr


def test_the_readme_names_files_that_exist():
    text = (ROOT / "README.md").read_text()
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / link.partition("#")[0]).exists(), link
    for path in re.findall(r"`((?:federation|gateway|policies)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path


def test_the_readme_fits_on_a_screen_or_three():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_index_names_every_document():
    text = (ROOT / "docs" / "README.md").read_text()
    linked = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} <= linked
    for link in linked - {""}:
        assert (ROOT / "docs" / link).exists(), link


def test_every_key_of_the_client_file_is_documented():
    assert set(table_rows("client.md")) == set(client_file.KEYS)


def test_every_table_of_the_books_is_documented():
    import gateway.ledger.db.statements  # noqa: F401 - registers all tables
    from gateway.ledger.db.schema import metadata

    text = (ROOT / "docs" / "ledger.md").read_text()
    assert {name for name in metadata.tables if f"`{name}`" not in text} == set()


def test_every_setting_of_residency_is_documented():
    assert set(table_rows("residency.md")) == residency.KEYS


def test_the_failure_kinds_of_the_protocol_are_those_that_clients_raise():
    text = (ROOT / "docs" / "protocol.md").read_text()
    (line,) = re.findall(r"^Failure kinds: (.*)$", text, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", line)) == set(FAILURES)


def test_the_questions_of_the_protocol_are_those_that_a_gateway_answers():
    text = (ROOT / "docs" / "protocol.md").read_text()
    questions = text[text.index("Questions (`ask`):") :].split("\n\n")[0]
    found = set(re.findall(r"`(\w+)`", questions)) - {"ask"}
    assert found == {*Desk(None, None)._verbs, *books_desk.QUESTIONS, *books_desk.ORDERS}


def test_every_setting_of_environments_is_documented():
    assert set(table_rows("environments.md", section="## What an owner allows")) == set(
        EnvironmentRules.__slots__
    )
