"""How a Python process of ours is started.

`python -m` and `python -c` put the working folder in front of everything else that is imported. A
task of another user that can write there could have its code run by us. So each interpreter that we
start gets -P, and imports only what is installed. This module needs the standard library alone:
hosts of another's grid have no more.
"""

import sys
from typing import Final

SAFE_PATH: Final = "-P"


def run_module(module: str, *options: str, python: str = "") -> list[str]:
    """The command that runs a module, by this Python or another; its arguments come behind it."""
    return [python or sys.executable, SAFE_PATH, *options, "-m", module]


def run_code(code: str, *options: str, python: str = "") -> list[str]:
    """The command that runs a line of code, by this Python or another."""
    return [python or sys.executable, SAFE_PATH, *options, "-c", code]
