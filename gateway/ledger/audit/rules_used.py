"""Which versions of the rules charged work ran under: an audit leads to the rules of then."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from federation.clocks import UtcS
from gateway.ledger.db.exact import exact_sums, joined
from gateway.ledger.db.usage.tables import usage


@dataclass(frozen=True, slots=True)
class RulesUsed:
    """What ran under one version of the rules.

    Attributes:
        version: 0 where it is not known: rolled up, or from before there were versions.
        from_at_s, until_at_s: when the first of it started and the last of it ended, UTC.
        costs_nanos: by currency.
    """

    version: int
    records: int
    from_at_s: UtcS
    until_at_s: UtcS
    costs_nanos: dict[str, int]


def rules_used(connection: Connection) -> list[RulesUsed]:
    """Return the versions of the rules by which work was charged, the first one first."""
    query = (
        select(
            *(usage.c.rules, usage.c.currency, func.sum(usage.c.records)),
            *(func.min(usage.c.started_at_s), func.max(usage.c.ended_at_s)),
            *exact_sums(usage.c.cost_nanos),
        )
        .group_by(usage.c.rules, usage.c.currency)
        .order_by(usage.c.rules, usage.c.currency)
    )
    found: dict[int, RulesUsed] = {}
    for version, currency, records, first_s, last_s, *halves in connection.execute(query):
        (cost_nanos,) = joined(halves)
        known = found.get(version)
        found[version] = RulesUsed(
            version,
            int(records) + (known.records if known else 0),
            UtcS(min(first_s, known.from_at_s) if known else first_s),
            UtcS(max(last_s, known.until_at_s) if known else last_s),
            {**(known.costs_nanos if known else {}), currency: cost_nanos},
        )
    return list(found.values())
