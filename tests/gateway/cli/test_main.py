"""The list of commands, and the options that all of them have."""

from datetime import UTC, datetime
from importlib.metadata import entry_points
from zoneinfo import ZoneInfo

import click
import pytest
from click.testing import CliRunner

from gateway.cli.main import cli, section_of
from gateway.cli.shared import show
from gateway.cli.shared.moments import LengthType, ShareType, length_s, moment
from gateway.cli.shared.own_gateway import config_file, own_gateway

# What reads or writes files alone.
WITHOUT_GATEWAY = {
    *("audit", "db upgrade", "db backup", "db restore", "db move", "db roll-up"),
    *("export focus", "export focus-check", "export usage-record", "export car", "export apel"),
    *("export apel-summary", "export apel-sync", "tariff show", "tariff ownership"),
    *("gateway", "up", "init", "check"),
}
# What is of no site.
WITHOUT_CONFIG = {
    *("export focus-check", "tariff ownership"),
    "init",  # it makes one, in --config-dir
}


PLUG_INS = entry_points(group="gridfed.commands").names  # their adapters test them


def leaves(group, before=()):
    """Every command that does something: its words and its options."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        words = (*before, name)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join(words), {text for each in command.params for text in each.opts}
        if isinstance(command, click.Group):
            yield from leaves(command, words)


LEAVES = dict(leaves(cli))


def test_every_command_takes_the_same_options_for_its_gateway_and_its_configuration():
    def without(option):
        return {
            name
            for name, options in LEAVES.items()
            if option not in options and name.split()[0] not in PLUG_INS
        }

    assert without("--gateway") == WITHOUT_GATEWAY
    assert without("--config") == WITHOUT_CONFIG
    assert without("--config-dir") == WITHOUT_CONFIG - {"init"}


def test_the_help_has_every_command_in_its_section_and_cuts_no_sentence():
    text = CliRunner().invoke(cli, ["--help"], terminal_width=100).stdout
    order = [text.index(f"\n{name}:") for name in ("Daily", "Operator", "Federation", "Books")]
    assert order == sorted(order)
    assert "..." not in text.partition("ARGS]...")[2]
    for name in cli.list_commands(click.Context(cli)):
        part = text.partition(f"\n{section_of(name)}:\n")[2].partition("\n\n")[0]
        assert f"\n  {name} " in f"\n{part}"


def test_a_command_that_no_section_names_is_in_that_of_its_folder():
    assert {section_of(name) for name in ("status", "init", "join", "audit")} == {
        *("Daily", "Operator", "Federation", "Books")
    }
    assert {section_of(name) for name in (*PLUG_INS, "of a plug-in")} == {"Adapters"}


def test_the_configuration_is_named_by_one_option_or_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("GRIDFED_CONFIG_DIR", raising=False)
    assert config_file(None, None) is None
    assert config_file("a.toml", None) == "a.toml"
    assert config_file(None, "/etc/gridfed") == "/etc/gridfed/gateway.toml"
    monkeypatch.setenv("GRIDFED_CONFIG_DIR", str(tmp_path))
    assert config_file(None, None) == str(tmp_path / "gateway.toml")
    assert config_file(None, None, by_environment=False) is None
    with pytest.raises(click.UsageError, match="only one of --config"):
        config_file("a.toml", "/etc/gridfed")


def test_a_site_is_found_by_its_configuration(monkeypatch, tmp_path):
    monkeypatch.delenv("GRIDFED_GATEWAY", raising=False)
    monkeypatch.setenv("GRIDFED_CONFIG_DIR", str(tmp_path))
    assert own_gateway(None) is None, "no site was made there: the client finds one by itself"
    path = tmp_path / "gateway.toml"
    (tmp_path / "secret").write_text("s" * 40)
    (tmp_path / "secret").chmod(0o600)
    path.write_text(
        f'[site]\nlisten = ["tcp://127.0.0.1:7461", "ipc://{tmp_path}/g.sock"]\n'
        f'secret_file = "{tmp_path}/secret"\n'
    )
    assert own_gateway(None) == (f"ipc://{tmp_path}/g.sock", "s" * 40)
    monkeypatch.setenv("GRIDFED_GATEWAY", "tcp://127.0.0.1:1")
    assert own_gateway(None) is None, "a gateway that is named goes before one that is found"
    assert own_gateway(str(path)) is not None
    path.write_text('[site]\nlisten = ["tcp://127.0.0.1:7461"]\n')
    with pytest.raises(click.UsageError, match="no ipc:// address"):
        own_gateway(str(path))
    path.write_text("[site]\nlisten = 1\n")
    with pytest.raises(click.UsageError, match="or name the gateway with --gateway"):
        own_gateway(str(path))


def test_a_gateway_and_a_configuration_are_not_both_named(tmp_path):
    both = ["status", "--gateway", "tcp://127.0.0.1:1", "--config", "a.toml"]
    assert "only one of --gateway and --config" in CliRunner().invoke(cli, both).output


def test_options_of_time_and_of_shares_take_units():
    grace = click.Option(["--grace-s"])

    def told(kind, text):
        return kind.convert(text, grace, None)

    assert [told(LengthType(), text) for text in ("90", "90s", "1.5m", "00:01:30")] == [90] * 4
    assert [told(ShareType(), text) for text in ("0.5", "50%", "50 %")] == [0.5] * 3
    for kind, text in ((LengthType(), "soon"), (LengthType(0, 60), "2m"), (ShareType(), "half")):
        with pytest.raises(click.BadParameter, match=r"not (a length|in the range|a share)"):
            told(kind, text)
    with pytest.raises(click.BadParameter, match=r"7 has no unit: write 7s for seconds"):
        length_s("7", option="--next")
    assert length_s("4w", option="--next") == 4 * length_s("7d", option="--next")


def options_of(command):
    for each in getattr(command, "commands", {}).values():
        yield from options_of(each)
    yield from (each for each in command.params if isinstance(each, click.Option))


def test_a_plain_number_is_a_time_only_where_the_name_of_the_option_has_its_unit():
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in cli.list_commands(context)]
    found = [each for command in commands for each in options_of(command)]
    times = {each.opts[-1]: each for each in found if isinstance(each.type, LengthType)}
    named = {each.opts[-1] for each in found if each.opts[-1].endswith(("-s", "days", "hours"))}
    assert named - {"--scopes"} <= times.keys()
    assert {"--wait", "--days", "--grace-s"} <= times.keys()
    for name, option in times.items():
        assert option.type.convert("1d", option, None) == (1 if name.endswith("days") else 86_400)
        if name.endswith(("-s", "days")):
            assert option.type.convert("7", option, None) == 7
        else:
            with pytest.raises(click.BadParameter, match=r"7 has no unit: write 7s for seconds"):
                option.type.convert("7", option, None)


@pytest.mark.parametrize(
    "words", [["reserve", "--slots", "1", "--for", "7"],
              ["invite", "--expires", "7"], ["token", "--user", "ann", "--expires", "7"]]
)  # fmt: skip
def test_other_options_of_time_refuse_a_plain_number_too(words, monkeypatch):
    for module in ("shared.common", "inspect.reserve"):
        monkeypatch.setattr(f"gateway.cli.{module}.ask", lambda *_, **__: {"zone": "UTC"})
    monkeypatch.setenv("GRIDFED_CONFIG_DIR", "/none")
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert "7 has no unit: write 7s for seconds, 7m for minutes" in done.output


def test_a_time_is_in_the_zone_of_the_site_or_has_an_offset():
    london = ZoneInfo("Europe/London")

    def read(text, **options):
        return moment(text, end_of_day=False, option="--from", **options)

    summer = datetime(2026, 7, 1, 17, tzinfo=UTC).timestamp()
    assert read("2026-07-01T18:00", zone=london) == summer
    assert read("2026-07-01T17:00") == read("2026-07-01T17:00Z", zone=london) == summer
    assert read("2026-07-01T19:00+02:00", zone=london) == summer
    assert read("2026-07-01", zone=london) == summer - 18 * 3600
    for text in ("2026-10-25T01:30", "2026-03-29T01:30"):
        with pytest.raises(click.BadParameter, match="occurs twice or not at all"):
            read(text, zone=london)
    with click.Context(cli):
        assert show.moment(summer) == "2026-07-01 17:00:00 UTC"
        show.note_zone("Europe/London")
        assert show.moment(summer) == "2026-07-01 18:00:00 BST"
        assert (show.timed("from"), show.when(summer)) == (
            *("from, Europe/London", "2026-07-01 18:00:00"),
        )
        assert show.utc(summer) == "2026-07-01T17:00:00Z"


def test_what_is_reserved_is_told_in_the_zone_of_the_site(monkeypatch):
    asked = []

    def ask(_reach, verb, **details):
        asked.append(details)
        return {"zone": "Europe/London"} if verb == "status" else [RESERVED | details]

    for module in ("shared.common", "inspect.reserve"):
        monkeypatch.setattr(f"gateway.cli.{module}.ask", ask)
    words = ["reserve", "--slots", "2", "--for", "2h", "--from", "2026-07-01T18:00"]
    said = CliRunner().invoke(cli, words).stdout
    assert asked[-1]["from_s"] == datetime(2026, 7, 1, 17, tzinfo=UTC).timestamp()
    assert "from 2026-07-01 18:00:00 BST to" in said


RESERVED = {
    "id": "r-1",
    "site": "london",
    "pool": "cpu",
    "who": "user:ann",
    "state": "booked",
    "until_s": datetime(2026, 7, 1, 19, tzinfo=UTC).timestamp(),
    "cancelled_s": None,
    "total_nanos": 10**9,
    "price_nanos": 10**9,
    "currency": "USD",
    "unused_factor": 0.5,
}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("undrain", "`gridfed drain --resume WORKER`"),
        ("results", "`gridfed job JOB` (its state) or in Python `client.job(JOB).results()`"),
        ("bill", "`gridfed report`"),
        ("resume", "`gridfed release JOB` (a job) or `gridfed drain --resume WORKER`"),
        ("prioritize", "`gridfed prioritise JOB N`"),
        ("statu", "`gridfed status`"),
    ],
)
def test_a_command_that_does_not_exist_is_answered_by_the_one_that_is_meant(typed, meant):
    found = CliRunner().invoke(cli, [typed, "w"])
    assert found.exit_code == 2
    assert f"No such command '{typed}': did you mean {meant}?" in found.stderr


def test_a_command_like_no_other_is_only_refused():
    assert "did you mean" not in CliRunner().invoke(cli, ["zzzzzz"]).stderr


@pytest.mark.parametrize("name", ["cancel", "hold", "release", "prioritise", "forget", "logs"])
def test_commands_about_a_job_say_how_it_is_named(name):
    text = CliRunner().invoke(cli, [name, "--help"]).output
    assert "JOB" in text.partition("\n")[0]
    assert "JOB is its id, the beginning of it, or the name" in " ".join(text.split())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["up", "--slots", "99999999999999"], "'--slots': 99999999999999 is not in the range"),
        (["worker", "--slots", "5000"], "'--slots': 5000 is not in the range 1<=x<=4096"),
        (["explain", "--tasks", str(10**20)], "'--tasks'"),
        (["rules", "list", "--version", str(10**20)], "'--version'"),
    ],
)
def test_absurd_numbers_are_refused_by_their_option(line, said):
    found = CliRunner().invoke(cli, line)
    assert found.exit_code == 2
    assert said in found.stderr


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\xff\xfe\x00", "byte 1 is not UTF-8: it must be a text of TOML"),
        (b"[site]\n" + b".".join([b"a"] * 100_000) + b" = 1", "line 2: the file: a key of over"),
        (
            b'[site]\nname = "x"\n[[pool]]\nname = "p"\nkind = "local"\nslots = 5000',
            "at most 4,096",
        ),
    ],
)
def test_an_odd_configuration_is_refused_at_once(tmp_path, body, said):
    path = tmp_path / "gateway.toml"
    path.write_bytes(body)
    found = CliRunner().invoke(cli, ["check", str(path)])
    assert (found.exit_code, said in found.output) == (1, True), found.output
