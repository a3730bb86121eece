"""Cases of PostgreSQL alone: one gateway at a time without a file, and a database that dies."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from queue import SimpleQueue
from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from support.ledger_processes import HOLDING, HOLDING_UNTIL_LOST, WRITING, start
from support.processes import wait_until
from support.programs.namespaces import Network, Refused
from support.programs.postgres import Postgres

from gateway.ledger.db import database
from gateway.ledger.db.errors import StoreError, StoreInUse
from gateway.ledger.db.schema import SCHEMA_VERSION, metadata
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.store import writer
from gateway.ledger.store.store import SqlStore

DEADLINE_S = 200

Usage = Callable[..., UsageRecord]

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.new_database()


@pytest.fixture
def mortal() -> Iterator[Postgres]:
    """A server to be harmed."""
    server = Postgres()
    yield server
    server.stop()


def test_the_migrations_make_the_tables_of_the_code(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_create", database._migrate)
    SqlStore(url).close()
    engine = create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == SCHEMA_VERSION
    engine.dispose()


def test_a_second_process_is_refused_and_told_who_holds_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(HOLDING, url) as holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == b"open\n"
        with monkeypatch.context() as impatient:
            impatient.setattr(database, "TAKEOVER_S", 0.0)
            with pytest.raises(StoreInUse, match=f"process id {holding.pid} .*stop that gateway"):
                SqlStore(url)
        holding.communicate()
    SqlStore(url).close()  # once the server has seen that the other is gone


def test_the_database_of_a_gateway_whose_host_lost_its_power_is_soon_free() -> None:
    try:
        network = Network(["database", "gateway"])
    except Refused as error:
        pytest.skip(f"no network namespaces with firewall rules: {error}")
    with contextlib.ExitStack() as stack:
        stack.callback(network.close)
        server = Postgres((network.addresses["database"], network.inside("database")))
        stack.callback(server.stop)
        at_socket = server.new_database()
        over_tcp = at_socket.replace(str(server.folder), server.address)
        with start(HOLDING, over_tcp, inside=network.inside("gateway")) as holding:
            assert holding.stdout is not None
            assert holding.stdout.readline() == b"open\n"
            network.cut("gateway", "database")  # the end of its connection is not heard of
            holding.send_signal(signal.SIGKILL)
            holding.wait()
        SqlStore(at_socket).close()  # within the time that it waits for the lock


def test_a_frozen_gateway_loses_its_database_and_a_living_one_without_work_does_not(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(HOLDING_UNTIL_LOST, url) as holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == b"open\n"
        with monkeypatch.context() as impatient:
            impatient.setattr(database, "TAKEOVER_S", database.FROZEN_S + 2.0)
            with pytest.raises(StoreInUse, match=f"process id {holding.pid} "):
                SqlStore(url)
        holding.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(database, "TAKEOVER_S", 10 * database.FROZEN_S)
        with closing(SqlStore(url)) as taken:
            holding.send_signal(signal.SIGCONT)
            # It finds out by itself: it has nothing to write.
            assert holding.stdout.readline() == b"StoreInUse\n"
            assert taken.usage.charged_ranges("job") == []


def test_a_gateway_of_before_that_renews_nothing_is_not_taken_for_frozen(
    url: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "TAKEOVER_S", 1.0)
    monkeypatch.setattr(database, "FROZEN_S", 0.0)
    name = str(make_url(url).database)
    before = "process id 7 on some-host (ab12cd34)"
    with psycopg.connect(
        postgres.conninfo(name), autocommit=True, application_name=before
    ) as connection:
        connection.execute("SELECT pg_advisory_lock(%s::bigint)", (database._LOCK_KEY,))
        with pytest.raises(StoreInUse, match="process id 7 on some-host"):
            SqlStore(url)
        connection.execute(f"SET application_name = '{before} renews'")
        SqlStore(url).close()


def test_two_stores_in_two_databases_of_one_server_do_not_meet(postgres: Postgres) -> None:
    with closing(SqlStore(postgres.new_database())), closing(SqlStore(postgres.new_database())):
        pass


@pytest.mark.parametrize("acknowledgements", [1, 3_000])
def test_kill_9_of_the_gateway_takes_nothing_and_the_next_one_gets_the_database(
    url: str, acknowledgements: int
) -> None:
    with start(WRITING, url) as writing:
        assert writing.stdout is not None
        lines = [writing.stdout.readline() for _ in range(acknowledgements)]
        writing.send_signal(signal.SIGKILL)
        lines += [line for line in writing.stdout if line.endswith(b"\n")]
    with closing(SqlStore(url)) as store:
        charged = store.usage.charged_ranges("job")
        kept = list(store.jobs.bundles("job"))
    assert len(charged) >= len(lines)
    assert charged == [(n, 1) for n in range(len(charged))]
    assert kept == [(n, 1, b"%d" % n) for n in range(len(charged))]


def test_a_database_that_is_killed_is_waited_for_and_loses_nothing_acknowledged(
    mortal: Postgres, usage: Usage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRY_S", 0.02)
    troubles: SimpleQueue[str | None] = SimpleQueue()
    acknowledged: list[int] = []
    with closing(SqlStore(mortal.new_database(), on_trouble=troubles.put)) as store:
        for n in range(3):
            for m in range(200):
                first = 200 * n + m
                done = threading.Event()

                def note(first: int = first, done: threading.Event = done) -> None:
                    acknowledged.append(first)
                    done.set()

                store.write([usage(first=first)], False, note)
            assert done.wait(DEADLINE_S)
            # Written, and in the hands of a database that has not synced it.
            mortal.kill()
            store.write([usage(first=10_000 + n)], False, lambda: None)
            assert "can't be reached" in str(troubles.get(timeout=DEADLINE_S))
            mortal.start()
            assert troubles.get(timeout=DEADLINE_S) is None
        assert acknowledged == [*range(600)]
        wait_until(lambda: store.backlog == 0)
        found = [first for first, _ in store.usage.charged_ranges("job-1")]
    assert found == [*range(600), *range(10_000, 10_003)]


def test_what_a_database_could_lose_is_bounded(
    url: str, usage: Usage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "UNHARDENED_RECORDS", 10)
    with closing(SqlStore(url)) as store:
        for n in range(100):
            done = threading.Event()
            store.write([usage(first=n)], False, done.set)
            assert done.wait(DEADLINE_S)
            assert len(store._writer._unhardened) <= 10


def test_readers_go_on_when_the_database_is_back(mortal: Postgres, usage: Usage) -> None:
    with closing(SqlStore(mortal.new_database())) as store:
        assert store.jobs.get("nobody") is None
        mortal.kill()
        mortal.start()
        assert store.jobs.get("nobody") is None


def test_a_database_that_another_gateway_took_meanwhile_is_not_written_to(
    mortal: Postgres, usage: Usage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRY_S", 0.02)
    monkeypatch.setattr(database, "TAKEOVER_S", 0.0)
    monkeypatch.setattr(database, "RENEW_S", 1_000.0)  # it does not see that the database is back
    url = mortal.new_database()
    fatal: SimpleQueue[BaseException] = SimpleQueue()
    store = SqlStore(url, on_fatal=fatal.put)
    mortal.kill()
    mortal.start()
    with closing(SqlStore(url)) as other:
        store.write([usage()], False, lambda: None)
        assert isinstance(fatal.get(timeout=DEADLINE_S), StoreInUse)
        assert other.usage.charged_ranges("job-1") == []
    with pytest.raises(StoreError, match="were not written"):
        store.close()


def test_our_own_session_that_the_server_still_waits_for_is_ended(
    url: str, usage: Usage, postgres: Postgres
) -> None:
    # As when the network drops the connection and tells only us.
    with closing(SqlStore(url)) as store:
        opened = store._database
        left_behind = opened.writing.connection.driver_connection
        [(pid,)] = left_behind.execute("SELECT pg_backend_pid()").fetchall()
        again = database.Database.reopen
        opened.writing.detach()
        assert again(opened) is opened.writing
        store._writer._take(opened.writing)
        alive = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}"
        wait_until(lambda: postgres.execute(alive) == [(0,)])
        left_behind.close()


def test_no_server_is_told_without_the_password() -> None:
    with pytest.raises(StoreError, match="can't open the database") as caught:
        SqlStore("postgresql+psycopg://ada:sesame@localhost:1/books")
    assert "sesame" not in str(caught.value)


def test_no_reader_can_write(url: str) -> None:
    opened = database.Database(url)
    with opened.readers.begin() as reader, pytest.raises(Exception, match="read-only"):
        reader.exec_driver_sql("DELETE FROM usage")
    opened.writing.close()
    opened.close()


def test_texts_are_ordered_as_in_sqlite(url: str, commit: Any, usage: Usage) -> None:
    from gateway.ledger.db.usage.records import Dimension

    names = ["ada", "Bob", "_", "éva", "zoe", "a b", "a-b"]
    with closing(SqlStore(url)) as store:
        commit(store, *(usage(first=n, user=name) for n, name in enumerate(names)))
        found = [total.key[0] for total in store.usage.totals([Dimension.USER])]
    assert found == sorted(names)


def test_a_number_of_any_size_is_kept(url: str, commit: Any, usage: Usage) -> None:
    with closing(SqlStore(url)) as store:
        for number in (0, 2**15, 2**31, 2**63 - 1):
            commit(store, usage(first=number, cost_nanos=number))
        assert [first for first, _ in store.usage.charged_ranges("job-1")] == [
            0,
            2**15,
            2**31,
            2**63 - 1,
        ]
