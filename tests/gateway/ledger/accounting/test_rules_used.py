"""An audit says under which versions of the rules the charged work ran."""

import pytest

from gateway.ledger.audit.rules_used import RulesUsed, rules_used
from gateway.ledger.db.database import snapshot
from gateway.ledger.store.store import SqlStore


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def test_work_is_told_by_the_version_of_its_rules(new_url, commit, usage, kind):
    url = new_url(kind)
    store = SqlStore(url)
    commit(
        store,
        usage(first=0, rules=2, cost_nanos=2**61, started_at_s=1_700_000_000.0),
        usage(first=10, rules=2, cost_nanos=2**61, ended_at_s=1_700_000_009.0),
        usage(first=20, rules=3, cost_nanos=5, currency="EUR"),
        usage(first=30, rules=3, cost_nanos=7),
        usage(first=40, cost_nanos=1),
    )
    store.close()
    with snapshot(url) as connection:
        found = rules_used(connection)
    first_s, last_s = 1_700_000_000.0, 1_700_000_001.5
    assert found == [
        RulesUsed(0, 1, first_s, last_s, {"USD": 1}),
        RulesUsed(2, 2, first_s, 1_700_000_009.0, {"USD": 2**62}),
        RulesUsed(3, 2, first_s, last_s, {"EUR": 5, "USD": 7}),
    ]
