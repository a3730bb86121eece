"""A user's rights here, and the rules behind them: gridfed can."""

from typing import Any
from zoneinfo import ZoneInfo

import click

from federation.clocks import UtcS
from federation.errors import GridError
from federation.words import count
from gateway.api import can as answers
from gateway.base.clocks import utc_now
from gateway.base.values import SettingError
from gateway.cli.operate.serve import configured
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    address_options,
    ask,
    errors_to_exit_codes,
    json_option,
    site_zone,
)
from gateway.cli.shared.moments import moment
from gateway.cli.shared.own_gateway import of_files
from gateway.config.entitlements import check_entitlements
from gateway.config.pools import USUAL_POOL
from gateway.config.site import PoolConfig, SiteConfig


@click.command()
@click.argument("user", required=False)
@click.option("--project", metavar="NAME", help="The project of the work. [default: default]")
@click.option(
    "--group", metavar="NAME", help="Answer as if USER were in this group. [default: by [groups]]"
)
@click.option(
    "--site", metavar="SITE", help="A user of this site, whose gateway sends us the work."
)
@click.option(
    "--pool", metavar="POOL", help="Only this pool; `elsewhere`: the pools of other sites."
)
@click.option(
    "--at", "when", metavar="WHEN", help="A moment: 2026-11-22T18:00, in the site's zone."
)
@of_files("Read this configuration file instead of asking a gateway.", by_environment=False)
@address_options
@json_option
@errors_to_exit_codes
def can(  # noqa: PLR0913 - one parameter an option
    user: str | None,
    project: str | None,
    group: str | None,
    site: str | None,
    pool: str | None,
    when: str | None,
    path: str | None,
    reach: DialOptions,
    as_json: bool,
) -> None:
    """Show what USER may do here, pool by pool, and the deciding rule with its line.

    Without USER it shows what you may do with this token. Only an operator may ask about
    others.

    The trust book and the [[entitlement]] tables of the configuration are consulted, as for a job.
    The limits are those of the most generous rule; `gridfed windows` shows how claims reduce them.
    """
    if user is None and (path is not None or group is not None or site is not None):
        raise click.UsageError("give the USER to ask about: --config, --group and --site need one")
    at_s = None
    if when is not None:
        own = None if path is None else ZoneInfo(configured(path, (), None).zone)
        at_s = moment(when, end_of_day=False, option="--at", zone=own or site_zone(reach))
    details = {"user": user, "project": project, "group": group, "site": site, "pool": pool}
    details = {key: each for key, each in details.items() if each is not None}
    if path is None:
        found = ask(reach, "can", **details, **({} if at_s is None else {"at_s": at_s}))
    else:
        found = _from_file(path, details, utc_now() if at_s is None else at_s)
    if as_json:
        show.as_json(found)
        return
    _print(found)


def _from_file(path: str, details: dict[str, Any], at_s: UtcS) -> Any:
    config = configured(path, (), None)
    try:
        check_entitlements(config.entitlements, _plans(config), config.places)
    except SettingError as error:
        raise click.UsageError(f"{path}: {error}") from None
    question = answers.read_question(details, at_s)
    try:
        trust = answers.load_trust(config)
    except GridError as error:
        if question.site:
            raise
        show.say(f"gridfed: the trust book is ignored: {error}", err=True)
        trust = None
    return answers.answer(config, trust, question)


def _plans(config: SiteConfig) -> dict[str, Any]:
    return {each.name: each.plan for each in config.pools or (PoolConfig(USUAL_POOL),)}


def _print(found: dict[str, Any]) -> None:
    about = [found["user"], f"project {found['project']}"]
    about += [f"group {found['group']}"] if found["group"] else []
    more = found.get("more_groups", ())  # an older gateway does not tell
    about += [f"and in {', '.join(more)}"] if more else []
    show.say(f"{', '.join(about)}; {show.moment(found['at_s'])}")
    for each in found["warnings"]:
        show.say(each)
    columns = ("pool", "allowed", "slots", "each user", "tasks", "each user", "priority", "class")
    show.table(
        (*columns, "window", show.timed("changes"), "rule"),
        [_row(each) for each in found["pools"]],
        "no pools",
        keys=2,
    )
    for each in found["pools"]:
        if each["text"]:
            show.say(f"{each['pool']}: {each['text']}")
        rule, trusted = each["rule"], (each.get("trust") or {}).get("rule")
        for found_rule in (rule, trusted):
            if found_rule is not None and each["may"]:
                place = _place(found_rule, found_rule["file"])
                show.say(f"{each['pool']}: {found_rule['text']} ({place})")


def _row(row: dict[str, Any]) -> list[Any]:
    change, rule = row["next"], row["rule"]
    return [
        row["pool"],
        "yes" if row["may"] else "no",
        *(_of(row, key) for key in ("slots", "user_slots", "queued", "user_queued")),
        "" if row["priority_max"] is None else f"to {row['priority_max']:g}",
        ", ".join(row["classes"]),
        row["window"] or "",
        "" if change is None else f"{show.when(change['at_s'])}: {_then(change)}",
        ("" if row["may"] else "none")
        if rule is None
        else _place(rule, rule["file"].rpartition("/")[2]),
    ]


def _place(rule: dict[str, Any], file: str) -> str:
    """Format the line of a rule, or the change that made it where the file does not have it."""
    return f"{file}:{rule['line']}" if rule["line"] or not rule.get("change") else rule["change"]


def _of(row: dict[str, Any], key: str) -> str:
    """Format `3/40`: used of allowed; without a gateway, only the latter."""
    most = row[f"{key}_max"]
    if not row["may"]:
        return ""
    if most is None:
        return "all" if key == "slots" else ""
    return f"{row[key]:,}/{most:,}" if key in row else f"{most:,}"


def _then(change: dict[str, Any]) -> str:
    if not change["may"]:
        return "no"
    return "yes" if change["slots_max"] is None else f"yes, {count(change['slots_max'], 'slot')}"
