"""The modules that a user's process imports, and those that it does not."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.real


def test_the_client_is_light():
    code = "import federation, sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    heavy = {"trio", "sqlalchemy", "alembic", "click", "rich", "numpy", "gateway", "policies"}
    assert loaded & heavy == set()


def test_the_public_names():
    import federation

    assert sorted(federation.__all__) == [
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
