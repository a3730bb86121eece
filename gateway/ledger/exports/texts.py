"""Formats numbers, times and names. Pure, and exact: no floats but the times of records.

Users choose names. A character that a format can't hold becomes %XX, the bytes of its UTF-8 in
hexadecimal, and a percent sign that would read like one becomes %25. The mapping is lossless, no
two names become the same, and `urllib.parse.unquote` reverses it.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote

from federation.clocks import UtcS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HOURS_A_DAY: Final = 24

# Controls, line ends of Python or of APEL's loader, and characters that XML 1.0 forbids.
_CONTROLS: Final = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]"
_UNPRINTABLE: Final = re.compile(rf"{_CONTROLS}|%(?=[0-9A-Fa-f]{{2}})")
# Also spaces that a reader strips, and characters that would end a record, if only after all others
# are escaped.
_NOT_IN_APEL: Final = re.compile(rf"{_UNPRINTABLE.pattern}|%(?=%|{_CONTROLS}|\s\Z)|\A\s|\s\Z")
_APEL_NULLS: Final = ("none", "null")


def plain(text: str) -> str:
    """Return a name on one line, without characters that XML 1.0 forbids."""
    return _UNPRINTABLE.sub(_escaped, text)


def apel(text: str) -> str:
    """Return a name as a value of an APEL message; only an empty name reads as empty or null."""
    written = _NOT_IN_APEL.sub(_escaped, text)
    if written.lower() in _APEL_NULLS:
        return f"%{ord(written[0]):02X}{written[1:]}"
    return written


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def urn(*parts: str | int) -> str:
    """Return a name from several parts: "urn:gridfed:london:job-1:0:1"."""
    return ":".join(("urn:gridfed", *(quote(str(part), safe="-._~") for part in parts)))


def decimal(numerator: int, denominator: int, places: int) -> str:
    """Return a quotient with at most so many decimal places; half goes to the even digit."""
    scaled, rest = divmod(abs(numerator) * 10**places, denominator)
    if 2 * rest > denominator or (2 * rest == denominator and scaled % 2):
        scaled += 1
    sign = "-" if numerator < 0 and scaled else ""
    units, fraction = divmod(scaled, 10**places)
    return f"{sign}{units}.{fraction:0{places}d}".rstrip("0").rstrip(".")


def moment(at_s: UtcS) -> str:
    """Return a time in seconds since 1970 as `2026-11-22T04:49:29Z`, without its fraction."""
    return _iso(_EPOCH + timedelta(seconds=int(at_s)))


def hour_start(hour: int) -> str:
    """Return the beginning of a UTC hour, counted from 1970."""
    return _iso(_EPOCH + timedelta(hours=hour))


def month_of(hour: int) -> tuple[int, int]:
    """Return the year and the month of an hour."""
    day = _EPOCH + timedelta(days=hour // _HOURS_A_DAY)
    return day.year, day.month


def month_start(year: int, month: int) -> str:
    """Return the beginning of a month; `month` may be 13."""
    return f"{year + month // 13:04d}-{(month - 1) % 12 + 1:02d}-01T00:00:00Z"


def duration(ns: int) -> str:
    """Return nanoseconds in ISO 8601: "PT1.5S"."""
    return f"PT{decimal(ns, 10**9, 9)}S"


def seconds(ns: int) -> int:
    """Return whole seconds, rounded, half to the even: APEL has no fractions."""
    whole, rest = divmod(ns, 10**9)
    half = 10**9 // 2
    return whole + int(rest > half or (rest == half and whole % 2 == 1))


def _iso(time: datetime) -> str:
    return f"{time:%H:%M:%S}".join((f"{time.year:04d}-{time:%m-%d}T", "Z"))


# A domain label has two characters or more in the schema of usage records.
_LABEL: Final = r"[a-zA-Z0-9][a-zA-Z0-9'-]*[a-zA-Z0-9]"
_DOMAIN: Final = re.compile(rf"({_LABEL}\.)*{_LABEL}")
_NOT_IN_LABELS: Final = re.compile(r"[^a-zA-Z0-9'-]+")
_DOMAIN_LIMIT: Final = 255


def domain(text: str) -> str:
    """Return the host name nearest to a name; empty if there is none.

    The caller writes the name itself beside it, if it differs.
    """
    if _DOMAIN.fullmatch(text) and len(text) <= _DOMAIN_LIMIT:
        return text
    labels = (_NOT_IN_LABELS.sub("-", part).strip("'-") for part in text.split("."))
    long_enough = (f"x-{label}" if len(label) == 1 else label for label in labels if label)
    return ".".join(long_enough)[:_DOMAIN_LIMIT].rstrip("'-.")


def user_at(user: str, site: str) -> str:
    """Return a user with the user's site; users of work that another site sent have it already."""
    at = f"@{site}"
    return f"{user.removesuffix(at)}{at}" if user else ""
