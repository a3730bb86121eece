"""Answers questions about the debts between sites, and takes orders about them."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from heapq import nsmallest
from typing import Any, Final

from federation.clocks import UtcS
from federation.errors import GridError
from federation.messages.payments import TIME_MS_MAX, Match
from federation.messages.reconciliation import (
    ENTRIES_MAX,
    OLD_WORDS,
    REASON_CHARS_MAX,
    STATE_WORDS,
    BookEntry,
    EntryState,
)
from federation.money import NANOS_LIMIT, check_currency, format_amount, format_money
from gateway.api.context import SiteContext
from gateway.api.views.work_views import narrow
from gateway.base.details import DetailReader, Details
from gateway.base.values import suggest
from gateway.ledger.accounting.caps import capped
from gateway.ledger.accounting.margins import Margin, kept, margins
from gateway.ledger.accounting.settlement import Statement
from gateway.ledger.db.checks import NUMBER_LIMIT
from gateway.ledger.db.contracts.records import RelayedTotal
from gateway.ledger.db.records import Record
from gateway.ledger.db.settlement.records import (
    DIRECTIONS,
    MEANS,
    DisputeRow,
    Payment,
    PaymentDirection,
    PaymentRow,
    PaymentUndone,
)
from gateway.ledger.db.settlement.store import SettlementStore
from gateway.ledger.store import owed
from gateway.ledger.store.store import Store
from gateway.settlement.payments import told_of
from gateway.settlement.reconciler import Reconciler

STATEMENT_COLUMNS: Final = (
    *("site", "currency", "opening", "sold", "refunded", "bought", "credited"),
    *("paid", "received", "written_off", "balance", "balance_nanos", "held_sold", "held_bought"),
    *("sold_tasks", "bought_tasks", "void_sold", "void_bought", "void_sold_tasks"),
    *("void_bought_tasks", "relayed_sold", "relayed_bought", "unconfirmed", "to_confirm"),
    # The versions of our rules under which the contracts of its deliveries were made.
    *("agreed_until", "closed_until", "rules"),
)
MARGIN_COLUMNS: Final = (
    *("sold_to", "bought_from", "job", "currency", "tasks", "took", "gave", "margin"),
    *("margin_nanos", "held_sold", "held_bought", "void_sold", "void_bought"),
)
MARGINS_MAX: Final = 100_000
DELIVERIES_SHOWN: Final = 1_000
CAPPED: Final = "capped by its grant"
FOUND_SHOWN: Final = 5  # findings of an audit
PAYMENT_KEYS: Final = (
    *("site", "reference", "at_s", "direction", "amount", "currency", "through"),
    *("state", "theirs", "note"),
)
NAME_CHARS_MAX: Final = 100


class BadBooksQuestion(GridError):
    """A question or order about the books that is malformed or can't be followed."""


READ: Final = DetailReader(BadBooksQuestion)


# --- questions -----------------------------------------------------------------------------------


async def statement(site: SiteContext, details: Details) -> Any:
    """The debts between us and other sites in [start_s, end_s): columns, rows, as-of time."""
    start_at_s, end_at_s = _span(details, site.runtime.utc_s())
    wanted = details.get("sites", [])
    if not isinstance(wanted, list) or not all(isinstance(each, str) for each in wanted):
        raise BadBooksQuestion("`sites` must be a list of names")
    rows = await site.read(_statement_rows, site.store, wanted, start_at_s, end_at_s)
    return {
        "columns": list(STATEMENT_COLUMNS),
        "rows": rows,
        "totals": [],
        "as_of_s": site.runtime.utc_s(),
    }


def _statement_rows(
    store: Store, wanted: list[str], start_at_s: UtcS, end_at_s: UtcS
) -> list[list[Any]]:
    names = owed.partners(store)
    for name in wanted:
        _check_named(name, names)
    relayed = store.contracts.relayed(start_at_s, end_at_s)
    rules = store.contracts.rules_used(start_at_s, end_at_s)
    rows = []
    for name in names:
        if wanted and name not in wanted:
            continue
        until = [_date(at_ms) for at_ms in owed.agreed_both_ms(store.settlement, name)]
        found = owed.statements(store.settlement, name, start_at_s, end_at_s)
        for each in found:
            versions = rules.get((name, each.currency), ())
            rows.append([*_statement_row(each, relayed), *until, ", ".join(map(str, versions))])
    return rows


