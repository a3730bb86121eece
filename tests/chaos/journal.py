"""Files that processes which may be killed at any moment add lines of JSON to.

Each line is one write to a descriptor opened with O_APPEND, so that lines of several processes do
not mix, and each line is whole.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """Adds lines to a file."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, what: str, **details: Any) -> None:
        """Add a line; it is in the file when this returns, and survives the process."""
        os.write(self._descriptor, json.dumps({"what": what, **details}).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """All whole lines of a file; none where there is no such file."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)
