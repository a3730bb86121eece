"""Recognition of late records: new ones, and copies of records that were rolled up long ago.

A rolled-up record has no row of its own left to refuse a second copy. Records of the time up to
which the books are rolled up are therefore looked up, and left out if they are known: a usage
record whose tasks are all among the rolled-up tasks of its attempt, and a delivery or a verdict
under a contract that had ended by then. All other records are new, and are counted.
"""

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, select

from federation.clocks import NEVER_S, UtcS
from gateway.ledger.accounting.rollup import progress
from gateway.ledger.db.contracts.records import Posted, PostingSettled
from gateway.ledger.db.contracts.tables import contracts, postings
from gateway.ledger.db.records import Record
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.db.usage.tables import usage_ranges


def happened_at_s(record: Record) -> UtcS:
    """Return the time of a record that can be rolled up; infinity for all others."""
    match record:
        case UsageRecord():
            return record.ended_at_s
        case Posted():
            return record.posted_at_s
        case PostingSettled():
            return record.settled_at_s
        case _:
            return NEVER_S


def without_rolled_up(connection: Connection, records: Iterable[Record]) -> Iterator[Record]:
    """Yield the records that are not rolled up already."""
    before_s = progress(connection).before_s
    for record in records:
        if happened_at_s(record) >= before_s or not _is_known(connection, record, before_s):
            yield record


def _is_known(connection: Connection, record: Record, before_s: UtcS) -> bool:
    match record:
        case UsageRecord():
            return _is_used(connection, record)
        case Posted() | PostingSettled():
            return _is_delivered(connection, record, before_s)
        case _:
            return False


def _is_used(connection: Connection, record: UsageRecord) -> bool:
    stop = usage_ranges.c.first + usage_ranges.c.tasks
    query = select(usage_ranges.c.first).where(
        usage_ranges.c.job == record.job,
        usage_ranges.c.attempt == record.attempt,
        usage_ranges.c.first <= record.first,
        stop >= record.first + record.tasks,
    )
    return connection.execute(query.limit(1)).first() is not None


def _is_delivered(connection: Connection, record: Posted | PostingSettled, before_s: UtcS) -> bool:
    query = select(postings.c.state).where(
        *(postings.c[name] == getattr(record, name) for name in ("side", "contract", "epoch")),
        postings.c.first == record.first,
    )
    state = connection.execute(query).scalar()
    if state is not None:
        return isinstance(record, Posted) or state != "pending"
    ended = select(contracts.c.ended_at_s).where(
        contracts.c.side == record.side, contracts.c.contract == record.contract
    )
    ended_at_s = connection.execute(ended).scalar()
    return ended_at_s is not None and ended_at_s < before_s
