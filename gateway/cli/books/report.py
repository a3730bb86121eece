"""Reports: usage, cost, savings, and idle capacity."""

import functools
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import click

from federation.money import parse_money
from federation.words import count
from gateway.cli.books.between import (
    account_report,
    show_margin,
    show_statement,
    write_json,
)
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    all_users_option,
    ask,
    errors_to_exit_codes,
    exact_option,
    of_users,
    reach_options,
)
from gateway.cli.shared.moments import span_options
from gateway.cli.shared.output_files import PARQUET, OutputFile
from gateway.ledger.output.files import write_whole
from gateway.ledger.reports import ALL, Cell, ReportTable, to_csv, write_parquet
from gateway.ledger.reports.keys import CHOICES, key_of
from gateway.ledger.reports.report import NO_MONEY, is_decimal, is_whole

_DATA: Final = ("held_gb_h", "moved_gb")
_SHOWN_DECIMALS: Final = Decimal("0.0001")
_UNKNOWN: Final = "\N{EN DASH}"


@click.group()
def report() -> None:
    """Report cost, usage, carbon, savings, utilisation, showback; statement, margin; a page.

    All times are UTC; a period includes its beginning and not its end. Reports cover our own users'
    work, wherever it ran; --all, or asking for the origin, counts the work sent by other sites,
    too. docs/reports.md explains each column.
    """


