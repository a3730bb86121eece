"""The keys by which reports are made, and their cells. All times are UTC. Pure.

A key reads one dimension of the store. Weeks, months and the like are made from days or hours here,
so that every database gives the same result.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Any, Final, get_args

from gateway.ledger.db.usage.records import Dimension, UsageKind, UsageState

_FIRST_DAY: Final = date(1970, 1, 1)
_DAY_HOURS: Final = 24
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_TAG: Final = "tag:"


@dataclass(frozen=True, slots=True)
class Key:
    """A key by which reports are made.

    Attributes:
        name: as users write it, and the name of the column.
        dimension: the dimension to read from the store: for times the coarsest that suffices.
        show: maps the store's value (for times, the hour counted from 1970-01-01T00) and our own
            name to the cell, which is always text.
        form: a pattern that all its values match, if there is one; `example` is such a value.
    """

    name: str
    dimension: Dimension
    show: Callable[[Any, str], str] = lambda value, _: value
    form: str = ""
    example: str = ""

    @property
    def is_time(self) -> bool:
        """Whether it is a calendar period."""
        return self.dimension in (Dimension.HOUR, Dimension.DAY)

    @property
    def is_place(self) -> bool:
        """Whether it is a site, for which the store omits our own name."""
        return self.dimension in (Dimension.SITE, Dimension.ORIGIN)

    @property
    def is_plain(self) -> bool:
        """Whether its cells are the stored values; for a site, except our own name."""
        return not self.is_time and not self.name.startswith(_TAG)

    @property
    def is_ordered(self) -> bool:
        """Whether its cells have an order other than that of texts."""
        return self.name == "weekday"

    def order(self, cell: str) -> Any:
        """Return the sort key of a cell."""
        return _WEEKDAYS.index(cell) if self.is_ordered and cell in _WEEKDAYS else cell

    def check(self, value: str) -> None:
        """Raise ValueError for a text that can't be one of its cells."""
        if self.form and not re.fullmatch(self.form, value):
            raise ValueError(
                f"{self.name} can't be {value[:60]!r}: use a form such as {self.example}"
            )


@lru_cache(maxsize=4096)
def _date(hour: int) -> date:
    return _FIRST_DAY + timedelta(days=hour // _DAY_HOURS)


def _week(hour: int) -> str:
    """Return the ISO week, in the year of its Thursday."""
    year, week, _ = _date(hour).isocalendar()
    return f"{year:04}-W{week:02}"


def _own(value: str, site: str) -> str:
    return value or site


def _time(
    name: str, show: Callable[[int], str], form: str, example: str, *, is_hourly: bool = False
) -> Key:
    dimension = Dimension.HOUR if is_hourly else Dimension.DAY
    return Key(name, dimension, lambda hour, _: show(hour), form, example)


_KEYS: Final = (
    Key("user", Dimension.USER),
    Key("group", Dimension.GROUP),
    Key("project", Dimension.PROJECT),
    Key("name", Dimension.NAME),
    Key("job", Dimension.JOB),
    Key("site", Dimension.SITE, _own),
    Key("origin", Dimension.ORIGIN, _own),
    Key("pool", Dimension.POOL),
    Key("worker", Dimension.WORKER),
    Key("window", Dimension.WINDOW),
    Key("tag", Dimension.TAGS),
    Key("class", Dimension.PRICE_CLASS, form="guaranteed|preemptible", example="guaranteed"),
    Key("state", Dimension.STATE, form="|".join(get_args(UsageState)), example="failed"),
    Key("kind", Dimension.KIND, form="|".join(get_args(UsageKind)), example="held"),
    Key("tariff", Dimension.TARIFF),
    _time(
        "hour",
        lambda hour: f"{_date(hour).isoformat()}T{hour % _DAY_HOURS:02}:00Z",
        r"\d{4}-\d\d-\d\dT\d\d:00Z",
        "2026-11-20T18:00Z",
        is_hourly=True,
    ),
    _time("day", lambda hour: _date(hour).isoformat(), r"\d{4}-\d\d-\d\d", "2026-11-20"),
    _time("week", _week, r"\d{4}-W\d\d", "2026-W47"),
    _time("month", lambda hour: _date(hour).isoformat()[:7], r"\d{4}-\d\d", "2026-11"),
    _time("year", lambda hour: f"{_date(hour).year:04}", r"\d{4}", "2026"),
    _time("weekday", lambda hour: _WEEKDAYS[_date(hour).weekday()], "|".join(_WEEKDAYS), "Mon"),
    _time(
        "hour-of-day",
        lambda hour: f"{hour % _DAY_HOURS:02}",
        r"[01]\d|2[0-3]",
        "18",
        is_hourly=True,
    ),
)
KEYS: Final[dict[str, Key]] = {key.name: key for key in _KEYS}
CHOICES: Final = (*KEYS, f"{_TAG}NAME")


def key_of(name: str) -> Key:
    """Return the key of a name. Raises ValueError, with the choices, for an unknown name."""
    tag = name.removeprefix(_TAG)
    if tag and tag != name:
        return Key(name, Dimension.TAGS, lambda tags, _: _value_of(tag, tags))
    if name not in KEYS:
        raise ValueError(f"no report by {name[:60]!r}: choose from {', '.join(CHOICES)}")
    return KEYS[name]


def _value_of(tag: str, tags: str) -> str:
    """Return a job's request for a tag: its number, `yes` for a plain tag, empty for none."""
    for each in tags.split(","):
        name, equals, value = each.partition("=")
        if each == tag:
            return "yes"
        if equals and name == tag:
            return value
    return ""
