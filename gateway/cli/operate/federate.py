"""Members and trust: invite, join, approve, leave, expel, keep, trust, token, rotate, known.

The process that holds the folder of keys decides: the gateway while it runs, which is asked by its
own socket, else the command itself. So no change is ever lost, and none needs the gateway to be
stopped.
"""

import functools
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import click
import trio

from federation import Client
from federation.address import GATEWAY_VARIABLE, NoToken
from federation.money import format_amount, parse_money
from federation.signed.tokens import Scope
from federation.words import count, read_length
from gateway.base.values import ConfigError, SettingError, suggest
from gateway.cli.operate.found import config_folder
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    confirm,
    errors_to_exit_codes,
    json_option,
    note_zone,
    reach_options,
    told_by,
    yes_option,
)
from gateway.cli.shared.own_gateway import CONFIG_FILE, config_file
from gateway.config.environments import TAKES_NONE
from gateway.config.federation import FederationConfig, shown
from gateway.config.site import SiteConfig, load
from gateway.grids.kinds import Installed
from gateway.peering import orders
from gateway.peering.orders import BadOrder
from gateway.trust import permissions
from gateway.trust.identity_store import Registry
from gateway.trust.keys import FolderInUse, hold
from gateway.trust.permissions import PermissionRule, Verb

_RULE_HELP: Final = (
    '"all", "none", or "pools=cpu,gpu projects=risk classes=public sites=@self slots=100 '
    'budget=500EUR"; repeatable; replaces all earlier rules of this option.'
)
_NOT_APPROVED: Final = ("known", "pending")  # levels of sites that may still be approved
_RULE_WORDS: Final = ("all", "pools", "projects", "classes", "sites", "slots", "budget")
BARE: Final = (
    "tasks of this site's users run there as the gateway's user, so the holder of this token can "
    "read the site's keys: set user in [[pool]]"
)


# An order changes whom a site trusts: the site does not depend on $GRIDFED_GATEWAY.
_GATEWAY_HELP: Final = (
    "Give the order to that gateway. [default: the site of --config, of $GRIDFED_CONFIG_DIR, or "
    "of ~/.config/gridfed]"
)
_REACH: Final = "gateway.cli.reach"  # the key, in a command's context, of the gateway to ask


def _config(config: str | None) -> SiteConfig:
    try:
        found = load(config or str(config_folder(None) / CONFIG_FILE), Installed())
    except ConfigError as error:
        raise BadOrder(
            f"{error}: make a site with `gridfed init`, choose its configuration with --config "
            "FILE, or name its gateway with --gateway URL ($GRIDFED_GATEWAY is not used by orders "
            "about trust)"
        ) from None
    if not (found.trust_path / "current.pem").exists():
        raise BadOrder(f"no keys found in {found.trust_path}: make them with `gridfed init`")
    return found


def _remote() -> DialOptions | None:
    """Return the gateway that --gateway names, which is asked in place of the configuration's."""
    context = click.get_current_context(silent=True)
    reach = None if context is None else context.meta.get(_REACH)
    return reach if isinstance(reach, DialOptions) and reach.address is not None else None


def order(config_path: str | None, verb: str, *, alone: bool = True, **details: Any) -> Any:
    """Carry out an order: by the gateway if it runs, else here, if it may be done `alone`.

    `config_path` is the file of the configuration; with --gateway that gateway is asked.

    Raises:
        GridError: it can't be done.
    """
    details = {key: value for key, value in details.items() if value is not None}
    remote = _remote()
    if remote is not None:
        return ask(remote, verb, **details)
    config = _config(config_path)
    show.note_site(config.name)
    show.note_zone(config.zone)
    try:
        with hold(config.trust_path):
            if not alone:
                raise _needs_gateway(verb)
            return trio.run(_perform_here, config, verb, details)
    except FolderInUse:
        return _ask_gateway(config, verb, details)


def question(config_path: str | None, verb: str, **details: Any) -> Any:
    """Ask what is known about trust, which changes nothing: also the gateway of $GRIDFED_GATEWAY.

    That one is asked where neither --gateway nor a configuration is named.

    Raises:
        GridError: it can't be answered.
    """
    context = click.get_current_context(silent=True)
    reach = None if context is None else context.meta.get(_REACH)
    if (
        isinstance(reach, DialOptions)
        and reach.address is None
        and reach.config is None
        and config_path is None
        and os.environ.get(GATEWAY_VARIABLE, "").strip(" ,")
    ):
        details = {key: value for key, value in details.items() if value is not None}
        return ask(reach, verb, **details)
    return order(config_path, verb, **details)


