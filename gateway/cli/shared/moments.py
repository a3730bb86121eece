"""Times on the command line, in UTC or in the site's zone; lengths of time; shares."""

import functools
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Final

import click

from federation.clocks import UtcS
from gateway.base.values import percent, read_length, show_length

WEEK_S: Final = 7 * 86_400
LENGTH_MAX_S: Final = 400 * 86_400


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
                how = "comes twice or not at all, as clocks are changed: add the offset"
                raise click.BadParameter(
                    f"{text!r} in {zone}: {how}, as in {text}+00:00", param_hint=option
                )
        return UtcS(found.timestamp())
    except (ValueError, OverflowError):
        how = "not a time: write 2026-11-20 or 2026-11-20T18:00"
        raise click.BadParameter(f"{text!r}: {how}", param_hint=option) from None


def length_s(text: str, *, option: str) -> float:
    """Read a length of time: `30m`, `12h`, `7d`, `4w`. Raises click.BadParameter, of that option.

    A number of weeks is this command's own: a configuration has none.
    """
    is_weeks = re.fullmatch(r"\d+(\.\d+)?w", text.strip(), re.ASCII)
    try:
        found = float(text.strip()[:-1]) * WEEK_S if is_weeks else read_length(text)
    except ValueError:
        found = -1.0
    if not 0 < found <= LENGTH_MAX_S:
        raise click.BadParameter(
            f"{text!r} is not a length of time: write 30m, 12h, 7d or 4w, up to 400d",
            param_hint=option,
        )
    return found


class LengthType(click.ParamType[float]):
    """An option that is a length of time: `10s`, `30m`, `04:00:00`, or a number of seconds.

    Its value is in seconds, from `low` to `high`.
    """

    name = "time"

    def __init__(self, low: float = 0.0, high: float = LENGTH_MAX_S) -> None:
        self._low, self._high = low, high

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds; fails as click's own types do."""
        try:
            found = float(value)
        except ValueError:
            try:
                found = read_length(value)
            except ValueError as error:
                self.fail(str(error), param, ctx)
        if not self._low <= found <= self._high:
            bounds = f"{show_length(self._low)} to {show_length(self._high)}"
            self.fail(f"{value} is not in the range {bounds}", param, ctx)
        return int(found) if found.is_integer() else found


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
