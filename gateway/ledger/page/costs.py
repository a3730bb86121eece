"""The cost of work: by site and day, by project, between sites, and over the day. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, replace
from datetime import date, timedelta
from fractions import Fraction
from typing import Any, Final

from federation.money import NANOS_PER_UNIT
from gateway.ledger.page import tables, writing
from gateway.ledger.page.charts import Bars, ChartSeries, Lines, Matrix, Stacks
from gateway.ledger.page.facts import DATA, FEE, Deal, PageFacts, Sum, total
from gateway.ledger.page.figures import HOURS, PageFigure, Palette, floats, nothing
from gateway.ledger.page.tables import Cell, Table

BARS_MAX: Final = 62  # days with a bar each; in a longer period a bar is a week

_HEADS: Final = ("Cost", "Share", "Tasks", "Slot-hours", "Cost per slot-hour")
_DEAL_KEYS: Final = 2  # site and currency
_OWED: Final = ("balance", "held_sold", "held_bought")
_DOUBTS: Final = ("unconfirmed", "to_confirm")  # about the balance
_COLUMNS: Final = 100  # characters that fit below a chart
_DAY_S: Final = 86_400
_GB: Final = 10**9
_FIRST_DAY: Final = date(1970, 1, 1)


def spend(facts: PageFacts, currency: str, colours: Palette) -> PageFigure:
    """Return the daily cost of our users' work, by the site that ran it."""
    title = f"Cost by site per day, {currency}"
    found = _of(facts.days, currency)
    if not found:
        return nothing(title, "our users had no cost in this currency.")
    sites = _sites(found, 1, colours)
    first, last = int(facts.start_at_s // _DAY_S), int((facts.end_at_s - 1) // _DAY_S)
    step = 1 if last - first < BARS_MAX else 7
    if step == 1:  # the bars begin with the first work, and end with the last
        worked = [int(each.key[0] or 0) for each in found]
        first, last = min(worked), max(worked)
    starts = range(first, last + 1, step)
    cells: dict[tuple[int, object], int] = {}
    for each in found:
        key = (int(each.key[0] or 0) - first) // step, each.key[1]
        cells[key] = cells.get(key, 0) + each.cost_nanos
    places = writing.decimals(total(found).cost_nanos)
    bars = range(len(starts))
    chart = Stacks(
        tuple(_day(start) for start in starts),
        tuple(
            ChartSeries(
                label, tuple(cells.get((bar, site), 0) / 1e9 for bar in bars), colours[site]
            )
            for site, label in zip(sites, writing.labels(sites), strict=True)
        ),
        currency,
    )
    rows = [
        (
            tables.text((_FIRST_DAY + timedelta(days=start)).isoformat()),
            *(tables.money(cells.get((bar, site), 0), places) for site in sites),
            tables.money(sum(cells.get((bar, site), 0) for site in sites), places),
        )
        for bar, start in reversed(list(enumerate(starts)))  # the newest is read first
        if any((bar, site) in cells for site in sites)
    ]
    by_site = [total(each for each in found if each.key[1] == site) for site in sites]
    whole = total(found).cost_nanos
    table = Table(
        (
            tables.text("Day" if step == 1 else "Week from"),
            *(tables.name_head(site) for site in sites),
            Cell("All sites", is_right=True),
        ),
        tuple(rows),
        (
            tables.text("Total"),
            *(tables.money(each.cost_nanos, places) for each in by_site),
            tables.money(whole, places),
        ),
    )
    at_home = sum(each.cost_nanos for each in found if each.key[1] == facts.site)
    lead = (
        f"{writing.amount(whole, places)} {currency} in total, "
        f"{writing.share(at_home, whole)} of it in our own pools."
    )
    alt = f"Stacked bars: cost in {currency} of each {'day' if step == 1 else 'week'}, by site."
    return PageFigure(title, lead, alt, chart, table)


def projects(facts: PageFacts, currency: str) -> PageFigure:
    """Return the cost of our users' work, by project."""
    title = f"Cost by project, {currency}"
    found = _of(facts.projects, currency)
    if not found:
        return nothing(title, "our users had no cost in this currency.")
    found.sort(key=lambda each: (each.key[0] is None, -each.cost_nanos, str(each.key[0])))
    names = [each.key[0] for each in found]
    whole = total(found)
    places = writing.decimals(whole.cost_nanos)
    chart = Bars(
        tuple(writing.labels(names)),
        tuple(each.cost_nanos / 1e9 for each in found),
        tuple(writing.amount(each.cost_nanos, places) for each in found),
        tuple(None if name is None else 0 for name in names),
        currency,
    )
    table = Table(
        tables.heads("Project", *_HEADS),
        tuple((tables.name(each.key[0]), *_figures(each, whole, places)) for each in found),
        (tables.text("Total"), *_figures(whole, whole, places)),
    )
    lead = f"The largest took {writing.share(found[0].cost_nanos, whole.cost_nanos)} of the cost."
    return PageFigure(title, lead, f"Bars: cost in {currency} of each project.", chart, table)


def flows(facts: PageFacts, currency: str) -> PageFigure:
    """Return the use of sites by each other: from the sender of work to the site that ran it."""
    title = f"Work between sites, {currency}"
    found = _of(facts.flows, currency)
    if not found:
        return nothing(title, "no work has a cost in this currency.")
    whole = total(found)
    places = writing.decimals(whole.cost_nanos)
    origins, sites = (_in_order({each.key[at] for each in found}, facts.site) for at in (0, 1))
    by_key = {each.key: each for each in found}
    cells = [[by_key.get((origin, site)) for site in sites] for origin in origins]
    chart = Matrix(
        rows=tuple(writing.labels(origins)),
        columns=tuple(writing.labels(sites, min(writing.LABEL_MAX, _COLUMNS // len(sites)))),
        values=tuple(
            tuple(None if each is None else each.cost_nanos / 1e9 for each in row) for row in cells
        ),
        texts=tuple(
            tuple(
                f"{writing.amount(each.cost_nanos, places)}\n{each.tasks:,} tasks" if each else ""
                for each in row
            )
            for row in cells
        ),
        top=max(each.cost_nanos for each in found) / 1e9,
        about="rows: origin of the work; columns: where it ran",
    )
    found.sort(key=lambda each: (-each.cost_nanos, -each.tasks, *map(str, each.key)))
    table = Table(
        tables.heads("Origin", "Ran at", *_HEADS, texts=2),
        tuple((*map(tables.name, each.key), *_figures(each, whole, places)) for each in found),
        (tables.text("Total"), tables.text(""), *_figures(whole, whole, places)),
    )
    away = sum(each.cost_nanos for each in found if each.key[0] != each.key[1])
    lead = (
        f"{writing.share(away, whole.cost_nanos)} of the cost is for work that ran at another site."
    )
    alt = f"Heat map: cost in {currency} and tasks, by the origin of the work and where it ran."
    return PageFigure(title, lead, alt, chart, table)


def prices(facts: PageFacts, currency: str, colours: Palette) -> PageFigure:
    """Return the price that our users paid for a slot-hour, over the hours of the day."""
    title = f"Price per slot-hour over the day, {currency}"
    found = [each for each in _of(facts.hours, currency) if each.key[2] == "ok"]
    if not total(found).wall_ns:
        return nothing(title, "no successful work of our users used slot time.")
    sites = _sites(found, 1, colours)
    by_hour = [[each for each in found if each.key[0] == hour] for hour in range(24)]
    everywhere = [_price(total(each)) for each in by_hour]
    by_site = {
        site: [_price(total(each for each in row if each.key[1] == site)) for row in by_hour]
        for site in sites
    }
    mean = ChartSeries("mean", floats(everywhere), None, is_main=True)
    series = [
        ChartSeries(label, floats(by_site[site]), colours[site])
        for site, label in zip(sites, writing.labels(sites), strict=True)
    ]
    chart = Lines(HOURS, (*series, *([mean] if len(sites) > 1 else [])), f"{currency} / slot-hour")
    whole = total(found)
    table = Table(
        (
            tables.text("Hour, UTC"),
            *(tables.name_head(site) for site in sites),
            *tables.heads("Mean", "Slot-hours", texts=0),
        ),
        tuple(
            (
                tables.text(f"{HOURS[hour]}:00"),
                *(tables.price(by_site[site][hour]) for site in sites),
                tables.price(everywhere[hour]),
                tables.hours(total(by_hour[hour]).wall_ns),
            )
            for hour in range(24)
            if by_hour[hour]
        ),
        (
            tables.text("Whole day"),
            *(
                tables.price(_price(total(each for each in found if each.key[1] == site)))
                for site in sites
            ),
            tables.price(_price(whole)),
            tables.hours(whole.wall_ns),
        ),
    )
    known = [each for each in everywhere if each is not None]
    lead = (
        f"From {writing.rounded(min(known), 4)} to {writing.rounded(max(known), 4)} "
        f"{currency} on average, weighted by slot time; successful work only, in the hour "
        f"in which it ended.{_apart(facts, currency)}"
    )
    alt = f"Lines: mean price per slot-hour in {currency} for each hour of the day, by site."
    return PageFigure(title, lead, alt, chart, table)


def key_figures(facts: PageFacts, found_currencies: Sequence[str]) -> Table:
    """Return the sums of the period, a row for each currency."""
    rows = []
    for currency in found_currencies:
        sent = _of(facts.flows, currency)
        ours = total(each for each in sent if each.key[0] == facts.site)
        bought = total(each for each in sent if each.key[0] == facts.site != each.key[1])
        sold = total(each for each in sent if each.key[0] != facts.site)
        apart = ("ok", FEE, DATA)
        lost = total(each for each in _of(facts.hours, currency) if each.key[2] not in apart)
        fees_nanos = _nanos_of(facts, currency, FEE)
        data = total(each for each in _of(facts.hours, currency) if each.key[2] == DATA)
        apart_nanos = fees_nanos + data.cost_nanos
        places = writing.decimals(max(ours.cost_nanos, sold.cost_nanos))
        rows.append(
            (
                tables.text(currency),
                tables.money(ours.cost_nanos, places),
                tables.money(ours.list_cost_nanos, places),
                tables.money(bought.cost_nanos, places),
                tables.money(lost.cost_nanos, places),
                tables.count(ours.tasks),
                tables.hours(ours.wall_ns),
                tables.price(_price(replace(ours, cost_nanos=ours.cost_nanos - apart_nanos))),
                tables.money(fees_nanos, places),
                tables.money(data.cost_nanos, places),
                tables.data(data.held_byte_s, _GB * 3_600, "byte-seconds"),
                tables.data(data.moved_bytes, _GB, "bytes"),
                tables.money(sold.cost_nanos, places),
            )
        )
    heads = (
        *("Currency", "Cost", "At list prices", "Bought from other sites"),
        *("Failed, cancelled, repeated or lost", "Tasks run", "Slot-hours", "Per slot-hour"),
        *("Fees", "Data", "GB-hours held", "GB moved", "Sold to other sites"),
    )
    return Table(tables.heads(*heads), tuple(rows))


def deals(facts: PageFacts) -> Table | None:
    """Return the statement of account with each site over the period.

    Balances and held amounts come first, and payments that only one site has booked; of the latter,
    and of the turnover, empty columns are left out.
    """
    if not facts.deals:
        return None
    names = [name.removesuffix("_nanos") for name in Deal.__dataclass_fields__][_DEAL_KEYS:]
    amounts = [astuple(each)[_DEAL_KEYS:] for each in facts.deals]
    moved = [at for at, column in enumerate(zip(*amounts, strict=True)) if any(column)]
    first = [names.index(name) for name in _OWED]
    first += [at for at in map(names.index, _DOUBTS) if at in moved]
    shown = [*first, *(at for at in moved if at not in first)]
    rows = []
    for each, nanos in zip(facts.deals, amounts, strict=True):
        places = writing.exact_decimals(nanos)
        rows.append(
            (
                tables.name(each.site),
                tables.text(each.currency),
                *(tables.money(nanos[at], places) for at in shown),
            )
        )
    words = (_words(names[at]) for at in shown)
    return Table(tables.heads("Site", "Currency", *words, texts=_DEAL_KEYS), tuple(rows))


def _nanos_of(facts: PageFacts, currency: str, state: str) -> int:
    """Return our users' fees, or cost of data: for no slot time, and in no price of it."""
    return sum(each.cost_nanos for each in _of(facts.hours, currency) if each.key[2] == state)


def _apart(facts: PageFacts, currency: str) -> str:
    text = ""
    for state, what in ((FEE, "Fees for reserved time that was not used"), (DATA, "Data")):
        nanos = _nanos_of(facts, currency, state)
        if nanos:
            shown = writing.amount(nanos, writing.decimals(nanos))
            verb = "are" if state == FEE else "is"
            text += f" {what}, {shown} {currency}, {verb} not included."
    return text


def _words(name: str) -> str:
    """Return the heading for a column of a statement."""
    name = name.replace("held_", "held of ").replace("void_", "void of ")
    return name.replace("_", " ").capitalize()


def _of(sums: Iterable[Sum], currency: str) -> list[Sum]:
    return [each for each in sums if each.currency == currency]


def _in_order(sites: Iterable[Any], own: str) -> list[Any]:
    """Return our own site, then the others by name, and the rest without a name."""
    return sorted(sites, key=lambda site: (site != own, site is None, str(site)))


def _sites(sums: Iterable[Sum], at: int, colours: Palette) -> list[Any]:
    """Return the sites of some sums in the order of their colours, the rest without a name last."""

    def place(site: object) -> int:
        colour = colours[site]
        return len(colours) if colour is None else colour

    return sorted({each.key[at] for each in sums}, key=place)


def _day(day: int) -> str:
    at = _FIRST_DAY + timedelta(days=day)
    return f"{at.day} {at:%b}"


def _figures(each: Sum, whole: Sum, places: int) -> tuple[Cell, ...]:
    return (
        tables.money(each.cost_nanos, places),
        tables.share(each.cost_nanos, whole.cost_nanos),
        tables.count(each.tasks),
        tables.hours(each.wall_ns),
        tables.price(_price(each)),
    )


def _price(each: Sum) -> Fraction | None:
    """Return the mean price per slot-hour, weighted by slot time, in units of the currency."""
    if not each.wall_ns:
        return None
    return Fraction(each.cost_nanos, NANOS_PER_UNIT) / writing.slot_hours(each.wall_ns)
