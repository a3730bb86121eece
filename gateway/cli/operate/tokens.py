"""The tokens that a site has issued: gridfed tokens list, gridfed tokens revoke."""

from typing import Any

import click

from gateway.cli.operate.federate import question, revoke_tokens, trust_command
from gateway.cli.shared import show


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
