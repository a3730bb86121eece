"""Members of groups as the host's name service has them: files, or a directory by SSSD."""

import grp
import pwd
from collections.abc import Iterable, Mapping

from gateway.base.values import SettingError


def read_pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return the host's group of each group, from "quants" or "quants=ldn-quants"; SettingError."""
    pairs: dict[str, str] = {}
    for text in texts:
        group, equals, on_host = text.partition("=")
        if not group or (equals and not on_host):
            raise SettingError(f"{text!r}: write GROUP, or GROUP=GROUP_OF_THE_HOST")
        if group in pairs:
            raise SettingError(f"group {group!r} is given twice")
        pairs[group] = on_host or group
    return pairs


def members(on_host: str) -> list[str]:
    """Return the members of a group of this host, sorted; SettingError if it has no such group.

    They are its listed members, and the accounts whose primary group it is. A directory that does
    not enumerate accounts (SSSD's default) gives only the former.
    """
    try:
        group = grp.getgrnam(on_host)
    except KeyError:
        raise SettingError(
            f"group {on_host!r} not found on this host: `getent group {on_host}` must show it. "
            "If it is in a directory, the directory may be away"
        ) from None
    primary = (each.pw_name for each in pwd.getpwall() if each.pw_gid == group.gr_gid)
    return sorted({*group.gr_mem, *primary})


def with_members(
    present: Mapping[str, list[str]],
    found: Mapping[str, list[str]],
    *,
    may_be_empty: bool = False,
) -> dict[str, list[str]]:
    """Return all groups, some of them with other members.

    The order of the groups stays, as a user's first group pays; new ones come last.

    Args:
        may_be_empty: otherwise a group that would lose its last member raises SettingError, as that
            is more often a directory that fails than a desk that has closed.
    """
    empty = [group for group, users in found.items() if not users]
    if empty and not may_be_empty:
        raise SettingError(
            f"group {empty[0]!r} would have no member; nothing was changed. If that is so, give "
            "--allow-empty"
        )
    groups = {group: list(users) for group, users in present.items()}
    for group, users in found.items():
        is_same = sorted(groups.get(group, ())) == users
        groups[group] = groups.get(group, []) if is_same else users
    return groups
