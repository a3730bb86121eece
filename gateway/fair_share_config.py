"""The table [fair_share]: how the slots of a site are shared out.

    [fair_share]
    half_life = "7d"            # after so long half of what was used is forgotten
    max_wait = "1d"             # whoever has waited so long for a slot goes first
    each = "project"            # who is in none of the shares: one share for each project

    [[fair_share.share]]
    name = "trading"            # of those that include somebody's work, the first has it
    shares = 3                  # against those of its siblings

    [[fair_share.share]]
    name = "risk"
    parent = "trading"
    who = "project:risk"        # see policies.parties
    shares = 2
    each = "user"               # within it one share for each user

Only for a site that has this table is anything shared out.
"""

from typing import Any, Final

from gateway.knobs import KnobError, check_known, count, length_s
from policies.parties import NAMED, Kind, read_party
from policies.shares import SHARES_EACH_MAX, FairShare, Share

HALF_LIFE: Final = ("1h", "366d")  # the books know of hours
MAX_WAIT: Final = ("1m", "366d")
KEYS: Final = frozenset({"half_life", "max_wait", "each", "share"})
SHARE_KEYS: Final = frozenset({"name", "shares", "parent", "who", "each"})


def read_fair_share(table: dict[str, Any]) -> FairShare:
    """Read [fair_share]. Raises KnobError, with the share and the key in its text."""
    check_known(table, KEYS)
    values: dict[str, Any] = {}
    if "half_life" in table:
        values["half_life_s"] = length_s("half_life", table["half_life"], *HALF_LIFE)
    if "max_wait" in table:
        values["max_wait_s"] = length_s("max_wait", table["max_wait"], *MAX_WAIT)
    if "each" in table:
        values["each"] = _kind(table["each"])
    shares = table.get("share", [])
    if not isinstance(shares, list) or not all(isinstance(each, dict) for each in shares):
        raise KnobError("share: shares are written as [[fair_share.share]]")
    try:
        return FairShare(**values, shares=tuple(map(_read_share, shares)))
    except ValueError as error:
        raise KnobError(str(error)) from None


def _read_share(table: dict[str, Any]) -> Share:
    name = table.get("name")
    if not isinstance(name, str):
        raise KnobError("share: each [[fair_share.share]] needs a name")
    try:
        return _share(name, table)
    except (KnobError, ValueError) as error:
        raise KnobError(f"share {name[:80]!r}: {error}") from None


def _share(name: str, table: dict[str, Any]) -> Share:
    check_known(table, SHARE_KEYS)
    parent, who = table.get("parent", ""), table.get("who")
    if not isinstance(parent, str):
        raise KnobError("parent must be the name of a share")
    if who is not None and not isinstance(who, str):
        raise KnobError('who must be a party, as in "project:risk"')
    try:
        party = None if who is None else read_party(who)
    except ValueError as error:
        raise KnobError(f"who: {error}") from None
    return Share(
        name=name,
        shares=count("shares", table.get("shares", 1), 1, SHARES_EACH_MAX),
        parent=parent,
        who=party,
        each=_kind(table["each"]) if "each" in table else None,
    )


def _kind(value: Any) -> Kind:
    if not isinstance(value, str) or value not in NAMED:
        raise KnobError(f"each is {value!r:.40}: it must be one of {', '.join(sorted(NAMED))}")
    return Kind(value)
