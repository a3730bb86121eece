"""Proof that the books are right: what no constraint of a database can hold.

An audit reads the books as of one moment, and compares the transfers with the documents that they
were made of: usage records, and deliveries under contracts. It changes nothing.

Where a checkpoint stands for transfers, the documents that have none any more have to sum up to
what it says of each account.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from sqlalchemy import (
    Connection,
    String,
    Table,
    and_,
    except_,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
    union_all,
)

from federation.reconciliation import sums_of
from federation.wire import unpack

from .checkpoints import (
    Checkpoint,
    all_checkpoints,
    chained,
    digest_of,
    is_live,
    newest,
    open_holds,
)
from .database import streamed
from .exact import carried, exact_sums, joined
from .journal import GENESIS, Head, balances, balances_to, booked, digest, past_of
from .merging import DELIVERY_KEY, IS_CHARGE, USE_KEY
from .mirror import read_statements, sums
from .postings import Account, Balance, delivered_sides, paid_sides, used_sides
from .tables import (
    SUMMED,
    SUMMED_BY,
    accounts,
    checkpoints,
    contracts,
    disputes,
    payments,
    postings,
    statements,
    transfers,
    usage,
    usage_hours,
    usage_ranges,
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
    checkpoint: str = ""  # the digest of the newest, in hexadecimal

    @property
    def is_clean(self) -> bool:
        """Whether everything holds."""
        return not any(each.problems for each in self.checks)


def audit(connection: Connection) -> Audit:
    """Check everything, in one transaction of the caller's that sees one moment."""
    past = past_of(connection)
    chain, number, head = _chain(connection, past)
    balanced = balances(connection)
    point = newest(connection)
    tables = (transfers, usage, postings, usage_hours, payments, statements, checkpoints)
    rows = {table: _count(connection, table) for table in tables}
    checks = [
        _check(name, rows[table], problems)
        for name, table, problems in (
            ("debits are credits", transfers, _imbalances(balanced)),
            ("every charge is booked once", usage, _uncharged(connection, past.number)),
            ("every delivery is booked", postings, _undelivered(connection, past.number)),
            ("every reversal and payment is booked", payments, _unsettled(connection, past.number)),
            ("nothing else is booked", transfers, _strangers(connection, past.number)),
            ("what was agreed with other sites stands", statements, _disagreed(connection)),
            ("checkpoints are whole", checkpoints, _mischecked(connection, past.number)),
            (
                "what is rolled up is what a checkpoint says",
                usage,
                _misrolled(connection, past.number),
            ),
            ("no run of a task is charged twice", usage, _twice(connection)),
            ("hours are what their records sum up to", usage_hours, _misadded(connection)),
        )
    ]
    digest_of_point = point.digest.hex() if point is not None else ""
    return Audit((chain, *checks), number, head.hex(), balanced, digest_of_point)


def _count(connection: Connection, table: Table) -> int:
    return connection.execute(select(func.count()).select_from(table)).scalar_one()


def _check(name: str, looked_at: int, found: Generator[str]) -> Check:
    with closing(found) as problems:
        return Check(name, looked_at, tuple(islice(problems, PROBLEMS_MAX)))


def _chain(connection: Connection, past: Head) -> tuple[Check, int, bytes]:
    """Work out every digest anew; the first one that differs says where somebody wrote."""
    head, number = past.hash, past.number
    with closing(booked(connection, past.number)) as found:
        for number, each in enumerate(found, start=past.number + 1):
            if each.number != number:
                return _broken(number, f"transfer {number} is missing"), number, head
            head = digest(head, number, each.transfer)
            if head != each.hash:
                text = f"transfer {number} ({each.transfer.key}) is not what was booked"
                return _broken(number, text), number, head
    return Check("the chain is whole", number - past.number, ()), number, head


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


def _rows(connection: Connection, query: Any) -> Iterator[tuple[Any, ...]]:
    return map(tuple, streamed(connection, query))


_SLASH: Final = literal_column("'/'", String)
_REVERSAL: Final = literal_column("'reverse/'", String) + DELIVERY_KEY
_PAYMENT: Final = (
    literal_column("'pay/'", String)
    + payments.c.site
    + _SLASH
    + payments.c.currency
    + _SLASH
    + payments.c.reference
)
_OF_DISPUTE: Final = and_(
    *(disputes.c[name] == postings.c[name] for name in ("side", "contract", "epoch", "first"))
)


