"""The `gridfed` command. Imports late, so that a client-only installation gets a clear answer."""

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
    from gateway.cli.main import run

    sys.exit(run())
