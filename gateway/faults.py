"""What is said when something of ours breaks over what somebody sent, and the gateway goes on."""

import traceback
from typing import Final

LINES: Final = 6  # of the traceback: the innermost


def describe_fault(where: str, error: Exception) -> str:
    """A fault as the operator's log has it: where, what, and the end of its traceback."""
    lines = "".join(traceback.format_exception(error)[-LINES:])
    return f"fault: {where}: {type(error).__name__}: {error}\n{lines}"
