"""gridfed: hand work to a grid of grids, from three lines of Python.

from federation import Client

with Client() as client:
    print(sum(client.map(pow, range(1000), range(1000))))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from federation.client import Client, TaskFuture, as_completed
    from federation.engine.jobs import JobHandle
    from federation.engine.log_lines import LogLine
    from federation.engine.objects import ObjectRef
    from federation.errors import GridError, LimitsUnmet, ObjectLost, ObjectRefused
    from federation.running import deadline
    from federation.transport import TlsSettings

__all__ = [
    "Client",
    "GridError",
    "JobHandle",
    "LimitsUnmet",
    "LogLine",
    "ObjectLost",
    "ObjectRef",
    "ObjectRefused",
    "TaskFuture",
    "TlsSettings",
    "as_completed",
    "deadline",
]

# Imported on first use: a slot needs neither the client nor its dependencies, and may run on a host
# without them.
_WHERE: Final = {
    "Client": "federation.client",
    "GridError": "federation.errors",
    "JobHandle": "federation.engine.jobs",
    "LimitsUnmet": "federation.errors",
    "LogLine": "federation.engine.log_lines",
    "ObjectLost": "federation.errors",
    "ObjectRef": "federation.engine.objects",
    "ObjectRefused": "federation.errors",
    "TaskFuture": "federation.client",
    "TlsSettings": "federation.transport",
    "as_completed": "federation.client",
    "deadline": "federation.running",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_WHERE[name]), name)
    globals()[name] = found
    return found
