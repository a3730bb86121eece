"""The client under the name of its distribution: `from gridfed import Client`.

The build puts this module beside the package `federation`, as the package `gridfed`. Each name is
the same object in both. `gridfed.__version__` is the version that is installed.
"""

from typing import TYPE_CHECKING, Any

import federation

if TYPE_CHECKING:
    from federation import *  # noqa: F403 - all that it exports, by its own list

    __version__: str

__all__ = ["__version__"]
__all__ += federation.__all__


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("gridfed")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(federation, name)