def _statement_row(each: Statement, relayed: Sequence[RelayedTotal]) -> list[Any]:
    moved = each.turnover
    passed_on = [row for row in relayed if (row.site, row.currency) == (each.site, each.currency)]
    amounts = (
        each.opening_nanos,
        *(moved.sold, moved.refunded, moved.bought, moved.credited),
        *(moved.paid, moved.received, moved.written_off, each.balance_nanos),
    )
    return [
        *(each.site, each.currency),
        *map(format_amount, amounts),
        narrow(each.balance_nanos),
        *map(format_amount, (moved.held_sold, moved.held_bought)),
        *(moved.sold_tasks, moved.bought_tasks),
        *map(format_amount, (moved.void_sold, moved.void_bought)),
        *(moved.void_sold_tasks, moved.void_bought_tasks),
        *map(format_amount, (kept(passed_on, "sell"), kept(passed_on, "buy"))),
        *map(format_amount, (each.unconfirmed_nanos, each.to_confirm_nanos)),
    ]


def _date(at_ms: int) -> str:
    """Format a date, as whole days are compared; empty for 0."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d") if at_ms else ""


async def margin(site: SiteContext, details: Details) -> Any:
    """What this site took and gave in [start_s, end_s) for work that it passed on between others.

    A row for each pair of a buyer and the sellers of a job, or with `by_job` for each job.
    """
    start_at_s, end_at_s = _span(details, site.runtime.utc_s())
    by_job = details.get("by_job", False)
    if not isinstance(by_job, bool):
        raise BadBooksQuestion("`by_job` must be true or false")
    found = margins(
        await site.read(site.store.contracts.relayed, start_at_s, end_at_s), by_job=by_job
    )
    if len(found) > MARGINS_MAX:
        raise BadBooksQuestion(
            f"there are {len(found):,} rows, over the limit of {MARGINS_MAX:,}: ask for a shorter "
            "period"
        )
    return {
        "columns": list(MARGIN_COLUMNS),
        "rows": [_margin_row(each) for each in found],
        "totals": [],
        "as_of_s": site.runtime.utc_s(),
    }


def _margin_row(each: Margin) -> list[Any]:
    return [
        *(each.sold_to, each.bought_from, each.job, each.currency, each.tasks),
        *map(format_amount, (each.took, each.gave, each.margin)),
        narrow(each.margin),
        *map(format_amount, (each.held_sold, each.held_bought, each.void_sold, each.void_bought)),
    ]


async def disputes(site: SiteContext, _details: Details) -> Any:
    """List all disputes, ours and others'."""
    return await site.read(lambda: _dispute_views(site, site.store.settlement.disputes()))


def _dispute_views(site: SiteContext, rows: Iterable[DisputeRow]) -> list[dict[str, Any]]:
    found = []
    for each in rows:
        contract = site.store.contracts.get(each.side, each.contract)
        found.append(_dispute_view(each, contract.rules if contract is not None else 0))
    return found


def _dispute_view(each: DisputeRow, rules: int) -> dict[str, Any]:
    return {
        "side": each.side,
        "site": each.site,
        "contract": each.contract,
        "job": each.job,
        "epoch": str(each.epoch),  # 64 bits, which many readers of JSON would round
        "first": each.first,
        "tasks": each.tasks,
        "cost": format_amount(each.cost_nanos),
        "currency": each.currency,
        "reason": each.reason,
        "disputed_at_s": each.disputed_at_s,
        "state": each.state,
        "answer": each.answer,
        "settled_at_s": each.settled_at_s,
        "rules": rules,  # the version of ours that the contract was made under; 0: none is named
    }