def _ask_gateway(config: SiteConfig, verb: str, details: dict[str, Any]) -> Any:
    own = next((each for each in config.addresses if each.startswith("ipc://")), None)
    if own is None:
        raise BadOrder(
            "the gateway is running, but [site] listen has no ipc:// address to reach it: add one"
        )
    # Without a token: on its own socket the gateway knows its operator.
    with Client(own, secret=config.secret, token=NoToken()) as client:
        found = client.ask(verb, **details)
        note_zone(client)
    return found


def _needs_gateway(verb: str) -> BadOrder:
    return BadOrder(
        f"`gridfed {verb}` needs a running gateway, which informs the other sites: start it first"
    )


def _consequences(
    config_path: str | None, verb: str, *, alone: bool = True, **details: Any
) -> list[str]:
    """Return what follows from an order, by the gateway that gets it.

    If it does not run nothing is under way; BadOrder where the order is not possible then.
    """
    remote = _remote()
    if remote is not None:
        return told_by(lambda: ask(remote, "consequences", order=verb, details=details))
    config = _config(config_path)
    try:
        with hold(config.trust_path):
            if not alone:
                raise _needs_gateway(verb)
            return ["the gateway does not run: the order takes effect when it starts"]
    except FolderInUse:
        asked = {"order": verb, "details": details}
        return told_by(lambda: _ask_gateway(config, "consequences", asked))


async def _perform_here(config: SiteConfig, verb: str, details: dict[str, Any]) -> Any:
    settings = config.federation or FederationConfig()
    registry = Registry(
        config.trust_path,
        follow=settings.follow,
        spread_s=settings.rotation_spread_s,
        overlap_s=settings.rotation_overlap_s,
        await_s=settings.rotation_await_s,
    )
    registry.join_address = _join_address(settings)
    return await orders.perform(registry, verb, details)


def _join_address(settings: FederationConfig) -> str:
    """Return the address for invitations, as far as it is known while the gateway does not run."""
    named = (settings.join_advertise,) if settings.join_advertise else ()
    bound = [settings.join_listen] if settings.join_listen else []
    try:
        addresses = shown(named, bound)
    except SettingError:
        return ""
    return next((each for each in addresses if not each.endswith(":0")), "")


def trust_command(*options: Callable[..., Any]) -> Callable[[Callable[..., Any]], click.Command]:
    """Decorate a command with the options that all commands of this module share."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def wrapped(*args: Any, reach: DialOptions, **kwargs: Any) -> Any:
            click.get_current_context().meta[_REACH] = reach
            return function(*args, config_path=config_file(reach.config, None), **kwargs)

        made: Callable[..., Any] = reach_options(
            json_option(errors_to_exit_codes(wrapped)), _GATEWAY_HELP
        )
        for option in reversed(options):
            made = option(made)
        return click.command()(functools.wraps(function)(made))

    return decorate


def _expiry(default: str, what: str) -> Callable[..., Any]:
    return click.option(
        "--expires", default=default, show_default=True, help=f"How long {what} is valid: 30m, 24h."
    )


def parse_span(text: str) -> float:
    """Read a length of time, "90s", "30m", "24h" or "7d", as seconds."""
    try:
        return read_length(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _validity_s(text: str) -> float:
    """Read the value of --expires, in seconds, within the bounds that all gateways have."""
    span_s = parse_span(text)
    if not 0 < span_s <= orders.VALID_MAX_S:
        bound = f"above zero, and at most {orders.VALID_MAX_S / 86400:g}d"
        raise click.BadParameter(f"{text!r}: it must be {bound}", param_hint="--expires")
    return span_s


# --- members -------------------------------------------------------------------------------------


@trust_command(
    _expiry("24h", "it"),
    click.option("--approve", is_flag=True, help="Approve the site that uses it at once."),
)
def invite(expires: str, approve: bool, config_path: str | None, as_json: bool) -> None:
    """Print an invitation: a line that admits one other site, once."""
    found = order(config_path, "invite", expires_s=_validity_s(expires), approve=approve)
    if as_json:
        show.as_json(found)
        return
    show.say(found["invitation"])
    show.say(f"valid for one site, for {expires}. Send it by a channel that you trust.", err=True)
    show.say(f"our fingerprint: {found['fingerprint']}", err=True)


@trust_command(
    click.argument("token"),
    click.option("--approve", is_flag=True, help="Approve the inviter at once."),
)
def join(token: str, approve: bool, config_path: str | None, as_json: bool) -> None:
    """Join a federation with an invitation; TOKEN is the invitation's line, or - for stdin."""
    text = sys.stdin.read() if token == "-" else token  # noqa: S105
    found = order(config_path, "join", invitation=text.strip(), approve=approve)
    if as_json:
        show.as_json(found)
        return
    site = found["site"]
    show.say(f"in federation {found['federation']}, with site {site}")
    show.say(f"our level there is {found['there']}, its level here is {found['level']}")
    show.say(f"our fingerprint  {found['own_fingerprint']}")
    show.say(f"its fingerprint  {found['fingerprint']}")
    if found["level"] != "approved":
        show.say(
            f"compare its fingerprint with its operator, then run: gridfed approve {site} "
            "FINGERPRINT"
        )


