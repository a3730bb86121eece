"""Errors of a store, in one tree.

StoreError
├── StoreAway       the database server can't be reached at present
├── StoreInUse      another gateway has this database open
├── StoreTooNew     a newer gridfed wrote this database
├── StoreClosed     the store was closed before this call
└── StoreFailed     the writer stopped at an error: nothing more is written
"""

from federation.errors import GridError


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
