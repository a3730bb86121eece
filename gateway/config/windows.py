"""Windows of a pool and their calendars, as tables. Every mistake has its line.

[calendar.london]                       # business days; without one: Monday to Friday
weekend = "sat,sun"
holidays = "london.txt"                 # a file beside this one, a date a line
dates = ["2026-12-25", "2026-12-24 12:30"]  # holidays; half days, and when work ends on them

[[pool]]
claims = [ { who = "others", borrows = "50%" } ]  # while no window is open

[[pool.window]]
name = "risk run"
days = "business"                       # daily, mon-fri, business, business -1, free, month-end
from = "17:00"
to = "23:00"
zone = "Europe/London"
calendar = "london"
follows_work = false                    # on half days it begins when work ends
also = ["2026-12-31"]                   # dates on which it begins besides
never = []                              # and on which it does not
valid_from = "2026-12-01"               # it counts from then on; a date, or a time, in its zone
valid_until = "2027-01-01"              # and no longer from then on
priority = 0                            # of windows that are open at once the highest holds
price_factor = 1.0
preempt = true                          # stop work over its claim; "dry-run": only report it
preempt_per_minute = 0                  # tasks that are stopped at most; 0: no limit
drain_lead_s = 600                      # how long before that they are told
grace_s = 30                            # how long they may run after that
spill_s = 0                             # how far into the window work may be planned to run
claims = [
  { who = "others", borrows = 0 },
  { who = "project:risk", guaranteed = "80%", lends = 0 },
]

[[pool.window]]
name = "batch"
cron = "0 2 * * sat"                    # instead of days, from and to
lasts_s = 14400
"""

import re
from collections.abc import Mapping
from datetime import date, datetime, time
from functools import partial
from os.path import expanduser
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from federation.clocks import NEVER_S, UtcS
from federation.files import read_regular
from federation.offers import show_time
from gateway.base.toml_lines import Passage, at_line, located
from gateway.base.toml_lines import Path as Place
from gateway.base.values import SettingError, check_known, count, flag, guarded, number, text_of
from gateway.config.tariffs import read_factor, read_time
from policies.access.claims import (
    CLAIMS_MAX,
    EVERYTHING,
    NOTHING,
    Amount,
    Claim,
    Claims,
    read_amount,
)
from policies.access.windows import EDGES_AHEAD_MAX, WINDOWS_MAX, Window, WindowPlan
from policies.calendar.calendars import DATES_MAX as HOLIDAYS_MAX
from policies.calendar.calendars import SATURDAY_SUNDAY, Calendar, read_dates
from policies.calendar.crons import LASTS_MAX_S, LASTS_MIN_S, Cron
from policies.calendar.hours import Days, Hours, Weekdays, read_days
from policies.calendar.periods import UTC_ZONE, read_zone
from policies.calendar.validity import ALWAYS_S, During, Schedule
from policies.calendar.weeks import DAY_S, EVERY_DAY, read_weekdays
from policies.parties import read_party

CALENDARS_MAX: Final = 100
FILE_BYTES_MAX: Final = 1 << 20
DATES_MAX: Final = 1_000  # of one list
NAME_CHARS_MAX: Final = 60
PRIORITY_MAX: Final = 1_000_000
STOPS_MAX: Final = 10**6
DRY_RUN: Final = "dry-run"
LEAD_MAX_S: Final = 7 * DAY_S
GRACE_MAX_S: Final = DAY_S
LOOK_AHEAD_S: Final = 400 * DAY_S
_EVER: Final = (ALWAYS_S, NEVER_S)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
OF_CLAIMS: Final = frozenset({"who", "guaranteed", "lends", "borrows", "elsewhere"})
OF_CALENDARS: Final = frozenset({"weekend", "holidays", "dates"})
_OF_HOURS: Final = frozenset({"days", "from", "to", "calendar", "follows_work", "also", "never"})
_VALID: Final = ("valid_from", "valid_until")
_OF_CRON: Final = frozenset({"cron", "lasts_s"})
KEYS: Final = frozenset(
    {"name", "zone", "priority", "price_factor", "drain_lead_s", "grace_s", "spill_s"}
    | {"claims", "preempt", "preempt_per_minute", *_VALID}
    | _OF_HOURS
    | _OF_CRON
)


def read_calendars(tables: Any, folder: Path, places: Mapping[Place, int]) -> dict[str, Calendar]:
    """Read [calendar.NAME] tables; files are in `folder`. SettingError says line and key."""
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise SettingError("calendar must be a table of tables, written as [calendar.NAME]")
    if len(tables) > CALENDARS_MAX:
        raise SettingError(f"calendar has too many tables: at most {CALENDARS_MAX} are allowed")
    found = {}
    for name, table in tables.items():
        place: Place = ("calendar", name)
        read = partial(_calendar, table, folder)
        found[name] = located(places, place, table, f"[calendar.{name}]", read)
    return found


