"""Sums that are exact on every database.

Sums are taken in two halves, because a database's integers end at 2**63 - 1: nanoseconds of 292
slot-years, which a large grid uses in a day.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import BigInteger, ColumnElement, cast, func

HALF: Final = 10**9


def exact_sums(*columns: ColumnElement[int]) -> list[ColumnElement[int]]:
    """Return two sums for each column, which `joined` combines into one exact number."""
    return [
        cast(func.sum(half), BigInteger)
        for column in columns
        for half in (column // HALF, column % HALF)
    ]


def carried(halves: Sequence[ColumnElement[int]]) -> list[ColumnElement[int]]:
    """Return the same sums in their one form with a lower half less than HALF, for comparison."""
    found: list[ColumnElement[int]] = []
    for high, low in zip(halves[::2], halves[1::2], strict=True):
        found += [high + low // HALF, low % HALF]
    return found


def joined(halves: Iterable[int]) -> list[int]:
    """Combine the halves that `exact_sums` selected into sums."""
    pairs = iter(halves)
    return [high * HALF + low for high, low in zip(pairs, pairs, strict=True)]
