"""The kinds of grids that are installed: entry points of the group `gridfed.grids`."""

from importlib.metadata import entry_points
from typing import Final

from gateway.grids.contract import GridKind
from gateway.knobs import KnobError

GROUP: Final = "gridfed.grids"


def find_kind(name: str) -> GridKind:
    """A kind by its name. KnobError says which there are."""
    for each in entry_points(group=GROUP, name=name):
        found = each.load()
        assert isinstance(found, GridKind)
        return found
    raise KnobError(f"there is no kind of grid {name!r}")
