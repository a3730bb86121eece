"""The table [reservations]: the share of a site's pools that may be reserved, and the terms.

    [reservations]
    slots = "50%"               # of a pool, reserved at one time; or a number
    longest = "24h"             # the most that one reservation may last
    ahead = "14d"               # the latest end of one, counted from now
    unused_factor = 1.0         # of its price, for reserved time that is not used
    cancel_factor = 0.1         # of its price, for the rest of its time when it is cancelled
    hold_s = 30                 # how long slots are held for a booking at several sites
    drain_lead_s = 0            # how long before a preemption work is told to make room
    grace_s = 30                # how long it may run after that; an open window's terms prevail

Without this table nothing can be reserved at the site. Booked reservations keep their terms.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from gateway.base.toml_lines import Path as Place
from gateway.base.toml_lines import at_line, located
from gateway.base.values import check_known, guarded, length_s, number, share
from gateway.config.windows import GRACE_MAX_S, LEAD_MAX_S
from policies.access.claims import read_amount
from policies.reservations.reservations import ReservationRules
from policies.tariffs import MILLION

LONGEST: Final = ("1m", "7d")
AHEAD: Final = ("1m", "14d")  # as far as windows are known to other sites
HOLD_S: Final = (1.0, 600.0)
KEYS: Final = frozenset(
    {"slots", "longest", "ahead", "unused_factor", "cancel_factor"}
    | {"hold_s", "drain_lead_s", "grace_s"}
)
_PLACE: Final = ("reservations",)


def read_reservations(table: Mapping[str, Any], places: Mapping[Place, int]) -> ReservationRules:
    """Read [reservations]. Raises SettingError, with line and key in its text."""
    line = at_line(places, _PLACE)
    located(places, _PLACE, table, "[reservations]", partial(check_known, table, KEYS))
    values: dict[str, Any] = {}
    for key, value in table.items():
        where = at_line(places, (*_PLACE, key)) or line
        name, read = _READERS[key]
        values[name] = guarded(f"{where}[reservations]", partial(read, key, value))
    return ReservationRules(**values)


def _factor(key: str, value: Any) -> int:
    return round(share(key, value, 0, 1) * MILLION)


def _amount(key: str, value: Any) -> Any:
    return guarded(key, partial(read_amount, value))


def _length(key: str, value: Any, *, bounds: tuple[str, str]) -> float:
    return length_s(key, value, *bounds)


def _seconds(key: str, value: Any, *, bounds: tuple[float, float]) -> float:
    return float(number(key, value, *bounds))


_READERS: Final[Mapping[str, tuple[str, Any]]] = {
    "slots": ("most", _amount),
    "longest": ("longest_s", partial(_length, bounds=LONGEST)),
    "ahead": ("ahead_s", partial(_length, bounds=AHEAD)),
    "unused_factor": ("unused_factor", _factor),
    "cancel_factor": ("cancel_factor", _factor),
    "hold_s": ("hold_s", partial(_seconds, bounds=HOLD_S)),
    "drain_lead_s": ("drain_lead_s", partial(_seconds, bounds=(0, LEAD_MAX_S))),
    "grace_s": ("grace_s", partial(_seconds, bounds=(0, GRACE_MAX_S))),
}
