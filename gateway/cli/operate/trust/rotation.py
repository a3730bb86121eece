"""New keys of a site: gridfed rotate."""

import click

from federation.words import count
from gateway.cli.operate.trust.ordering import order, tell, trust_command
from gateway.cli.shared.common import (
    confirm,
    yes_option,
)


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
    tell(found, as_json, text)


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
