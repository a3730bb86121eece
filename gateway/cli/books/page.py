"""The page: a site's cost, use and carbon as one HTML file with plots."""

from pathlib import Path

import click

from federation.errors import GridError, ProtocolError
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    errors_to_exit_codes,
    json_option,
    reach_options,
)
from gateway.cli.shared.moments import span_options
from gateway.cli.shared.output_files import PAGE, OutputFile
from gateway.ledger.output.files import write_whole
from gateway.ledger.page.facts import from_plain
from gateway.ledger.page.headline import BudgetLeft


@click.command()
@click.argument("file", type=OutputFile(PAGE))
@span_options
@reach_options
@json_option
@errors_to_exit_codes
def page(file: Path, span: dict[str, float], reach: DialOptions, as_json: bool) -> None:
    """Write a page with plots of cost, use and carbon: one HTML FILE.

    It covers the last 30 days by default, in whole hours. The file is complete: it can be opened or
    sent to others as it is.
    """
    try:
        from gateway.ledger.page.rendering import render
    except ImportError as error:
        raise click.ClickException(
            f"plots need a package that failed to import ({error}): install gridfed[html]"
        ) from None
    try:
        facts = from_plain(ask(reach, "page", **span))
    except ValueError as error:
        raise ProtocolError(f"the gateway answered, but {error}") from None
    text = render(facts, _budgets(reach)).encode()
    write_whole(file, lambda part: part.write_bytes(text))
    if as_json:
        show.as_json({"file": str(file.absolute()), "bytes": len(text)})
        return
    show.say(f"wrote {file}")


def _budgets(reach: DialOptions) -> list[BudgetLeft]:
    """Return the budgets that the gateway shows to whoever asks; none where it shows none."""
    try:
        rows = ask(reach, "budgets", all_users=True)
    except GridError:
        return []
    return [
        BudgetLeft(
            str(each["name"]),
            str(each["unit"]),
            int(each["amount_nanos"]),
            int(each["left_nanos"]),
        )
        for each in rows
        if each["kind"] != "credit" and each.get("amount_nanos") is not None
    ]
