"""Changes of rules to and from the books. Pure."""

from collections.abc import Iterable, Iterator

from federation.clocks import NEVER_S
from gateway.ledger.db.rules.records import RuleChangeKept, RuleChangeRow, RuleEditKept
from gateway.rules.contents import from_text, to_text
from gateway.rules.history import RuleChange, RuleEdit, RuleHistory, RuleKey, RuleKind


def history_of(rows: Iterable[RuleChangeRow]) -> RuleHistory:
    """Return the history in the books."""
    return RuleHistory(map(_change, rows))


def _change(row: RuleChangeRow) -> RuleChange:
    kept = row.kept
    return RuleChange(
        kept.number,
        kept.from_s,
        kept.made_at_s,
        kept.author,
        kept.source,
        tuple(
            RuleEdit(
                RuleKey(RuleKind(each.kind), each.pool, each.name),
                None if each.content is None else from_text(each.content),
            )
            for each in row.edits
        ),
        NEVER_S if kept.until_s is None else kept.until_s,
        kept.reason,
        kept.ends,
        row.cancelled_at_s,
    )


def records_of(change: RuleChange) -> Iterator[RuleChangeKept | RuleEditKept]:
    """Yield what is written of a change, all in one transaction.

    Raises:
        ValueError: a text in it can't be stored, or is too long.
    """
    until_s = None if change.until_s == NEVER_S else change.until_s
    yield RuleChangeKept(
        change.number,
        change.from_s,
        until_s,
        change.ends,
        change.made_at_s,
        change.author,
        change.source,
        change.reason,
    )
    for place, each in enumerate(change.edits):
        content = None if each.content is None else to_text(each.content)
        yield RuleEditKept(change.number, place, *each.key, content)
