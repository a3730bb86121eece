"""Ids of jobs: 10 characters of time, by which they sort, and 16 random ones."""

import secrets
import time
from collections.abc import Callable
from typing import Final

ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_CHARS: Final = 10
_VALUES: Final = {char: value for value, char in enumerate(ALPHABET)}


def new_id() -> str:
    """Return a fresh id."""
    return id_at(time.time_ns() // 1_000_000, secrets.choice)


def id_at(moment_ms: int, choose: Callable[[str], str]) -> str:
    """Return the id for a time in milliseconds since 1970; `choose` draws the random characters."""
    clock = "".join(ALPHABET[moment_ms >> shift & 31] for shift in range(45, -1, -5))
    return clock + "".join(choose(ALPHABET) for _ in range(16))


def id_time_ms(job: str) -> int | None:
    """Return an id's time, by its maker's clock, in milliseconds since 1970; None for others."""
    if len(job) != _TIME_CHARS + 16:
        return None
    moment = 0
    for char in job[:_TIME_CHARS]:
        value = _VALUES.get(char)
        if value is None:
            return None
        moment = moment << 5 | value
    return moment
