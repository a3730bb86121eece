"""The limits of what databases store, and the checks of records.

Every number and every text of a record is checked where the record is made: SQL integers end at
2**63 - 1, PostgreSQL stores no NUL, and neither database stores half a surrogate pair. A value from
a worker, a client or another site that the database can't store must not stop the writer, which all
jobs share.
"""

from typing import Final

from federation.clocks import CALENDAR_END_S, UNIX_EPOCH_S, UtcS

NUMBER_LIMIT: Final = 2**63 - 1
HOUR_S: Final = 3_600

# Raised when a record is made from invalid fields that were read, and not written by us.
NO_RECORD: Final = (ValueError, TypeError, OverflowError)


def check_numbers(*numbers: int) -> None:
    """Raise ValueError for a number that no integer of SQL holds."""
    for number in numbers:
        if not 0 <= number <= NUMBER_LIMIT:
            raise ValueError(f"{number} is not a number from 0 to {NUMBER_LIMIT}")


def check_texts(*texts: str) -> None:
    """Raise ValueError for a text that no database holds."""
    together = "".join(texts)
    if "\0" in together or not (together.isascii() or _is_unicode(together)):
        raise ValueError("a text has a character that databases can't store")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


def check_times(*times_at_s: UtcS) -> None:
    """Raise ValueError for a time before 1970 or after the year 9999."""
    for at_s in times_at_s:
        if not UNIX_EPOCH_S <= at_s < CALENDAR_END_S:  # also refuses NaN
            raise ValueError(f"{at_s} is not a time in seconds since 1970")
