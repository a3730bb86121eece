"""The table [books]: when sites compare their books, and close them."""

from dataclasses import dataclass
from typing import Any, Final

from federation.clocks import UtcS
from federation.messages.reconciliation import DAY_MS
from gateway.base.values import SettingError, check_known, number, share
from policies.calendar.periods import UTC_ZONE, PeriodLength, period_at

_BOUNDS: Final = {
    "reconcile_s": (0.01, 864_000.0),
    "settle_s": (60.0, 864_000.0),
    "dispute_days": (0.01, 366.0),
    "detail_days": (0.0, 36_525.0),
    "void_share_max": (0.0, 1.0),
}
ROOM_DAYS: Final = 1.0  # between the last dispute and rolling up, which takes time
PERIODS: Final = ("day", "week", "month")
CYCLE_DAYS: Final = 146_097  # period of the Gregorian calendar: 400 years, whole weeks


@dataclass(frozen=True, slots=True)
class BookRules:
    """The settings of the books.

    Attributes:
        reconcile_s: how often we, as a buyer, look for something to compare.
        settle_s: how long after its end a day is compared, so that messages in flight arrive.
        dispute_days: how long after a delivery it may be disputed.
        period: the unit that is closed: "day", "week" (from Monday) or "month", UTC.
        void_share_max: a share of the slot time that a buyer has given its verdict on in a week;
            when more is void, it is reported. 1: never.
        detail_days: entries that ended longer ago roll up, with unchanged sums; 0: never.
        day_ms: the length of a day of the books, the same at all sites. No setting: in simulations
            a day lasts seconds, so that there are many.
    """

    reconcile_s: float = 600.0
    settle_s: float = 600.0
    dispute_days: float = 30.0
    period: str = "month"
    void_share_max: float = 0.2
    detail_days: float = 90.0
    day_ms: int = DAY_MS

    def __post_init__(self) -> None:
        if 0 < self.detail_days < self.dispute_days + ROOM_DAYS:
            raise ValueError(
                f"detail_days is {self.detail_days:g}: it must be 0, or at least one day more "
                f"than dispute_days ({self.dispute_days:g}), because rolled-up deliveries "
                "can't be disputed"
            )


def read_books(table: dict[str, Any]) -> BookRules:
    """Read [books]. Raises SettingError."""
    check_known(table, (*_BOUNDS, "period"))
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key == "period":
            if value not in PERIODS:
                raise SettingError(f"period must be one of {', '.join(PERIODS)}, not {value!r:.40}")
            values[key] = value
        else:
            read = share if key == "void_share_max" else number
            values[key] = read(key, value, *_BOUNDS[key])
    try:
        return BookRules(**values)
    except ValueError as error:
        raise SettingError(str(error)) from None


def period_of(at_ms: int, period: str, day_ms: int = DAY_MS) -> tuple[int, int]:
    """The period that contains a moment, as [first_ms, stop_ms), UTC."""
    # By the number of the day, so that days of any length make weeks and months.
    cycle, day = divmod(at_ms // day_ms, CYCLE_DAYS)
    found = period_at(PeriodLength(period), UTC_ZONE, UtcS(day * DAY_MS / 1000))
    first, stop = (
        cycle * CYCLE_DAYS + round(each * 1000) // DAY_MS
        for each in (found.start_at_s, found.end_at_s)
    )
    return first * day_ms, stop * day_ms
