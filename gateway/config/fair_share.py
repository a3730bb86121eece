"""The table [fair_share]: the fair shares of a site's slots.

    [fair_share]
    half_life = "7d"            # after this time half of the usage is forgotten
    max_wait = "1d"             # a job that has waited this long for a slot goes first
    each = "project"            # outside of the shares below: one share for each project

    [[fair_share.share]]
    name = "trading"            # work belongs to the first share that includes it
    shares = 3                  # against those of its siblings

    [[fair_share.share]]
    name = "risk"
    parent = "trading"
    who = "project:risk"        # see policies.parties
    shares = 2
    each = "user"               # within it one share for each user

Fair share applies only at a site that has this table.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from gateway.base.toml_lines import Path as Place
from gateway.base.toml_lines import at_line, located
from gateway.base.values import SettingError, check_known, count, guarded, length_s
from policies.access.shares import SHARES_EACH_MAX, BadShares, FairShare, Share
from policies.parties import NAMED, PartyKind, read_party

HALF_LIFE: Final = ("1h", "366d")  # the resolution of the books is an hour
MAX_WAIT: Final = ("1m", "366d")
KEYS: Final = frozenset({"half_life", "max_wait", "each", "share"})
SHARE_KEYS: Final = frozenset({"name", "shares", "parent", "who", "each"})
_PLACE: Final = ("fair_share",)


def read_fair_share(table: dict[str, Any], places: Mapping[Place, int]) -> FairShare:
    """Read [fair_share]. Raises SettingError, with line, share and key in its text."""
    values = located(places, _PLACE, table, "[fair_share]", lambda: _values(table))
    shares = []
    for at, row in enumerate(table.get("share", [])):
        name = row.get("name") if isinstance(row, dict) else None
        named = f" share {name[:80]!r}" if isinstance(name, str) else ""
        place: Place = (*_PLACE, "share", at)
        named = f"[fair_share]{named}"
        shares.append(located(places, place, row, named, partial(_share, row)))
    try:
        return FairShare(**values, shares=tuple(shares))
    except BadShares as error:
        wrong: Place = _PLACE
        if error.share is not None:
            at = next(at for at, each in enumerate(shares) if each is error.share)
            wrong = (*_PLACE, "share", at)
        line = at_line(places, (*wrong, error.key)) or at_line(places, wrong)
        raise SettingError(f"{line}[fair_share] {error}") from None


def _values(table: dict[str, Any]) -> dict[str, Any]:
    check_known(table, KEYS)
    if not isinstance(table.get("share", []), list):
        raise SettingError("share must be an array of tables, written as [[fair_share.share]]")
    values: dict[str, Any] = {}
    if "half_life" in table:
        values["half_life_s"] = length_s("half_life", table["half_life"], *HALF_LIFE)
    if "max_wait" in table:
        values["max_wait_s"] = length_s("max_wait", table["max_wait"], *MAX_WAIT)
    if "each" in table:
        values["each"] = _kind(table["each"])
    return values


def _share(table: Any) -> Share:
    if not isinstance(table, dict):
        raise SettingError("share must be an array of tables, written as [[fair_share.share]]")
    check_known(table, SHARE_KEYS)
    name, parent, who = table.get("name"), table.get("parent", ""), table.get("who")
    if not isinstance(name, str):
        raise SettingError("a [[fair_share.share]] needs a name")
    if not isinstance(parent, str):
        raise SettingError("parent must be the name of a share")
    if who is not None and not isinstance(who, str):
        raise SettingError('who must be a party, as in "project:risk"')
    return Share(
        name=name,
        shares=count("shares", table.get("shares", 1), 1, SHARES_EACH_MAX),
        parent=parent,
        who=None if who is None else guarded("who", lambda: read_party(who)),
        each=_kind(table["each"]) if "each" in table else None,
    )


def _kind(value: Any) -> PartyKind:
    if not isinstance(value, str) or value not in NAMED:
        raise SettingError(f"each is {value!r:.40}: it must be one of {', '.join(sorted(NAMED))}")
    return PartyKind(value)
