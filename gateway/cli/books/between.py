"""Accounts between sites: statement, deliveries, reconcile, dispute, settle."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from shlex import quote
from typing import Any, Final

import click

from federation.messages.reconciliation import OLD_WORDS, STATE_WORDS
from federation.money import parse_money
from federation.words import count
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    ask,
    confirm,
    consequences,
    errors_to_exit_codes,
    exact_option,
    json_option,
    reach_options,
    yes_option,
)
from gateway.cli.shared.moments import span_options
from gateway.ledger.reports import ReportTable, named_rows, to_csv
from gateway.ledger.reports.report import is_decimal

_DELIVERY_COLUMNS: Final = (
    *("side", "contract", "job", "epoch", "first", "tasks", "wall_ns", "cost", "currency", "state"),
    *("at", "note", "contract_state"),
)
_PAYMENT_COLUMNS: Final = (
    *("site", "reference", "at", "direction", "amount", "currency", "through", "state"),
    *("theirs", "note"),
)
_csv_option = click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")


def _check_forms(*, as_json: bool, as_csv: bool) -> None:
    if as_json and as_csv:
        raise click.UsageError("only one of --csv and --json")


def _write(
    found: list[dict[str, Any]],
    columns: tuple[str, ...],
    *,
    as_json: bool,
    as_csv: bool,
    **data: Any,
) -> bool:
    """Print a list for programs, in the requested form; return False if it is for people."""
    if as_json:
        show.as_json(found, data or None)
    elif as_csv:
        timed = [{**row, "at": show.utc(row["at_s"])} for row in found]
        rows = tuple(tuple(row[name] for name in columns) for row in timed)
        click.echo(to_csv(ReportTable(columns, rows, ())), nl=False)
    return as_json or as_csv


# The columns of a statement that are the key of a row, and its current standing.
_KEYS: Final = ("site", "currency")
_STANDING: Final = ("balance", "held_sold", "held_bought", "agreed_until", "closed_until")


@click.command()
@click.argument("site")
@click.option("--contract", default="", help="Only deliveries under this contract.")
@click.option(
    "--state",
    metavar="STATE",
    type=click.Choice([*STATE_WORDS, *OLD_WORDS]),
    help=f"Only deliveries in this state: {', '.join(STATE_WORDS)}.",
)
@span_options
@reach_options
@json_option
@exact_option
@_csv_option
@errors_to_exit_codes
def deliveries(
    site: str,
    contract: str,
    state: str | None,
    span: dict[str, float],
    reach: DialOptions,
    as_json: bool,
    as_csv: bool,
) -> None:
    """List the deliveries to SITE and by it: the oldest thousand at most."""
    _check_forms(as_json=as_json, as_csv=as_csv)
    answer = ask(reach, "deliveries", site=site, contract=contract, state=state or "", **span)
    found = answer["rows"]
    if answer["is_cut"]:
        last = datetime.fromtimestamp(found[-1]["at_s"], UTC).isoformat(timespec="milliseconds")
        last = last.replace("+00:00", "Z")
        show.say(f"only the first {len(found):,} are shown; continue with --from {last}", err=True)
    is_cut = bool(answer["is_cut"])
    if _write(found, _DELIVERY_COLUMNS, as_json=as_json, as_csv=as_csv, is_cut=is_cut):
        return
    words = {"buy": "bought", "sell": "sold"}
    show.table(
        (
            *("side", "contract", "first", "epoch", "tasks", "slot-s", "cost", "state"),
            *(show.timed("at"), "job", "state of contract", "note"),
        ),
        [
            [
                words[row["side"]],
                *(row[key] for key in ("contract", "first", "epoch")),
                f"{row['tasks']:,}",
                show.seconds(row["wall_ns"]),
                show.money(f"{row['cost']} {row['currency']}"),
                row["state"],
                show.when(row["at_s"]),
                *(row[key] for key in ("job", "contract_state", "note")),
            ]
            for row in found
        ],
        f"no deliveries between {site} and us{_chosen(contract, state, span)}",
        keys=3,
    )
    if found and not contract and state in (None, "void"):
        for line in void_lines(ask(reach, "statement", sites=[site], **span)):
            show.say(show.money(line))


@click.command()
@click.argument("site")
@click.option("--accept", is_flag=True, help="Proceed although our books lack entries of SITE's.")
@span_options
@reach_options
@json_option
@errors_to_exit_codes
def reconcile(
    site: str, accept: bool, span: dict[str, float], reach: DialOptions, as_json: bool
) -> None:
    """Compare the deliveries between SITE and us with its books, now.

    The exit code is 1 when they differ.

    Sites do so by themselves once a day, and close each period; a verdict that one of them lacks is
    corrected on the way. Payments are compared as well, those of all time.
    """
    accepted = {"accept": True} if accept else {}
    found = ask(reach, "reconcile", site=site, **accepted, **span)
    if as_json:
        show.as_json(found)
    else:
        why = f": {show.clean(found['details'])}" if found["details"] else ""
        show.say(f"{found['state']} with {show.clean(found['site'])}{why}")
        for each in found["payments"]:
            show.say(f"payment {show.clean(each)}")
    if found["state"] not in ("agreed", "accepted") or found["payments"]:
        raise SystemExit(1)


@click.command()
@click.argument("site", required=False, default="")
@reach_options
@json_option
@exact_option
@_csv_option
@errors_to_exit_codes
def payments(site: str, reach: DialOptions, as_json: bool, as_csv: bool) -> None:
    """List the payments between SITE, or every other site, and us, and which side has booked each.

    "to be confirmed": the other site has booked it, and we have not. "here alone": the other way
    round. "differs": both have the reference, for different payments. No payment is booked because
    another site reports it: use `gridfed settle`.
    """
    _check_forms(as_json=as_json, as_csv=as_csv)
    found = ask(reach, "payments", site=site)
    if _write(found, _PAYMENT_COLUMNS, as_json=as_json, as_csv=as_csv):
        return
    show.table(
        (
            "site",
            "reference",
            show.timed("at"),
            "we booked",
            "through",
            "state",
            "it reports",
            "note",
        ),
        [
            [
                *(row["site"], row["reference"], show.when(row["at_s"])),
                show.money(f"{row['direction']} {row['amount']} {row['currency']}")
                if row["amount"]
                else "",
                *(row[key] for key in ("through", "state", "theirs", "note")),
            ]
            for row in found
        ],
        "no payments yet",
    )


@click.command()
@reach_options
@json_option
@exact_option
@errors_to_exit_codes
def disputes(reach: DialOptions, as_json: bool) -> None:
    """List the disputes, by us and by others, and their outcomes."""
    _show_disputes(ask(reach, "disputes"), as_json)


_only_option = click.option(
    "--only",
    metavar="EPOCH/FIRST",
    multiple=True,
    help="Only this delivery, as listed by `gridfed deliveries`; repeatable.",
)


@click.command()
@click.argument("contract")
@click.option("--reason", required=True, help="The reason why it should not have been charged.")
@_only_option
@reach_options
@json_option
@exact_option
@errors_to_exit_codes
def dispute(
    contract: str, reason: str, only: tuple[str, ...], reach: DialOptions, as_json: bool
) -> None:
    """Dispute the payment for deliveries under CONTRACT, which we bought.

    Its seller is told until it answers. The disputed deliveries that it concedes are reversed in
    both books.
    """
    details: dict[str, Any] = {"contract": contract, "reason": reason, "deliveries": _pairs(only)}
    _show_disputes(ask(reach, "dispute", **details), as_json)


@click.command()
@click.argument("contract")
@click.option("--accept/--reject", "accept", required=True, default=None, help="Our answer.")
@click.option("--reason", required=True, help="The reason.")
@_only_option
@reach_options
@json_option
@exact_option
@errors_to_exit_codes
def answer(
    contract: str,
    accept: bool,
    reason: str,
    only: tuple[str, ...],
    reach: DialOptions,
    as_json: bool,
) -> None:
    """Answer the buyer's dispute about CONTRACT, which we sold."""
    details: dict[str, Any] = {"contract": contract, "reason": reason, "deliveries": _pairs(only)}
    _show_disputes(ask(reach, "answer_dispute", accept=accept, **details), as_json)


