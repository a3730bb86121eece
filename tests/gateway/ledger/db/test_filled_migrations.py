"""A database that was filled under each schema there was, brought to the newest: sums as before."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, create_engine, text

from gateway.contracts.model.quotations import booked_tariff
from gateway.ledger.accounting.postings import balances, transfers_of
from gateway.ledger.audit.audit import audit
from gateway.ledger.db import database
from gateway.ledger.db.contracts.records import ContractOpened, Posted, PostingSettled
from gateway.ledger.db.database import snapshot
from gateway.ledger.db.records import Record
from gateway.ledger.db.settlement.records import Payment, PaymentRow
from gateway.ledger.db.usage import tables
from gateway.ledger.db.usage.records import Dimension, UsageRecord
from gateway.ledger.store.store import SqlStore
from policies.tariffs import Tariff

Usage = Callable[..., UsageRecord]

# As those schemas had it: neither hours nor sites.
OLD = (
    *("job", "first", "attempt", "tasks", "user", "project", "name", "pool", "worker", "state"),
    *("started_at_s", "ended_at_s", "wall_ns", "cpu_ns", "peak_memory_bytes", "price_nanos"),
    *("currency", "tariff", "cost_nanos"),
)


@pytest.fixture
def url(empty_url: str) -> str:
    return empty_url


def migrate(connection: Connection, version: str) -> None:
    config = Config()
    directory = str(Path(database.__file__).with_name("migrations"))
    config.set_main_option("script_location", directory)
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    command.upgrade(config, version)


def used(usage: Usage) -> list[UsageRecord]:
    """Ends on and beside the hour, sums beyond an integer's range, others' jobs and pools."""
    hour_s = 1_700_002_800.0
    return [
        usage(
            job=["job-1", "job-2", "paris:c-1"][n % 3],
            first=10 * n,
            user=f"u{n % 2}",
            pool=["local", "rome/grid"][n % 2],
            ended_at_s=hour_s + (n - 20) * 900 + (n % 5) * 0.2,
            wall_ns=2**61 + n,
            cost_nanos=[0, 7, 2**62][n % 3] + n,
        )
        for n in range(40)
    ]


def delivered() -> list[Record]:
    found: list[Record] = []
    for n in range(10):
        where: Any = ("c-1", "sell", "paris", 1, 10 * n)
        found.append(Posted(*where, 10, 5, 100 + n, "EUR", 1_700_000_000.0 + n))
        if n % 3:
            state = ["post", "void"][n % 2]
            found.append(PostingSettled(*where, state, 100 + n, "EUR", 1_700_000_000.0 + n))
    return found


def insert(connection: Connection, table: str, **values: Any) -> None:
    names = ", ".join(f'"{name}"' for name in values)
    parameters = ", ".join(f":{name}" for name in values)
    connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({parameters})"), values)


def fill(connection: Connection, version: str, records: list[UsageRecord]) -> None:
    for each in records:
        values = {name: getattr(each, name) for name in OLD}
        insert(connection, "usage", **values, day=int(each.ended_at_s // 86_400))
    if version == "0001":
        return
    opened = ("sell", "c-1", "paris", "j", "local", 1, 5, "EUR", 30.0, 1.0)
    names = ("side", "contract", "site", "job", "pool", "slots", "price_nanos", "currency")
    contract = dict(zip((*names, "lease_s", "opened_at_s"), opened, strict=True))
    insert(connection, "contracts", **contract)
    states = {each.first: each.state for each in delivered() if isinstance(each, PostingSettled)}
    for each in delivered():
        if isinstance(each, Posted):
            names = ("side", "contract", "epoch", "first", "tasks", "wall_ns", "cost_nanos")
            values = {name: getattr(each, name) for name in (*names, "posted_at_s")}
            insert(connection, "postings", **values, state=states.get(each.first, "pending"))


@pytest.mark.parametrize("version", ["0001", "0002", "0003", "0004"])
def test_what_was_booked_under_an_older_schema_is_all_there(
    url: str, version: str, usage: Usage
) -> None:
    records = used(usage)
    engine = create_engine(url)
    with engine.begin() as connection:
        migrate(connection, version)
        fill(connection, version, records)
    engine.dispose()
    documents: list[Record] = [*records, *(delivered() if version != "0001" else [])]
    with closing(SqlStore(url)) as store:
        for total in store.usage.totals([Dimension.HOUR, Dimension.JOB]):
            same = [each for each in records if (each.hour, each.job) == total.key]
            assert total.records == len(same)
            for name in ("tasks", "wall_ns", "cpu_ns", "cost_nanos", "list_cost_nanos"):
                assert getattr(total, name) == sum(getattr(each, name) for each in same)
        by_hour = [Dimension.HOUR, Dimension.SITE, Dimension.ORIGIN, Dimension.USER]
        kept = {total.key: total for total in store.usage.totals(by_hour)}
        assert set(kept) == {(each.hour, each.site, each.origin, each.user) for each in records}
        assert sum(total.cost_nanos for total in kept.values()) == sum(
            each.cost_nanos for each in records
        )
        transfers = [each for document in documents for each in transfers_of(document)]
        assert store.journal.balances() == balances(transfers)
        while store.roll_up(1_800_000_000.0, 0.0):
            pass
        assert store.journal.balances() == balances(transfers)
        assert {total.key: total for total in store.usage.totals(by_hour)} == kept
    with snapshot(url) as connection:
        found = audit(connection)
    assert found.is_clean, found


def test_payments_of_an_older_schema_stand_and_can_be_undone(url: str) -> None:
    paid = Payment("paris", "wire", "EUR", "paid", "bank", 700, "n", 5.0)
    with closing(SqlStore(url)) as store:
        store.write([paid], True, lambda: None)  # with its transfer
    engine = create_engine(url)
    with engine.begin() as connection:
        newer = ("payments", "payments_told", "slices_lent", "slices_held", "reservations")
        for table in (*newer, "rule_changes", "rule_edits", "drains", "move_receipts"):
            connection.execute(text(f"DROP TABLE {table}"))
        for table in ("usage", "contracts"):
            connection.execute(text(f"ALTER TABLE {table} DROP COLUMN rules"))
        for column in ("receive_nanos", "send_nanos"):
            connection.execute(text(f"ALTER TABLE contracts DROP COLUMN {column}"))
        for index in ("contracts_by_site", "contracts_by_job"):
            connection.execute(text(f"DROP INDEX {index}"))
        for column in ("list_price_nanos", "kind", "held_byte_s", "moved_bytes"):
            connection.execute(text(f"ALTER TABLE usage DROP COLUMN {column}"))
        old = {name: value for name, value in asdict(paid).items() if name != "attempt"}
        kinds = {int: "BIGINT", float: "DOUBLE PRECISION", str: "TEXT"}
        columns = ", ".join(f"{name} {kinds[type(value)]} NOT NULL" for name, value in old.items())
        key = "PRIMARY KEY (site, reference, currency)"
        connection.execute(text(f"CREATE TABLE payments ({columns}, {key})"))
        insert(connection, "payments", **old)
        connection.execute(text("UPDATE alembic_version SET version_num = '0010'"))
    engine.dispose()
    with closing(SqlStore(url)) as store:
        [row] = store.settlement.payments()
        assert row == PaymentRow(**asdict(paid))
        again = replace(paid, amount_nanos=70, paid_at_s=8.0, attempt=1)
        store.write([row.undone("a slip", 7.0), again], True, lambda: None)
    with closing(SqlStore(url)) as store:
        assert [each.stands for each in store.settlement.payments()] == [False, True]
    with snapshot(url) as connection:
        assert audit(connection).is_clean


@pytest.mark.parametrize("version", [f"000{number}" for number in range(5, 10)])
def test_what_is_known_of_footprints_is_told_of_what_was_booked_before(
    url: str, version: str, usage: Usage
) -> None:
    emitted: list[tuple[int, int, str]] = [(9, 7, "static"), (9, 0, ""), (0, 0, ""), (0, 0, "http")]
    records = [
        usage(first=n, wall_ns=2**61 + n, energy_uj=uj, carbon_ng=ng, carbon_source=source)
        for n, (uj, ng, source) in enumerate(emitted * 3)
    ]
    newer = {"footprint", "list_price_nanos", "rules", "kind", "held_byte_s", "moved_bytes"}
    names = [each.name for each in tables.usage.columns if each.name not in newer]
    engine = create_engine(url)
    with engine.begin() as connection:
        migrate(connection, version)
        for each in records:
            insert(connection, "usage", **{name: getattr(each, name) for name in names})
    engine.dispose()
    with closing(SqlStore(url)) as store:
        found = {
            each.key: (each.records, each.wall_ns, each.energy_uj, each.carbon_ng)
            for each in store.usage.totals([Dimension.FOOTPRINT])
        }
        assert found == {
            key: tuple(
                sum(getattr(each, name) for each in records if (each.footprint,) == key)
                for name in ("records", "wall_ns", "energy_uj", "carbon_ng")
            )
            for key in (("",), ("energy",), ("carbon",))
        }
        by_job = store.usage.totals([Dimension.JOB, Dimension.FOOTPRINT])
        assert {each.key[1:]: each.records for each in by_job} == {
            key: row[0] for key, row in found.items()
        }
        while store.roll_up(1_800_000_000.0, 0.0):
            pass
        rolled_up = store.usage.totals([Dimension.JOB, Dimension.FOOTPRINT])
        assert {each.key[1:]: each.wall_ns for each in rolled_up} == {
            key: row[1] for key, row in found.items()
        }


@pytest.mark.parametrize("version", [f"000{number}" for number in range(2, 9)])
def test_a_contract_of_an_older_schema_has_the_terms_that_there_were(
    url: str, version: str
) -> None:
    engine = create_engine(url)
    common: dict[str, Any] = {
        "site": "paris",
        "job": "j",
        "pool": "local",
        "slots": 4,
        "currency": "EUR",
        "lease_s": 30.0,
        "opened_at_s": 1.0,
    }
    with engine.begin() as connection:
        migrate(connection, version)
        insert(connection, "contracts", side="buy", contract="c-1", price_nanos=7, **common)
        insert(connection, "contracts", side="sell", contract="c-2", price_nanos=2**62, **common)
    engine.dispose()
    new = replace(
        ContractOpened("c-3", "buy", price_nanos=9, **common),
        minimum_nanos=5,
        step_ns=10**6,
        tariff="v7",
        window="night",
        price_class="preemptible",
        list_nanos=11,
        receive_nanos=13,
        send_nanos=17,
    )
    with closing(SqlStore(url)) as store:
        store.write([new], True, lambda: None)
    with closing(SqlStore(url)) as store:
        for side, name, price in (("buy", "c-1", 7), ("sell", "c-2", 2**62)):
            row = store.contracts.get(side, name)
            assert row is not None
            assert (row.price_nanos, row.list_nanos) == (price, price)
            assert (row.minimum_nanos, row.step_ns) == (0, 0)
            assert (row.tariff, row.window, row.price_class) == ("", "", "guaranteed")
            assert booked_tariff(row) == Tariff(price, "EUR", name, list_nanos=price)
        kept = store.contracts.get("buy", "c-3")
        assert kept is not None
        assert asdict(kept) == {**asdict(new), "state": "open"}
        assert len(store.contracts.open()) == 3
