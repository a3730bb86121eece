"""gridfed: hand work to a grid of grids, from three lines of Python.

from federation import Client

with Client() as client:
    print(sum(client.map(pow, range(1000), range(1000))))
"""

from concurrent.futures import as_completed

from federation.client import Client, TaskFuture
from federation.errors import GridError, LimitsUnmet
from federation.jobs import JobHandle
from federation.running import deadline
from federation.transport import TlsSettings

__all__ = [
    "Client",
    "GridError",
    "JobHandle",
    "LimitsUnmet",
    "TaskFuture",
    "TlsSettings",
    "as_completed",
    "deadline",
]
