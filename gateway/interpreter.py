"""Commands that start Python processes.

`python -m` and `python -c` put the working folder first on the import path. A task of another user
that can write there could make us run its code. So each interpreter that we start gets -P and
imports only installed modules. This module needs only the standard library: hosts of an external
grid have no more.
"""

import sys
from typing import Final

SAFE_PATH: Final = "-P"


def run_module(module: str, *options: str, python: str = "") -> list[str]:
    """Return the command that runs a module, by this Python or another; append its arguments."""
    return [python or sys.executable, SAFE_PATH, *options, "-m", module]


def run_code(code: str, *options: str, python: str = "") -> list[str]:
    """Return the command that runs a line of code, by this Python or another; append arguments."""
    return [python or sys.executable, SAFE_PATH, *options, "-c", code]
