"""The view of fair shares: `gridfed shares`."""

from typing import Any

import click

from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    all_users_option,
    ask,
    errors_to_exit_codes,
    json_option,
    of_users,
    reach_options,
)


@click.command()
@reach_options
@json_option
@all_users_option
@errors_to_exit_codes
def shares(reach: DialOptions, as_json: bool, all_users: bool) -> None:
    """Show how the site's slots are shared out: targets, use, and the order of shares.

    Use is decayed: after a half-life half of it is forgotten.
    """
    found = ask(reach, "shares", **of_users(all_users=all_users))
    if as_json:
        show.as_json(found["shares"], {key: found[key] for key in found if key != "shares"})
        return
    show.table(
        (
            *("share", "who", "shares", "target", "used", "slot-h", "in progress slot-s"),
            *("waiting", "wait s", "turn"),
        ),
        [_row(row) for row in found["shares"]],
        found.get("note") or "no shares are configured, and no work has run yet",
        keys=1,
    )


def _row(row: dict[str, Any]) -> list[Any]:
    turn = "" if row["place"] is None else f"{row['place']}{' late' if row['is_late'] else ''}"
    return [
        *(row[key] for key in ("share", "who", "shares")),
        f"{100 * row['target']:.1f} %",
        f"{100 * row['part']:.1f} %",
        f"{row['used_slot_s'] / 3600:,.3f}",
        f"{row['under_way_slot_s']:,.1f}",
        f"{row['waiting']:,}",
        "" if row["wait_s"] is None else f"{row['wait_s']:,.0f}",
        turn,
    ]