@click.command()
@click.argument("site")
@click.option("--paid", metavar="AMOUNT", help='The amount paid to SITE, as in "12.50 USD".')
@click.option("--received", metavar="AMOUNT", help="The amount received from SITE.")
@click.option(
    "--as", "into", metavar="AMOUNT", help="Convert the debt to this amount; no payment is made."
)
@click.option("--write-off", is_flag=True, help="Write the debt off; no payment is made.")
@click.option("--reference", help="The reference of the bank transfer or the agreement.")
@click.option("--undo", metavar="REF", help="Reverse the booking under REF, which was a mistake.")
@click.option("--note", default="", help="A note, such as the exchange rate or the reason.")
@yes_option
@reach_options
@json_option
@exact_option
@errors_to_exit_codes
def settle(  # noqa: PLR0913 - options
    site: str,
    paid: str | None,
    received: str | None,
    into: str | None,
    write_off: bool,
    reference: str | None,
    undo: str | None,
    note: str,
    is_sure: bool,
    reach: DialOptions,
    as_json: bool,
) -> None:
    """Book a settlement with SITE; it books the counterpart, under the same reference.

    The settlement itself is made outside. A payment: --paid or --received. A conversion of our
    debt: --paid "100 EUR" --as "108 USD"; of its debt: --received … --as …. A loss: --received
    AMOUNT --write-off. A settlement that was undone can be booked again, under the same reference.
    What follows from it, for debts and credit, is said first.
    """
    if undo is not None:
        if write_off or any(each is not None for each in (paid, received, into, reference)):
            raise click.UsageError("--undo takes no other option than --note")
        undone = {"site": site, "reference": undo, "note": note}
        confirm(
            f"Reverse the booking under {undo!r} with {site}?",
            lambda: consequences(reach, "undo_payment", **undone),
            is_sure=is_sure,
        )
        _show_settled(ask(reach, "undo_payment", **undone), as_json)
        return
    if reference is None:
        raise click.UsageError("Missing option '--reference'.")
    if (paid is None) == (received is None):
        raise click.UsageError("give one of --paid and --received")
    if into is not None and write_off:
        raise click.UsageError("give only one of --as and --write-off")
    details: dict[str, Any] = {"site": site, "reference": reference, "note": note}
    details["direction"] = "paid" if paid is not None else "received"
    try:
        details["amount_nanos"], details["currency"] = parse_money(paid or received or "")
        if into is not None:
            details["into_nanos"], details["into_currency"] = parse_money(into)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    details["through"] = "exchange" if into is not None else "loss" if write_off else "bank"
    confirm(
        f"Book {details['direction']} {paid or received} under {reference!r} with {site}?",
        lambda: consequences(reach, "settle", **details),
        is_sure=is_sure,
    )
    found = ask(reach, "settle", **details)
    _show_settled(found, as_json)
    for line in overpaid_lines(found, details):
        show.say(f"gridfed: {show.clean(line)}", err=True)


