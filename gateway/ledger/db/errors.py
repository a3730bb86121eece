"""Errors of a store, in one tree.

StoreError
├── StoreAway       the database server can't be reached at present
├── StoreInUse      another gateway has this database open
├── StoreTooNew     a newer gridfed wrote this database
├── StoreClosed     the store was closed before this call
└── StoreFailed     the writer stopped at an error: nothing more is written
"""

from federation.errors import GridError

AWAY = "the database can't be reached: start it; the gateway then continues"
# The classes of SQLSTATE of a server that refuses or ends connections; without one there is none.
_NO_CONNECTION = ("", "08", "57")
_NO_STATE = "not of PostgreSQL"


class StoreError(GridError):
    """The store can't be opened, or can't carry out a request."""


class StoreAway(StoreError):
    """The database server can't be reached at present, or refuses connections."""


class StoreInUse(StoreError):
    """Another gateway has this database open."""


class StoreTooNew(StoreError):
    """A newer gridfed wrote this database."""


class StoreClosed(StoreError):
    """The store was closed before this call."""


class StoreFailed(StoreError):
    """The writer stopped at an error; records not acknowledged by then were not written."""


def trouble_text(error: Exception) -> str:
    """Return in a sentence why the store can't be read."""
    state = getattr(getattr(error, "orig", None), "sqlstate", _NO_STATE)
    if (state or "")[:2] in _NO_CONNECTION:
        return AWAY
    return f"the database can't be read: {cause_text(error):.300}"


def cause_text(error: Exception) -> str:
    """Return a database's own first words about an error, without the SQL."""
    return (str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__])[0]
