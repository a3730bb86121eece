"""A gateway that does not book usage: the baseline for the cost of the books.

`python -m benchmarks.bookless ARGUMENTS` is `gridfed ARGUMENTS`, with a writer that leaves out
usage records, their sums, and transfers. Jobs are stored as usual.
"""

from collections.abc import Sequence

from gateway.command import main
from gateway.ledger.db.records import Record
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.store.writer import StoreWriter


def _book(
    self: StoreWriter,
    records: Sequence[Record],
    *,
    durable: bool,
    patient: bool,
    careful: bool = False,
) -> None:
    kept = [each for each in records if not isinstance(each, UsageRecord)]
    self._transact(self._statements.of(kept, durable), durable, patient=patient)


if __name__ == "__main__":
    StoreWriter._book = _book  # type: ignore[method-assign]
    main()
