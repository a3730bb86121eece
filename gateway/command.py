"""The `gridfed` command. Imports late, so that a client-only installation gets a clear answer."""

import os
import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line."""
    for name in ("click", "rich", "sqlalchemy", "trio"):
        if find_spec(name) is None:  # find_spec imports nothing
            sys.exit(
                f"gridfed: {name} is not installed. Only the client is installed; the command "
                "line and the gateway need more: run pip install '.[gateway]' in gridfed's "
                "folder"
            )
    from gateway.cli.main import run
    from gateway.cli.shared.codes import UNREACHABLE

    try:
        code: object = run()
    except SystemExit as end:
        code = end.code
    if code == UNREACHABLE:
        # A socket whose peer is stopped can't be closed cleanly: now and then nng aborts the
        # process, with a core dump in place of the exit code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(UNREACHABLE)
    sys.exit(code)  # type: ignore[arg-type]