def _uncharged(connection: Connection, past: int) -> Generator[str]:
    query = (
        select(USE_KEY, usage.c.cost_nanos, transfers.c.amount_nanos)
        .select_from(usage)
        .outerjoin(transfers, and_(transfers.c.key == USE_KEY, transfers.c.number > past))
        .outerjoin(accounts, accounts.c.id == transfers.c.debit)
        .where(
            usage.c.cost_nanos > 0,
            or_(
                # Where a checkpoint stands for it, it has to be in the sums: _misrolled.
                and_(transfers.c.key.is_(None), literal(not past)),
                transfers.c.amount_nanos != usage.c.cost_nanos,
                accounts.c.currency != usage.c.currency,
            ),
        )
    )
    for key, cost_nanos, amount_nanos in _rows(connection, query):
        yield f"{key} cost {cost_nanos}, and {_said(amount_nanos)} is booked"


def _undelivered(connection: Connection, past: int) -> Generator[str]:
    settled = transfers.alias("settled")
    is_gone = and_(literal(bool(past)), postings.c.state != "pending")
    query = (
        select(DELIVERY_KEY, postings.c.cost_nanos, postings.c.state)
        .add_columns(transfers.c.amount_nanos, settled.c.kind)
        .select_from(postings)
        .outerjoin(transfers, and_(transfers.c.key == DELIVERY_KEY, is_live(past)))
        .outerjoin(settled, settled.c.resolves == transfers.c.key)
        .where(
            postings.c.cost_nanos > 0,
            or_(
                and_(transfers.c.key.is_(None), ~is_gone),
                transfers.c.amount_nanos != postings.c.cost_nanos,
                and_(
                    transfers.c.key.is_not(None),
                    func.coalesce(settled.c.kind, "pending") != postings.c.state,
                ),
                settled.c.amount_nanos != transfers.c.amount_nanos,
            ),
        )
    )
    for key, cost_nanos, state, amount_nanos, kind in _rows(connection, query):
        booked_so = f"{_said(amount_nanos)} ({kind or 'pending'})"
        yield f"{key} cost {cost_nanos} ({state}), and {booked_so} is booked"


