"""IBM Spectrum Symphony as a delegating grid; see docs/grids_symphony.md.

No line of this has been tried against the product: that page's table lists its assumptions.
"""

from typing import Any, Final

from gateway.grids.delegating import DelegatingKind, Engine, Home
from gateway.grids.symphony.settings import SymphonySettings, read


def open_engine(settings: Any, home: Home) -> Engine:
    """Open an engine for a `[pool.symphony]`."""
    # Only here: a gateway that merely reads its configuration loads neither HTTP nor processes.
    from gateway.grids.symphony.engine import SymphonyEngine
    from gateway.grids.symphony.rest import EgoRoom, RestInterface
    from gateway.grids.symphony.side import SideInterface

    assert isinstance(settings, SymphonySettings)
    way = (
        RestInterface(settings, home.say)
        if settings.way == "rest"
        else SideInterface(settings, home.say)
    )
    room = EgoRoom(settings) if settings.ego_url else None
    return SymphonyEngine(settings, home, way, room)


EXAMPLE: Final = """\
[[pool]]                      # IBM Symphony, with its own workers: docs/grids_symphony.md
name = "symphony"
kind = "symphony"
[pool.symphony]
way = "rest"                  # or "soamapi"
application = "gridfed"
login_file = "symphony.login" # one line: USER:PASSWORD
url = "https://sym:8050"
slots = 64                    # 0: asked of EGO (ego_url, consumer)
take_up_s = 120               # how long a restart keeps running sessions for their jobs; 0: end
on_stop = "close"             # or "detach": running tasks go on when this gateway stops
"""
KIND: Final = DelegatingKind(
    "symphony", read, open_engine, "gateway.grids.symphony:KIND", example=EXAMPLE
)
