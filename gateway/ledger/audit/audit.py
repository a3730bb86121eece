"""Proof that the books are right, beyond the constraints of a database.

An audit reads the books as of one moment, and compares the transfers with the documents that they
were made from: usage records, deliveries under contracts, verdicts, disputes and payments. Each
document is turned into a transfer again, by the function that made it the first time. The audit
changes nothing.

Where a checkpoint stands for transfers, the documents without transfers have to sum up to the
balances of the checkpoint, for each account.
"""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sqlalchemy import Connection, Table, func, select
from sqlalchemy.exc import SQLAlchemyError

from federation.errors import GridError
from gateway.ledger.accounting.checkpoints import newest
from gateway.ledger.accounting.journal import Head, balances, booked, digest, past_of
from gateway.ledger.accounting.postings import Balance, LedgerAccount
from gateway.ledger.audit.deliveries import undercharged
from gateway.ledger.audit.documents import strangers, uncharged, undelivered, unsettled
from gateway.ledger.audit.evidence import disagreed, mistold
from gateway.ledger.audit.finding import AuditFinding, under_rules
from gateway.ledger.audit.rollups import mischecked, misrolled
from gateway.ledger.audit.rules_used import RulesUsed, rules_used
from gateway.ledger.audit.runs import charged_twice, delivered_twice, misadded, unused
from gateway.ledger.db.checks import NO_RECORD
from gateway.ledger.db.contracts.tables import postings
from gateway.ledger.db.jobs.tables import outcomes
from gateway.ledger.db.settlement.tables import payments, payments_told, statements
from gateway.ledger.db.tables import checkpoints, transfers
from gateway.ledger.db.usage.tables import usage, usage_hours

PROBLEMS_MAX: Final = 20  # reported per check

_Found = Generator[str] | Generator[AuditFinding] | Generator[str | AuditFinding]


@dataclass(frozen=True, slots=True)
class Check:
    """One condition that has to hold: the number of rows examined, and the violations."""

    name: str
    looked_at: int
    found: tuple[AuditFinding, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """The violations as text, with the versions of the rules."""
        return tuple(map(str, self.found))


@dataclass(frozen=True, slots=True)
class Audit:
    """All checks and their results; `head` is the last transfer's digest, in hexadecimal."""

    checks: tuple[Check, ...]
    transfers: int
    head: str
    balances: dict[LedgerAccount, Balance]
    checkpoint: str = ""  # the digest of the newest, in hexadecimal
    rules: tuple[RulesUsed, ...] = ()  # the versions of the rules by which work was charged

    @property
    def is_clean(self) -> bool:
        """Whether no check found a problem."""
        return not any(each.problems for each in self.checks)


def audit(connection: Connection) -> Audit:
    """Check everything, in one transaction of the caller that sees one moment."""
    past = past_of(connection)
    chain, number, head = _chain(connection, past)
    balanced = balances(connection)
    point = newest(connection)
    tables = (
        *(transfers, usage, postings, usage_hours, payments, payments_told),
        *(statements, checkpoints, outcomes),
    )
    rows = {table: _count(connection, table) for table in tables}
    checks = [
        _check(connection, name, rows[table], problems)
        for name, table, problems in (
            ("debits equal credits", transfers, _imbalances(balanced)),
            ("every charge is booked once", usage, uncharged(connection, past.number)),
            ("every delivery is booked", postings, undelivered(connection, past.number)),
            ("every reversal and payment is booked", payments, unsettled(connection, past.number)),
            ("nothing else is booked", transfers, strangers(connection, past.number)),
            ("agreements with other sites are unchanged", statements, disagreed(connection)),
            (
                "reports of payments by other sites equal their envelopes",
                payments_told,
                mistold(connection),
            ),
            ("checkpoints are intact", checkpoints, mischecked(connection, past.number)),
            (
                "rolled-up records match their checkpoint",
                usage,
                misrolled(connection, past.number),
            ),
            ("no run of a task is charged twice", usage, charged_twice(connection)),
            ("no bundle is delivered twice", postings, delivered_twice(connection)),
            ("every result has a usage record", outcomes, unused(connection)),
            ("charges between sites match deliveries", postings, undercharged(connection)),
            ("hourly sums match their records", usage_hours, misadded(connection)),
        )
    ]
    digest_of_point = point.digest.hex() if point is not None else ""
    rules = tuple(rules_used(connection))
    return Audit((chain, *checks), number, head.hex(), balanced, digest_of_point, rules)


def _count(connection: Connection, table: Table) -> int:
    return connection.execute(select(func.count()).select_from(table)).scalar_one()


def _check(connection: Connection, name: str, looked_at: int, found: _Found) -> Check:
    with closing(_readable(found)) as problems:
        first = list(islice(problems, PROBLEMS_MAX))
    return Check(name, looked_at, tuple(_ruled(connection, each) for each in first))


def _ruled(connection: Connection, found: str | AuditFinding) -> AuditFinding:
    return AuditFinding(found) if isinstance(found, str) else under_rules(connection, found)


def _readable(found: _Found) -> Generator[str | AuditFinding]:
    """Yield the problems; an unreadable row is one more problem, and other checks continue.

    Each check reports the problems that it can of such a row; SQLite stores any value in any
    column.
    """
    with closing(found):
        try:
            yield from found
        except (GridError, LookupError, SQLAlchemyError, *NO_RECORD) as error:
            yield f"a row can't be read, and the rows after it were not checked: {error!r}"[:500]


def _chain(connection: Connection, past: Head) -> tuple[Check, int, bytes]:
    """Recompute every digest; the first one that differs shows where a transfer was changed."""
    head, number = past.hash, past.number
    try:
        with closing(booked(connection, past.number)) as found:
            for number, each in enumerate(found, start=past.number + 1):
                if each.number != number:
                    return _broken(number, f"transfer {number} is missing"), number, head
                head = digest(head, number, each.transfer)
                if head != each.hash:
                    text = f"transfer {number} ({each.transfer.key}) differs from the original"
                    return _broken(number, text), number, head
    except (SQLAlchemyError, *NO_RECORD) as error:
        text = f"the transfer after {number} can't be read: {error!r}"
        return _broken(number, text[:500]), number, head
    return Check("the hash chain is intact", number - past.number, ()), number, head


def _broken(number: int, problem: str) -> Check:
    return Check("the hash chain is intact", number, (AuditFinding(problem),))


def _imbalances(sums: dict[LedgerAccount, Balance]) -> Generator[str]:
    nets: dict[str, list[int]] = {}
    for account, balance in sums.items():
        net = nets.setdefault(account.currency, [0, 0])
        net[0] += balance.net_nanos
        net[1] += balance.held_nanos
        if balance.held_debits_nanos < 0 or balance.held_credits_nanos < 0:
            yield f"the holds on {account} are negative"
    for currency, (net_nanos, held_nanos) in nets.items():
        if net_nanos or held_nanos:
            yield f"{currency}: debits minus credits are {net_nanos}, of holds {held_nanos}"
