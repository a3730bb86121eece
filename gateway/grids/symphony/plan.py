"""Converts a Symphony resource plan that changes by the hour into windows of a pool. Pure.

For each interval of a day, which begins and ends on the hour and recurs daily, such a plan has the
slots that a consumer owns, and how many of them it lends or borrows. It is read from a table, a
line for each consumer and interval, as copied from the product's console:

    consumer,from,to,owned,lends,borrows
    /Risk,18:00,08:00,80,,0
    /Risk,08:00,18:00,20,10,
    /Desk,08:00,18:00,60,,

`lends` and `borrows` may be empty: all. Every consumer's intervals must fill the day, as they do
there. Windows can express more (minutes, days, calendars, prices): see docs/windows.md.
"""

import csv
import io
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.base.values import SettingError
from policies.parties import read_party

COLUMNS: Final = ("consumer", "from", "to", "owned", "lends", "borrows")
LINES_MAX: Final = 10_000
SLOTS_MAX: Final = 1_000_000
DAY_H: Final = 24
_HOUR: Final = re.compile(r"([01]?[0-9]|2[0-4]):00", re.ASCII)


@dataclass(frozen=True, slots=True)
class ConsumerShare:
    """The share of a consumer in one interval; None: no limit."""

    consumer: str
    owned: int
    lends: int | None
    borrows: int | None


def read_plan(text: str) -> dict[tuple[int, int], list[ConsumerShare]]:
    """Return the plan's intervals, (from, to) in hours, and the shares in each.

    If consumers change at different hours, an interval ends when any of them does. Raises
    SettingError that names the wrong line.
    """
    reader = csv.DictReader(io.StringIO(text.lstrip("\ufeff")))
    try:
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise SettingError(f"line {reader.line_num + 1}: {error}") from None
    columns = reader.fieldnames or []
    if not rows or any(column not in columns for column in COLUMNS[:4]):
        raise SettingError(f"the first line must name the columns: {','.join(COLUMNS)}")
    for column in columns:  # a misspelt `lend` would be read as: all
        if column not in COLUMNS or columns.count(column) > 1:
            raise SettingError(
                f"the first line has {column[:40]!r}: the columns are {','.join(COLUMNS)}, "
                "each once"
            )
    if len(rows) > LINES_MAX:
        raise SettingError(f"the plan has {len(rows)} lines, the limit is {LINES_MAX}")
    days: dict[str, list[ConsumerShare | None]] = {}
    edges = {0}
    for number, row in rows:
        try:
            share, first, last = _read_row(row)
        except SettingError as error:
            raise SettingError(f"line {number}: {error}") from None
        day = days.setdefault(share.consumer, [None] * DAY_H)
        edges |= {first, last % DAY_H}
        for hour in range(first, last if last > first else last + DAY_H):
            if day[hour % DAY_H] is not None:
                raise SettingError(
                    f"line {number}: {share.consumer} has {hour % DAY_H:02}:00 twice"
                )
            day[hour % DAY_H] = share
    for consumer, day in days.items():
        if None in day:
            raise SettingError(
                f"{consumer} has no slots from {day.index(None):02}:00 on: write 0 slots"
            )
    return _intervals(days, edges)


def _intervals(
    days: Mapping[str, list[ConsumerShare | None]], edges: set[int]
) -> dict[tuple[int, int], list[ConsumerShare]]:
    starts = sorted(edges)
    found: dict[tuple[int, int], list[ConsumerShare]] = {}
    for first, last in zip(starts, [*starts[1:], DAY_H], strict=True):
        shares = [share for day in days.values() if (share := day[first]) is not None]
        # Midnight is an edge of every day, but of the plan only if its shares change there.
        before = next((key for key in found if key[1] == first), None)
        if before is not None and found[before] == shares:
            found[before[0], last] = found.pop(before)
        else:
            found[first, last] = shares
    first_key = next(iter(found))
    last_key = next(key for key in found if key[1] == DAY_H)
    if first_key != last_key and found[first_key] == found[last_key]:
        shares = found.pop(first_key)
        del found[last_key]
        found[last_key[0], first_key[1]] = shares
    return found


