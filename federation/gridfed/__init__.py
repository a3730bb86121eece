"""The client under the name of its distribution: `from gridfed import Client`.

The build puts this module beside the package `federation`, as the package `gridfed`. Each name is
the same object in both. `gridfed.__version__` is the version that is installed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from federation import (
        Client,
        GridError,
        JobHandle,
        LimitsUnmet,
        LogLine,
        ObjectLost,
        ObjectRef,
        ObjectRefused,
        TaskFuture,
        TlsSettings,
        as_completed,
        deadline,
    )

    __version__: str

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
    "__version__",
    "as_completed",
    "deadline",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("gridfed")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import federation

    return getattr(federation, name)
