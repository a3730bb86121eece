"""The sentence for a store that can't be read."""

import sqlite3

import psycopg
import pytest
from sqlalchemy.exc import OperationalError, ProgrammingError

from gateway.ledger.db.errors import AWAY, StoreError, trouble_text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreError("the store has failed"), "the database can't be read: the store has failed"),
        (
            OperationalError("SELECT", {}, sqlite3.OperationalError("disk I/O error")),
            "the database can't be read: disk I/O error",
        ),
        (OperationalError("SELECT", {}, psycopg.OperationalError("connection is bad\n")), AWAY),
        (OperationalError("SELECT", {}, psycopg.errors.AdminShutdown("terminating")), AWAY),
        (
            ProgrammingError("SELECT", {}, psycopg.errors.UndefinedTable("no jobs\nLINE 1: …\n^")),
            "the database can't be read: no jobs",
        ),
    ],
)
def test_an_error_of_the_database_is_one_line_without_the_names_of_python(error, said):
    assert trouble_text(error) == said
