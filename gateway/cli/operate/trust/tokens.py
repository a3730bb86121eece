"""Tokens of users: gridfed token, which makes one; gridfed tokens list, gridfed tokens revoke."""

import os
from pathlib import Path
from typing import Any, Final

import click

from federation.signed.tokens import Scope
from federation.words import count
from gateway.base.values import suggest
from gateway.cli.operate.trust.ordering import (
    configuration,
    expiry_option,
    order,
    question,
    remote_gateway,
    tell,
    trust_command,
    validity_s,
)
from gateway.cli.shared import show
from gateway.config.environments import ANY_USER
from gateway.config.pools import PoolConfig
from gateway.worker.isolation.users import UserUnavailable, find_user

BARE: Final = (
    "tasks of this site's users run there as the gateway's user, so the holder of this token can "
    "read the site's keys: set user in [[pool]]"
)


@trust_command(
    click.option("--user", help="The user that the token identifies."),
    click.option("--projects", help="The projects that it may bill, as in risk,fx. [default: any]"),
    click.option(
        "--scopes",
        help="Any of submit, cancel, report, audit, admin, work, work:POOL. [default: the first 2]",
    ),
    click.option("--sites", help="The sites where it is valid. [default: here]"),
    expiry_option("12h", "it"),
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
        expires_s=validity_s(expires),
    )
    warnings = _of_bare_pools(config_path, found)
    for each in () if as_json else warnings:
        show.say(f"warning: {each}", err=True)
    tell({**found, "warnings": warnings}, as_json, found["token"])


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
    tell(found, as_json, text)


def _check_pools(config_path: str | None, scopes: list[str]) -> None:
    """Raise ClickException for a scope such as work:POOL that names no pool of this site."""
    named = {each.partition(":")[2] for each in scopes if each.startswith(f"{Scope.WORK}:")}
    if remote_gateway() or not named:
        return
    known = {pool.name for pool in configuration(config_path).pools}
    if named - known:
        name = min(named - known)
        raise click.ClickException(
            f"--scopes: pool {name!r} not found here{suggest(name, known)}; "
            f"known pools: {', '.join(sorted(known))}"
        )


def _of_bare_pools(config_path: str | None, token: dict[str, Any]) -> list[str]:
    """Return warnings, in words, about local pools where a token's holder can act as our site."""
    if remote_gateway():
        return []
    config = configuration(config_path)
    if Scope.SUBMIT.value not in token["scopes"] or config.name not in token["sites"]:
        return []
    settled = (pool.settled(is_federated=config.federation is not None) for pool in config.pools)
    return [f"pool {pool.name}: {BARE}" for pool in settled if _runs_bare(pool, config.state_path)]


def _runs_bare(pool: PoolConfig, state: Path) -> bool:
    """Whether own users' tasks run as the gateway's user on this host.

    Also where another user is wanted and not possible, as the pool's worker finds: then tasks run
    as its own user, and the log says so.

    Args:
        pool: after `settled`.
        state: the folder of the gateway's state, whose owner is the gateway's user.
    """
    if pool.kind != "local":
        return False
    if pool.user == ANY_USER and not _is_roots(state):
        return True
    try:
        return find_user(pool.user) is None
    except UserUnavailable:
        return pool.user == ANY_USER  # with a name its worker does not start


def _is_roots(folder: Path) -> bool:
    try:
        return folder.stat().st_uid == 0
    except OSError:
        return os.geteuid() == 0


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


# --- gridfed tokens -------------------------------------------------------------------------------


@click.group()
def tokens() -> None:
    """Look after the tokens that this site has issued."""


@trust_command(
    click.option("--user", help="Only those of this user."),
    click.option("--all", "everything", is_flag=True, help="Include expired and revoked ones."),
)
def list_tokens(user: str | None, everything: bool, config_path: str | None, as_json: bool) -> None:
    """List the tokens that are valid: whose they are, for what, and when they were last used.

    The text of a token is kept nowhere. Expired tokens are listed for 30 days with --all. Tokens of
    a version that kept no list are not in it. Where neither --gateway nor a configuration is named,
    the gateway of $GRIDFED_GATEWAY is asked.
    """
    found = question(config_path, "tokens", user=user, all=everything or None)
    if as_json:
        show.as_json(found)
        return
    show.table(
        (
            "id",
            "user",
            "scopes",
            "projects",
            show.timed("made"),
            "expires",
            "last used",
            "from",
            "state",
        ),
        [_token_row(each) for each in found],
        "no token is registered here" if everything else "no valid token is registered here",
        keys=2,
    )


def _token_row(each: dict[str, Any]) -> list[Any]:
    projects = each["projects"]
    return [
        *(each["id"], each["user"], ",".join(each["scopes"])),
        "all" if projects is None else ",".join(projects),
        *(show.when(each["made_at_s"]), show.when(each["expires_at_s"])),
        show.when(each["used_at_s"]),
        each["used_from"] or ("this host" if each["used_at_s"] else ""),
        each["state"],
    ]


@trust_command(
    click.argument("token_or_id", metavar="[TOKEN]", required=False),
    click.option("--user", help="All tokens of this user that were issued so far."),
)
def revoke_token(
    token_or_id: str | None, user: str | None, config_path: str | None, as_json: bool
) -> None:
    """Revoke one TOKEN, by its id or its text, or all tokens of a --user.

    Its open sessions end at once, and the other sites for which it is valid are told. A job that
    was submitted whole goes on (`gridfed cancel`).
    """
    revoke_tokens(config_path, token_or_id, user, as_json=as_json)


list_tokens.name, revoke_token.name = "list", "revoke"
tokens.add_command(list_tokens)
tokens.add_command(revoke_token)
