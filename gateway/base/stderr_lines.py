"""Lines for the operator on stderr, each with its time where no terminal shows it."""

import contextlib
import sys
import time
from datetime import UTC, datetime

from federation.words import clean


def stamped(line: str, epoch_s: float) -> str:
    """Return a line behind its time, UTC, as every line of a log has it."""
    return f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%dT%H:%M:%SZ} {line}"


def say(line: str) -> None:
    """Write a line to stderr; without its time to a terminal.

    A terminal that was closed takes no more lines, which is no reason to stop. A line and its end
    are one write: agents write to the same file, and their lines would come in between.
    """
    shown = line if sys.stderr.isatty() else stamped(line, time.time())
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{clean(shown)}\n")
        sys.stderr.flush()


__all__ = ["say", "stamped"]