def _formats(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the output options as_csv, as_json, parquet, at most one of them."""

    @functools.wraps(command)
    def wrapped(*, as_csv: bool, as_json: bool, parquet: Path | None, **rest: Any) -> Any:
        if as_csv + as_json + (parquet is not None) > 1:
            raise click.UsageError("give only one of --csv, --json and --parquet")
        return command(as_csv=as_csv, as_json=as_json, parquet=parquet, **rest)

    made: Callable[..., Any] = wrapped
    for option in (
        click.option(
            "--parquet",
            metavar="FILE",
            type=OutputFile(PARQUET),
            help="Write Parquet; needs gridfed[parquet].",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--csv", "as_csv", is_flag=True, help="Print CSV."),
        exact_option,
    ):
        made = option(made)
    return made


def _options(by: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a command with the options of all reports; `by` is the default of --by."""
    options = (
        click.option(
            "--by", default=by, show_default=True, help=f"Any of {', '.join(CHOICES)}; '' for none."
        ),
        click.option(
            "--where",
            metavar="KEY=VALUE",
            multiple=True,
            help=(
                "Only these rows, as in project=risk; repeatable: any value of a key, and all keys."
            ),
        ),
        span_options,
        _formats,
        all_users_option,
        reach_options,
        errors_to_exit_codes,
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_all_option = click.option(
    "--all", "everything", is_flag=True, help="Include the work that other sites sent."
)


@report.command()
@_options(by="user,project")
@_all_option
def cost(**given: Any) -> None:
    """The amounts charged, and the cost of the same work by list prices."""
    _report("cost", **given)


@report.command()
@click.option("--with", "sites", multiple=True, metavar="SITE", help="Only this site; repeatable.")
@span_options
@_formats
@reach_options
@errors_to_exit_codes
def statement(
    sites: tuple[str, ...], span: dict[str, float], reach: DialOptions, **formats: Any
) -> None:
    """The balance with each other site; it has the same, with the sign changed."""
    found = ask(reach, "statement", sites=list(sites), **span)
    if not _write(account_report(found), **formats):
        show_statement(found)


@report.command()
@click.option("--jobs", is_flag=True, help="A row for each job.")
@span_options
@_formats
@reach_options
@errors_to_exit_codes
def margin(jobs: bool, span: dict[str, float], reach: DialOptions, **formats: Any) -> None:
    """What this site took and gave for work that it sold to one site and bought from another."""
    found = ask(reach, "margin", by_job=jobs, **span)
    if not _write(account_report(found), **formats):
        show_margin(found)


@report.command()
@_options(by="user,project")
@_all_option
def usage(**given: Any) -> None:
    """Tasks, slot time, CPU time and memory; failed, cancelled, stopped and repeated work apart."""
    _report("usage", **given)


@report.command()
@_options(by="user,project")
@_all_option
def carbon(**given: Any) -> None:
    """Energy, and the carbon dioxide that it stands for."""
    _report("carbon", **given)


@report.command()
@_options(by="project")
@_all_option
@click.option(
    "--static-price",
    metavar="PRICE",
    help='The price per slot-hour of your own machines, as in "0.03 USD".',
)
def savings(static_price: str | None, **given: Any) -> None:
    """The cost, against the dearest pool, and against a grid sized for the busiest hour."""
    if static_price is not None:
        try:
            parse_money(static_price)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--static-price") from None
    _report("savings", static_price=static_price, **given)


@report.command()
@_options(by="pool")
def utilisation(**given: Any) -> None:
    """The use of the slots that were there; idle time is a row of its own."""
    _report("utilisation", **given)


@report.command()
@_options(by="project")
@_all_option
def showback(**given: Any) -> None:
    """The charges by project (or --by), each with its share of the idle capacity."""
    _report("showback", **given)


def _report(
    kind: str,
    *,
    as_csv: bool,
    as_json: bool,
    parquet: Path | None,
    reach: DialOptions,
    all_users: bool,
    **asked: Any,
) -> None:
    details = {"kind": kind, **_details(**asked), **of_users(all_users=all_users)}
    made = report_of(ask(reach, "report", **details))
    if not _write(made, as_csv=as_csv, as_json=as_json, parquet=parquet):
        _print(made)


def _write(made: ReportTable, *, as_csv: bool, as_json: bool, parquet: Path | None) -> bool:
    """Write a report in the requested form; return False if it is for people."""
    if as_json:
        write_json(made)
    elif as_csv:
        click.echo(to_csv(made), nl=False)
    elif parquet is not None:
        write_whole(parquet, functools.partial(write_parquet, made))
        show.say(f"{count(len(made.rows), 'row')} written to {parquet}")
    return as_json or as_csv or parquet is not None


def _details(
    by: str,
    where: tuple[str, ...],
    span: dict[str, float],
    static_price: str | None = None,
    everything: bool = False,
) -> dict[str, Any]:
    """Return the details of a question for a report."""
    details: dict[str, Any] = {
        "by": [_known(part.strip(), "--by") for part in by.split(",") if part.strip()],
        "where": [_choice(text) for text in where],
        **span,
    }
    if everything:
        details["whose"] = ALL
    if static_price is not None:
        details["static_price"] = static_price
    return details


def report_of(found: dict[str, Any]) -> ReportTable:
    """Read a report as a gateway sends it. Whole numbers of over 64 bits travel as text."""
    columns = tuple(found["columns"])

    def cells(row: list[Any]) -> tuple[Cell, ...]:
        pairs = zip(row, columns, strict=True)
        return tuple(int(cell) if cell and is_whole(name) else cell for cell, name in pairs)

    rows, totals = (tuple(map(cells, found[name])) for name in ("rows", "totals"))
    return ReportTable(columns, rows, totals, found["facts"], tuple(found["notes"]))


def _print(made: ReportTable) -> None:
    """Print a table for people: of an amount in two columns, the readable one."""
    twins = {f"{name}_{unit}" for name in made.columns for unit in ("nanos", "ng")}
    twins |= {"carbon_ng", "embodied_ng"} if "carbon_g" in made.columns else set()
    twins |= {"energy_uj"} if "energy_kwh" in made.columns else set()
    twins |= {"slot_ns"} if "slot_h" in made.columns else set()
    if "held_gb_h" in made.columns:
        twins |= {"held_byte_s", "moved_bytes"}
        # Most sites have no data: columns without any are left out.
        for name in _DATA:
            at = made.columns.index(name)
            twins |= set() if any(row[at] != "0" for row in made.rows) else {name}
    places = [at for at, name in enumerate(made.columns) if name not in twins]
    has_keys = bool(made.columns) and made.totals != made.rows
    rows = [[_shown(row[at], made.columns[at]) for at in places] for row in made.rows]
    for total in made.totals if has_keys else ():
        cells = [_shown(total[at], made.columns[at]) for at in places]
        rows.append(["total", *cells[1:]])
    headings = [_heading(made.columns[at]) for at in places]
    names = [made.columns[at] for at in places]
    _round(rows, names)
    keys = sum(not (is_whole(name) or is_decimal(name)) for name in names)
    aligned = show.aligned(rows, keys) if made.rows else []
    show.table(headings, aligned, "nothing is recorded", keys=keys)
    for note in made.notes:
        show.say(note)


def _round(rows: list[list[str]], columns: Sequence[str]) -> None:
    """Round the amounts of money in the cells of a report, column by column, in place."""
    if "currency" not in columns or not rows:
        return
    currencies = [row[columns.index("currency")] for row in rows]
    for at, name in enumerate(columns):
        if is_decimal(name) and name not in NO_MONEY:
            for row, cell in zip(
                rows, show.amounts([row[at] for row in rows], currencies), strict=True
            ):
                row[at] = cell


def _heading(column: str) -> str:
    name = column.removesuffix("_ns")
    return (f"{name} s" if name != column else name).replace("_", " ")


def _shown(cell: Cell, column: str) -> str:
    if cell is None:  # of a number: unknown, or there is none; which is not zero
        return _UNKNOWN if is_whole(column) or is_decimal(column) else ""
    if column.endswith("_ns"):
        return show.seconds(int(cell))
    if is_whole(column):
        return f"{int(cell):,}"
    if is_decimal(column) and column in ("slot_h", "share", "g_per_kwh", *_DATA):
        return f"{Decimal(cell).quantize(_SHOWN_DECIMALS):,}"
    return str(cell)


def _known(name: str, option: str) -> str:
    try:
        return key_of(name).name
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def _choice(text: str) -> list[str]:
    """Read `project=risk` as a pair."""
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not a filter: write KEY=VALUE", param_hint="--where")
    try:
        key_of(_known(name, "--where")).check(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--where") from None
    return [name, value]
