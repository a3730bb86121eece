"""Opening a store whose database server may still be starting, or restarting."""

from collections.abc import Callable
from typing import Final, TypeVar

import trio

from federation.words import duration_text
from gateway.base.clocks import mono_now
from gateway.ledger.db.errors import StoreAway

AGAIN_MIN_S: Final = 0.5
AGAIN_MAX_S: Final = 10.0
T = TypeVar("T")


async def open_patiently(open_: Callable[[], T], wait_s: float, say: Callable[[str], None]) -> T:
    """Call `open_` until the server answers, at growing intervals, for at most `wait_s` seconds.

    `say` is told each reason once. Raises StoreAway when the time is over; every other StoreError
    is raised at once.
    """
    until_s = mono_now() + wait_s
    pause_s, told = AGAIN_MIN_S, ""
    while True:
        try:
            return open_()
        except StoreAway as away:
            left_s = until_s - mono_now()
            if left_s <= 0:
                raise
            if str(away) != told:
                told = str(away)
                say(f"{told}; retrying for up to {duration_text(left_s)}")
            await trio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, AGAIN_MAX_S)