def read_plan(pool: Passage, calendars: Mapping[str, Calendar]) -> WindowPlan:
    """Read the windows and claims of a pool's table, which has a name; SettingError."""
    table, places, place = pool.table, pool.places, pool.path
    where = f"[[pool]] {table['name']}"
    line = at_line(places, (*place, "claims")) if "claims" in table else ""
    base = guarded(f"{line}{where}", lambda: _claims(table.get("claims", [])))
    rows = table.get("window", [])
    if not isinstance(rows, list) or len(rows) > WINDOWS_MAX:
        raise SettingError(
            f"{where}: window must be an array of up to {WINDOWS_MAX} tables, written as "
            "[[pool.window]]"
        )
    windows = []
    for at, row in enumerate(rows):
        line = at_line(places, (*place, "window", at))
        name = row.get("name", "") if isinstance(row, dict) else ""
        named = f"[[pool.window]] {name!r:.60} of {table['name']}"
        read = partial(_window, row, calendars, line)
        windows.append(located(places, (*place, "window", at), row, named, read))
    return guarded(f"{at_line(places, place)}{where}", lambda: WindowPlan(tuple(windows), base))


def check_plan(pool: str, plan: WindowPlan, utc_s: UtcS) -> None:
    """Refuse windows of one priority that overlap within a year, and too many; SettingError.

    All windows of the next two weeks are examined whenever one begins or ends, while work is
    queued.
    """
    busiest = plan.busiest(utc_s, utc_s + LOOK_AHEAD_S)
    if busiest is not None:
        raise SettingError(
            f"{busiest.place}[[pool.window]] {busiest.name!r} of {pool}: the windows of this "
            f"pool begin and end more than {EDGES_AHEAD_MAX:,} times in two weeks: write "
            "fewer, longer ones"
        )
    clash = plan.clash(utc_s, utc_s + LOOK_AHEAD_S)
    if clash is not None:
        first, second, at_s = clash
        moment = show_time(at_s)
        raise SettingError(
            f"{second.place}[[pool.window]] {second.name!r} of {pool}: it is open at "
            f"{moment}, as is {first.name!r} of the same priority {first.priority}: raise the "
            "priority of one of them"
        )


# --- calendars -----------------------------------------------------------------------------------


def _calendar(table: dict[str, Any], folder: Path) -> Calendar:
    check_known(table, OF_CALENDARS)
    holidays: frozenset[date] = frozenset()
    half_days: dict[date, time] = {}
    weekend = SATURDAY_SUNDAY
    if "weekend" in table:
        text = text_of("weekend", table["weekend"])
        weekend = guarded("weekend", lambda: read_weekdays(text) if text else frozenset())
    if "holidays" in table:
        # Not pathlib's, which fails on the home of an unknown user.
        path = folder / expanduser(text_of("holidays", table["holidays"]))
        holidays, half_days = guarded(f"holidays, {path}", lambda: read_dates(_file(path)))
    if "dates" in table:
        lines = _list("dates", table["dates"], 2 * HOLIDAYS_MAX)
        more, half = guarded("dates", lambda: read_dates("\n".join(lines)))
        holidays, half_days = holidays | more, {**half_days, **half}
    # For a date that has both: a bank holiday's file may say less than the list beside it.
    half_days = {day: at for day, at in half_days.items() if day not in holidays}
    return Calendar(weekend, holidays, half_days)


def _file(path: Path) -> str:
    try:
        body = read_regular(path, FILE_BYTES_MAX)
    except OSError as error:
        raise SettingError(f"it can't be read: {error.strerror}") from None
    try:
        return body.decode("utf-8-sig")  # some editors begin with an invisible mark
    except UnicodeDecodeError:
        raise SettingError("it is not UTF-8 text") from None


# --- windows -------------------------------------------------------------------------------------


def _window(row: Any, calendars: Mapping[str, Calendar], line: str) -> Window:
    if not isinstance(row, dict):
        raise SettingError("a window must be a table")
    check_known(row, KEYS)
    name = row.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise SettingError(f"it needs a name of 1 to {NAME_CHARS_MAX} printable characters")
    is_dry = row.get("preempt") == DRY_RUN
    return Window(
        name,
        _when(row, calendars),
        _claims(row.get("claims", [])),
        priority=count("priority", row.get("priority", 0), -PRIORITY_MAX, PRIORITY_MAX),
        price_factor=read_factor("price_factor", row.get("price_factor", 1)),
        preempts=is_dry or flag("preempt", row.get("preempt", True)),
        is_dry=is_dry,
        stops_per_minute=count(
            "preempt_per_minute", row.get("preempt_per_minute", 0), 0, STOPS_MAX
        ),
        drain_lead_s=number("drain_lead_s", row.get("drain_lead_s", 0), 0, LEAD_MAX_S),
        grace_s=number("grace_s", row.get("grace_s", 0), 0, GRACE_MAX_S),
        spill_s=number("spill_s", row.get("spill_s", 0), 0, LEAD_MAX_S),
        place=line,
    )


