"""How numbers, times and names are written. Pure, and exact: no floats but the times of records.

Names belong to users. What a format can't hold becomes %XX, the bytes of its UTF-8 in hexadecimal,
and a percent sign that would read like one becomes %25. So nothing is lost, no two names become
one, and `urllib.parse.unquote` undoes it.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HOURS_A_DAY: Final = 24

# Controls, what Python or APEL's loader takes for the end of a line, and what XML 1.0 has no
# place for.
_CONTROLS: Final = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]"
_UNPRINTABLE: Final = re.compile(rf"{_CONTROLS}|%(?=[0-9A-Fa-f]{{2}})")
# Also spaces that a reader strips, and what would end a record, if only after all else is written.
_NOT_IN_APEL: Final = re.compile(rf"{_UNPRINTABLE.pattern}|%(?=%|{_CONTROLS}|\s\Z)|\A\s|\s\Z")
_APEL_NULLS: Final = ("none", "null")


def plain(text: str) -> str:
    """A name on one line, with nothing in it that XML 1.0 refuses."""
    return _UNPRINTABLE.sub(_escaped, text)


def apel(text: str) -> str:
    """A name as a value of an APEL message: not empty if it was not, and not what reads as null."""
    written = _NOT_IN_APEL.sub(_escaped, text)
    if written.lower() in _APEL_NULLS:
        return f"%{ord(written[0]):02X}{written[1:]}"
    return written


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def urn(*parts: str | int) -> str:
    """A name for a thing that has several: "urn:gridfed:london:job-1:0:1"."""
    return ":".join(("urn:gridfed", *(quote(str(part), safe="-._~") for part in parts)))


def decimal(numerator: int, denominator: int, places: int) -> str:
    """A quotient as a decimal number with at most so many places; half goes to the even digit."""
    scaled, rest = divmod(abs(numerator) * 10**places, denominator)
    if 2 * rest > denominator or (2 * rest == denominator and scaled % 2):
        scaled += 1
    sign = "-" if numerator < 0 and scaled else ""
    units, fraction = divmod(scaled, 10**places)
    return f"{sign}{units}.{fraction:0{places}d}".rstrip("0").rstrip(".")


def moment(time_s: float) -> str:
    """A time in seconds since 1970 as `2026-11-22T04:49:29Z`; what is below a second is dropped."""
    return _iso(_EPOCH + timedelta(seconds=int(time_s)))


def hour_start(hour: int) -> str:
    """The beginning of a UTC hour, counted from 1970."""
    return _iso(_EPOCH + timedelta(hours=hour))


def month_of(hour: int) -> tuple[int, int]:
    """The year and the month that an hour is in."""
    day = _EPOCH + timedelta(days=hour // _HOURS_A_DAY)
    return day.year, day.month


def month_start(year: int, month: int) -> str:
    """The beginning of a month; `month` may be 13."""
    return f"{year + month // 13:04d}-{(month - 1) % 12 + 1:02d}-01T00:00:00Z"


def duration(ns: int) -> str:
    """Nanoseconds as ISO 8601 has them: "PT1.5S"."""
    return f"PT{decimal(ns, 10**9, 9)}S"


def seconds(ns: int) -> int:
    """Whole seconds, rounded, half to the even: APEL has no others."""
    whole, rest = divmod(ns, 10**9)
    half = 10**9 // 2
    return whole + int(rest > half or (rest == half and whole % 2 == 1))


def _iso(time: datetime) -> str:
    return f"{time:%H:%M:%S}".join((f"{time.year:04d}-{time:%m-%d}T", "Z"))


# A label of a domain has two characters or more in the schema of usage records.
_LABEL: Final = r"[a-zA-Z0-9][a-zA-Z0-9'-]*[a-zA-Z0-9]"
_DOMAIN: Final = re.compile(rf"({_LABEL}\.)*{_LABEL}")
_NOT_IN_LABELS: Final = re.compile(r"[^a-zA-Z0-9'-]+")
_DOMAIN_LIMIT: Final = 255


def domain(text: str) -> str:
    """The nearest to a name that can stand where a host's is wanted; empty if nothing can.

    Whoever writes it says the name itself beside it, if that is another one.
    """
    if _DOMAIN.fullmatch(text) and len(text) <= _DOMAIN_LIMIT:
        return text
    labels = (_NOT_IN_LABELS.sub("-", part).strip("'-") for part in text.split("."))
    long_enough = (f"x-{label}" if len(label) == 1 else label for label in labels if label)
    return ".".join(long_enough)[:_DOMAIN_LIMIT].rstrip("'-.")


def user_at(user: str, site: str) -> str:
    """A user with the site that knows him, as whom another site sent work for is named already."""
    at = f"@{site}"
    return f"{user.removesuffix(at)}{at}" if user else ""
