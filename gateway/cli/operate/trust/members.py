"""Members: gridfed invite, join, approve, leave, expel, keep, known."""

import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from federation.words import count
from gateway.base.values import suggest
from gateway.cli.operate.trust.ordering import (
    consequences,
    expiry_option,
    order,
    question,
    tell,
    trust_command,
    validity_s,
)
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    confirm,
    yes_option,
)
from gateway.peering.orders import BadOrder

NOT_APPROVED: Final = ("known", "pending")  # levels of sites that may still be approved


@trust_command(
    expiry_option("24h", "it"),
    click.option("--approve", is_flag=True, help="Approve the site that uses it at once."),
)
def invite(expires: str, approve: bool, config_path: str | None, as_json: bool) -> None:
    """Print an invitation: a line that admits one other site, once."""
    found = order(config_path, "invite", expires_s=validity_s(expires), approve=approve)
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
        tell(found, as_json, text)
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
    tell(found, as_json, _level_of(site, found))


@trust_command(yes_option)
def leave(is_sure: bool, config_path: str | None, as_json: bool) -> None:
    """Leave the federation: all sessions end, and a return needs an invitation."""
    confirm(
        "Leave the federation?",
        lambda: consequences(config_path, "leave", alone=False),
        is_sure=is_sure,
    )
    found = order(config_path, "leave", alone=False)
    tell(found, as_json, f"site {found['site']} has left federation {found['federation']}")


@trust_command(
    click.argument("site"),
    click.option("--reason", default="", help="The reason, which the other sites see."),
    yes_option,
)
def expel(site: str, reason: str, is_sure: bool, config_path: str | None, as_json: bool) -> None:
    """Expel a site: it is out here at once, and the others are told. It asks first."""
    confirm(f"Expel {site}?", lambda: _of_expulsion(config_path, site), is_sure=is_sure)
    found = order(config_path, "expel", site=site, reason=reason)
    tell(found, as_json, f"site {site} is {found['level']}")


def _of_expulsion(config_path: str | None, site: str) -> list[str]:
    """Return what follows from the expulsion of a site; BadOrder if it is unknown, by a slip."""
    known = {each["site"] for each in order(config_path, "known")["sites"]}
    if site not in known:
        meant = suggest(site, known)
        raise BadOrder(f"site {site!r} not found in the trust book{meant}: see `gridfed known`")
    return consequences(config_path, "expel", site=site)


@trust_command(
    click.argument("site"),
    click.option("--reason", default="", help="The reason, which the other sites see."),
)
def keep(site: str, reason: str, config_path: str | None, as_json: bool) -> None:
    """Take an expulsion back, or overrule those of others."""
    found = order(config_path, "expel", site=site, reason=reason, keep=True)
    tell(found, as_json, _level_of(site, found))


def _level_of(site: str, found: Mapping[str, Any]) -> str:
    """Return a site's level, and what is to be done next where it is permitted nothing."""
    text = f"site {site} is {found['level']}"
    if found["level"] in NOT_APPROVED:
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
