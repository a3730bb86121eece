"""The `gridfed` command. Imports late, so that a client-only installation gets a clear answer."""

import os
import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line."""
    for name in ("click", "rich", "sqlalchemy", "trio"):
        if find_spec(name) is None:  # which imports nothing
            sys.exit(
                f"gridfed: {name} is not installed. This is the client alone; the command line "
                "and the gateway need more: pip install '.[gateway]' in gridfed's folder"
            )
    from gateway.cli.codes import UNREACHABLE
    from gateway.cli.main import run

    try:
        code: object = run()
    except SystemExit as end:
        code = end.code
    if code == UNREACHABLE:
        # A socket whose other end is stopped can't be torn down in order: now and then nng ends
        # the process for it, with a core dump in place of the code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(UNREACHABLE)
    sys.exit(code)  # type: ignore[arg-type]
