"""The members of groups: `[groups]` of a configuration. Pure.

    [groups]
    "equity desk" = ["ann", "bob"]

A user may be in several groups. The first of them, in the order of the table, is the one that
counts: every usage record has it, as it was when the job was opened, so reports, budgets and shares
count nothing twice. Rights are those of all groups: entitlements, claims, residency, reservations.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from federation.wishes import NAME_CHARS_MAX
from gateway.base.values import SettingError
from policies.parties import Owner

# The groups of each user, the first listed first.
Groups = Mapping[str, tuple[str, ...]]
NO_GROUPS: Final[Groups] = MappingProxyType({})
GROUPS_EACH_MAX: Final = 64
USERS_MAX: Final = 100_000


def read_groups(table: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the groups of each user, in the order of the table. Raises SettingError."""
    groups: dict[str, tuple[str, ...]] = {}
    for group, users in table.items():
        if not _is_name(group, NAME_CHARS_MAX):
            raise SettingError(
                f"{group[:60]!r}: the name of a group must be 1 to {NAME_CHARS_MAX} printable "
                "characters"
            )
        if not isinstance(users, list):
            raise SettingError(f"{group!r} must be a list of users")
        for user in users:
            if not isinstance(user, str) or not _is_name(user, 2 * NAME_CHARS_MAX):
                raise SettingError(f"{group!r}: {user!r:.60} is not a user name")
            found = groups.get(user, ())
            if len(found) >= GROUPS_EACH_MAX:
                raise SettingError(
                    f"{group!r}: user {user!r} is in more than {GROUPS_EACH_MAX} groups"
                )
            if group not in found:
                groups[user] = (*found, group)
    if len(groups) > USERS_MAX:
        raise SettingError(f"{len(groups):,} users, over the limit of {USERS_MAX:,}")
    return groups


def names_of(groups: Groups) -> frozenset[str]:
    """Return the names of all groups that have a user."""
    return frozenset(each for found in groups.values() for each in found)


def owner_of(groups: Groups, user: str, project: str = "") -> Owner:
    """Return a user of this site as the owner of work."""
    first, *more = groups.get(user, ()) or ("",)
    return Owner(user, first, project, more_groups=frozenset(more))


def _is_name(text: str, chars_max: int) -> bool:
    return 0 < len(text) <= chars_max and text.isprintable()
