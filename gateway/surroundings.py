"""What a site stands on, in one place, so that a simulation can put another world under it."""

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import trio

from federation.nng import NngPort
from federation.transport import Port
from gateway.ledger.store import SqlStore, Store


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The clock, chance, the network and the disk.

    `now_s` is monotonic, `utc_s` counts from 1970. `open_port(addresses, on_pipe_change, tls)` and
    `open_store(url, on_trouble=…, on_fatal=…)` are as NngPort and SqlStore. `read(query, *args)`
    asks the store something that takes time.
    """

    now_s: Callable[[], float] = trio.current_time
    utc_s: Callable[[], float] = time.time
    random_bytes: Callable[[int], bytes] = secrets.token_bytes
    open_port: Callable[..., Port] = NngPort
    open_store: Callable[..., Store] = SqlStore
    read: Callable[..., Awaitable[Any]] = trio.to_thread.run_sync