def _when(row: dict[str, Any], calendars: Mapping[str, Calendar]) -> Schedule:
    zone = UTC_ZONE
    if "zone" in row:
        zone = guarded("zone", lambda: read_zone(text_of("zone", row["zone"])))
    schedule = _schedule(row, zone, calendars)
    if not any(key in row for key in _VALID):
        return schedule
    from_s, until_s = read_validity(row)
    return guarded("valid_until", lambda: During(schedule, from_s, until_s))


def read_validity(row: Mapping[str, Any]) -> tuple[UtcS, UtcS]:
    """Return the span in which the table of a window counts; SettingError names the key."""
    zone = read_zone(row["zone"]) if "zone" in row else UTC_ZONE
    from_s, until_s = (
        _moment(key, row[key], zone) if key in row else usual
        for key, usual in zip(_VALID, _EVER, strict=True)
    )
    return from_s, until_s


def _schedule(
    row: dict[str, Any], zone: ZoneInfo, calendars: Mapping[str, Calendar]
) -> Hours | Cron:
    if "cron" in row:
        if both := sorted(_OF_HOURS & row.keys()):
            raise SettingError(f"cron and {both[0]} exclude each other: remove one of them")
        lasts_s = count("lasts_s", row.get("lasts_s"), LASTS_MIN_S, LASTS_MAX_S)
        return guarded("cron", lambda: Cron(text_of("cron", row["cron"]), lasts_s, zone))
    if "lasts_s" in row:
        raise SettingError("lasts_s needs cron: use to instead")
    calendar = Calendar()
    if "calendar" in row:
        named = text_of("calendar", row["calendar"])
        if named not in calendars:
            known = ", ".join(sorted(calendars)) or "none"
            raise SettingError(f"calendar {named!r} not found; known calendars: {known}")
        calendar = calendars[named]
    days: Days = Weekdays(EVERY_DAY)
    if "days" in row:
        days = guarded("days", lambda: read_days(text_of("days", row["days"])))
    return Hours(
        read_time("from", row.get("from", "00:00")),
        read_time("to", row.get("to", "24:00")),
        days,
        zone,
        calendar,
        flag("follows_work", row.get("follows_work", False)),
        _dates("also", row.get("also", [])),
        _dates("never", row.get("never", [])),
    )


def _moment(key: str, value: Any, zone: ZoneInfo) -> UtcS:
    """Read a date or a time, of the zone unless it has an offset, as seconds since 1970."""
    text = text_of(key, value)
    try:
        found = datetime.fromisoformat(text)
        return UtcS((found if found.tzinfo else found.replace(tzinfo=zone)).timestamp())
    except (ValueError, OverflowError):
        example = "write 2026-12-24 or 2026-12-24T17:00"
        raise SettingError(f"{key}: {text!r:.40} is not a time: {example}") from None


def _dates(key: str, value: Any) -> frozenset[date]:
    found = set()
    for each in _list(key, value):
        if not _DAY.fullmatch(each):
            raise SettingError(f"{key}: {each!r:.40} is not a date, as in 2026-12-25")
        found.add(guarded(key, partial(date.fromisoformat, each)))
    return frozenset(found)


def _claims(value: Any) -> Claims:
    if not isinstance(value, list) or len(value) > CLAIMS_MAX:
        raise SettingError(f"claims must be a list of up to {CLAIMS_MAX} tables")
    return Claims(tuple(_claim(f"claims[{at}]", each) for at, each in enumerate(value, 1)))


def _claim(where: str, value: Any) -> Claim:
    if not isinstance(value, dict):
        raise SettingError(f"{where} must be a table")
    guarded(where, lambda: check_known(value, OF_CLAIMS))
    who = guarded(f"{where}.who", lambda: read_party(text_of("who", value.get("who", ""))))

    def amount(key: str, usual: Amount) -> Amount:
        found: Amount = usual
        if key in value:
            found = guarded(f"{where}.{key}", lambda: read_amount(value[key]))
        return found

    return Claim(
        who,
        amount("guaranteed", NOTHING),
        amount("lends", EVERYTHING),
        amount("borrows", EVERYTHING),
        flag(f"{where}.elsewhere", value["elsewhere"]) if "elsewhere" in value else None,
    )


# --- values --------------------------------------------------------------------------------------


def _list(key: str, value: Any, most: int = DATES_MAX) -> list[str]:
    is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
    if not is_list or len(value) > most:
        raise SettingError(f"{key} must be a list of up to {most:,} strings")
    return list(value)