def _read_row(row: Mapping[str, str | None]) -> tuple[ConsumerShare, int, int]:
    if None in row:  # surplus fields, as of 1,000 slots
        raise SettingError(f"more than {len(row) - 1} fields")
    consumer = (row.get("consumer") or "").strip()
    if not re.fullmatch(r"/[\w./ -]{1,200}", consumer):
        raise SettingError(
            f"consumer is {consumer[:60]!r}: must be a path, for example /Risk/Pricing"
        )
    first, last = _hour(row, "from"), _hour(row, "to")
    if first == DAY_H:
        raise SettingError("from is 24:00: write 00:00")
    owned = _slots(row, "owned")
    if owned is None:
        raise SettingError("owned is missing")
    return ConsumerShare(consumer, owned, _slots(row, "lends"), _slots(row, "borrows")), first, last


def _hour(row: Mapping[str, str | None], key: str) -> int:
    text = (row.get(key) or "").strip()
    match = _HOUR.fullmatch(text)
    if match is None:
        raise SettingError(f"{key} is {text[:20]!r}: must be a full hour, for example 18:00")
    return int(match[1])


def _slots(row: Mapping[str, str | None], key: str) -> int | None:
    text = (row.get(key) or "").strip()
    if not text:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(SLOTS_MAX))
    if not is_number or int(text) > SLOTS_MAX:
        raise SettingError(f"{key} is {text[:20]!r}: must be a number of slots up to {SLOTS_MAX}")
    return int(text)


def show_windows(
    intervals: Mapping[tuple[int, int], list[ConsumerShare]],
    who: Mapping[str, str],
    *,
    zone: str,
    grace_s: int,
) -> str:
    """Return the `[[pool.window]]` tables of a plan.

    Args:
        who: the parties of consumers, as in {"/Risk": "project:risk"}; others are projects named by
            the last part of their path, in lower case.
        zone: of the plan's hours.
        grace_s: how long tasks over their claim may still run when an interval begins.

    Raises SettingError if two consumers would be one party here, or one can't be a party.
    """
    _check_parties({share.consumer for shares in intervals.values() for share in shares}, who)
    lines = [
        "# A Symphony resource plan as windows: put this below the [[pool]] that it belongs to."
    ]
    for (first, last), shares in intervals.items():
        lines += ["", "[[pool.window]]", f'name = "symphony {first:02}:00"', 'days = "daily"']
        if (last - first) % DAY_H:
            lines += [f'from = "{first:02}:00"', f'to = "{last % DAY_H:02}:00"']
        lines += [f'zone = "{zone}"', f"grace_s = {grace_s}", "claims = ["]
        lines += [f"  {_claim(share, who)}," for share in shares]
        lines += ["]"]
    return "\n".join(lines) + "\n"


def _party(consumer: str, who: Mapping[str, str]) -> str:
    return who.get(consumer) or f"project:{consumer.rsplit('/', 1)[-1].lower()}"


def _check_parties(consumers: Collection[str], who: Mapping[str, str]) -> None:
    whose: dict[str, str] = {}
    for consumer in sorted(consumers):
        party = _party(consumer, who)
        try:
            read_party(party)
        except ValueError as error:
            raise SettingError(f"{consumer}: {error}; specify --who '{consumer}=PARTY'") from None
        if party in whose:
            raise SettingError(
                f"{whose[party]} and {consumer} are both {party}: specify --who for one of them"
            )
        whose[party] = consumer
    for consumer in who:
        if consumer not in consumers:
            raise SettingError(f"--who names {consumer[:60]!r}, which is not in the plan")


def _claim(share: ConsumerShare, who: Mapping[str, str]) -> str:
    quoted = json.dumps(_party(share.consumer, who), ensure_ascii=False)  # it is TOML, too
    parts = [f"who = {quoted}", f"guaranteed = {share.owned}"]
    parts += [f"lends = {share.lends}"] if share.lends is not None else []
    parts += [f"borrows = {share.borrows}"] if share.borrows is not None else []
    return "{ " + ", ".join(parts) + " }"
