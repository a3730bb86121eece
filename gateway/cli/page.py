"""The page: a site's cost, use and carbon as one HTML file with plots."""

import os
from pathlib import Path
from typing import Any

import click

from federation.errors import ProtocolError
from gateway.cli.common import Reach, ask, errors_to_exit_codes, reach_options
from gateway.cli.moments import moment
from gateway.ledger.page.facts import from_plain


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--from", "start", metavar="DATE", help="First day or moment, UTC, included.")
@click.option("--to", "end", metavar="DATE", help="Last day (included) or moment (not included).")
@reach_options
@errors_to_exit_codes
def page(file: Path, start: str | None, end: str | None, reach: Reach) -> None:
    """Write a page with plots of cost, use and carbon: one HTML FILE.

    It is about the last 30 days unless told otherwise, in whole hours. The file needs nothing else,
    neither to be opened nor to be sent to somebody.
    """
    try:
        from gateway.ledger.page.rendering import render
    except ImportError as error:
        raise click.ClickException(
            f"plots need a package that can't be loaded ({error}): install gridfed[html]"
        ) from None
    details: dict[str, Any] = {}
    if start:
        details["start_s"] = moment(start, end_of_day=False)
    if end:
        details["end_s"] = moment(end, end_of_day=True)
    try:
        facts = from_plain(ask(reach, "page", **details))
    except ValueError as error:
        raise ProtocolError(f"the gateway answered, but {error}") from None
    write_whole(file, render(facts))
    click.echo(f"wrote {file}")


def write_whole(file: Path, text: str) -> None:
    """Write a file that is there whole or as it was before; ClickException if it can't be."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise click.ClickException(f"{file} can't be written: {error.strerror}") from None
