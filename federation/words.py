"""Texts for people, in one style for the whole project. Pure.

Text by another party (a task, a worker, another site, a user's name for a job) may hold characters
that affect a terminal or a page instead of being shown: escape sequences of 7 and 8 bits, marks
that turn the direction of writing, characters without a width, ends of lines where a line is
expected. `clean` and `clean_lines` write them out. All code that shows such text calls one of them:
GridError and RemoteTraceback, federation.engine.progress, gateway.cli.shared.show, the log.
"""

import itertools
import math
import re
import unicodedata
from datetime import timedelta
from numbers import Real
from typing import Any, Final

# Letters and marks, by their category, that are invisible.
_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_CLOCK: Final = re.compile(r"(?:([0-9]{1,3})-)?([0-9]{1,4}):([0-5][0-9]):([0-5][0-9])", re.ASCII)
_LENGTH: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw])", re.ASCII)
_PLAIN: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:I?B)?", re.ASCII | re.IGNORECASE)
_UNITS_BYTES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
Length = float | str | timedelta  # of time: seconds, or as in "10m"
TIMEOUT_FORMS: Final = 'it must be seconds, or a text such as "10s" or "5m"'
NOTE: Final = "gridfed: "  # how our note on an exception begins: which call it is of
_PARTS_S: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
HEADLINE_CHARS_MAX: Final = 300  # of an error, and of the call that it is of


def count(number: int, noun: str) -> str:
    """Format a number with its noun: `1 slot`, `2,000 slots`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size_text(size_bytes: float) -> str:
    """Format a size as people write it: 512 bytes, 64 MiB, 1.5 GiB."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size_bytes >= 1024**power:
            return f"{size_bytes / 1024**power:.4g} {unit}"
    return f"{size_bytes:g} bytes"


def age_text(age_s: float) -> str:
    """Return a length of time in whole numbers of the largest unit that there is one of."""
    whole_s = max(0, int(age_s))
    for unit_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if whole_s >= unit_s:
            return f"{whole_s // unit_s} {unit}"
    return f"{whole_s} s"


def read_length(text: str) -> float:
    """Parse a length of time to seconds: "90s", "30 m", "24h", "7d", "2w", or as Slurm writes it.

    Slurm's form is "04:00:00", hours, minutes and seconds, or "1-12:00:00" with days before them. A
    plain number is refused: for Slurm it is minutes, in keys and options that end in `_s` seconds.
    Raises ValueError.
    """
    given = text.strip()
    match = _LENGTH.fullmatch(given)
    if match is not None:
        return float(match[1]) * _UNITS_S[match[2]]
    clock = _CLOCK.fullmatch(given)
    if clock is not None:
        days, hours, minutes, seconds = (int(each or 0) for each in clock.groups())
        return float(days * 86_400 + hours * 3_600 + minutes * 60 + seconds)
    if _PLAIN.fullmatch(given):
        raise ValueError(no_unit(given[:60]))
    raise ValueError(
        f"{text[:60]!r} is not a length of time: write 30s, 30m, 24h or 7d, or 04:00:00 (hours, "
        "minutes and seconds)"
    )


def no_unit(number: str) -> str:
    """Return what is wrong with a length of time that is a plain number, and how to write it."""
    return (
        f"{number} has no unit: write {number}s for seconds, {number}m for minutes (as Slurm reads "
        f"a plain number) or {number}h for hours, or as in 04:00:00"
    )


def read_seconds(name: str, value: Any) -> Any:
    """Return an argument in seconds: a number as it is, a text such as "10m" as its seconds.

    So is a timedelta. Raises ValueError, with the argument's name.
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if not isinstance(value, str):
        return value
    try:
        return read_length(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def read_timeout(value: Length | None) -> float | None:
    """Return the argument `timeout` in seconds; None: without limit.

    A number of zero or less does not wait, as in the standard library.

    Raises:
        ValueError: the text is not a length of time, or it is no number.
        TypeError: it is of another type.
    """
    if value is None:
        return None
    found = read_seconds("timeout", value)
    if isinstance(found, bool) or not isinstance(found, Real):
        raise TypeError(f"timeout is {value!r:.80}; {TIMEOUT_FORMS}")
    if math.isnan(found):
        raise ValueError(f"timeout is {value!r:.80}; {TIMEOUT_FORMS}")
    return float(found)


def read_size(text: str) -> int:
    """Parse a size to bytes: "4 GiB", "500M", "1073741824"; K, M, G and T are powers of 1,024.

    Raises ValueError.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:60]!r} is not a size: write 500M or 4 GiB, or a number of bytes")
    return int(float(match[1]) * _UNITS_BYTES[match[2].upper()])


def duration_text(lasts_s: float) -> str:
    """Format a duration in seconds for people, by its two largest units: 40 s, 2 min, 1 h 5 min.

    Below ten seconds it has three digits (0.25 s), as its fraction matters. Durations in JSON and
    in the books are numbers of seconds and are never formatted.
    """
    if not 9.5 <= lasts_s < math.inf:
        return f"{lasts_s:.3g} s"
    rest_s = round(lasts_s)
    if rest_s < 60:
        return f"{rest_s} s"
    for (unit, unit_s), (lower, lower_s) in itertools.pairwise(_PARTS_S):
        if rest_s >= unit_s:
            whole, part = divmod(round(rest_s / lower_s), unit_s // lower_s)
            return f"{whole:,} {unit} {part} {lower}" if part else f"{whole:,} {unit}"
    raise AssertionError(lasts_s)


class ShownDuration(float):
    """A duration in seconds as a figure of a text that is formatted only when it is read."""

    def __str__(self) -> str:
        """Format it by `duration_text`."""
        return duration_text(float(self))


def headline(text: str) -> str:
    """Return a failure's text in one line: the last of its traceback, and which call it is of."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    notes = [line.removeprefix(NOTE) for line in lines if line.startswith(NOTE)]
    others = [line for line in lines if not line.startswith(NOTE)]
    shown = others[-1] if others else ""
    if notes:
        shown = f"{shown[:HEADLINE_CHARS_MAX]} ({notes[-1]})"
    return shown[: 2 * HEADLINE_CHARS_MAX]


def clean(text: str) -> str:
    r"""Return text as one line of visible characters; others are written as `\x1b` or `\u202e`.

    So are line ends and tabs. Spaces of all widths stay. A backslash stays as it is, so the output
    can't be converted back.
    """
    if text.isprintable() and _UNSEEN.isdisjoint(text):
        return text
    return "".join(each if _is_seen(each) else _written_out(each) for each in text)


def clean_lines(text: str, indent: str = "") -> str:
    r"""Clean text of several lines, with tabs; a carriage return ends a line as well.

    Each line but the first begins with `indent`, which tells it from our own lines.
    """
    if text.isprintable() and _UNSEEN.isdisjoint(text):
        return text
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"\n{indent}".join("\t".join(map(clean, line.split("\t"))) for line in lines)


def _is_seen(char: str) -> bool:
    is_space = unicodedata.category(char) == "Zs"
    return (char.isprintable() or is_space) and char not in _UNSEEN


def _written_out(char: str) -> str:
    return char.encode("unicode_escape").decode() if ord(char) < 0x80 else _numbered(ord(char))


def _numbered(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
