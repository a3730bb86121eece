"""Checkpoints are whole, and rolled-up records agree with them."""

from collections.abc import Generator, Iterator
from typing import Any

from sqlalchemy import Connection, and_, exists, func, select

from gateway.ledger.accounting.checkpoints import (
    Checkpoint,
    all_checkpoints,
    chained,
    digest_of,
    is_live,
    open_holds,
)
from gateway.ledger.accounting.journal import GENESIS, balances_to
from gateway.ledger.accounting.merging import DELIVERY_KEY, USE_KEY
from gateway.ledger.accounting.postings import (
    Balance,
    LedgerAccount,
    delivered_sides,
    paid_sides,
    used_sides,
)
from gateway.ledger.audit.keys import PAYMENT_KEY, REVERSAL_KEY, UNDOING_KEY, rows_of
from gateway.ledger.db.contracts.tables import OF_CONTRACT, contracts, postings
from gateway.ledger.db.exact import exact_sums, joined
from gateway.ledger.db.settlement.queries import same_delivery
from gateway.ledger.db.settlement.tables import disputes, payments
from gateway.ledger.db.tables import transfers
from gateway.ledger.db.usage.tables import IS_CHARGE, usage, usage_ranges


def mischecked(connection: Connection, past: int) -> Generator[str]:
    """Yield checkpoints that differ from their digests or balances."""
    before = GENESIS
    last: Checkpoint | None = None
    for last in all_checkpoints(connection):
        made = chained(before, last.number, last.at_s, last.hash, last.contents)
        if made.digest != last.digest:
            yield f"the checkpoint at transfer {last.number} differs from the original"
        before = last.digest
    kept = balances_to(connection, past)
    if last is not None:
        if digest_of(kept, open_holds(connection, past)) != last.contents:
            yield f"balances or open holds differ from the checkpoint at transfer {past}"
    elif any(each != Balance() for each in kept.values()):
        yield "balances of a checkpoint exist without a checkpoint"


def misrolled(connection: Connection, past: int) -> Generator[str]:
    """Yield accounts on which documents without a transfer differ from the checkpoint's sums."""
    if not past:
        return
    said = balances_to(connection, past)
    found: dict[LedgerAccount, Balance] = {}
    for (debit, credit), amount_nanos in _rolled_up(connection, past):
        found.setdefault(debit, Balance()).debits_nanos += amount_nanos
        found.setdefault(credit, Balance()).credits_nanos += amount_nanos
    for account in sorted({*said, *found}):
        one, other = said.get(account, Balance()), found.get(account, Balance())
        for side in ("debits_nanos", "credits_nanos"):
            if getattr(one, side) != getattr(other, side):
                yield (
                    f"{side.removesuffix('_nanos')} of {account} are {getattr(one, side)} "
                    f"in the checkpoint, {getattr(other, side)} in its records"
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
    for job, tasks, ranges in rows_of(connection, query):
        yield (
            f"rolled-up usage of job {job} has {tasks or 0} tasks, but the kept ranges have "
            f"{ranges or 0}"
        )


def _rolled_up(
    connection: Connection, past: int
) -> Iterator[tuple[tuple[LedgerAccount, LedgerAccount], int]]:
    """Yield debit and credit, and amount, of records whose transfers are dropped."""
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
        .join_from(postings, contracts, OF_CONTRACT)
        .where(postings.c.state == "post", postings.c.cost_nanos > 0, ~exists().where(live))
        .group_by(*key)
    )
    for row in connection.execute(query):
        [amount_nanos] = joined(row[-2:])
        yield delivered_sides(row), amount_nanos
    yield from _rolled_up_between_sites(connection, past)


def _rolled_up_between_sites(
    connection: Connection, past: int
) -> Iterator[tuple[tuple[LedgerAccount, LedgerAccount], int]]:
    """Yield the same for reversals, and for payments."""
    names = [contracts.c[name] for name in ("side", "site", "currency")]
    live = and_(transfers.c.key == REVERSAL_KEY, transfers.c.number > past)
    query: Any = (
        select(*names, postings.c.cost_nanos)
        .join_from(disputes, postings, same_delivery(disputes))
        .join(contracts, OF_CONTRACT)
        .where(disputes.c.state == "accepted", postings.c.cost_nanos > 0, ~exists().where(live))
    )
    for row in connection.execute(query):
        debit, credit = delivered_sides(row)
        yield (credit, debit), row.cost_nanos
    live = and_(transfers.c.key == PAYMENT_KEY, transfers.c.number > past)
    for row in connection.execute(select(payments).where(~exists().where(live))):
        yield paid_sides(row), row.amount_nanos
    live = and_(transfers.c.key == UNDOING_KEY, transfers.c.number > past)
    undone = payments.c.undone_at_s.is_not(None)
    for row in connection.execute(select(payments).where(undone, ~exists().where(live))):
        debit, credit = paid_sides(row)
        yield (credit, debit), row.amount_nanos
