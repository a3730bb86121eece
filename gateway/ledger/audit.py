"""Proof that the books are right: what no constraint of a database can hold.

An audit reads the books as of one moment, and compares the transfers with the documents that they
were made of: usage records, and deliveries under contracts. It changes nothing.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    String,
    Table,
    and_,
    cast,
    except_,
    func,
    literal,
    or_,
    select,
)

from federation.reconciliation import sums_of
from federation.wire import unpack

from .database import streamed
from .exact import exact_sums
from .journal import GENESIS, balances, booked, digest
from .mirror import read_statements, sums
from .postings import Account, Balance
from .tables import (
    SUMMED,
    SUMMED_BY,
    accounts,
    disputes,
    payments,
    postings,
    statements,
    transfers,
    usage,
    usage_hours,
)

PROBLEMS_MAX: Final = 20  # that are told of one check


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that has to hold: how many rows were looked at, and where it does not hold."""

    name: str
    looked_at: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """All checks, and what they found; `head` is the last transfer's digest, in hexadecimal."""

    checks: tuple[Check, ...]
    transfers: int
    head: str
    balances: dict[Account, Balance]

    @property
    def is_clean(self) -> bool:
        """Whether everything holds."""
        return not any(each.problems for each in self.checks)


def audit(connection: Connection) -> Audit:
    """Check everything, in one transaction of the caller's that sees one moment."""
    chain, number, head = _chain(connection)
    balanced = balances(connection)
    tables = (transfers, usage, postings, usage_hours, payments, statements)
    rows = {table: _count(connection, table) for table in tables}
    checks = [
        _check(name, rows[table], problems)
        for name, table, problems in (
            ("debits are credits", transfers, _imbalances(balanced)),
            ("every charge is booked once", usage, _uncharged(connection)),
            ("every delivery is booked", postings, _undelivered(connection)),
            ("every reversal and payment is booked", payments, _unsettled(connection)),
            ("nothing else is booked", transfers, _strangers(connection)),
            ("what was agreed with other sites stands", statements, _disagreed(connection)),
            ("no run of a task is charged twice", usage, _twice(connection)),
            ("hours are what their records sum up to", usage_hours, _misadded(connection)),
        )
    ]
    return Audit((chain, *checks), number, head.hex(), balanced)


def _count(connection: Connection, table: Table) -> int:
    return connection.execute(select(func.count()).select_from(table)).scalar_one()


def _check(name: str, looked_at: int, found: Generator[str]) -> Check:
    with closing(found) as problems:
        return Check(name, looked_at, tuple(islice(problems, PROBLEMS_MAX)))


def _chain(connection: Connection) -> tuple[Check, int, bytes]:
    """Work out every digest anew; the first one that differs says where somebody wrote."""
    head, number = GENESIS, 0
    with closing(booked(connection)) as found:
        for number, each in enumerate(found, start=1):
            if each.number != number:
                return _broken(number, f"transfer {number} is missing"), number, head
            head = digest(head, number, each.transfer)
            if head != each.hash:
                text = f"transfer {number} ({each.transfer.key}) is not what was booked"
                return _broken(number, text), number, head
    return Check("the chain is whole", number, ()), number, head


def _broken(number: int, problem: str) -> Check:
    return Check("the chain is whole", number, (problem,))


def _imbalances(sums: dict[Account, Balance]) -> Generator[str]:
    nets: dict[str, list[int]] = {}
    for account, balance in sums.items():
        net = nets.setdefault(account.currency, [0, 0])
        net[0] += balance.net_nanos
        net[1] += balance.held_nanos
        if balance.held_debits_nanos < 0 or balance.held_credits_nanos < 0:
            yield f"less than nothing is held on {account}"
    for currency, (net_nanos, held_nanos) in nets.items():
        if net_nanos or held_nanos:
            yield f"{currency}: debits less credits are {net_nanos}, {held_nanos} of holds"


def _text(*parts: ColumnElement[Any] | str) -> ColumnElement[str]:
    """Texts and numbers, one after the other."""
    whole: Any = literal("")
    for part in parts:
        whole = whole + (literal(part) if isinstance(part, str) else cast(part, String))
    return whole  # type: ignore[no-any-return]


def _rows(connection: Connection, query: Any) -> Iterator[tuple[Any, ...]]:
    return map(tuple, streamed(connection, query))


_USE: Final = _text("use/", usage.c.job, "/", usage.c.first, "/", usage.c.attempt)
_DELIVERY: Final = _text(
    postings.c.side, "/", postings.c.contract, "/", postings.c.epoch, "/", postings.c.first
)


_REVERSAL: Final = _text("reverse/", _DELIVERY)
_PAYMENT: Final = _text(
    "pay/", payments.c.site, "/", payments.c.currency, "/", payments.c.reference
)
_OF_DISPUTE: Final = and_(
    *(disputes.c[name] == postings.c[name] for name in ("side", "contract", "epoch", "first"))
)