def _unsettled(connection: Connection, past: int) -> Generator[str]:
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
            .outerjoin(
                transfers, and_(transfers.c.key == documents.c.key, transfers.c.number > past)
            )
            .where(
                or_(
                    # Where a checkpoint stands for it, it has to be in the sums: _misrolled.
                    and_(transfers.c.key.is_(None), literal(not past)),
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


def _strangers(connection: Connection, past: int) -> Generator[str]:
    """Transfers for which there is no document."""
    documents = {
        "entry": [select(USE_KEY), select(_PAYMENT)],
        "hold": [select(DELIVERY_KEY)],
        "reversal": [select(_REVERSAL).join_from(disputes, postings, _OF_DISPUTE)],
    }
    for kind, keys in documents.items():
        # As a set: a join on keys that are put together from columns would try every pair.
        live = select(transfers.c.key).where(transfers.c.kind == kind, is_live(past))
        for (key,) in _rows(connection, except_(live, *keys)):
            yield f"{key} is booked, and there is no such record"


def _mischecked(connection: Connection, past: int) -> Generator[str]:
    """Checkpoints that are not what was stored."""
    before = GENESIS
    last: Checkpoint | None = None
    for last in all_checkpoints(connection):
        made = chained(before, last.number, last.at_s, last.hash, last.contents)
        if made.digest != last.digest:
            yield f"the checkpoint at transfer {last.number} is not what was stored"
        before = last.digest
    kept = balances_to(connection, past)
    if last is not None:
        if digest_of(kept, open_holds(connection, past)) != last.contents:
            yield f"balances or open holds are not those of the checkpoint at transfer {past}"
    elif any(each != Balance() for each in kept.values()):
        yield "there are balances of a checkpoint, and there is no checkpoint"


def _misrolled(connection: Connection, past: int) -> Generator[str]:
    """Accounts to which documents without a transfer bring another sum than the checkpoint says."""
    if not past:
        return
    said = balances_to(connection, past)
    found: dict[Account, Balance] = {}
    for (debit, credit), amount_nanos in _rolled_up(connection, past):
        found.setdefault(debit, Balance()).debits_nanos += amount_nanos
        found.setdefault(credit, Balance()).credits_nanos += amount_nanos
    for account in sorted({*said, *found}):
        one, other = said.get(account, Balance()), found.get(account, Balance())
        for side in ("debits_nanos", "credits_nanos"):
            if getattr(one, side) != getattr(other, side):
                yield (
                    f"{side.removesuffix('_nanos')} of {account} are {getattr(one, side)} by the "
                    f"checkpoint, {getattr(other, side)} by the records that it stands for"
                )
    rolled_up = (
        select(usage.c.job, func.sum(usage.c.tasks).label("tasks"))
        .where(usage.c.records > 1, IS_CHARGE)
        .group_by(usage.c.job)
        .subquery()
    )
    kept = (
        select(usage_ranges.c.job, func.sum(usage_ranges.c.tasks).label("tasks"))
        .where(usage_ranges.c.is_charge)
        .group_by(usage_ranges.c.job)
        .subquery()
    )
    query = (
        select(func.coalesce(rolled_up.c.job, kept.c.job), rolled_up.c.tasks, kept.c.tasks)
        .select_from(rolled_up)
        .join(kept, rolled_up.c.job == kept.c.job, full=True)
        .where(func.coalesce(rolled_up.c.tasks, 0) != func.coalesce(kept.c.tasks, 0))
    )
    for job, tasks, ranges in _rows(connection, query):
        yield f"rolled-up usage of job {job} is of {tasks or 0} tasks, and {ranges or 0} are kept"


def _rolled_up(connection: Connection, past: int) -> Iterator[tuple[tuple[Account, Account], int]]:
    """What records came to whose transfers are dropped: debit and credit, and the amount."""
    names = ("user", "project", "origin", "site", "pool", "currency")
    key = [usage.c[name] for name in names]
    live = and_(transfers.c.key == USE_KEY, transfers.c.number > past)
    query: Any = (
        select(*key, *exact_sums(usage.c.cost_nanos))
        .where(usage.c.cost_nanos > 0, ~exists().where(live))
        .group_by(*key)
    )
    for row in connection.execute(query):
        [amount_nanos] = joined(row[-2:])
        yield used_sides(row), amount_nanos
    key = [contracts.c[name] for name in ("side", "site", "currency")]
    live = and_(transfers.c.key == DELIVERY_KEY, is_live(past))
    query = (
        select(*key, *exact_sums(postings.c.cost_nanos))
        .join_from(
            postings,
            contracts,
            and_(contracts.c.side == postings.c.side, contracts.c.contract == postings.c.contract),
        )
        .where(postings.c.state == "post", postings.c.cost_nanos > 0, ~exists().where(live))
        .group_by(*key)
    )
    for row in connection.execute(query):
        [amount_nanos] = joined(row[-2:])
        yield delivered_sides(row), amount_nanos
    yield from _rolled_up_between_sites(connection, past)


def _rolled_up_between_sites(
    connection: Connection, past: int
) -> Iterator[tuple[tuple[Account, Account], int]]:
    """The same of reversals, and of payments."""
    names = [contracts.c[name] for name in ("side", "site", "currency")]
    live = and_(transfers.c.key == _REVERSAL, transfers.c.number > past)
    query: Any = (
        select(*names, postings.c.cost_nanos)
        .join_from(disputes, postings, _OF_DISPUTE)
        .join(
            contracts,
            and_(contracts.c.side == postings.c.side, contracts.c.contract == postings.c.contract),
        )
        .where(disputes.c.state == "accepted", postings.c.cost_nanos > 0, ~exists().where(live))
    )
    for row in connection.execute(query):
        debit, credit = delivered_sides(row)
        yield (credit, debit), row.cost_nanos
    live = and_(transfers.c.key == _PAYMENT, transfers.c.number > past)
    for row in connection.execute(select(payments).where(~exists().where(live))):
        yield paid_sides(row), row.amount_nanos


def _twice(connection: Connection) -> Generator[str]:
    """Charges of the same attempt that overlap."""
    names = ("job", "attempt", "first", "tasks")
    written = select(*(usage.c[name] for name in names)).where(
        usage.c.state != "repeat", usage.c.cost_nanos > 0, usage.c.records == 1
    )
    kept = select(*(usage_ranges.c[name] for name in names)).where(usage_ranges.c.is_charge)
    both = union_all(written, kept).subquery()
    query = select(both).order_by(both.c.job, both.c.attempt, both.c.first)
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
    sums = exact_sums(*(usage.c[name] for name in SUMMED))
    counted = select(*keys[0], func.sum(usage.c.records), *carried(sums)).group_by(*keys[0])
    halves = [usage_hours.c[f"{name}_{half}"] for name in SUMMED for half in ("high", "low")]
    kept = select(*keys[1], usage_hours.c.records, *carried(halves))
    for query in (except_(counted, kept), except_(kept, counted)):
        for hour, *key in _rows(connection, query):
            yield f"the sums of hour {hour} for {'/'.join(map(str, key[:7]))} are not its records'"
