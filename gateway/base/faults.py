"""Log texts for faults of ours over a peer's input, after which the gateway goes on."""

import traceback
from typing import Final

LINES: Final = 6  # of the traceback: the innermost


def describe_fault(where: str, error: Exception) -> str:
    """Format a fault for the operator's log: place, error, and the end of its traceback."""
    lines = "".join(traceback.format_exception(error)[-LINES:])
    return f"fault: {where}: {type(error).__name__}: {error}\n{lines}"