def _uncharged(connection: Connection) -> Generator[str]:
    query = (
        select(_USE, usage.c.cost_nanos, transfers.c.amount_nanos)
        .select_from(usage)
        .outerjoin(transfers, transfers.c.key == _USE)
        .outerjoin(accounts, accounts.c.id == transfers.c.debit)
        .where(
            usage.c.cost_nanos > 0,
            or_(
                transfers.c.key.is_(None),
                transfers.c.amount_nanos != usage.c.cost_nanos,
                accounts.c.currency != usage.c.currency,
            ),
        )
    )
    for key, cost_nanos, amount_nanos in _rows(connection, query):
        yield f"{key} cost {cost_nanos}, and {_said(amount_nanos)} is booked"


def _undelivered(connection: Connection) -> Generator[str]:
    settled = transfers.alias("settled")
    query = (
        select(_DELIVERY, postings.c.cost_nanos, postings.c.state)
        .add_columns(transfers.c.amount_nanos, settled.c.kind)
        .select_from(postings)
        .outerjoin(transfers, transfers.c.key == _DELIVERY)
        .outerjoin(settled, settled.c.resolves == transfers.c.key)
        .where(
            postings.c.cost_nanos > 0,
            or_(
                transfers.c.key.is_(None),
                transfers.c.amount_nanos != postings.c.cost_nanos,
                func.coalesce(settled.c.kind, "pending") != postings.c.state,
                settled.c.amount_nanos != transfers.c.amount_nanos,
            ),
        )
    )
    for key, cost_nanos, state, amount_nanos, kind in _rows(connection, query):
        booked_so = f"{_said(amount_nanos)} ({kind or 'pending'})"
        yield f"{key} cost {cost_nanos} ({state}), and {booked_so} is booked"


def _unsettled(connection: Connection) -> Generator[str]:
    """Accepted disputes and payments that are booked with another amount, or not at all."""
    reversal = (
        select(_REVERSAL.label("key"), postings.c.cost_nanos.label("amount_nanos"))
        .join_from(disputes, postings, _OF_DISPUTE)
        .where(disputes.c.state == "accepted", postings.c.cost_nanos > 0)
    )
    payment = select(_PAYMENT.label("key"), payments.c.amount_nanos)
    for documents in (reversal.subquery(), payment.subquery()):
        query = (
            select(documents.c.key, documents.c.amount_nanos, transfers.c.amount_nanos)
            .select_from(documents)
            .outerjoin(transfers, transfers.c.key == documents.c.key)
            .where(
                or_(
                    transfers.c.key.is_(None),
                    transfers.c.amount_nanos != documents.c.amount_nanos,
                )
            )
        )
        for key, wanted_nanos, amount_nanos in _rows(connection, query):
            yield f"{key} is of {wanted_nanos}, and {_said(amount_nanos)} is booked"


def _disagreed(connection: Connection) -> Generator[str]:
    """Times that were agreed on with another site, and sum up to something else by now."""
    for each in read_statements(connection):
        if each.state != "agreed":
            continue
        now = sums(connection, each.side, each.site, each.first_ms, each.stop_ms)
        if sums_of(unpack(each.sums, len(each.sums))) != now:
            span = f"[{each.first_ms}, {each.stop_ms})"
            yield f"{each.side} of {each.site} in {span} is not what was agreed on"


def _said(amount_nanos: int | None) -> str:
    return "nothing" if amount_nanos is None else str(amount_nanos)


def _strangers(connection: Connection) -> Generator[str]:
    """Transfers for which there is no document."""
    documents = {
        "entry": [select(_USE), select(_PAYMENT)],
        "hold": [select(_DELIVERY)],
        "reversal": [select(_REVERSAL).join_from(disputes, postings, _OF_DISPUTE)],
    }
    for kind, keys in documents.items():
        # As a set: a join on keys that are put together from columns would try every pair.
        query = except_(select(transfers.c.key).where(transfers.c.kind == kind), *keys)
        for (key,) in _rows(connection, query):
            yield f"{key} is booked, and there is no such record"


def _twice(connection: Connection) -> Generator[str]:
    """Charges of the same attempt that overlap."""
    query = (
        select(usage.c.job, usage.c.attempt, usage.c.first, usage.c.tasks)
        .where(and_(usage.c.state != "repeat", usage.c.cost_nanos > 0))
        .order_by(usage.c.job, usage.c.attempt, usage.c.first)
    )
    at: tuple[str, int] | None = None
    stop = 0
    for job, attempt, first, tasks in _rows(connection, query):
        if (job, attempt) != at:
            at, stop = (job, attempt), 0
        if first < stop:
            yield f"tasks of job {job} from {first} on were charged before, in attempt {attempt}"
        stop = max(stop, first + tasks)


def _misadded(connection: Connection) -> Generator[str]:
    """Hours whose sums are not those of the records, in any dimension or amount."""
    keys = [[table.c[name] for name in SUMMED_BY] for table in (usage, usage_hours)]
    amounts = exact_sums(*(usage.c[name] for name in SUMMED))
    counted = select(*keys[0], func.sum(usage.c.records), *amounts).group_by(*keys[0])
    halves = [usage_hours.c[f"{name}_{half}"] for name in SUMMED for half in ("high", "low")]
    kept = select(*keys[1], usage_hours.c.records, *halves)
    for query in (except_(counted, kept), except_(kept, counted)):
        for hour, *key in _rows(connection, query):
            yield f"the sums of hour {hour} for {'/'.join(map(str, key[:7]))} are not its records'"
