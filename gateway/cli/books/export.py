"""gridfed export: the books in external formats, straight from the database."""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final

import click
from sqlalchemy import Connection

from federation.clocks import UtcS
from federation.words import count
from gateway.cli.operate.own_files import configuration_here
from gateway.cli.shared import show
from gateway.cli.shared.common import config_file_option, json_option
from gateway.cli.shared.moments import span_options
from gateway.cli.shared.output_files import CSV, PARQUET, TEXT, XML, OutputFile, check_name
from gateway.ledger.db.checks import HOUR_S
from gateway.ledger.db.database import snapshot
from gateway.ledger.db.errors import StoreError
from gateway.ledger.exports import apel as apel_messages
from gateway.ledger.exports import reading
from gateway.ledger.exports.benchmark import Benchmark, parse_benchmark
from gateway.ledger.exports.car import computing_records
from gateway.ledger.exports.focus import Row, charges
from gateway.ledger.exports.focus_files import ParquetMissing, csv_lines, write_parquet
from gateway.ledger.exports.focus_rules import check
from gateway.ledger.exports.rows import UsageRun
from gateway.ledger.exports.usage_record import usage_records
from gateway.ledger.output.files import write_whole

PROBLEMS_MAX: Final = 20  # shown of one file


@click.group()
def export() -> None:
    """Write the books in external formats; the gateway may be running.

    Without --out, the output goes to the standard output. A file is written whole or not at all.
    """


