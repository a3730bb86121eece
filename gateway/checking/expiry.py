"""What expires, and windows and calendars whose time is over or soon will be."""

from datetime import UTC, datetime
from typing import Final

from federation.clocks import UtcS
from gateway.base.toml_lines import Path as Place
from gateway.checking.findings import FindingList
from gateway.config.site import SiteConfig
from policies.calendar.hours import Hours
from policies.calendar.validity import During

SOON_S: Final = 30 * 86_400.0  # an expiry within this time is told
_WINDOW_S: Final = 14 * 86_400.0  # a window


def check_windows(config: SiteConfig, findings: FindingList, utc_s: UtcS) -> None:
    """Warn of windows that count no longer, or soon will not, and of calendars without a future."""
    today = datetime.fromtimestamp(float(utc_s), UTC).date()
    for at, pool in enumerate(config.pools):
        for number, window in enumerate(pool.plan.windows):
            place: Place = ("pool", at, "window", number)
            subject = f"[[pool.window]] {window.name!r} of {pool.name}"
            when = window.when
            if isinstance(when, During):
                if when.until_s <= utc_s + _WINDOW_S:
                    text = f"valid_until: the window {ending(when.until_s, utc_s)}"
                    is_over = when.until_s <= utc_s
                    remedy = "remove it" if is_over else "extend it if it is still needed"
                    findings.warn(
                        "window-expires", subject, f"{text}: {remedy}", (*place, "valid_until")
                    )
                when = when.when
            if isinstance(when, Hours) and when.calendar.holidays:
                last = max(when.calendar.holidays)
                if last < today:
                    text = (
                        f"the last holiday of its calendar was {last}: add those of the year to "
                        "come, or holidays count as business days"
                    )
                    findings.warn("calendar-over", subject, text, (*place, "calendar"))


def check_end(
    findings: FindingList,
    about: tuple[str, str, Place],
    ends_at_s: UtcS | None,
    utc_s: UtcS,
    what: str,
    remedy: str,
    soon_s: float = SOON_S,
) -> None:
    """Warn of what has expired, or will within `soon_s`.

    Args:
        findings: the list that it is added to.
        about: the code, the subject and the place of the finding.
        ends_at_s: when it expires; None: never.
        utc_s: now.
        what: what expires, as the begin of a sentence.
        remedy: what to do.
        soon_s: how long before it is told.
    """
    if ends_at_s is None or ends_at_s > utc_s + soon_s:
        return
    code, subject, place = about
    findings.warn(code, subject, f"{what} {ending(ends_at_s, utc_s)}: {remedy}", place)


def ending(ends_at_s: UtcS, utc_s: UtcS) -> str:
    """Return when something expires, or has expired, as a part of a sentence."""
    day = datetime.fromtimestamp(float(ends_at_s), UTC).strftime("%Y-%m-%d")
    days = int((ends_at_s - utc_s) // 86_400)
    if ends_at_s <= utc_s:
        return f"has expired on {day}"
    return f"expires on {day}, in {days} day{'' if days == 1 else 's'}"
