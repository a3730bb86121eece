"""The use of slots, the lost part of it, and its carbon. Pure."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from gateway.ledger.page import tables, writing
from gateway.ledger.page.charts import ChartSeries, Lines, Matrix, Panels, ShareBars, Stacks
from gateway.ledger.page.facts import PageFacts, SlotHours, Sum, total
from gateway.ledger.page.figures import HOURS, PageFigure, floats, nothing
from gateway.ledger.page.tables import Cell, Table

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
PARTS: Final = {
    "done": ("ok",),
    "failed": ("failed",),
    "cancelled": ("cancelled",),
    "stopped to make room": ("preempted",),
    "repeated": ("repeat",),
    "not delivered": ("void",),
    "lost with a worker": ("lost", "wasted"),
}

_UJ_PER_KWH: Final = 3_600_000 * 10**6
_NG_PER_G: Final = 10**9


def utilisation(facts: PageFacts) -> PageFigure:
    """Return the used share of our own slots, by hour and weekday."""
    title = "Utilisation of our own pools by hour and weekday"
    by_key = {(each.weekday, each.hour): each for each in facts.slots}
    capacity_ns = sum(each.capacity_ns for each in facts.slots)
    if not capacity_ns:
        return nothing(title, "our own pools had no slots in this period.")
    cells = [[_used([by_key.get((weekday, hour))]) for hour in range(24)] for weekday in range(7)]
    chart = Matrix(
        rows=WEEKDAYS,
        columns=HOURS,
        values=tuple(tuple(None if each is None else float(each) for each in row) for row in cells),
        texts=tuple(
            tuple("" if each is None else writing.rounded(100 * each, 0) for each in row)
            for row in cells
        ),
        top=1.0,
        about="% of slot time used; hours of the day, UTC",
    )
    week = [by_key.get((weekday, hour)) for weekday in range(7) for hour in range(24)]
    table = Table(
        tables.heads("Hour, UTC", *WEEKDAYS, "All week", "Used", "Available"),
        tuple(
            (
                tables.text(f"{hour}:00"),
                *(_percent(cells[weekday][at]) for weekday in range(7)),
                *_used_cells(week[at::24]),
            )
            for at, hour in enumerate(HOURS)
            if any(week[at::24])
        ),
        (
            tables.text("All day"),
            *(_percent(_used(week[at : at + 24])) for at in range(0, len(week), 24)),
            *_used_cells(week),
        ),
    )
    lead = (
        f"{writing.share(sum(each.used_ns for each in facts.slots), capacity_ns)} of "
        f"{writing.rounded(writing.slot_hours(capacity_ns), 1)} slot-hours were used, "
        "including work of other sites. Slot time counts in the hour in which a task "
        "ended, so that an hour may have over 100 %."
    )
    alt = "Heat map: share of slot time used, for each hour of the day and each weekday."
    return PageFigure(title, lead, alt, chart, table)


def carbon(facts: PageFacts) -> PageFigure:
    """Return energy and carbon of our users' work, over the hours of the day."""
    title = "Carbon over the day"
    by_hour = [total(each for each in facts.hours if each.key[0] == hour) for hour in range(24)]
    whole = total(by_hour)
    if not whole.measured_ns:
        return nothing(title, "the energy of our users' work is unknown.")
    chart = Panels(
        Lines(
            HOURS,
            (ChartSeries("intensity", floats(map(_intensity, by_hour)), 4, is_main=True),),
            "g CO₂e / kWh",
        ),
        Stacks(
            HOURS,
            (
                ChartSeries("electricity", tuple(each.carbon_ng / 1e9 for each in by_hour), 4),
                ChartSeries(
                    "manufacture of the hardware",
                    tuple(each.embodied_ng / 1e9 for each in by_hour),
                    6,
                ),
            ),
            "g CO₂e",
        ),
        "hour of the day, UTC",
    )
    table = Table(
        tables.heads(
            *("Hour, UTC", "g CO₂e per kWh", "Energy, kWh", "Electricity, g CO₂e"),
            *("Hardware, g CO₂e", "All, g CO₂e", "Share of electricity with known CO₂e"),
        ),
        tuple(
            (tables.text(f"{hour}:00"), *_carbon_cells(each))
            for hour, each in zip(HOURS, by_hour, strict=True)
            if each.wall_ns
        ),
        (tables.text("Whole day"), *_carbon_cells(whole)),
    )
    grams = Fraction(whole.carbon_ng + whole.embodied_ng, _NG_PER_G)
    lead = (
        f"{writing.significant(grams / 1000)} kg CO₂e for "
        f"{writing.significant(Fraction(whole.energy_uj, _UJ_PER_KWH))} kWh of our users' "
        "work at all sites. Both are estimates, from slot time and the factors of each "
        f"site.{_left_out(whole)}"
    )
    alt = "A line: carbon intensity of each hour of the day; below, bars: grams of CO₂e."
    return PageFigure(title, lead, alt, chart, table)


