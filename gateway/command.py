"""The `gridfed` command. Imports late, so that a client-only installation gets a clear answer."""

import os
import sys


def main() -> None:
    """Run the command line."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
        import sqlalchemy  # noqa: F401
        import trio  # noqa: F401
    except ModuleNotFoundError as error:
        sys.exit(
            f"gridfed: {error.name} is not installed. This is the client alone; the command line "
            "and the gateway need more: pip install '.[gateway]' in gridfed's folder"
        )
    from gateway.cli.common import UNREACHABLE
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