class _Period:
    """The period of --from and --to."""

    def __init__(self, span: dict[str, UtcS]) -> None:
        self.start_at_s = span.get("start_s")
        self.end_at_s = span.get("end_s")

    @property
    def hours(self) -> tuple[int | None, int | None]:
        """The same in whole hours, as sums are by the hour; raises click.UsageError."""
        for bound_s in (self.start_at_s, self.end_at_s):
            if bound_s is not None and bound_s % HOUR_S:
                raise click.UsageError(
                    "this export is by the hour: --from and --to must be whole hours"
                )
        start, end = (
            None if bound_s is None else int(bound_s // HOUR_S)
            for bound_s in (self.start_at_s, self.end_at_s)
        )
        return start, end

    def runs(self, connection: Connection, *, everywhere: bool) -> Iterator[UsageRun]:
        """Iterate over the runs that ended in the period: here, or everywhere."""
        return reading.runs(connection, self.start_at_s, self.end_at_s, ran_here=not everywhere)

    def charges(self, connection: Connection, *, everywhere: bool) -> Iterator[UsageRun]:
        """The same, and what was refunded within them."""
        span = (self.start_at_s, self.end_at_s)
        refunds = reading.refunds(connection, *span, ran_here=not everywhere)
        return chain(self.runs(connection, everywhere=everywhere), refunds)


def _command(
    written: Mapping[str, str],
    *options: Callable[..., Any],
    check: Callable[[dict[str, Any]], None] = lambda _given: None,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Decorate a command on a configured database, for a period, with or without an output file.

    Its name may have the endings of `written`. `check` refuses options that do not fit each other.
    """

    def decorate(command: Callable[..., Any]) -> click.Command:
        @functools.wraps(command)
        def wrapped(
            path: str | None,
            state: str | None,
            span: dict[str, UtcS],
            as_json: bool,
            **given: Any,
        ) -> None:
            period = _Period(span)
            out: Path | None = given["out"]
            if as_json and out is None:
                raise click.UsageError("--json needs --out FILE: without it the export is printed")
            check(given)
            config, _ = configuration_here(path, state)
            try:
                with snapshot(config.database_url) as connection:
                    command(connection, config.name, period, **given)
            except (StoreError, ParquetMissing) as error:
                raise click.ClickException(str(error)) from None
            if as_json and out is not None:
                show.as_json({"file": str(out.absolute()), "bytes": out.stat().st_size})

        made: Callable[..., Any] = wrapped
        for option in (
            click.option(
                "--json", "as_json", is_flag=True, help="With --out: print the file's name as JSON."
            ),
            click.option("--state", metavar="DIR", help="The folder of the database."),
            config_file_option,
            click.option(
                "--out", metavar="FILE", type=OutputFile(written), help="The file to write."
            ),
            span_options,
            *reversed(options),
        ):
            made = option(made)
        return export.command()(made)

    return decorate


def _check_focus(given: dict[str, Any]) -> None:
    """Refuse a file whose name and format differ. Raises click.UsageError."""
    out: Path | None = given["out"]
    if given["parquet"]:
        if out is None:
            raise click.UsageError("--parquet needs --out FILE")
        check_name(out, PARQUET)
    elif out is not None and out.suffix.lower() in PARQUET:
        raise click.UsageError(f"{out} would be CSV: give --parquet, too, or name it .csv")


@_command(
    CSV | PARQUET,
    click.option("--parquet", is_flag=True, help="Write Parquet instead of CSV."),
    check=_check_focus,
)
def focus(
    connection: Connection, site: str, period: _Period, out: Path | None, parquet: bool
) -> None:
    """FOCUS 1.2 (FinOps): the cost of usage, by the hour, with corrections."""
    hours = reading.priced_hours(connection, *period.hours)
    corrections = reading.corrections(connection, period.start_at_s, period.end_at_s)
    rows: Iterator[Row] = charges(site, hours, corrections)
    if out is not None and parquet:
        write_whole(out, functools.partial(write_parquet, rows))
    else:
        _write(csv_lines(rows), out)


@export.command("focus-check")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@json_option
def focus_check(file: Path, as_json: bool) -> None:
    """Check a CSV file against the rules of FOCUS 1.2. Exit code 1 when it breaks one."""
    rows, found = 0, 0
    shown: list[str] = []
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            for each in check(text):
                rows = each.rows
                for problem in each.problems:
                    found += 1
                    if found <= PROBLEMS_MAX:
                        shown.append(str(problem))
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file} is not in UTF-8: {error}") from None
    if as_json:
        problems = [{"problem": line} for line in shown]
        show.as_json(problems, {"rows_checked": rows, "problems": found})
    else:
        for line in shown:
            show.say(f"problem: {line}")
        show.say(f"{count(rows, 'row')}, {count(found, 'problem')}")
    if found:
        raise SystemExit(1)


_everywhere = click.option(
    "--all",
    "everywhere",
    is_flag=True,
    help="Include usage at other sites, which they report themselves.",
)


def _benchmark(_: click.Context, __: click.Parameter, text: str | None) -> Benchmark | None:
    try:
        return parse_benchmark(text) if text else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_speed = click.option(
    "--benchmark",
    metavar="KIND=NUMBER",
    callback=_benchmark,
    help="The benchmark of a slot, as in hepspec=10.5.",
)


@_command(XML, _everywhere)
def usage_record(
    connection: Connection, site: str, period: _Period, out: Path | None, everywhere: bool
) -> None:
    """OGF Usage Record 1.0: an XML record for each run and each refund."""
    runs = period.charges(connection, everywhere=everywhere)
    _write(usage_records(site, runs), out)


@_command(XML, _everywhere, _speed)
def car(
    connection: Connection,
    site: str,
    period: _Period,
    out: Path | None,
    everywhere: bool,
    benchmark: Benchmark | None,
) -> None:
    """EMI Compute Accounting Record: an XML record for each run and each refund."""
    runs = period.charges(connection, everywhere=everywhere)
    _write(computing_records(site, runs, benchmark), out)


@_command(TEXT, _everywhere, _speed)
def apel(
    connection: Connection,
    site: str,
    period: _Period,
    out: Path | None,
    everywhere: bool,
    benchmark: Benchmark | None,
) -> None:
    """APEL individual job message: a record for each run."""
    runs = period.runs(connection, everywhere=everywhere)
    _write(apel_messages.job_messages(site, runs, benchmark), out)


@_command(TEXT, _everywhere, _speed)
def apel_summary(
    connection: Connection,
    site: str,
    period: _Period,
    out: Path | None,
    everywhere: bool,
    benchmark: Benchmark | None,
) -> None:
    """APEL summary message: by month, user, project and group."""
    hours = reading.hours(connection, *period.hours, ran_here=not everywhere, of_time=True)
    _write(apel_messages.summary_messages(site, hours, benchmark), out)


@_command(TEXT, _everywhere)
def apel_sync(
    connection: Connection, site: str, period: _Period, out: Path | None, everywhere: bool
) -> None:
    """APEL sync message: the number of runs by month, to compare."""
    hours = reading.hours(connection, *period.hours, ran_here=not everywhere, of_time=True)
    _write(apel_messages.sync_messages(site, hours), out)


def _write(pieces: Iterable[str], out: Path | None) -> None:
    """Write text unchanged, in UTF-8, regardless of the locale and the system's line ends."""

    def write(path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="") as file:
            file.writelines(pieces)

    if out is not None:
        write_whole(out, write)
        return
    with suppress(BrokenPipeError):
        for piece in pieces:
            sys.stdout.buffer.write(piece.encode())
        sys.stdout.buffer.flush()
