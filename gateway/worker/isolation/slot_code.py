"""Copies the code that a slot needs, for slots that can't see this installation.

These are our two packages, as far as a slot uses them, and the two libraries below them. They are
copied, not mounted in place: an installation may have any files beside it.
"""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

# A slot uses nothing else of `gateway`.
_MODULES: Final = (
    "gateway.worker.slot.cells",
    "gateway.worker.slot.channel",
    "gateway.worker.slot.container_init",
    "gateway.worker.isolation.limits",
    "gateway.worker.slot.prints",
    "gateway.worker.slot.slot",
)
_LIBRARIES: Final = ("cloudpickle", "msgpack")


def copy_slot_code(folder: Path) -> Path:
    """Copy a slot's code into a folder; return it. Any user may read it."""
    for name in _MODULES:
        *packages, module = name.split(".")
        theirs, ours = _package(packages[0]), folder / packages[0]
        for package in ("", *packages[1:]):
            theirs, ours = theirs / package, ours / package
            ours.mkdir(parents=True, exist_ok=True)
            shutil.copy(theirs / "__init__.py", ours)
        shutil.copy(theirs / f"{module}.py", ours)
    ignored = shutil.ignore_patterns("__pycache__", "*.pyx")
    for name in ("federation", *_LIBRARIES):
        shutil.copytree(_package(name), folder / name, ignore=ignored)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None, f"{name} is imported here"
    assert spec.origin is not None, f"{name} is a package with a file"
    return Path(spec.origin).parent
