"""The user ids of other sites' work, within the kernel's id maps.

Not `nobody`: own users' slots run as that user where root may choose, and processes of one user can
read each other's memory across namespaces. So sandboxes and containers have ids that no account
has, distinct for each site. They need no account.
"""

import hashlib
from pathlib import Path
from typing import Final

# No system assigns ids from here on: above those of containers on a host, below the sign bit.
HIGH_FIRST: Final = 0x7000_0000
HIGH_COUNT: Final = 0x0FFF_0000
# For a host that is a container itself, with only 65,536 ids; below `nobody`, above people.
LOW_FIRST: Final = 61_440
LOW_COUNT: Final = 4_032
_MAPS: Final = (Path("/proc/self/uid_map"), Path("/proc/self/gid_map"))


def sandbox_user(site: str) -> int:
    """Return the user and group id of a site's work in a sandbox of root's."""
    return _number(site, HIGH_FIRST, HIGH_COUNT) if _has_high() else container_user(site)


def container_user(site: str) -> int:
    """Return the id in a container, which often has 65,536 ids; our own work has the site ""."""
    return _number(site, LOW_FIRST, LOW_COUNT)


def _number(site: str, first: int, count: int) -> int:
    digest = hashlib.sha256(f"gridfed user {site}".encode()).digest()
    return first + int.from_bytes(digest[:8], "big") % count


def _has_high() -> bool:
    try:
        return all(is_mapped(each.read_text(), HIGH_FIRST, HIGH_COUNT) for each in _MAPS)
    except (OSError, ValueError):
        return False


def is_mapped(table: str, first: int, count: int) -> bool:
    """Whether one line of a user namespace's map, in the kernel's format, covers a whole range."""
    rows = (tuple(map(int, line.split())) for line in table.splitlines())
    return any(low <= first and first + count <= low + size for low, _, size in rows)