@trust_command(
    click.argument("site"),
    click.argument("fingerprint", default=""),
    click.option(
        "--new-keys",
        is_flag=True,
        help="The approved site has new keys to which no cards lead, and FINGERPRINT is theirs: "
        "accept them in place of the known ones. Its rules stay.",
    ),
)
def approve(
    site: str, fingerprint: str, new_keys: bool, config_path: str | None, as_json: bool
) -> None:
    """Approve a site whose FINGERPRINT its operator has read to you.

    Without one the command shows it, and asks for confirmation.
    """
    if new_keys:
        if not fingerprint:
            raise click.UsageError("--new-keys needs the FINGERPRINT that its operator has read")
        found = order(config_path, "approve", site=site, fingerprint=fingerprint, new_keys=True)
        text = f"keys of {site} with this fingerprint are accepted as soon as it shows them"
        _tell(found, as_json, text)
        return
    if not fingerprint:
        found = order(config_path, "approve", site=site)
        if as_json or not sys.stdin.isatty():
            raise BadOrder(
                f"compare the fingerprint of {site} with its operator, then repeat the "
                f"command with it: {found['fingerprint']}"
            )
        show.say(f"site {site} is {found['level']}: {show.clean(found['contact'])}")
        show.say(f"fingerprint  {found['fingerprint']}")
        click.confirm("Has its operator read the same fingerprint to you?", abort=True)
        fingerprint = found["fingerprint"]
    found = order(config_path, "approve", site=site, fingerprint=fingerprint)
    _tell(found, as_json, _level_of(site, found))


@trust_command(yes_option)
def leave(is_sure: bool, config_path: str | None, as_json: bool) -> None:
    """Leave the federation: all sessions end, and a return needs an invitation."""
    confirm(
        "Leave the federation?",
        lambda: _consequences(config_path, "leave", alone=False),
        is_sure=is_sure,
    )
    found = order(config_path, "leave", alone=False)
    _tell(found, as_json, f"site {found['site']} has left federation {found['federation']}")


@trust_command(
    click.argument("site"),
    click.option("--reason", default="", help="The reason, which the other sites see."),
    yes_option,
)
def expel(site: str, reason: str, is_sure: bool, config_path: str | None, as_json: bool) -> None:
    """Expel a site: it is out here at once, and the others are told. It asks first."""
    confirm(f"Expel {site}?", lambda: _of_expulsion(config_path, site), is_sure=is_sure)
    found = order(config_path, "expel", site=site, reason=reason)
    _tell(found, as_json, f"site {site} is {found['level']}")


@trust_command(
    click.argument("site"),
    click.option("--reason", default="", help="The reason, which the other sites see."),
)
def keep(site: str, reason: str, config_path: str | None, as_json: bool) -> None:
    """Take an expulsion back, or overrule those of others."""
    found = order(config_path, "expel", site=site, reason=reason, keep=True)
    _tell(found, as_json, _level_of(site, found))


def _level_of(site: str, found: Mapping[str, Any]) -> str:
    """Return a site's level, and what is to be done next where it is permitted nothing."""
    text = f"site {site} is {found['level']}"
    if found["level"] in _NOT_APPROVED:
        return f"{text}: approve it (`gridfed approve {site} FINGERPRINT`), then say what it may do"
    if not (found.get("rules") or found.get("rules_of_all")):
        return f"{text}; no rule permits it anything yet: see `gridfed trust --help`"
    return text