def waste(facts: PageFacts) -> PageFigure:
    """Return the shares of slot time that were idle, failed, cancelled or repeated, by site."""
    title = "Idle, failed, cancelled and repeated work"
    sites = sorted(
        {each.key[0] for each in facts.work},
        key=lambda site: (site != facts.site, site is None, str(site)),
    )
    capacity_ns = sum(each.capacity_ns for each in facts.slots)
    if capacity_ns and facts.site not in sites:
        sites.insert(0, facts.site)
    rows: list[tuple[object, list[int], int]] = []
    for site in sites:
        by_state = [
            total(each for each in facts.work if each.key[0] == site and each.key[1] in states)
            for states in PARTS.values()
        ]
        times = [each.wall_ns for each in by_state]
        idle_ns = max(0, capacity_ns - sum(times)) if site == facts.site else 0
        rows.append((site, [*times, idle_ns], sum(each.tasks for each in by_state)))
    rows = [row for row in rows if sum(row[1])]
    if not rows:
        return nothing(title, "no slot time was used or available in this period.")
    parts = (*PARTS, "idle")
    unknown = tables.number("n/a")
    chart = ShareBars(
        tuple(
            label if site == facts.site else f"{label}\n(idle: n/a)"
            for label, (site, _, _) in zip(
                writing.labels([site for site, _, _ in rows]), rows, strict=True
            )
        ),
        tuple(
            ChartSeries(part, tuple(times[at] / sum(times) for _, times, _ in rows), colour)
            for at, (part, colour) in enumerate(
                zip(parts, (0, 5, 6, 3, 1, 2, 4, None), strict=True)
            )
        ),
    )
    table = Table(
        tables.heads(
            *("Site", "Tasks run", *(f"{part.capitalize()}, hours" for part in parts)),
            *("Failed, cancelled, stopped, repeated or lost", "Idle"),
        ),
        tuple(
            (
                tables.name(site),
                tables.count(tasks),
                *map(tables.hours, times[:-1]),
                tables.hours(times[-1]) if site == facts.site else unknown,
                tables.share(sum(times[1:-1]), sum(times[:-1])),
                tables.share(times[-1], sum(times)) if site == facts.site else unknown,
            )
            for site, times, tasks in rows
        ),
    )
    spent = sum(sum(times[:-1]) for _, times, _ in rows)
    lost = sum(sum(times[1:-1]) for _, times, _ in rows)
    lead = (
        f"{writing.share(lost, spent)} of the used slot time went to tasks that failed, "
        "were cancelled or stopped to make room, had to run again, or could not be "
        "delivered, and to lost workers. Idle time (slots without work) is known only for "
        "our own pools; the bar of another site shows its used time alone."
    )
    alt = (
        "Bars: shares of slot time done, failed, cancelled, stopped, repeated, not "
        "delivered, lost or idle, by site."
    )
    return PageFigure(title, lead, alt, chart, table)


def _used(slots: Sequence[SlotHours | None]) -> Fraction | None:
    there = [each for each in slots if each is not None]
    capacity_ns = sum(each.capacity_ns for each in there)
    return Fraction(sum(each.used_ns for each in there), capacity_ns) if capacity_ns else None


def _percent(part: Fraction | None) -> Cell:
    if part is None:
        return tables.number(writing.NOTHING)
    return tables.number(f"{writing.rounded(100 * part, 0)} %")


def _used_cells(slots: Sequence[SlotHours | None]) -> tuple[Cell, ...]:
    there = [each for each in slots if each is not None]
    return (
        _percent(_used(slots)),
        tables.hours(sum(each.used_ns for each in there)),
        tables.hours(sum(each.capacity_ns for each in there)),
    )


def _intensity(each: Sum) -> Fraction | None:
    """Return grams of CO2e per kWh, for the energy whose carbon is known."""
    if not each.rated_uj:
        return None
    return Fraction(each.carbon_ng, _NG_PER_G) / Fraction(each.rated_uj, _UJ_PER_KWH)


def _left_out(whole: Sum) -> str:
    """Return the share of the work that the sums don't cover, in words."""
    found = [
        f" The {what} of {writing.share(whole.wall_ns - known_ns, whole.wall_ns)} of the "
        "slot time is unknown and not included."
        for what, known_ns in (
            ("energy", whole.measured_ns),
            ("carbon of the electricity", whole.rated_ns),
        )
        if known_ns < whole.wall_ns
    ]
    return "".join(found)


def _carbon_cells(each: Sum) -> tuple[Cell, ...]:
    """Return cells for the known part; a dash where nothing is known, which is not zero."""
    intensity = _intensity(each)
    unknown = tables.number(writing.NOTHING)
    energy = tables.measure(Fraction(each.energy_uj, _UJ_PER_KWH))
    electricity, hardware, everything = (
        tables.measure(Fraction(ng, _NG_PER_G))
        for ng in (each.carbon_ng, each.embodied_ng, each.carbon_ng + each.embodied_ng)
    )
    return (
        unknown if intensity is None else tables.number(writing.rounded(intensity, 0)),
        energy if each.measured_ns else unknown,
        electricity if each.rated_ns else unknown,
        hardware if each.measured_ns else unknown,
        everything if each.rated_ns else unknown,
        tables.share(each.rated_ns, each.wall_ns),
    )
