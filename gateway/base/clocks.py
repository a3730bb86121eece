"""The two clocks of a gateway's process, by type: see federation.clocks."""

import time
from collections.abc import Callable
from typing import Final, cast

import trio

from federation.clocks import MonoS, UtcS

utc_now: Final = cast("Callable[[], UtcS]", time.time)
mono_now: Final = cast("Callable[[], MonoS]", trio.current_time)