@trust_command(
    click.option(
        "--from", "source", metavar="SITE", help="Only sites that this member has reported."
    ),
    click.option(
        "--forget",
        is_flag=True,
        help="Forget those sites, and ignore its further reports of them.",
    ),
)
def known(source: str | None, forget: bool, config_path: str | None, as_json: bool) -> None:
    """List the trust book: every known site, its level, and its fingerprint.

    A site is known by hearsay if only other members have reported it; they are named.
    """
    if forget and source is None:
        raise click.UsageError("--forget needs --from SITE, the member whose reports are forgotten")
    details: dict[str, Any] = {"from": source, "forget": forget or None}
    found = (
        order(config_path, "known", **details)
        if forget
        else question(config_path, "known", **details)
    )
    if as_json:
        show.as_json(found["sites"], {key: found[key] for key in found if key != "sites"})
        return
    if forget:
        show.say(f"forgotten: {count(len(found['sites']), 'site')} reported by {source}")
    else:
        names = ", ".join(found.get("awaited", ()))  # an older gateway does not tell
        awaited = f", awaited: {names}" if names else ""
        show.say(f"federation {found['federation']}; keys: rotation {found['rotation']}{awaited}")
    rows = [
        (
            *(each["site"], _level(each), each["fingerprint"], " ".join(each["addresses"])),
            " ".join(each["from"] or ["-"]),
        )
        for each in found["sites"]
    ]
    show.table(("site", "level", "fingerprint", "addresses", "from"), rows, "")


def _level(row: Mapping[str, Any]) -> str:
    """Return the level of a site; an older gateway does not tell whether that site expelled us."""
    return f"{row['level']}, has expelled us" if row.get("has_expelled_us") else str(row["level"])


# --- trust ---------------------------------------------------------------------------------------


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
    elif found.get("level") in _NOT_APPROVED:
        show.say(
            f"these have an effect once the site is approved: `gridfed approve {site} FINGERPRINT`"
        )


def _warn_of_pools(config_path: str | None) -> None:
    """Warn of local pools that take no work of other sites, or run it without isolation."""
    for pool in () if _remote() else _config(config_path).pools:
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


@trust_command(
    click.option("--user", help="The user that the token identifies."),
    click.option("--projects", help="The projects that it may bill, as in risk,fx. [default: any]"),
    click.option(
        "--scopes",
        help="Any of submit, cancel, report, audit, admin, work, work:POOL. [default: the first 2]",
    ),
    click.option("--sites", help="The sites where it is valid. [default: here]"),
    _expiry("12h", "it"),
    click.option(
        "--revoke",
        metavar="TOKEN",
        help="Revoke a token of ours: the token itself, or its id.",
    ),
    click.option(
        "--revoke-user",
        metavar="USER",
        help="Revoke all tokens of a user that were issued so far.",
    ),
)
def token(  # noqa: PLR0913 - each is an option of the command
    user: str | None,
    projects: str | None,
    scopes: str | None,
    sites: str | None,
    expires: str,
    revoke: str | None,
    revoke_user: str | None,
    config_path: str | None,
    as_json: bool,
) -> None:
    """Print a signed token, which names a user and limits the user's rights at a gateway.

    `gridfed tokens list` shows the tokens that were made, without their text.
    """
    if revoke or revoke_user:
        revoke_tokens(config_path, revoke, revoke_user, as_json=as_json)
        return
    if not user:
        raise click.UsageError("--user is missing")
    _check_pools(config_path, _split(scopes) or [])
    found = order(
        config_path,
        "token",
        user=user,
        projects=_split(projects),
        scopes=_split(scopes),
        sites=_split(sites),
        expires_s=_validity_s(expires),
    )
    warnings = _of_bare_pools(config_path, found)
    for each in () if as_json else warnings:
        show.say(f"warning: {each}", err=True)
    _tell({**found, "warnings": warnings}, as_json, found["token"])


