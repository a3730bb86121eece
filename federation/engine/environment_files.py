"""Reads the files that a user names as a job's environment."""

import os
from pathlib import Path

from federation.messages.environments import (
    FILES,
    FILES_BYTES_MAX,
    REQUIREMENTS,
    UV,
    Environment,
    check,
    check_image,
)


def read_environment(value: object, python: str) -> Environment:
    """Make an environment from a user's value: the name of an image, or the Path of a file.

    The file is read now: `uv.lock`, with the pyproject.toml beside it, or a requirements file.

    Raises:
        TypeError, ValueError: it is not valid; the text has the reason.
        OSError: the file can't be read.
    """
    if isinstance(value, str):
        if value.endswith((".txt", ".lock", ".toml")):
            raise ValueError(f"environment is {value!r:.80}: for a file use Path({value!r:.80})")
        check_image(value)
        return Environment(image=value, python=python)
    if not isinstance(value, os.PathLike):
        raise TypeError(
            f"environment is {value!r:.80}; it must be the name of an image, or the Path of a "
            "uv.lock or of a requirements file"
        )
    path = Path(value)
    packages = UV if path.name == "uv.lock" else REQUIREMENTS
    beside = [path] if packages == REQUIREMENTS else [path.with_name(name) for name in FILES[UV]]
    files = zip(FILES[packages], map(_read, beside), strict=True)
    found = Environment(packages=packages, files=tuple(files), python=python)
    check(found)
    return found


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILES_BYTES_MAX + 1)
