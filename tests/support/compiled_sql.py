"""Statements that are compiled once for all the stores of a run.

SQLAlchemy keeps compiled statements with an engine, and each store has engines of its own: a
gateway compiles a statement once, but tests, which open hundreds of stores, did little else.
Statements that a store compiles for itself when it is opened are kept in the same way.
"""

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from sqlalchemy import Connection, Dialect, Engine, event

from gateway.ledger.accounting import journal
from gateway.ledger.store import writer

MOST = 4000  # statements; migrations make new ones each time


class _Shared(MutableMapping[Any, Any]):
    """By statement, as in any engine, and by the kind of the database instead of its engine."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    @staticmethod
    def _key(key: Any) -> Any:
        dialect, *statement = key
        return (type(dialect), dialect.server_version_info, *statement)

    def __getitem__(self, key: Any) -> Any:
        return self._kept[self._key(key)]

    def __setitem__(self, key: Any, compiled: Any) -> None:
        if len(self._kept) >= MOST:
            self._kept.clear()
        self._kept[self._key(key)] = compiled

    def __delitem__(self, key: Any) -> None:
        del self._kept[self._key(key)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def share() -> None:
    """From now on, in this process."""
    shared = _Shared()

    def connected(connection: Connection) -> None:
        connection.execution_options(compiled_cache=shared)

    event.listen(Engine, "engine_connect", connected)
    made = (writer, "SqlStatements"), (writer, "Summaries"), (journal, "RowInserts")
    for module, name in made:
        setattr(module, name, _once(getattr(module, name)))


def _once(make: Callable[..., Any]) -> Callable[..., Any]:
    """Make one for each kind of database and all else that it is made of; they never change."""
    kept: dict[Any, Any] = {}

    def made(dialect: Dialect, *rest: Any, **named: Any) -> Any:
        key = (dialect.name, *rest, *sorted(named.items()))
        if key not in kept:
            kept[key] = make(dialect, *rest, **named)
        return kept[key]

    return made