def revoke_tokens(
    config_path: str | None, token: str | None, user: str | None, *, as_json: bool
) -> None:
    """Revoke one token, by its text or id, or all of a user; tell what was revoked."""
    if (token is None) is (user is None):
        raise click.UsageError("give a token or its id, or a user with --user: one of the two")
    found = order(config_path, "revoke", token=token, user=user)
    if user is None:
        whose = f" of {found['user']}" if found["user"] else ""
        text = f"token {found['id']}{whose} is revoked"
    else:
        ids = found["tokens"]
        known = f"{count(len(ids), 'token')} of {user} revoked: {', '.join(ids)}"
        text = known if ids else f"the list has no valid token of {user}"
        text += f"; every token of {user} issued so far is refused here. A later token, or the "
        text += f'secret, admits {user} again: an [[entitlement]] with deny = "user:{user}" keeps '
        text += "all work of that user out (`gridfed rules apply`)"
    _tell(found, as_json, text)


def _check_pools(config_path: str | None, scopes: list[str]) -> None:
    """Raise ClickException for a scope such as work:POOL that names no pool of this site."""
    named = {each.partition(":")[2] for each in scopes if each.startswith(f"{Scope.WORK}:")}
    if _remote() or not named:
        return
    known = {pool.name for pool in _config(config_path).pools}
    if named - known:
        name = min(named - known)
        raise click.ClickException(
            f"--scopes: pool {name!r} not found here{suggest(name, known)}; "
            f"known pools: {', '.join(sorted(known))}"
        )


def _of_bare_pools(config_path: str | None, token: dict[str, Any]) -> list[str]:
    """Return warnings, in words, about local pools where a token's holder can act as our site."""
    if _remote():
        return []
    config = _config(config_path)
    if Scope.SUBMIT.value not in token["scopes"] or config.name not in token["sites"]:
        return []
    settled = (pool.settled(is_federated=config.federation is not None) for pool in config.pools)
    return [f"pool {pool.name}: {BARE}" for pool in settled if pool.is_bare]


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


@trust_command(
    click.option("--compromised", is_flag=True, help="Invalidate the old key at once."),
    click.option(
        "--force",
        is_flag=True,
        help="Use the new keys now, without waiting for acknowledgements.",
    ),
    yes_option,
)
def rotate(
    compromised: bool, force: bool, is_sure: bool, config_path: str | None, as_json: bool
) -> None:
    """Rotate the keys and the TLS leaf: the gateway does it step by step, without interruption.

    The new keys are used when all approved members have acknowledged them; `gridfed known` names
    those that have not. --compromised asks first.
    """
    if compromised and force:
        raise click.UsageError("--compromised does not wait: omit --force")
    if compromised:
        confirm(
            "Invalidate the present key at once?",
            lambda: _of_compromised(config_path),
            is_sure=is_sure,
        )
    found = order(config_path, "rotate", compromised=compromised, force=force or None)
    fingerprint, sites = found["fingerprint"], ", ".join(found.get("awaited", ()))
    if compromised:
        text = f"the old keys are invalid; our new fingerprint is {fingerprint}"
        if sites:
            text += f"; cut off unless another member informs them: {sites}"
    elif force:
        text = "the new keys are in use"
        if sites:
            text += f"; cut off until we reach them with the old keys: {sites}"
    else:
        text = f"the new keys are announced; until they are in use our fingerprint is {fingerprint}"
        if sites:
            text += f"; waiting for acknowledgement by: {sites}"
    _tell(found, as_json, text)


def _tell(found: Any, as_json: bool, line: str) -> None:
    if as_json:
        show.as_json(found)
    else:
        show.say(line)


def _of_expulsion(config_path: str | None, site: str) -> list[str]:
    """Return what follows from the expulsion of a site; BadOrder if it is unknown, by a slip."""
    known = {each["site"] for each in order(config_path, "known")["sites"]}
    if site not in known:
        meant = suggest(site, known)
        raise BadOrder(f"site {site!r} not found in the trust book{meant}: see `gridfed known`")
    return _consequences(config_path, "expel", site=site)


def _of_compromised(config_path: str | None) -> list[str]:
    """Return what follows from keys that are void at once."""
    tokens, trusted = order(config_path, "tokens"), order(config_path, "known")
    approved = [each["site"] for each in trusted["sites"] if each["level"] == "approved"]
    users = len({each["user"] for each in tokens})
    return [
        f"{count(len(tokens), 'valid token')} of {count(users, 'user')} and all grants that the "
        "present key signed are void at once: sessions end, users need new tokens",
        "members that are away are cut off until another member sends them the new card; approved "
        f"members: {', '.join(approved) or 'none'}",
    ]