async def deliveries(site: SiteContext, details: Details) -> Any:
    """The deliveries between us and a site in [start_s, end_s), the oldest first.

    `is_cut`: there are later ones than `rows` has. By `cost`, paid deliveries net of reversals
    equal the statement of that time.
    """
    name = READ.text(details, "site", NAME_CHARS_MAX)
    start_at_s, end_at_s = _span(details, site.runtime.utc_s())
    contract, state = details.get("contract", ""), details.get("state", "")
    if not isinstance(contract, str):
        raise BadBooksQuestion("contract must be a name")
    state = OLD_WORDS.get(state, state)
    if state != "":
        _one_of({"state": state}, "state", STATE_WORDS)
    span_ms = round(start_at_s * 1000), round(end_at_s * 1000)

    @cache
    def known_of(side: str, contract: str) -> tuple[tuple[str, str], frozenset[tuple[int, int]]]:
        """The job of a contract, its state, and which of its deliveries were capped."""
        row = site.store.contracts.get(side, contract)
        if row is None:
            return ("", ""), frozenset()
        has_limit = row.max_cost_nanos is not None
        return (
            (row.job, row.state),
            capped(row, site.store.contracts.postings(side, contract) if has_limit else ()),
        )

    def find() -> list[dict[str, Any]]:
        _check_known(site.store, name)
        found = _entries(site.store.settlement, name, span_ms, contract, state)
        oldest = nsmallest(DELIVERIES_SHOWN + 1, found, key=lambda each: each[1].delivery.at_ms)
        return [_delivery_view(*each, *known_of(each[0], each[1].contract)) for each in oldest]

    rows = await site.read(find)
    return {"rows": rows[:DELIVERIES_SHOWN], "is_cut": len(rows) > DELIVERIES_SHOWN}


def _entries(
    store: SettlementStore, name: str, span_ms: tuple[int, int], contract: str, state: str
) -> Iterator[tuple[str, BookEntry]]:
    """The deliveries with their side, in the given state if any."""
    for side in ("buy", "sell"):
        if state in ("", "void"):
            yield from ((side, each) for each in store.voids(side, name, *span_ms, contract))
        if state != "void":
            for each in store.entries(side, name, *span_ms, contract):
                if state in ("", each.state.word):
                    yield side, each


def _delivery_view(
    side: str, each: BookEntry, of_contract: tuple[str, str], caps: frozenset[tuple[int, int]]
) -> dict[str, Any]:
    job, state = of_contract
    delivery, is_reversal = each.delivery, each.state is EntryState.REVERSAL
    return {
        "side": side,
        "contract": each.contract,
        "contract_state": state,
        "job": job,
        "epoch": str(delivery.epoch),  # 64 bits, which many readers of JSON would round
        "first": delivery.first,
        "tasks": delivery.stop - delivery.first,
        "wall_ns": delivery.wall_ns,
        "cost": format_amount(-delivery.cost_nanos if is_reversal else delivery.cost_nanos),
        "currency": each.currency,
        "state": each.state.word,
        "at_s": delivery.at_ms / 1000,
        "note": CAPPED if (delivery.epoch, delivery.first) in caps else "",
    }


async def payments(site: SiteContext, details: Details) -> Any:
    """The payments between us and other sites as booked on both sides, side by side."""
    name = details.get("site", "")
    if not isinstance(name, str):
        raise BadBooksQuestion("site must be a name")

    def find() -> list[dict[str, Any]]:
        if name:
            _check_known(site.store, name)
        paid = {each.site for each in site.store.settlement.payments(name)}
        told = {each.site for each in site.store.settlement.payments_told(name)}
        return [row for each in sorted(paid | told) for row in _paid(site.store.settlement, each)]

    return await site.read(find)


def _paid(store: SettlementStore, name: str) -> list[dict[str, Any]]:
    """The payments with one site, the oldest first."""
    paid = store.payments(name)
    matched = owed.paid_with(store, name, paid)
    ours = {(each.line.reference, each.line.currency): each for each in matched if each.ours}
    rows = []
    for each in paid:
        found = ours.get((each.reference, each.currency)) if each.stands else None
        rows.append(_payment_view(each) | (_matched_view(found) if found is not None else {}))
    for alone in matched:
        line = alone.theirs
        if alone.ours is None and line is not None:
            told = {
                "site": name,
                "reference": line.reference,
                "at_s": line.at_ms / 1000,
                "currency": line.currency,
            }
            rows.append(dict.fromkeys(PAYMENT_KEYS, "") | told | _matched_view(alone))
    return sorted(rows, key=lambda row: row["at_s"])


