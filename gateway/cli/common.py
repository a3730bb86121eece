"""What the commands share: options, the connection, and errors turned into exit codes.

Exit codes: 0 done; 1 it failed; 2 the command was wrong; 5 no gateway at that address.
"""

import functools
from collections.abc import Callable
from typing import Any, Final

import click

from federation import Client
from federation.errors import GatewayUnreachable, GridError

UNREACHABLE: Final = 5

gateway_option = click.option(
    "--gateway",
    "address",
    metavar="URL",
    help="The gateway's address. [default: $GRIDFED_GATEWAY, or your own gateway]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def errors_to_exit_codes(command: Callable[..., Any]) -> Callable[..., Any]:
    """Print what gridfed reports as one line and leave with the code for it."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except GatewayUnreachable as error:
            click.echo(f"gridfed: {error}", err=True)
            raise SystemExit(UNREACHABLE) from None
        except GridError as error:
            click.echo(f"gridfed: {error}", err=True)
            raise SystemExit(1) from None

    return wrapped


def ask(address: str | None, verb: str, **details: Any) -> Any:
    """Ask a gateway one question."""
    with Client(address) as client:
        return client.ask(verb, **details)


def parse_tags(text: str) -> dict[str, bool | int | float]:
    """Read tags as people write them: `linux,gpu=2`."""
    tags: dict[str, bool | int | float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, number = part.partition("=")
        if not equals:
            tags[name] = True
            continue
        try:
            value = float(number)
        except ValueError:
            raise click.BadParameter(f"{part!r}: write a tag as NAME or NAME=NUMBER") from None
        tags[name] = int(value) if value.is_integer() else value
    return tags


def parse_size(text: str) -> int:
    """Read a size in bytes: `500M`, `4G`, `1073741824`."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    number = text.strip().upper().removesuffix("IB").removesuffix("B")
    factor = units.get(number[-1:], 1)
    try:
        return int(float(number.rstrip("KMGT") or "x") * factor)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a size: write 500M or 4G") from None
