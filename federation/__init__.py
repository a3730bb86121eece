"""gridfed: hand work to a grid of grids, from three lines of Python.

from federation import Client

with Client() as client:
    print(sum(client.map(pow, range(1000), range(1000))))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from federation.address import AddressError
    from federation.client import Client, TaskFuture, as_completed
    from federation.compat.async_client import AsyncClient
    from federation.engine.detached_tasks import DetachedTask
    from federation.engine.dialling.client_file import ClientFileError
    from federation.engine.explained import Explanation
    from federation.engine.jobs import Cost, JobCancelled, JobHandle, Progress
    from federation.engine.log_lines import LogLine
    from federation.engine.mapping import MapResults
    from federation.engine.objects import ObjectRef
    from federation.errors import (
        CostLimitReached,
        DeadlinePassed,
        DependencyFailed,
        EnvironmentFailed,
        GatewayUnreachable,
        GridError,
        JobNotFound,
        JobRefused,
        LimitsUnmet,
        MemoryLimitExceeded,
        ObjectLost,
        ObjectRefused,
        ProtocolError,
        QueueLimitReached,
        RemoteError,
        RemoteTraceback,
        ResidencyRefused,
        ResultRefused,
        ResultUntrusted,
        SerializationError,
        SessionRefused,
        TaskCrashed,
        TaskError,
        TaskStopped,
        TaskTimeout,
        WorkerLost,
    )
    from federation.offers import Offer
    from federation.running import deadline
    from federation.sessions.nng import ForkedProcessError
    from federation.transport import TlsSettings

__all__ = [
    "AddressError",
    "AsyncClient",
    "Client",
    "ClientFileError",
    "Cost",
    "CostLimitReached",
    "DeadlinePassed",
    "DependencyFailed",
    "DetachedTask",
    "EnvironmentFailed",
    "Explanation",
    "ForkedProcessError",
    "GatewayUnreachable",
    "GridError",
    "JobCancelled",
    "JobHandle",
    "JobNotFound",
    "JobRefused",
    "LimitsUnmet",
    "LogLine",
    "MapResults",
    "MemoryLimitExceeded",
    "ObjectLost",
    "ObjectRef",
    "ObjectRefused",
    "Offer",
    "Progress",
    "ProtocolError",
    "QueueLimitReached",
    "RemoteError",
    "RemoteTraceback",
    "ResidencyRefused",
    "ResultRefused",
    "ResultUntrusted",
    "SerializationError",
    "SessionRefused",
    "TaskCrashed",
    "TaskError",
    "TaskFuture",
    "TaskStopped",
    "TaskTimeout",
    "TlsSettings",
    "WorkerLost",
    "as_completed",
    "deadline",
]

# Imported on first use: a slot needs neither the client nor its dependencies, and may run on a host
# without them.
_WHERE: Final = {
    "AddressError": "federation.address",
    "AsyncClient": "federation.compat.async_client",
    "Client": "federation.client",
    "ClientFileError": "federation.engine.dialling.client_file",
    "Cost": "federation.engine.jobs",
    "CostLimitReached": "federation.errors",
    "DeadlinePassed": "federation.errors",
    "DependencyFailed": "federation.errors",
    "DetachedTask": "federation.engine.detached_tasks",
    "EnvironmentFailed": "federation.errors",
    "Explanation": "federation.engine.explained",
    "ForkedProcessError": "federation.sessions.nng",
    "GatewayUnreachable": "federation.errors",
    "GridError": "federation.errors",
    "JobCancelled": "federation.engine.jobs",
    "JobHandle": "federation.engine.jobs",
    "JobNotFound": "federation.errors",
    "JobRefused": "federation.errors",
    "LimitsUnmet": "federation.errors",
    "LogLine": "federation.engine.log_lines",
    "MapResults": "federation.engine.mapping",
    "MemoryLimitExceeded": "federation.errors",
    "ObjectLost": "federation.errors",
    "ObjectRef": "federation.engine.objects",
    "ObjectRefused": "federation.errors",
    "Offer": "federation.offers",
    "Progress": "federation.engine.jobs",
    "ProtocolError": "federation.errors",
    "QueueLimitReached": "federation.errors",
    "RemoteError": "federation.errors",
    "RemoteTraceback": "federation.errors",
    "ResidencyRefused": "federation.errors",
    "ResultRefused": "federation.errors",
    "ResultUntrusted": "federation.errors",
    "SerializationError": "federation.errors",
    "SessionRefused": "federation.errors",
    "TaskCrashed": "federation.errors",
    "TaskError": "federation.errors",
    "TaskFuture": "federation.client",
    "TaskStopped": "federation.errors",
    "TaskTimeout": "federation.errors",
    "TlsSettings": "federation.transport",
    "WorkerLost": "federation.errors",
    "as_completed": "federation.client",
    "deadline": "federation.running",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_WHERE[name]), name)
    globals()[name] = found
    return found
