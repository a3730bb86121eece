"""The members of groups: `[groups]` of a configuration. Pure.

    [groups]
    "equity desk" = ["ann", "bob"]

Reports can be by group, and every usage record has the group of its user when the job was opened.
So a user is in one group at most: nothing is counted twice.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from federation.wishes import NAME_CHARS_MAX
from gateway.base.values import KnobError

NO_GROUPS: Final[Mapping[str, str]] = MappingProxyType({})
USERS_MAX: Final = 100_000


def read_groups(table: dict[str, Any]) -> dict[str, str]:
    """Return the group of each user. Raises KnobError."""
    groups: dict[str, str] = {}
    for group, users in table.items():
        if not _is_name(group, NAME_CHARS_MAX):
            raise KnobError(
                f"{group[:60]!r}: the name of a group must be 1 to {NAME_CHARS_MAX} printable "
                "characters"
            )
        if not isinstance(users, list):
            raise KnobError(f"{group!r} must be a list of users")
        for user in users:
            if not isinstance(user, str) or not _is_name(user, 2 * NAME_CHARS_MAX):
                raise KnobError(f"{group!r}: {user!r:.60} is not a user name")
            if groups.setdefault(user, group) != group:
                raise KnobError(
                    f"user {user!r} is in {groups[user]!r} and in {group!r}: remove one of them"
                )
    if len(groups) > USERS_MAX:
        raise KnobError(f"{len(groups):,} users, over the limit of {USERS_MAX:,}")
    return groups


def _is_name(text: str, chars_max: int) -> bool:
    return 0 < len(text) <= chars_max and text.isprintable()
