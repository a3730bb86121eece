"""The descriptors of the processes that hold objects: each object and each connection is one."""

import resource
from typing import Final

DESCRIPTORS_MAX: Final = 1 << 17  # OBJECTS_MAX and connections; fewer if the system says so


def raise_descriptors() -> int:
    """Let this process have as many descriptors as it may, up to DESCRIPTORS_MAX; return them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    has, may = (DESCRIPTORS_MAX if n == resource.RLIM_INFINITY else n for n in (soft, hard))
    wanted = max(has, min(may, DESCRIPTORS_MAX))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return has
    return wanted