def _payment_view(each: PaymentRow) -> dict[str, Any]:
    return {
        "site": each.site,
        "reference": each.reference,
        "at_s": each.paid_at_s,
        "direction": each.direction,
        "amount": format_amount(each.amount_nanos),
        "currency": each.currency,
        "through": each.through,
        "state": "written off" if each.stands else "undone",
        "theirs": "",
        "note": each.note if each.stands else each.undone_why,
    }


def _matched_view(each: Match) -> dict[str, str]:
    return {"state": str(each.standing), "theirs": str(each.theirs) if each.theirs else ""}


# --- orders --------------------------------------------------------------------------------------


async def reconcile(site: SiteContext, details: Details) -> Any:
    """Compare our deliveries to and from a site in [start_s, end_s) with its books.

    Without a start, compare what is not closed. With `accept`, compare nothing: go on although our
    books lack entries that the site has.
    """
    name, reconciler = READ.text(details, "site", NAME_CHARS_MAX), _reconciler(site)
    await site.read(_check_known, site.store, name)
    if details.get("accept"):
        await reconciler.in_turn(lambda: reconciler.accept(name))
        return {"site": name, "state": "accepted", "details": "", "payments": []}
    states, said, payments = [], [], []
    for side, dealt in (("buy", "bought"), ("sell", "sold")):
        if name not in await site.read(site.store.contracts.partners, side):
            continue
        first_ms, stop_ms = await _compared_span(site, details, side, name)
        if side == "buy":
            found = await reconciler.compare(name, first_ms, stop_ms)
            state, text = found.state, found.details
            payments = [told_of(each) for each in found.unmatched]
        else:
            state, text = await reconciler.compare_sold(name, first_ms, stop_ms)
        if not state:
            older = (
                "; a gateway of an older version does not compare at a seller's request: have its "
                "operator order `gridfed reconcile`"
            )
            raise BadBooksQuestion(
                f"{name[:60]!r} has not answered about the deliveries that we {dealt}: check "
                "that its gateway is up and connected, and that the period has ended by its "
                f"clock{older if side == 'sell' else ''}"
            )
        states.append(state)
        said += [f"{dealt}: {text}"] if text else []
    if not states:
        raise BadBooksQuestion(f"there are no contracts with {name} in either direction")
    # Both sites may agree on the deliveries while our books charged something else for them.
    if unlike := await site.read(site.store.journal.unlike, name, FOUND_SHOWN):
        states.append("differs")
        said.append(f"in our own books (see `gridfed audit`): {'; '.join(unlike)}")
    state = next((each for each in ("differs", "pending") if each in states), "agreed")
    return {"site": name, "state": state, "details": "; ".join(said), "payments": payments}


async def _compared_span(
    site: SiteContext, details: Details, side: str, name: str
) -> tuple[int, int]:
    """The time to compare, in milliseconds: [first, stop)."""
    if "start_s" not in details:
        closed_ms = await _reconciler(site).books.closed_until_ms(side, name)
        details = {**details, "start_s": closed_ms / 1000}
    utc_s = site.runtime.utc_s()
    start_at_s, end_at_s = _span(details, utc_s)
    if start_at_s >= utc_s:
        raise BadBooksQuestion("the period is in the future: there is nothing to compare")
    return round(start_at_s * 1000), round(end_at_s * 1000)


async def dispute(site: SiteContext, details: Details) -> Any:
    """Dispute deliveries that we paid under a contract."""
    contract, reason, reconciler = (
        READ.text(details, "contract", NAME_CHARS_MAX),
        READ.text(details, "reason", REASON_CHARS_MAX),
        _reconciler(site),
    )
    found = await reconciler.in_turn(
        lambda: reconciler.disputes.dispute(contract, _chosen(details), reason)
    )
    return await site.read(_dispute_views, site, found)


