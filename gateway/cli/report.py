"""Reports: what was used, and what it cost."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import click

from gateway.cli import show
from gateway.cli.between import show_statement
from gateway.cli.common import Reach, ask, errors_to_exit_codes, reach_options
from gateway.ledger.reports import Report, to_csv, to_json

DIMENSIONS = "user,project,pool,job,day,name"


@click.command()
@click.argument("kind", type=click.Choice(["usage", "cost", "statement"]))
@click.option("--by", default="user,project", show_default=True, help=f"Any of {DIMENSIONS}.")
@click.option("--from", "start", metavar="DATE", help="First day or moment, UTC, included.")
@click.option("--to", "end", metavar="DATE", help="Last day (included) or moment (not included).")
@click.option("--with", "partners", multiple=True, help="Of a statement: this site only.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@reach_options
@errors_to_exit_codes
def report(
    kind: str,
    by: str,
    start: str | None,
    end: str | None,
    as_csv: bool,
    as_json: bool,
    partners: tuple[str, ...],
    reach: Reach,
) -> None:
    """Sum usage or cost by user, project, pool, job, day or name."""
    if as_csv and as_json:
        raise click.UsageError("--csv or --json, not both")
    if kind == "statement":
        show_statement(ask(reach, "statement", sites=list(partners)), as_json)
        return
    details: dict[str, Any] = {"kind": kind, "by": [part for part in by.split(",") if part]}
    for part in details["by"]:
        if part not in DIMENSIONS.split(","):
            raise click.BadParameter(f"{part!r}: choose from {DIMENSIONS}", param_hint="--by")
    if start:
        details["start_s"] = _moment(start, end_of_day=False)
    if end:
        details["end_s"] = _moment(end, end_of_day=True)
    if start and end and details["start_s"] >= details["end_s"]:
        raise click.UsageError(f"--from {start} is not before --to {end}")
    found = ask(reach, "report", **details)
    made = Report(
        tuple(found["columns"]),
        tuple(tuple(row) for row in found["rows"]),
        tuple(tuple(row) for row in found["totals"]),
    )
    if as_json:
        click.echo(to_json(made))
    elif as_csv:
        click.echo(to_csv(made), nl=False)
    else:
        totals = [["total", *row[1:]] for row in made.totals] if by else []
        show.table(made.columns, [*made.rows, *totals] if made.rows else [], "nothing recorded")


def _moment(text: str, *, end_of_day: bool) -> float:
    """A day or a moment in ISO form, as UTC epoch seconds; a last day is included whole."""
    try:
        if len(text) == len("2026-11-20"):
            day = date.fromisoformat(text) + timedelta(days=int(end_of_day))
            return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: write 2026-11-20 or 2026-11-20T18:00") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
