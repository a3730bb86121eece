"""What sites owe each other: statement, deliveries, reconcile, dispute, settle."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from federation.money import parse_money
from gateway.cli import show
from gateway.cli.common import Reach, ask, errors_to_exit_codes, json_option, reach_options
from gateway.cli.moments import span_options
from gateway.ledger.reports import Report, to_json

# Of a statement: what a row is of, and how it stands now.
_KEYS: Final = ("site", "currency")
_STANDING: Final = ("balance", "held_sold", "held_bought", "agreed_until", "closed_until")


@click.command()
@click.argument("site")
@click.option("--contract", default="", help="Of this contract only.")
@span_options
@reach_options
@json_option
@errors_to_exit_codes
def deliveries(
    site: str, contract: str, span: dict[str, float], reach: Reach, as_json: bool
) -> None:
    """List what was delivered to SITE and by it: a thousand deliveries at most."""
    found = ask(reach, "deliveries", site=site, contract=contract, **span)
    if as_json:
        show.as_json(found)
        return
    words = {"buy": "bought", "sell": "sold"}
    show.table(
        ("", "contract", "epoch", "first", "tasks", "slot-s", "cost", "state", "at"),
        [
            [
                words[row["side"]],
                *(row[key] for key in ("contract", "epoch", "first")),
                f"{row['tasks']:,}",
                show.seconds(row["wall_ns"]),
                f"{row['cost']} {row['currency']}",
                row["state"],
                show.when(row["at_s"]),
            ]
            for row in found
        ],
        f"nothing was delivered to {site} or by it",
    )


@click.command()
@click.argument("site")
@span_options
@reach_options
@json_option
@errors_to_exit_codes
def reconcile(site: str, span: dict[str, float], reach: Reach, as_json: bool) -> None:
    """Compare what SITE delivered to us with its books, now. Exit code 1 when they differ.

    Sites do so by themselves once a day, and close each period; a verdict that one of them lacks is
    mended on the way.
    """
    found = ask(reach, "reconcile", site=site, **span)
    if as_json:
        show.as_json(found)
    else:
        why = f": {show.clean(found['details'])}" if found["details"] else ""
        click.echo(f"{found['state']} with {show.clean(found['site'])}{why}")
    if found["state"] != "agreed":
        raise SystemExit(1)


@click.command()
@reach_options
@json_option
@errors_to_exit_codes
def disputes(reach: Reach, as_json: bool) -> None:
    """List what is disputed, by us and by others, and what became of it."""
    _show_disputes(ask(reach, "disputes"), as_json)


_only_option = click.option(
    "--only",
    metavar="EPOCH/FIRST",
    multiple=True,
    help="This delivery only, as `gridfed deliveries` names it; may be given again.",
)


@click.command()
@click.argument("contract")
@click.option("--reason", required=True, help="Why it should not have been charged.")
@_only_option
@reach_options
@json_option
@errors_to_exit_codes
def dispute(contract: str, reason: str, only: tuple[str, ...], reach: Reach, as_json: bool) -> None:
    """Dispute what was paid for under CONTRACT, which we bought.

    Its seller is told until it answers. What it accepts is reversed in both books.
    """
    details: dict[str, Any] = {"contract": contract, "reason": reason, "deliveries": _pairs(only)}
    _show_disputes(ask(reach, "dispute", **details), as_json)


@click.command()
@click.argument("contract")
@click.option("--accept/--reject", "accept", required=True, default=None, help="Our answer.")
@click.option("--reason", required=True, help="Why.")
@_only_option
@reach_options
@json_option
@errors_to_exit_codes
def answer(
    contract: str,
    accept: bool,
    reason: str,
    only: tuple[str, ...],
    reach: Reach,
    as_json: bool,
) -> None:
    """Answer what its buyer disputes of CONTRACT, which we sold."""
    details: dict[str, Any] = {"contract": contract, "reason": reason, "deliveries": _pairs(only)}
    _show_disputes(ask(reach, "answer_dispute", accept=accept, **details), as_json)


@click.command()
@click.argument("site")
@click.option("--paid", metavar="AMOUNT", help='That we paid to it, as in "12.50 USD".')
@click.option("--received", metavar="AMOUNT", help="That it paid to us.")
@click.option("--as", "into", metavar="AMOUNT", help="Nothing was paid: it is owed as this now.")
@click.option("--write-off", is_flag=True, help="Nothing was paid, and nothing will be.")
@click.option("--reference", required=True, help="That of the bank, or of what was agreed.")
@click.option("--note", default="", help="The rate, or the reason.")
@reach_options
@json_option
@errors_to_exit_codes
def settle(  # noqa: PLR0913 - options
    site: str,
    paid: str | None,
    received: str | None,
    into: str | None,
    write_off: bool,
    reference: str,
    note: str,
    reach: Reach,
    as_json: bool,
) -> None:
    """Book what SITE and we have settled outside; it books the counterpart, by the same reference.

    A payment: --paid or --received. A conversion of what we owe: --paid "100 EUR" --as "108 USD";
    of what it owes us: --received … --as …. A loss: --received AMOUNT --write-off.
    """
    if (paid is None) == (received is None):
        raise click.UsageError("--paid or --received, one of them")
    if into is not None and write_off:
        raise click.UsageError("--as or --write-off, not both")
    details: dict[str, Any] = {"site": site, "reference": reference, "note": note}
    details["direction"] = "paid" if paid is not None else "received"
    try:
        details["amount_nanos"], details["currency"] = parse_money(paid or received or "")
        if into is not None:
            details["into_nanos"], details["into_currency"] = parse_money(into)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    details["through"] = "exchange" if into is not None else "loss" if write_off else "bank"
    found = ask(reach, "settle", **details)
    if as_json:
        click.echo(to_json(statement_report(found)))
    else:
        show_statement(found)


def statement_report(found: dict[str, Any]) -> Report:
    """Statements of account as a table for programs."""
    rows = tuple(map(tuple, found["rows"]))
    return Report(tuple(found["columns"]), rows, (), {"as_of_s": found["as_of_s"]}, ())


def show_statement(found: dict[str, Any]) -> None:
    """Print statements of account for people."""
    named = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    for row in named:
        row["balance_nanos"] = int(row["balance_nanos"])
    columns = _columns_shown(found["columns"], named)
    show.table(
        [name.replace("_", " ") for name in columns],
        [[row[name] for name in columns] for row in named],
        "no dealings with other sites yet",
        keys=len(_KEYS),
    )
    for row in named:
        if row["balance_nanos"]:
            site, amount = row["site"], f"{row['balance'].lstrip('-')} {row['currency']}"
            who = f"{site} owes us" if row["balance_nanos"] > 0 else f"we owe {site}"
            click.echo(show.clean(f"{who} {amount}"))
    click.echo(f"as of {show.when(found['as_of_s'])} UTC; what is held is in no balance")


def _columns_shown(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is owed first, and then what it came of: columns in which nothing is are left out."""
    rest = [name for name in columns if name not in (*_KEYS, *_STANDING, "balance_nanos")]
    moved = [name for name in rest if any(row[name] not in (0, "0", "") for row in rows)]
    return [*_KEYS, *(name for name in _STANDING if name in columns), *moved]


def _show_disputes(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        show.as_json(found)
        return
    words = {"buy": "by us", "sell": "by it"}
    show.table(
        ("site", "", "contract", "epoch", "first", "tasks", "cost", "reason", "state", "answer"),
        [
            [
                row["site"],
                words[row["side"]],
                *(row[key] for key in ("contract", "epoch", "first", "tasks")),
                f"{row['cost']} {row['currency']}",
                *(row[key] for key in ("reason", "state", "answer")),
            ]
            for row in found
        ],
        "nothing is disputed",
    )


def _pairs(only: tuple[str, ...]) -> list[list[int]] | None:
    if not only:
        return None
    found = []
    for text in only:
        epoch, slash, first = text.partition("/")
        if not slash or not epoch.isdecimal() or not first.isdecimal():
            raise click.BadParameter(f"{text!r}: write EPOCH/FIRST", param_hint="--only")
        found.append([int(epoch), int(first)])
    return found