async def answer_dispute(site: SiteContext, details: Details) -> Any:
    """Accept or reject a buyer's dispute."""
    contract, reason, reconciler = (
        READ.text(details, "contract", NAME_CHARS_MAX),
        READ.text(details, "reason", REASON_CHARS_MAX),
        _reconciler(site),
    )
    accept = details.get("accept")
    if not isinstance(accept, bool):
        raise BadBooksQuestion("accept must be true or false")
    found = await reconciler.in_turn(
        lambda: reconciler.disputes.answer(contract, _chosen(details), accept=accept, reason=reason)
    )
    return await site.read(_dispute_views, site, found)


async def settle(site: SiteContext, details: Details) -> Any:
    """Book an amount paid, received, changed into another currency, or written off."""
    return await _book(site, details, _settle)


async def undo_payment(site: SiteContext, details: Details) -> Any:
    """Reverse a payment booked by mistake under a reference."""
    return await _book(site, details, _undo)


async def changes_of(site: SiteContext, verb: str, details: Details) -> list[tuple[str, int]]:
    """Return (currency, nanos) by which another site owes us more after `settle`, `undo_payment`.

    Raises BadBooksQuestion where the order itself would. Nothing is booked.
    """
    _reconciler(site)
    name = READ.text(details, "site", NAME_CHARS_MAX)
    await site.read(_check_known, site.store, name)
    paid = await site.read(site.store.settlement.payments, name)
    make, sign = (_settle, 1) if verb == "settle" else (_undo, -1)
    changes = []
    for each in make(paid, details, site.runtime.utc_s()):
        if isinstance(each, Payment | PaymentUndone):
            more = sign if each.direction == "paid" else -sign
            changes.append((each.currency, more * each.amount_nanos))
    return changes


def partners(store: Store) -> list[str]:
    """Return the sites with contracts."""
    return owed.partners(store)


async def _book(
    site: SiteContext,
    details: Details,
    make: Callable[[list[PaymentRow], Details, UtcS], list[Record]],
) -> Any:
    """Book payments, or their reversal, and tell the other site; return the new statement."""
    reconciler, name = _reconciler(site), READ.text(details, "site", NAME_CHARS_MAX)
    await site.read(_check_known, site.store, name)

    async def book() -> None:
        paid = await site.read(site.store.settlement.payments, name)
        await site.harden(*make(paid, details, site.runtime.utc_s()))
        await reconciler.payments.tell(name)

    # One at a time, so that no reference counts twice.
    await reconciler.in_turn(book)
    return await statement(site, {"sites": [name]})


def _settle(paid: list[PaymentRow], details: Details, utc_s: UtcS) -> list[Record]:
    name, reference, note = (
        READ.text(details, "site", NAME_CHARS_MAX),
        READ.text(details, "reference", NAME_CHARS_MAX),
        READ.text(details, "note", REASON_CHARS_MAX, least=0),
    )
    same = [each for each in paid if each.reference == reference]
    booked = next((each for each in same if each.stands), None)
    if booked is not None:
        amount = format_money(booked.amount_nanos, booked.currency)
        raise BadBooksQuestion(
            f"reference {reference!r} with {name} is booked already, as {booked.direction} "
            f"{amount}: reverse it with --undo"
        )
    attempt = max((each.attempt + 1 for each in same), default=0)
    direction = _one_of(details, "direction", DIRECTIONS)
    through = _one_of({"through": "bank", **details}, "through", MEANS)
    nanos, currency = _amount(details, "amount_nanos", "currency")
    made: list[Record] = [
        Payment(name, reference, currency, direction, through, nanos, note, utc_s, attempt)
    ]
    if through == "exchange":
        into_nanos, into = _amount(details, "into_nanos", "into_currency")
        if into == currency:
            raise BadBooksQuestion(
                f"a conversion needs two currencies: both amounts are in {currency}"
            )
        other: PaymentDirection = "received" if direction == "paid" else "paid"
        made.append(
            Payment(name, reference, into, other, through, into_nanos, note, utc_s, attempt)
        )
    return made


