"""Which users other sites' work is to the kernel. Pure, but for what the kernel maps.

Not `nobody`: that is what own users' slots run as where root may choose, and processes of one user
read each other's memory, whatever namespace they are in. So sandboxes and containers have numbers
that no account has, another for each site. No account is needed for that.
"""

import hashlib
from pathlib import Path
from typing import Final

# Nobody gives out numbers from here on: above what containers get of a host, below the sign bit.
HIGH_FIRST: Final = 0x7000_0000
HIGH_COUNT: Final = 0x0FFF_0000
# Where a host, a container itself, has no more than 65,536; below `nobody`, above people.
LOW_FIRST: Final = 61_440
LOW_COUNT: Final = 4_032
_MAPS: Final = (Path("/proc/self/uid_map"), Path("/proc/self/gid_map"))


def sandbox_user(site: str) -> int:
    """The number of user and group that a site's work has in a sandbox of root's."""
    return _number(site, HIGH_FIRST, HIGH_COUNT) if _has_high() else container_user(site)


def container_user(site: str) -> int:
    """The same in a container, which often knows 65,536 users; ours are the site without a name."""
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
    """Whether a line of a user namespace's map, as the kernel shows it, has all of a range."""
    rows = (tuple(map(int, line.split())) for line in table.splitlines())
    return any(low <= first and first + count <= low + size for low, _, size in rows)
