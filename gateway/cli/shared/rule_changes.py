"""What a change of the rules does, for people."""

from collections.abc import Mapping
from typing import Any, Final

from gateway.cli.shared import show
from policies.calendar.periods import read_zone

_TEXTS: Final = {
    "shares": "the rules of fair share have changed",
    "reservations": (
        "the new [reservations] rules apply to new bookings; existing bookings keep their terms"
    ),
    "residency": "the new [[residency]] rules apply to all work that is placed from now on",
}


def say_change(found: Mapping[str, Any], zone: str = "") -> None:
    """Print the answer of a gateway to a reload, or to a change of its rules.

    `zone` is that of the changed window's clock: its hours are shown in it beside those of the
    site, unless it is the same.
    """
    own = None if zone in ("", str(show.zone())) else read_zone(zone)
    rows = [
        [
            each["pool"],
            show.when(each["from_s"]),
            show.when(each["until_s"]),
            *(() if own is None else (show.hours(each["from_s"], each["until_s"], own),)),
            each["before"] or "none",
            (each["after"] or "none")
            + (", with other rules" if each["before"] == each["after"] else ""),
        ]
        for each in found["windows"]
    ]
    there = () if own is None else (f"in {zone}",)
    columns = ("pool", show.timed("from"), "until", *there, "window before", "window now")
    show.table(columns, rows, "no windows change in the next two weeks")
    for each in found["prices"]:
        show.say(f"prices of {each['pool']}: {each['before']} → {each['after']}")
    for each in found.get("budgets", ()):
        text = f"{each['budget']}: {each['key']} {each['before']} → {each['after']}"
        show.say(text)
    for each in found.get("groups", ()):
        before, after = (", ".join(each[key]) or "none" for key in ("before", "after"))
        show.say(f"groups of {each['user']}: {before} → {after}, for jobs from now on")
    for word in ("gone", "new"):
        for each in found.get("entitlements", {}).get(word, ()):
            line = f"line {each['line']}" if each["line"] else each.get("change", "")
            show.say(f"entitlement, {word}{', ' if line else ''}{line}: {each['rule']}")
    for each in found.get("warnings", ()):
        show.say(f"warning: {each}")
    for key, text in _TEXTS.items():
        if found.get(key):
            show.say(text)
    for each in found.get("scales", ()):
        text = f"{each['pool']}: {each['key']} {each['before']} → {each['after']}"
        show.say(text)
    for each in found["later"]:
        show.say(f"takes effect after a restart: {each}")
    for each in found.get("overridden", ()):
        show.say(f"set by a command before, and now from the file: {each}")


def changes_anything(found: Mapping[str, Any]) -> bool:
    """Whether an answer to a reload tells of any change."""
    rules = found.get("entitlements", {})
    keys = ("windows", "prices", "budgets", "shares", "groups", "reservations", "residency")
    told = [found.get(key) for key in (*keys, "scales", "later", "overridden")]
    return bool(found.get("change")) or any([*told, rules.get("gone"), rules.get("new")])
