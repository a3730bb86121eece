"""The rights of other sites: gridfed trust."""

import re
from typing import Any, Final

import click

from federation.money import format_amount, parse_money
from gateway.base.values import suggest
from gateway.cli.operate.trust.members import NOT_APPROVED
from gateway.cli.operate.trust.ordering import configuration, order, remote_gateway, trust_command
from gateway.cli.shared import show
from gateway.config.environments import TAKES_NONE
from gateway.trust import permissions
from gateway.trust.permissions import PermissionRule, Verb

_RULE_HELP: Final = (
    '"all", "none", or "pools=cpu,gpu projects=risk classes=public sites=@self slots=100 '
    'budget=500EUR"; repeatable; replaces all earlier rules of this option.'
)
_RULE_WORDS: Final = ("all", "pools", "projects", "classes", "sites", "slots", "budget")


@trust_command(
    click.argument("site"),
    click.option("--may-send", multiple=True, metavar="RULE", help=f"Its work here: {_RULE_HELP}"),
    click.option(
        "--may-run", multiple=True, metavar="RULE", help="Our work there: a rule of the same form."
    ),
    click.option(
        "--never-send",
        multiple=True,
        metavar="RULE",
        help="Forbid its work here; overrides --may-send.",
    ),
    click.option(
        "--never-run",
        multiple=True,
        metavar="RULE",
        help="Forbid our work there; overrides --may-run.",
    ),
    click.option("--pickles/--no-pickles", default=None, help="Accept pickled results from it."),
    click.option("--users/--no-users", default=None, help="Accept users with its tokens."),
)
def trust(  # noqa: PLR0913 - each is an option of the command
    site: str,
    may_send: tuple[str, ...],
    may_run: tuple[str, ...],
    never_send: tuple[str, ...],
    never_run: tuple[str, ...],
    pickles: bool | None,
    users: bool | None,
    config_path: str | None,
    as_json: bool,
) -> None:
    """Set a site's rights; SITE is a name, or "*" for every approved one. Alone: show them.

    Only what a rule permits is allowed; a rule that forbids overrides all that permit. Each option
    replaces the rules that it gave before; "none" removes them.
    """
    found = order(
        config_path,
        "trust",
        site=site,
        may_send=_rules(Verb.SEND, may_send, permits=True),
        may_run=_rules(Verb.RUN, may_run, permits=True),
        never_send=_rules(Verb.SEND, never_send, permits=False),
        never_run=_rules(Verb.RUN, never_run, permits=False),
        pickles=pickles,
        users=users,
    )
    if users or any(each.strip() != "none" for each in may_send):
        _warn_of_pools(config_path)
    if as_json:
        show.as_json(found)
        return
    if "level" in found:
        show.say(f"site {site} is {found['level']}")
        show.say(f"fingerprint  {found['fingerprint']}")
        show.say(f"pickles {_yes(found['pickles'])}, users {_yes(found['users'])}")
    shared = found.get("rules_of_all", [])
    for rule in found["rules"]:
        show.say(_rule_text(rule))
    for rule in shared:
        show.say(f'{_rule_text(rule)}  (of every approved site: "*")')
    if not found["rules"] and not shared:
        show.say("no rules: nothing is permitted")
    elif found.get("level") in NOT_APPROVED:
        show.say(
            f"these have an effect once the site is approved: `gridfed approve {site} FINGERPRINT`"
        )


def parse_rule(text: str, verb: Verb, *, permits: bool) -> dict[str, Any]:
    """Read a rule as people write it, "pools=cpu slots=100", to the form of the trust file."""
    details: dict[str, Any] = {}
    words = text.split()
    if not words:  # a shell variable that was not set must not open a site
        raise click.BadParameter(f"the rule is empty: write {_RULE_HELP}")
    for word in words:
        name, _, value = word.partition("=")
        if name not in _RULE_WORDS:
            near = suggest(name, _RULE_WORDS)
            raise click.BadParameter(f"a rule has no {name!r}{near}: write {_RULE_HELP}")
        if "=" in value:  # a limit behind a comma would be a name, and limit nothing
            raise click.BadParameter(
                f"{word!r} has two settings: write a blank between them, as in "
                '"pools=cpu slots=100"'
            )
        if name in ("pools", "projects", "classes", "sites") and all(value.split(",")):
            details[name] = frozenset(value.split(","))
        elif name == "slots" and value.isdigit():
            details["slots_max"] = int(value)
        elif name == "budget" and (match := re.fullmatch(r"([0-9.]+) ?([A-Z]{3})", value)):
            details["budget_nanos"], details["currency"] = parse_money(f"{match[1]} {match[2]}")
        elif word != "all":
            raise click.BadParameter(f"{word!r} has no value that fits: write {_RULE_HELP}")
    try:
        rule: PermissionRule = (permissions.permit if permits else permissions.forbid)(
            verb, **details
        )
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return permissions.to_plain(rule)


def _rules(verb: Verb, texts: tuple[str, ...], *, permits: bool) -> list[dict[str, Any]] | None:
    """Return the rules of one kind that an option gives; None if it was not given."""
    if not texts:
        return None
    return [parse_rule(each, verb, permits=permits) for each in texts if each.strip() != "none"]


def _warn_of_pools(config_path: str | None) -> None:
    """Warn of local pools that take no work of other sites, or run it without isolation."""
    for pool in () if remote_gateway() else configuration(config_path).pools:
        settled = pool.settled(is_federated=True)
        rules = settled.environments
        if rules is None or pool.kind == "remote":
            continue
        if not rules.takes_others:
            show.say(f"warning: pool {pool.name}: {TAKES_NONE}", err=True)
        elif rules.accept_risk:
            show.say(f"warning: pool {pool.name}: {rules.accept_risk}", err=True)


def _rule_text(rule: dict[str, Any]) -> str:
    """Format a rule as `gridfed trust` takes it: "permit run projects=risk budget=500EUR"."""
    details = [
        f"{key}={','.join(value) if isinstance(value, list) else value}"
        for key, value in rule.items()
        if key not in ("rule", "verb", "slots_max", "budget_nanos", "currency")
    ]
    if "slots_max" in rule:
        details.append(f"slots={rule['slots_max']}")
    if "budget_nanos" in rule:
        details.append(f"budget={format_amount(int(rule['budget_nanos']))}{rule['currency']}")
    return " ".join([rule["rule"], rule["verb"], *details])


def _yes(value: bool) -> str:
    return "yes" if value else "no"
