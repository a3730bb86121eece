"""Commands that start Python processes.

`python -m` and `python -c` put the working folder first on the import path. A task of another user
that can write there could make us run its code. So each interpreter that we start gets -P and
imports only installed modules.

The user site (~/.local/lib/pythonX.Y/site-packages) is on the import path too, and Python imports
`usercustomize` from there at each start. A task can write there: what it leaves would run in the
slots of later tasks. So each interpreter also gets -s, with one exception: a gridfed that is itself
installed in the user site (pip install --user) is not found with -s. Then our own interpreter is
started without it, as our own user; the tasks of that user could change gridfed itself. For slots
of another user, and in another Python, gridfed must be installed elsewhere.

This module needs only the standard library: hosts of an external grid have no more.
"""

import site
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

SAFE_PATH: Final = "-P"
NO_USER_SITE: Final = "-s"


def run_module(module: str, *, python: str = "", is_ours: bool = True) -> list[str]:
    """Return the command that runs a module; append its arguments.

    Args:
        module: the name of the module.
        python: the interpreter; empty: this one.
        is_ours: whether it runs as our own user.
    """
    return [*_start(python, is_ours=is_ours), "-m", module]


def run_code(code: str, *, python: str = "", is_ours: bool = True) -> list[str]:
    """Return the command that runs a line of code; as `run_module`."""
    return [*_start(python, is_ours=is_ours), "-c", code]


def _start(python: str, *, is_ours: bool) -> list[str]:
    program = python or sys.executable
    if is_ours and program == sys.executable and is_in_user_site():
        return [program, SAFE_PATH]
    return [program, SAFE_PATH, NO_USER_SITE]


def is_in_user_site() -> bool:
    """Whether gridfed is installed in our user site, by pip install --user, also as editable."""
    if not site.ENABLE_USER_SITE or not site.USER_SITE:
        return False
    try:
        folder = metadata.distribution("gridfed").locate_file("")
    except metadata.PackageNotFoundError:
        return False
    return Path(str(folder)).resolve() == Path(site.USER_SITE).resolve()
