"""`gridfed check`: whether a configuration is right, before a gateway is started with it."""

from pathlib import Path

import click
import trio

from federation.words import count
from gateway.base.clocks import utc_now
from gateway.base.values import ConfigError, KnobError
from gateway.checking.findings import Finding, FindingList, Level
from gateway.checking.grids import ask_grids
from gateway.checking.whole import examine
from gateway.cli.operate.found import config_folder
from gateway.cli.shared import show
from gateway.cli.shared.common import json_option
from gateway.cli.shared.own_gateway import CONFIG_FILE, of_files
from gateway.config.site import SiteConfig, load
from gateway.config.site import check as check_tables
from gateway.grids.kinds import Installed


@click.command()
@click.argument("file", required=False)
@click.option("--offline", is_flag=True, help="Do not ask the grids of pools.")
@of_files("The configuration, in place of FILE.", name="config")
@json_option
def check(file: str | None, config: str | None, offline: bool, as_json: bool) -> None:
    """Check a configuration FILE, and all that it names.

    Without FILE it is gateway.toml in $GRIDFED_CONFIG_DIR, or in ~/.config/gridfed. Opens the files
    that it names, compares its names with each other and with the sites that are known here, asks
    the grids of its pools, and warns of what expires. Changes nothing. Exits with 1 for an error,
    and with 0 if there are only warnings.

    Rules that commands have made are in the database: `gridfed reload --dry-run` checks the file
    with those.
    """
    if file and config:
        raise click.UsageError("give only one of FILE, --config FILE and --config-dir DIR")
    path = file or config or str(config_folder(None) / CONFIG_FILE)
    findings, told = _examined(path, offline=offline)
    if as_json:
        rows = [each.to_plain() for each in findings]
        counts = {"errors": len(findings.errors), "warnings": len(findings.warnings)}
        show.as_json(rows, {"file": path, **counts, "grids": told})
    else:
        for each in findings:
            show.say(f"{each.level}: {each}")
        for pool, text in told.items():
            show.say(f"pool {pool}: {text}")
        errors = count(len(findings.errors), "error")
        end = (
            f"{errors}, {count(len(findings.warnings), 'warning')}"
            if findings.found
            else "nothing is wrong"
        )
        show.say(f"{path}: {end}")
    raise SystemExit(1 if findings.errors else 0)


def _examined(path: str, *, offline: bool) -> tuple[FindingList, dict[str, str]]:
    """Return the findings about a file, and what its grids say of themselves."""
    utc_s = utc_now()
    try:
        config = check_tables(load(path, Installed()), utc_s)
    except (ConfigError, KnobError) as error:
        return FindingList(path, found=[_mistake(path, str(error))]), {}
    findings = examine(config, utc_s)
    told = {} if offline else _asked(config, findings)
    return findings, told


def _mistake(path: str, text: str) -> Finding:
    """Return the finding for an error of the readers, whose text begins with file and line."""
    for each in (path, str(Path(path).absolute())):
        text = text.removeprefix(f"{each}: ")
    line, colon, rest = text.partition(": ")
    number = line.removeprefix("line ")
    if colon and line.startswith("line ") and number.isdigit():
        return _of_file(path, int(number), rest)
    return _of_file(path, 0, text)


def _of_file(path: str, line: int, text: str) -> Finding:
    subject, colon, rest = text.partition(": ")
    if not colon or not subject.startswith("["):
        subject, rest = "the file", text
    return Finding(Level.ERROR, "configuration", subject, rest, path, line, stops=True)


def _asked(config: SiteConfig, findings: FindingList) -> dict[str, str]:
    pools = [each for each in config.pools if each.is_grown or each.is_delegated]
    if not pools:
        return {}
    return trio.run(ask_grids, config, findings)
