"""The command `gridfed symphony`: the package for Symphony's hosts, and its plans as windows."""

import json
import shlex
import tomllib
import zoneinfo
from pathlib import Path

import click

from gateway.base.values import SettingError
from gateway.cli.shared import show
from gateway.cli.shared.common import json_option, parse_size
from gateway.cli.shared.moments import LengthType
from gateway.grids.symphony.package import ApplicationProfile, build_package, profile
from gateway.grids.symphony.plan import read_plan, show_windows
from policies.parties import read_party

PLAN_CHARS_MAX = 4 << 20


@click.group()
def symphony() -> None:
    """Prepare IBM Spectrum Symphony for a pool of kind "symphony"."""


@symphony.command("package")
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--application",
    default="gridfed",
    show_default=True,
    help="The name of the application in Symphony.",
)
@click.option(
    "--consumer", default="/Gridfed", show_default=True, help="The consumer whose slots it uses."
)
@click.option(
    "--resource-group", default="ComputeHosts", show_default=True, help="The hosts of the service."
)
@click.option(
    "--python", default="python3", show_default=True, help="The Python of the calls on the hosts."
)
@click.option(
    "--soam-python",
    default="python3",
    show_default=True,
    help="The Python of soamapi on the hosts.",
)
@click.option(
    "--memory-bytes",
    default="0",
    show_default=True,
    callback=lambda _context, _option, text: parse_size(text),
    help="The memory of a slot, as in 4G; 0: no limit.",
)
@click.option(
    "--keep-sessions/--abort-sessions",
    default=True,
    show_default=True,
    help="Whether sessions of a killed gateway go on: see take_up_s.",
)
@json_option
def package(  # noqa: PLR0913 - one parameter an option
    out: Path,
    application: str,
    consumer: str,
    resource_group: str,
    python: str,
    soam_python: str,
    memory_bytes: int,
    keep_sessions: bool,
    as_json: bool,
) -> None:
    """Write the service package for Symphony's hosts to OUT (a .tar.gz), its profile beside it.

    The same gridfed makes the same bytes, at any time and on any host.
    """
    if not out.name.endswith(".tar.gz"):
        raise click.UsageError("OUT must end in .tar.gz")
    wanted = ApplicationProfile(
        name=application,
        consumer=consumer,
        resource_group=resource_group,
        python=python,
        soam_python=soam_python,
        memory_bytes=memory_bytes,
        keep_sessions=keep_sessions,
    )
    beside = out.with_name(out.name.removesuffix(".tar.gz") + ".xml")
    try:
        out.write_bytes(build_package())
        beside.write_text(profile(wanted))
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
    commands = [
        shlex.join(["soamdeploy", "add", application, "-p", str(out), "-c", consumer]),
        shlex.join(["soamreg", str(beside)]),
    ]
    if as_json:
        show.as_json({"package": str(out), "profile": str(beside), "commands": commands})
        return
    for each in commands:
        click.echo(each)


@symphony.command("windows")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--zone",
    default="UTC",
    show_default=True,
    help="The time zone of its hours, as in Europe/London.",
)
@click.option(
    "--who",
    "pairs",
    multiple=True,
    metavar="CONSUMER=PARTY",
    help="The party of a consumer, as in /Risk=project:risk; repeatable.",
)
@click.option(
    "--grace-s",
    default="30s",
    show_default=True,
    type=LengthType(0, 86_400),
    help="How long after a window's beginning tasks may run on.",
)
@click.option("--pool", help="The pool of the windows: its table is printed before them.")
@json_option
def windows(
    file: Path, zone: str, pairs: tuple[str, ...], grace_s: float, pool: str | None, as_json: bool
) -> None:
    """Print an hourly resource plan as the [[pool.window]] tables of a configuration.

    FILE is a table, a line for each consumer and interval: consumer,from,to,owned,lends,borrows.
    Consumers are projects here, by the last part of their path, unless --who maps them otherwise.
    """
    if zone not in zoneinfo.available_timezones():
        raise click.BadParameter(f"time zone {zone!r} not found", param_hint="--zone")
    who: dict[str, str] = {}
    for pair in pairs:
        consumer, equals, party = pair.rpartition("=")
        try:
            if not equals:
                raise ValueError("it must be CONSUMER=PARTY")
            read_party(party)
        except (ValueError, SettingError) as error:
            raise click.BadParameter(f"{pair!r}: {error}", param_hint="--who") from None
        who[consumer] = party
    try:
        with file.open(encoding="utf-8") as plan:
            text = plan.read(PLAN_CHARS_MAX + 1)
        if len(text) > PLAN_CHARS_MAX:
            raise SettingError(f"it is longer than {PLAN_CHARS_MAX:,} characters")
        shown = show_windows(read_plan(text), who, zone=zone, grace_s=round(grace_s))
    except (SettingError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file}: {error}") from None
    if as_json:
        made = tomllib.loads(f"[[pool]]\n{shown}")["pool"][0].get("window", [])
        show.as_json(made, {"pool": pool})
        return
    if pool is not None:
        click.echo(f"[[pool]]\nname = {json.dumps(pool)}\n")  # a JSON text is a TOML text
    click.echo(shown, nl=False)
