"""Times on the command line, in UTC or in the site's zone; lengths of time; shares."""

import functools
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Final

import click

from federation.clocks import UtcS
from federation.offers import show_time
from federation.words import read_length
from gateway.base.values import percent, show_length

LENGTH_MAX_S: Final = 400 * 86_400
_UNITS_S: Final = {"-s": 1.0, "days": 86_400.0}  # of options, by the end of their names


def span_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --from and --to, and pass their values as `span`: start_s and end_s."""

    @functools.wraps(command)
    def wrapped(*args: Any, start: str | None, end: str | None, **kwargs: Any) -> Any:
        span: dict[str, UtcS] = {}
        if start:
            span["start_s"] = moment(start, end_of_day=False, option="--from")
        if end:
            span["end_s"] = moment(end, end_of_day=True, option="--to")
        if start and end and span["start_s"] >= span["end_s"]:
            raise click.UsageError(f"--from {start} is not before --to {end}")
        return command(*args, span=span, **kwargs)

    wrapped = click.option(
        "--to", "end", metavar="DATE", help="The last day (inclusive) or moment (exclusive)."
    )(wrapped)
    return click.option(
        "--from", "start", metavar="DATE", help="The first day or moment, UTC, inclusive."
    )(wrapped)


def moment(text: str, *, end_of_day: bool, option: str | None = None, zone: tzinfo = UTC) -> UtcS:
    """Read a day or a time in ISO form, as UTC epoch seconds; a last day is included whole.

    A time without an offset is in `zone`. Raises click.BadParameter, of that option; also for a
    time that a zone has twice or not at all, when its clocks are changed.
    """
    try:
        if len(text) == len("2026-11-20"):
            day = date.fromisoformat(text) + timedelta(days=int(end_of_day))
            return UtcS(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp())
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=zone)
            if found.utcoffset() != found.replace(fold=1).utcoffset():
                how = "occurs twice or not at all, because the clocks change: add the offset"
                raise click.BadParameter(
                    f"{text!r} in {zone}: {how}, as in {text}+00:00", param_hint=option
                )
        return UtcS(found.timestamp())
    except (ValueError, OverflowError):
        how = "not a time: write 2026-11-20 or 2026-11-20T18:00"
        raise click.BadParameter(f"{text!r}: {how}", param_hint=option) from None


def is_moment(text: str) -> bool:
    """Whether a text is a day or a time, and not a length of time."""
    return text[:4].isdigit() and text[4:5] == "-"


def ahead(text: str, *, option: str, utc_s: UtcS, zone: tzinfo = UTC) -> UtcS:
    """Read a moment that is to come: a length of time from now, or a time in ISO form.

    Raises click.BadParameter, of that option; also for a moment that is past.
    """
    if not is_moment(text):
        return utc_s + length_s(text, option=option)
    found = moment(text, end_of_day=True, option=option, zone=zone)
    if found <= utc_s:
        raise click.BadParameter(
            f"{text!r} is past: it is {show_time(utc_s, zone)} now", param_hint=option
        )
    return found


def length_s(text: str, *, option: str) -> float:
    """Read a length of time: `30m`, `12h`, `7d`, `4w`. Raises click.BadParameter."""
    try:
        found = read_length(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None
    if not 0 < found <= LENGTH_MAX_S:
        raise click.BadParameter(
            f"{text!r} is not in the range above 0s to 400d",
            param_hint=option,
        )
    return found


class LengthType(click.ParamType[float]):
    """An option that is a length of time: `10s`, `30m`, `04:00:00`, `2w`.

    An option whose name has its unit takes a plain number of it as well: seconds for `--grace-s`,
    days for `--days`. Its value is in that unit, else in seconds, from `low` to `high`.
    """

    name = "time"

    def __init__(self, low: float = 0.0, high: float = LENGTH_MAX_S) -> None:
        self._low, self._high = low, high

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the value; fails as click's own types do."""
        unit_s = next((_UNITS_S[end] for end in _UNITS_S if _is_named(param, end)), None)
        each_s = unit_s or 1.0
        found = value if isinstance(value, int | float) else self._read(value, unit_s, param, ctx)
        if not self._low <= found <= self._high:
            bounds = f"{show_length(self._low * each_s)} to {show_length(self._high * each_s)}"
            self.fail(f"{value} is not in the range {bounds}", param, ctx)
        return int(found) if found == int(found) else found

    def _read(
        self,
        text: str,
        unit_s: float | None,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        if unit_s is not None:
            with suppress(ValueError):
                return float(text)
        try:
            return read_length(text) / (unit_s or 1.0)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _is_named(param: click.Parameter | None, end: str) -> bool:
    return param is not None and any(each.endswith(end) for each in param.opts)


class ShareType(click.ParamType[float]):
    """An option that is a share or factor: `0.5`, or the same as `50%`."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the factor; fails as click's own types do."""
        found = percent(value, None) if isinstance(value, str) else None
        try:
            return float(value) if found is None else float(Decimal(str(found)) / 100)
        except ValueError:
            self.fail(f"{value!r} is not a share: write 0.5 or 50%", param, ctx)
