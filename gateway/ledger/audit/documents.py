"""Each document is booked as the transfers that it stands for, and nothing else is booked."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    String,
    and_,
    except_,
    literal_column,
    select,
)

from federation.clocks import UNIX_EPOCH_S
from gateway.ledger.accounting.checkpoints import is_live
from gateway.ledger.accounting.merging import DELIVERY_KEY, USE_KEY
from gateway.ledger.accounting.postings import LedgerAccount, Transfer, transfers_of, used_sides
from gateway.ledger.audit.finding import AuditFinding
from gateway.ledger.audit.keys import PAYMENT_KEY, REVERSAL_KEY, UNDOING_KEY, rows_of
from gateway.ledger.db.checks import HOUR_S, NO_RECORD
from gateway.ledger.db.contracts.records import Posted, PostingSettled
from gateway.ledger.db.contracts.tables import OF_CONTRACT, contracts, postings
from gateway.ledger.db.jobs.records import sender_of
from gateway.ledger.db.records import Record
from gateway.ledger.db.settlement.queries import same_delivery
from gateway.ledger.db.settlement.records import (
    DISPUTE_STATES,
    DisputeSettled,
    Payment,
    PaymentUndone,
)
from gateway.ledger.db.settlement.tables import disputes, payments
from gateway.ledger.db.tables import accounts, transfers
from gateway.ledger.db.usage.records import UsageRecord, seller_of
from gateway.ledger.db.usage.tables import usage

_BOOKED: Final = ("key", "kind", "debit", "credit", "amount_nanos", "at_s", "resolves")
_COMPARED: Final = tuple(each.name for each in fields(Transfer))


def _booked_as(table: FromClause) -> list[ColumnElement[Any]]:
    """Return the columns from which a transfer is made, its accounts as numbers."""
    return [table.c[name].label(f"booked_{name}") for name in _BOOKED]


class _Books:
    """Makes transfers of rows, and reports where they differ from their documents."""

    def __init__(self, connection: Connection) -> None:
        self._accounts = {
            row.id: LedgerAccount(*row[1:]) for row in connection.execute(select(accounts)).all()
        }
        self._ids = {account: id_ for id_, account in self._accounts.items()}
        self._sides: dict[tuple[str, ...], tuple[int | None, ...]] = {}

    def transfer(self, row: Sequence[Any]) -> Transfer | None:
        """Return the transfer in the last columns of a row; None: the outer join found none."""
        key, kind, debit, credit, *others = row
        if key is None:
            return None
        return Transfer(key, kind, self._account(debit), self._account(credit), *others)

    def _account(self, number: Any) -> LedgerAccount:
        """Return an account; a missing one equals no other, so that transfers on it differ."""
        gone: Any = "no such account"
        return self._accounts.get(number) or LedgerAccount(gone, str(number), "", "")

    def is_use(self, row: Sequence[Any]) -> bool:
        """Whether a row of `uncharged` is booked correctly; False if it needs a closer look."""
        job, first, attempt, user, project, pool, currency, cost_nanos, at_s, *made = row[:12]
        _, kind, debit, credit, amount_nanos, booked_at_s, resolves = row[12:]
        if not (amount_nanos == cost_nanos and booked_at_s == at_s and first >= 0 <= attempt):
            return False
        if "\0" in job:
            return False  # no record has one; the other texts are checked below, once for many rows
        who = user, project, pool, currency, sender_of(job)
        sides = self._sides.get(who)
        if sides is None:
            try:
                record = UsageRecord(
                    *(job, 0, 1, 0, user, project, "", pool, "", "ok", UNIX_EPOCH_S, UNIX_EPOCH_S),
                    *(0, 0, 0, 0, currency, "", 0),
                )
            except NO_RECORD:
                return False
            sides = tuple(map(self._ids.get, used_sides(record)))
            self._sides[who] = sides
        return (debit, credit, kind, resolves) == (*sides, "entry", None) and made == [
            seller_of(pool),
            who[-1],
            at_s // HOUR_S,
        ]

    @staticmethod
    def problems(record: Record, found: Transfer | None, *, is_gone: bool = False) -> Iterator[str]:
        """Compare the transfers that a document stands for with the booked one.

        `is_gone`: a missing transfer is covered by a checkpoint: see misrolled.
        """
        for wanted in transfers_of(record):
            if found is None:
                if not is_gone:
                    yield f"{wanted.key}: {wanted.amount_nanos} should be booked, and nothing is"
            elif wanted != found:
                for name in _COMPARED:
                    one, other = getattr(wanted, name), getattr(found, name)
                    if one != other:
                        yield f"{wanted.key}: {name} should be {one}, but {other} is booked"
            return
        if found is not None:
            yield f"{found.key}: nothing should be booked, but {found.amount_nanos} is"


def uncharged(connection: Connection, past: int) -> Generator[AuditFinding]:
    """Yield usage records that are not booked, or booked wrongly.

    Usage records are by far the most: a correct one is recognised without making a record of it.
    """
    names = ("job", "first", "attempt", "user", "project", "pool", "currency", "cost_nanos")
    query = (
        select(*(usage.c[name] for name in (*names, "ended_at_s", "site", "origin", "hour")))
        .add_columns(*_booked_as(transfers))
        .select_from(usage)
        .outerjoin(transfers, and_(transfers.c.key == USE_KEY, transfers.c.number > past))
    )
    books, is_gone = _Books(connection), bool(past)
    for row in rows_of(connection, query):
        job, first, attempt, user, project, pool, currency, cost_nanos, ended_at_s, *made = row[:12]
        if books.is_use(row):
            continue
        about = partial(AuditFinding, job=job, attempt=attempt)
        try:
            record = UsageRecord(
                *(
                    job,
                    first,
                    1,
                    attempt,
                    user,
                    project,
                    "",
                    pool,
                    "",
                    "ok",
                    UNIX_EPOCH_S,
                    ended_at_s,
                ),
                *(0, 0, 0, 0, currency, "", cost_nanos),
            )
        except NO_RECORD as error:
            yield about(f"usage {job}/{first}/{attempt} is invalid: {error}")
            continue
        yield from map(about, books.problems(record, books.transfer(row[12:]), is_gone=is_gone))
        if made != [record.site, record.origin, record.hour]:
            yield about(
                f"usage {job}/{first}/{attempt} has another site, origin or hour than its key"
            )


def undelivered(connection: Connection, past: int) -> Generator[AuditFinding]:
    """Yield deliveries and verdicts that are not booked, or booked wrongly."""
    names = ("contract", "side", "epoch", "first", "tasks", "wall_ns", "cost_nanos", "posted_at_s")
    settled = transfers.alias("settled")
    query = (
        select(*(postings.c[name] for name in names), postings.c.state)
        .add_columns(contracts.c.site, contracts.c.currency)
        .add_columns(*_booked_as(transfers), *_booked_as(settled))
        .select_from(postings)
        .outerjoin(contracts, OF_CONTRACT)
        .outerjoin(transfers, and_(transfers.c.key == DELIVERY_KEY, is_live(past)))
        .outerjoin(settled, settled.c.resolves == transfers.c.key)
    )
    books, width = _Books(connection), len(_BOOKED)
    for row in rows_of(connection, query):
        *_, state, site, currency = row[: -2 * width]
        contract, side, epoch, first, tasks, wall_ns, cost_nanos, posted_at_s = row[:8]
        key = f"{side}/{contract}/{epoch}/{first}"
        about = partial(AuditFinding, side=side, contract=contract)
        if site is None or state not in ("pending", "post", "void"):
            yield about(f"{key} is {state}, but its contract is with {site or 'no known site'}")
            continue
        hold, verdict = books.transfer(row[-2 * width : -width]), books.transfer(row[-width:])
        is_gone = bool(past) and state != "pending"
        try:
            posted = Posted(
                *(contract, side, site, epoch, first, tasks, wall_ns, cost_nanos, currency),
                posted_at_s,
            )
        except NO_RECORD as error:
            yield about(f"{key} is invalid: {error}")
            continue
        yield from map(about, books.problems(posted, hold, is_gone=is_gone))
        if hold is None:
            continue
        if state == "pending":
            if verdict is not None:
                yield about(f"{key} is pending, but {verdict.kind} is booked")
            continue
        # The time of a verdict is only in its transfer.
        at_s = verdict.at_s if verdict is not None else posted_at_s
        settled_ = PostingSettled(
            *(contract, side, site, epoch, first, state, cost_nanos, currency, at_s)
        )
        yield from map(about, books.problems(settled_, verdict))


def unsettled(connection: Connection, past: int) -> Generator[str | AuditFinding]:
    """Yield disputes and payments that are not booked, or booked wrongly.

    A dispute must be of a delivery, and only a paid delivery is reversed.
    """
    yield from _unreversed(connection, past)
    yield from _unpaid(connection, _Books(connection), past)


def _unreversed(connection: Connection, past: int) -> Generator[AuditFinding]:
    """Yield disputes whose reversals are not booked, or booked wrongly."""
    books, is_gone, width = _Books(connection), bool(past), len(_BOOKED)
    names = ("side", "contract", "epoch", "first", "site", "state", "settled_at_s")
    query: Any = (
        select(*(disputes.c[name] for name in names), postings.c.cost_nanos, contracts.c.currency)
        .add_columns(postings.c.state.label("verdict"), contracts.c.site.label("partner"))
        .add_columns(*_booked_as(transfers))
        .select_from(disputes)
        .outerjoin(postings, same_delivery(disputes))
        .outerjoin(contracts, OF_CONTRACT)
        .outerjoin(transfers, and_(transfers.c.key == REVERSAL_KEY, transfers.c.number > past))
    )
    for row in rows_of(connection, query):
        side, contract, epoch, first, site, state, settled_at_s, *delivered = row[:11]
        cost_nanos, currency, verdict, partner = delivered
        about = partial(AuditFinding, side=side, contract=contract)
        if currency is None:
            yield about(f"the dispute of {side}/{contract}/{epoch}/{first} has no delivery")
            continue
        if site != partner:
            yield about(
                f"the dispute of {side}/{contract}/{epoch}/{first} is with {site}, the contract "
                f"with {partner}"
            )
        if (state == "open") != (settled_at_s is None) or state not in DISPUTE_STATES:
            yield about(
                f"the dispute of {side}/{contract}/{epoch}/{first} is {state} at {settled_at_s}"
            )
        if state == "accepted" and verdict != "post":
            yield about(
                f"{side}/{contract}/{epoch}/{first} is {verdict}, but reversed after a dispute"
            )
        try:
            dispute = DisputeSettled(
                *(side, contract, epoch, first, site, state, "", settled_at_s or UNIX_EPOCH_S),
                *(cost_nanos, currency),
            )
        except NO_RECORD as error:
            yield about(f"the dispute of {side}/{contract}/{epoch}/{first} is invalid: {error}")
            continue
        for problem in books.problems(dispute, books.transfer(row[-width:]), is_gone=is_gone):
            is_odd = state != "accepted"
            yield about(f"{problem}, as if {state} were accepted" if is_odd else problem)


def _unpaid(connection: Connection, books: _Books, past: int) -> Generator[str]:
    """Yield payments and their reversals that are not booked, or booked wrongly."""
    is_gone, width = bool(past), len(_BOOKED)
    undoing = transfers.alias("undoing")
    names = [*Payment.__dataclass_fields__, "undone_why", "undone_at_s"]
    query = (
        select(*(payments.c[name] for name in names))
        .add_columns(*_booked_as(transfers), *_booked_as(undoing))
        .select_from(payments)
        .outerjoin(transfers, and_(transfers.c.key == PAYMENT_KEY, transfers.c.number > past))
        .outerjoin(undoing, and_(undoing.c.key == UNDOING_KEY, undoing.c.number > past))
    )
    for row in rows_of(connection, query):
        site, reference, currency, direction, through, nanos, _, _, attempt, *undone = row[:11]
        try:
            payment = Payment(*row[:9])
            undoing_ = PaymentUndone(
                *(site, reference, currency, attempt, direction, through, nanos),
                *(undone[0], undone[1] or UNIX_EPOCH_S),
            )
        except NO_RECORD as error:
            yield f"payment {site}/{reference} is invalid: {error}"
            continue
        paid, unpaid = books.transfer(row[-2 * width : -width]), books.transfer(row[-width:])
        yield from books.problems(payment, paid, is_gone=is_gone)
        if undone[1] is not None:
            yield from books.problems(undoing_, unpaid, is_gone=is_gone)
        elif unpaid is not None:
            yield f"{unpaid.key} is booked, but the payment is not reversed"


def strangers(connection: Connection, past: int) -> Generator[str]:
    """Yield transfers for which there is no document."""
    documents = {
        "entry": [select(USE_KEY), select(PAYMENT_KEY)],
        "hold": [select(DELIVERY_KEY)],
        "post": [select(literal_column("'settle/'", String) + DELIVERY_KEY)],
        "void": [select(literal_column("'settle/'", String) + DELIVERY_KEY)],
        "reversal": [
            select(REVERSAL_KEY).join_from(disputes, postings, same_delivery(disputes)),
            select(UNDOING_KEY),
        ],
    }
    for kind, keys in documents.items():
        # As a set: a join on keys that are concatenated from columns would try every pair.
        live = select(transfers.c.key).where(transfers.c.kind == kind, is_live(past))
        for (key,) in rows_of(connection, except_(live, *keys)):
            yield f"{key} is booked, but its record does not exist"
