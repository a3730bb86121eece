"""Times on the command line: --from and --to, UTC."""

import functools
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import click

from federation.clocks import UtcS

UNITS_S: Final = {"h": 3_600, "d": 86_400, "w": 7 * 86_400}
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


def moment(text: str, *, end_of_day: bool, option: str | None = None) -> UtcS:
    """Read a day or a time in ISO form, as UTC epoch seconds; a last day is included whole.

    Raises click.BadParameter, of that option.
    """
    try:
        if len(text) == len("2026-11-20"):
            day = date.fromisoformat(text) + timedelta(days=int(end_of_day))
            return UtcS(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
        found = datetime.fromisoformat(text)
        return UtcS((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        how = "not a time: write 2026-11-20 or 2026-11-20T18:00"
        raise click.BadParameter(f"{text!r}: {how}", param_hint=option) from None


def length_s(text: str, *, option: str) -> float:
    """Read a length of time: `12h`, `7d`, `4w`. Raises click.BadParameter, of that option."""
    try:
        found = float(text[:-1]) * UNITS_S[text[-1:]]
    except (ValueError, KeyError):
        found = -1.0
    if not 0 < found <= LENGTH_MAX_S:
        raise click.BadParameter(
            f"{text!r} is not a length of time: write 12h, 7d or 4w, up to 400d",
            param_hint=option,
        )
    return found