def _show_settled(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        write_json(account_report(found))
    else:
        show_statement(found)


def write_json(made: ReportTable) -> None:
    """Print a report as JSON: its rows, and its columns, totals and facts."""
    rows, totals = named_rows(made)
    show.as_json(rows, {"columns": made.columns, "totals": totals, "facts": dict(made.facts)})


def overpaid_lines(found: dict[str, Any], booked: dict[str, Any]) -> list[str]:
    """Return warnings, in words, if more was booked than was owed: it may be a typing error."""
    is_paid, lines = booked["direction"] == "paid", []
    for cells in found["rows"]:
        row = dict(zip(found["columns"], cells, strict=True))
        left_nanos = int(row["balance_nanos"])
        if row["currency"] == booked["currency"] and (left_nanos if is_paid else -left_nanos) > 0:
            who = f"{row['site']} owes us" if is_paid else f"we owe {row['site']}"
            undo = f"gridfed settle {row['site']} --undo {quote(booked['reference'])}"
            lines.append(
                f"the amount booked exceeds the debt: {who} {row['balance'].lstrip('-')} "
                f"{row['currency']} now; to undo a mistake: {undo}"
            )
    return lines


def void_lines(found: dict[str, Any]) -> list[str]:
    """Return sentences about the deliveries that buyers have voided, from statements of account."""
    lines = []
    for cells in found["rows"]:
        row = dict(zip(found["columns"], cells, strict=True))
        for who, side in ((row["site"], "sold"), ("we", "bought")):
            void = row[f"void_{side}_tasks"]
            if void:
                paid = row[f"{side}_tasks"]
                has = "has" if side == "sold" else "have"
                amount = f"{row[f'void_{side}']} {row['currency']}"
                whole = f"{count(void + paid, 'task')} delivered"
                lines.append(f"{who} {has} voided {void:,} of {whole}: {amount}")
    return lines


def account_report(found: dict[str, Any]) -> ReportTable:
    """Return statements of account, or margins, as a table for programs."""
    rows = tuple(map(tuple, found["rows"]))
    return ReportTable(tuple(found["columns"]), rows, (), {"as_of_s": found["as_of_s"]}, ())


_MARGIN_KEYS: Final = ("sold_to", "bought_from", "job", "currency")
_MARGIN_SHOWN: Final = ("tasks", "took", "gave", "margin")


def show_margin(found: dict[str, Any]) -> None:
    """Print the margins of work that was passed on, for people."""
    named = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    keys = [name for name in _MARGIN_KEYS if name != "job" or any(row["job"] for row in named)]
    rest = [name for name in found["columns"] if name[:5] in ("held_", "void_")]
    moved = [name for name in rest if any(row[name] != "0" for row in named)]
    columns = [*keys, *_MARGIN_SHOWN, *moved]
    show.table(
        [name.replace("_", " ") for name in columns],
        show.aligned(_cells(named, columns, len(keys)), len(keys)),
        "no work was passed on between other sites",
        keys=len(keys),
    )
    sums: dict[str, Decimal] = {}
    for row in named:
        sums[row["currency"]] = sums.get(row["currency"], Decimal(0)) + Decimal(row["margin"])
    for currency, amount in sorted(sums.items()):
        word = "kept" if amount >= 0 else "lost"
        show.say(show.money(f"{word}: {abs(amount):f} {currency}"))
    show.say(f"as of {show.moment(found['as_of_s'])}; held amounts are in no margin")


def _cells(
    named: Sequence[Mapping[str, Any]], columns: Sequence[str], keys: int
) -> list[list[str]]:
    """Return the cells of a statement, with its amounts rounded; its first `keys` are none."""
    currencies = [str(row["currency"]) for row in named]
    found = [
        [str(row[name]) for row in named]
        if at < keys or not is_decimal(name)
        else show.amounts([str(row[name]) for row in named], currencies)
        for at, name in enumerate(columns)
    ]
    return [list(row) for row in zip(*found, strict=True)]


def show_statement(found: dict[str, Any]) -> None:
    """Print statements of account for people."""
    named = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    for row in named:
        row["balance_nanos"] = int(row["balance_nanos"])
    columns = _columns_shown(found["columns"], named)
    show.table(
        [name.replace("_", " ") for name in columns],
        show.aligned(_cells(named, columns, len(_KEYS)), len(_KEYS)),
        "no deals with other sites yet",
        keys=len(_KEYS),
    )
    for row in named:
        if row["balance_nanos"]:
            site, amount = row["site"], f"{row['balance'].lstrip('-')} {row['currency']}"
            who = f"{site} owes us" if row["balance_nanos"] > 0 else f"we owe {site}"
            show.say(show.money(f"{who} {amount}"))
    for site in sorted({row["site"] for row in named if not row["agreed_until"]}):
        name = show.clean(site)
        show.say(f"no day is agreed with {name} yet; each day is compared after its end")
    for column, sentence in (
        ("unconfirmed", "{0} has not booked all payments that are booked here"),
        ("to_confirm", "not all payments that {0} has booked are booked here"),
    ):
        for site in sorted({row["site"] for row in named if Decimal(row[column])}):
            name = show.clean(site)
            show.say(f"{sentence.format(name)}: see `gridfed payments {name}`")
    show.say(f"as of {show.moment(found['as_of_s'])}; held amounts are in no balance")


def _chosen(contract: str, state: str | None, span: Mapping[str, float]) -> str:
    """Describe the selection of deliveries in words."""
    words = [f"under contract {contract}"] if contract else []
    words += [f"in state {state}"] if state else []
    words += ["in this period"] if span else []
    return "".join(f" {each}" for each in words)


def _columns_shown(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns to show: debts first, then their parts; empty columns are left out."""
    rest = [name for name in columns if name not in (*_KEYS, *_STANDING, "balance_nanos")]
    moved = [name for name in rest if any(row[name] not in (0, "0", "") for row in rows)]
    return [*_KEYS, *(name for name in _STANDING if name in columns), *moved]


def _show_disputes(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        show.as_json(found)
        return
    words = {"buy": "by us", "sell": "by it"}
    show.table(
        (
            *("site", "", "contract", "job", "epoch", "first", "tasks", "cost", "reason", "state"),
            *("answer", "rules"),
        ),
        [
            [
                row["site"],
                words[row["side"]],
                *(row[key] for key in ("contract", "job", "epoch", "first", "tasks")),
                show.money(f"{row['cost']} {row['currency']}"),
                *(row[key] for key in ("reason", "state", "answer")),
                row.get("rules") or "",  # the version; an older gateway does not tell
            ]
            for row in found
        ],
        "no disputes",
    )


def _pairs(only: tuple[str, ...]) -> list[list[int]] | None:
    if not only:
        return None
    found = []
    for text in only:
        epoch, slash, first = text.partition("/")
        numbers = epoch, first
        if not slash or not all(each.isdecimal() and len(each) < 20 for each in numbers):
            raise click.BadParameter(
                f"{text!r} is not a delivery: write EPOCH/FIRST", param_hint="--only"
            )
        found.append([int(epoch), int(first)])
    return found
