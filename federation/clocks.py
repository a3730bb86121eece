"""Instants by one of two clocks, UTC and monotonic, which the type checker tells apart. Pure.

To the type checker, `UtcS` and `MonoS` are two classes, and neither is a number:

    instant - instant -> float     seconds between two instants of one clock
    instant + float   -> instant   also `instant - float`
    instant < instant              two instants of one clock

The rest is an error: to add two instants, to compare or subtract instants of different clocks, to
pass one for the other, or either of them for a duration. A duration is a plain `float`, in seconds.

At run time both names are `float`, so an instant costs nothing. `UtcS(x)` says what a number means
where it is read: from the wire, the books, a configuration file. Code that works by either clock
takes the type variable `Instant`.

By name, the present is `utc_s` or `mono_s`. A field or parameter that holds an instant ends in
`_at_s`, or names a bound of a time: `since_s`, `until_s`, `from_s`, `deadline_s`. A test compares
names with types.
"""

from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

if TYPE_CHECKING:
    from typing import Self

    class _Instant:
        def __init__(self, seconds: float | str, /) -> None: ...
        def __add__(self, seconds: float, /) -> Self: ...
        def __radd__(self, seconds: float, /) -> Self: ...
        @overload
        def __sub__(self, other: float, /) -> Self: ...
        @overload
        def __sub__(self, other: Self, /) -> float: ...
        def __sub__(self, other: Any, /) -> Any: ...
        def __lt__(self, other: Self, /) -> bool: ...
        def __le__(self, other: Self, /) -> bool: ...
        def __gt__(self, other: Self, /) -> bool: ...
        def __ge__(self, other: Self, /) -> bool: ...
        # Counts of a unit since the clock's zero: milliseconds, minutes, days.
        def __mul__(self, per_s: float, /) -> float: ...
        def __truediv__(self, unit_s: float, /) -> float: ...
        def __floordiv__(self, unit_s: float, /) -> float: ...
        def __mod__(self, unit_s: float, /) -> float: ...
        def __neg__(self) -> float: ...  # a key that sorts later instants first
        def __float__(self) -> float: ...
        def __int__(self) -> int: ...
        @overload
        def __round__(self, digits: None = None, /) -> int: ...
        @overload
        def __round__(self, digits: int, /) -> Self: ...
        def __round__(self, digits: Any = None, /) -> Any: ...

    class UtcS(_Instant):
        """An instant in seconds since 1970, UTC."""

    class MonoS(_Instant):
        """An instant in seconds by a monotonic clock of this process."""

else:
    UtcS = MonoS = float

Instant = TypeVar("Instant", UtcS, MonoS)

UNIX_EPOCH_S: Final = UtcS(0.0)
NEVER_S: Final = UtcS("inf")
CALENDAR_END_S: Final = UtcS(253_402_300_800)  # the end of the year 9999: no date is later
