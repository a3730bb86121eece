"""`gridfed check`: whether a configuration is right, before a gateway is started with it."""

import re
from typing import Final

import click
import trio

from federation.words import count
from gateway.base.clocks import utc_now
from gateway.checking.findings import Finding, FindingList, Level
from gateway.checking.grids import ask_grids
from gateway.checking.reading import Mistake, read_whole
from gateway.checking.whole import examine, follow_ups_removed
from gateway.cli.operate.found import config_folder
from gateway.cli.shared import show
from gateway.cli.shared.common import json_option
from gateway.cli.shared.own_gateway import CONFIG_FILE, of_files
from gateway.config.site import SiteConfig
from gateway.grids.kinds import Installed

# A sentence that begins with its table, as in "[limits] grace_s is -1: it must be …".
_SENTENCE: Final = re.compile(
    r"(\[\[?[\w.]+\]\]?) ((?:unknown key |'[^']*' must |\w+ (?:is|must) ).*)", re.DOTALL
)


@click.command()
@click.argument("file", required=False)
@click.option("--offline", is_flag=True, help="Do not ask the grids of pools.")
@of_files("The configuration, in place of FILE.", name="config")
@json_option
def check(file: str | None, config: str | None, offline: bool, as_json: bool) -> None:
    """Check a configuration FILE, and all that it names.

    Without FILE it is gateway.toml in $GRIDFED_CONFIG_DIR, or in ~/.config/gridfed. Tells all
    mistakes of the file in one run, opens the files that it names, compares its names with each
    other and with the sites that are known here, asks the grids of its pools, and warns of what
    expires. Changes nothing. Exits with 1 for an error, and with 0 if there are only warnings.

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
            else "no problems found"
        )
        show.say(f"{path}: {end}")
    raise SystemExit(1 if findings.errors else 0)


def _examined(path: str, *, offline: bool) -> tuple[FindingList, dict[str, str]]:
    """Return the findings about a file, and what its grids say of themselves."""
    utc_s = utc_now()
    read = read_whole(path, Installed(), utc_s)
    findings = FindingList(path, found=[_of_file(path, each) for each in read.mistakes])
    if read.config is None:
        return findings, {}
    findings.found += follow_ups_removed(examine(read.config, utc_s, path), read.removed)
    findings.found.sort(key=lambda each: each.level is Level.WARNING)
    told = {} if offline or read.mistakes else _asked(read.config, findings)
    return findings, told


def _of_file(path: str, mistake: Mistake) -> Finding:
    subject, colon, rest = mistake.text.partition(": ")
    if sentence := _SENTENCE.match(mistake.text):
        subject, rest = sentence.groups()
    elif not colon or not subject.startswith("["):
        subject, rest = "the file", mistake.text
    return Finding(Level.ERROR, "configuration", subject, rest, path, mistake.line, stops=True)


def _asked(config: SiteConfig, findings: FindingList) -> dict[str, str]:
    pools = [each for each in config.pools if each.is_grown or each.is_delegated]
    if not pools:
        return {}
    return trio.run(ask_grids, config, findings)