def _undo(paid: list[PaymentRow], details: Details, utc_s: UtcS) -> list[Record]:
    name, reference, note = (
        READ.text(details, "site", NAME_CHARS_MAX),
        READ.text(details, "reference", NAME_CHARS_MAX),
        READ.text(details, "note", REASON_CHARS_MAX, least=0),
    )
    found = [each for each in paid if each.reference == reference and each.stands]
    if not found:
        raise BadBooksQuestion(
            f"no settlement with {name} under {reference!r} found: see `gridfed payments`"
        )
    return [each.undone(note, max(utc_s, each.paid_at_s)) for each in found]


def _check_known(store: Store, name: str) -> None:
    """Refuse the name of a site that we never dealt with: it may be a slip."""
    _check_named(name, owed.partners(store))


def _check_named(name: str, names: list[str]) -> None:
    if name not in names:
        known = ", ".join(names) or "none yet"
        meant = suggest(name, names)
        raise BadBooksQuestion(
            f"no contracts with site {name[:60]!r}{meant}; sites with contracts: {known}"
        )


# --- parsing of questions ------------------------------------------------------------------------


def _reconciler(site: SiteContext) -> Reconciler:
    if site.reconciler is None:
        raise BadBooksQuestion("this site is in no federation: create one with `gridfed init`")
    return site.reconciler


def _span(details: Details, utc_s: UtcS) -> tuple[UtcS, UtcS]:
    start_at_s = details.get("start_s", 0.0)
    end_at_s: Any = details.get("end_s")
    if end_at_s is None:  # up to now, or all that is to come
        end_at_s = max(utc_s, start_at_s) + 1.0 if type(start_at_s) in (int, float) else utc_s
    for at_s in (start_at_s, end_at_s):
        if type(at_s) not in (int, float) or not 0 <= at_s * 1000 <= TIME_MS_MAX:
            raise BadBooksQuestion("start_s and end_s must be seconds since 1970, UTC")
    if start_at_s >= end_at_s:
        raise BadBooksQuestion("the period ends before it begins")
    return UtcS(start_at_s), UtcS(end_at_s)


def _one_of(details: Details, key: str, words: tuple[Any, ...]) -> Any:
    for word in words:
        if details.get(key) == word:
            return word
    raise BadBooksQuestion(f"{key} must be one of {', '.join(words)}")


def _chosen(details: Details) -> list[tuple[int, int]] | None:
    """Parse [epoch, first] of deliveries; None: all."""
    rows = details.get("deliveries")
    if rows is None:
        return None
    if not isinstance(rows, list) or len(rows) > ENTRIES_MAX:
        raise BadBooksQuestion(f"deliveries must be a list of up to {ENTRIES_MAX:,}")
    for row in rows:
        is_pair = isinstance(row, list) and len(row) == 2
        if not is_pair or not all(type(n) is int and 0 <= n <= NUMBER_LIMIT for n in row):
            raise BadBooksQuestion("a delivery must be [epoch, first]")
    return [(epoch, first) for epoch, first in rows]


def _amount(details: Details, nanos_key: str, currency_key: str) -> tuple[int, str]:
    nanos, currency = details.get(nanos_key), details.get(currency_key)
    if type(nanos) is not int or not 0 < nanos <= NANOS_LIMIT:
        most = format_amount(NANOS_LIMIT)
        raise BadBooksQuestion(f"{nanos_key}: an amount must be above zero and at most {most}")
    try:
        check_currency(currency)  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        raise BadBooksQuestion(str(error)) from None
    return nanos, str(currency)


QUESTIONS: Final[dict[str, Callable[[SiteContext, Details], Awaitable[Any]]]] = {
    "statement": statement,
    "margin": margin,
    "disputes": disputes,
    "deliveries": deliveries,
    "payments": payments,
}
# For callers that can reach our own socket.
ORDERS: Final[dict[str, Callable[[SiteContext, Details], Awaitable[Any]]]] = {
    "reconcile": reconcile,
    "dispute": dispute,
    "answer_dispute": answer_dispute,
    "settle": settle,
    "undo_payment": undo_payment,
}
