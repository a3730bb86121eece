"""Tags of pools, workers and jobs: which are well formed. Pure."""

import math
import re
from typing import Any, Final

from federation.messages.adverts import OBJECTS_TAG as OBJECTS_TAG
from federation.messages.adverts import PULLS_TAG as PULLS_TAG
from federation.messages.adverts import TAG_MARKS, TAGS_MAX
from federation.wishes import NAME_CHARS_MAX
from policies.placement.placement import TagValue

# The tag that `gridfed pool test` gives its pilot, so that its task runs there; not a pool's tag.
PROBE_TAG: Final = re.compile(r"probe-[0-9a-f]{12}", re.ASCII)


def check_tags(tags: dict[str, Any]) -> dict[str, TagValue]:
    """Return valid tags: names mapped to True or to a finite number of zero or more."""
    if len(tags) > TAGS_MAX:
        raise ValueError(f"{len(tags)} tags, over the limit of {TAGS_MAX}")
    for name, value in tags.items():
        if not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
            raise ValueError(f"tag name {name[:60]!r} is empty, too long or not printable")
        if TAG_MARKS & set(name):
            raise ValueError(f"tag name {name[:60]!r} has a comma or an equals sign")
        if value is True:
            continue
        if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= 1e12:
            raise ValueError(f"tag {name} is {value!r:.60}: it must be True or a number")
    return tags
