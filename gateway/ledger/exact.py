"""Sums that are exact, whatever the database.

Sums are taken in two halves, because a database's integers end at 2**63 - 1: nanoseconds of 292
slot-years, which a large grid uses up in a day.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import BigInteger, ColumnElement, cast, func

HALF: Final = 10**9


def exact_sums(*columns: ColumnElement[int]) -> list[ColumnElement[int]]:
    """Return two sums for each column, which `joined` makes one exact number of."""
    return [
        cast(func.sum(half), BigInteger)
        for column in columns
        for half in (column // HALF, column % HALF)
    ]


def carried(halves: Sequence[ColumnElement[int]]) -> list[ColumnElement[int]]:
    """The same sums in the one way in which the lower half is less than HALF: to be compared."""
    found: list[ColumnElement[int]] = []
    for high, low in zip(halves[::2], halves[1::2], strict=True):
        found += [high + low // HALF, low % HALF]
    return found


def joined(halves: Iterable[int]) -> list[int]:
    """Make the sums again of what `exact_sums` selected."""
    pairs = iter(halves)
    return [high * HALF + low for high, low in zip(pairs, pairs, strict=True)]
