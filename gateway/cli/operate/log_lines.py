"""The log of a gateway: lines for the operator, to stderr or to a file that can be rotated."""

import os
import sys
import time
from io import FileIO
from pathlib import Path
from typing import Final

from federation import words
from gateway.base import stderr_lines
from gateway.base.values import ConfigError

MODE: Final = 0o640  # of a new file: lines name users and sites


class LogLines:
    """Writes lines for the operator. A line in a file, or in a stderr that is none, has its time.

    With a file, a terminal at stderr gets the lines too. A file that can't be written, as on a full
    disk, is no reason to stop: the line goes to stderr, with the cause.

    Args:
        path: the file; None: stderr only. Lines are appended.

    Raises ConfigError where the file can't be opened.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._file: FileIO | None = None
        if error := self.reopen():
            raise ConfigError(f"[log] file: {error}")

    def reopen(self) -> str:
        """Open the file anew, after it was renamed; "", or why the former one is still used."""
        if self._path is None:
            return ""
        try:
            opened = FileIO(self._path, "a", opener=_open)
        except OSError as error:
            return f"{self._path} can't be opened: {error.strerror}"
        if self._file is not None:
            self._file.close()
        self._file = opened
        return ""

    def say(self, line: str) -> None:
        """Write a line."""
        trouble = self._write(stderr_lines.stamped(line, time.time()))
        if self._file is None or trouble or sys.stderr.isatty():
            stderr_lines.say(line)
        if trouble:
            stderr_lines.say(f"gridfed: {trouble}")

    def _write(self, line: str) -> str:
        """Append a line to the file, if there is one; "", or why it is not there."""
        if self._file is None:
            return ""
        try:
            self._file.write(f"{words.clean(line)}\n".encode())
        except OSError as error:
            return f"the log {self._path} can't be written: {error.strerror}"
        return ""


def _open(path: str, flags: int) -> int:
    return os.open(path, flags, MODE)
