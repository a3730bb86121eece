"""Shared parts of the commands: options, the connection, and errors turned into exit codes."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from federation import Client
from federation.address import AddressError
from federation.errors import GatewayUnreachable, GridError
from federation.transport import TlsSettings
from federation.words import clean_lines
from gateway.base.secret_files import read_secret, read_token
from gateway.base.values import MEMORY_BYTES_MIN, ConfigError, read_size
from gateway.cli.shared import show
from gateway.cli.shared.codes import UNREACHABLE, WRONG

CONFIG_FILE: Final = "gateway.toml"
CONFIG_DIR_VARIABLE: Final = "GRIDFED_CONFIG_DIR"  # the folder with that file


@dataclass(frozen=True, slots=True)
class DialOptions:
    """How a command reaches a gateway, by its options."""

    address: str | None
    secret: str | None
    token: str | None
    tls: TlsSettings | None

    def client(self) -> Client:
        """Return a client of that gateway."""
        return Client(self.address, secret=self.secret, token=self.token, tls=self.tls)


_REACH_OPTIONS: Final = (
    click.option(
        "--gateway",
        "address",
        metavar="URL",
        help="The gateway's address. [default: $GRIDFED_GATEWAY, or your own gateway]",
    ),
    click.option(
        "--secret-file",
        metavar="FILE",
        help="A file with the gateway's secret. [default: $GRIDFED_SECRET]",
    ),
    click.option(
        "--token-file",
        metavar="FILE",
        help="A file with the token that `gridfed token` printed. [default: $GRIDFED_TOKEN]",
    ),
    click.option(
        "--tls-ca-file",
        metavar="FILE",
        help="For tls+tcp://: the gateway's certificate, or that of its CA.",
    ),
    click.option(
        "--tls-server-name",
        metavar="NAME",
        help="For tls+tcp://: the name in the gateway's certificate. [default: the URL's host]",
    ),
    click.option(
        "--tls-certificate-file",
        metavar="FILE",
        help="For a gateway that requires one: a certificate and its key, in one PEM file.",
    ),
)


def reach_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that select a gateway, and pass them to it as one `reach`."""

    @functools.wraps(command)
    def wrapped(
        *args: Any,
        address: str | None,
        secret_file: str | None,
        token_file: str | None,
        tls_ca_file: str | None,
        tls_server_name: str | None,
        tls_certificate_file: str | None,
        **kwargs: Any,
    ) -> Any:
        try:
            secret = read_secret(secret_file) if secret_file else None
            token = read_token(token_file) if token_file else None
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        files = (tls_certificate_file, tls_ca_file, tls_server_name)
        tls = TlsSettings(*files) if any(files) else None
        return command(*args, reach=DialOptions(address, secret, token, tls), **kwargs)

    for option in reversed(_REACH_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


all_users_option = click.option(
    "--all-users",
    is_flag=True,
    help="Of all users; needs the operator's socket, the shared secret, or the scope audit.",
)


def of_users(*, all_users: bool) -> dict[str, bool]:
    """Return the details of a question that select all users' rows."""
    return {"all_users": True} if all_users else {}


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _complain(error: Exception) -> None:
    """Print an error, whose text may have several lines: all but the first are indented."""
    click.echo(clean_lines(f"gridfed: {error}", indent="  "), err=True)


def errors_to_exit_codes(command: Callable[..., Any]) -> Callable[..., Any]:
    """Print a gridfed error as one line and exit with its code."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except GatewayUnreachable as error:
            _complain(error)
            raise SystemExit(UNREACHABLE) from None
        except AddressError as error:
            _complain(error)
            raise SystemExit(WRONG) from None
        except GridError as error:
            _complain(error)
            raise SystemExit(1) from None

    return wrapped


def ask(reach: DialOptions, verb: str, **details: Any) -> Any:
    """Ask a gateway one question."""
    with reach.client() as client:
        found = client.ask(verb, **details)
        show.note_site(client.gateway["site"])
    return found


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
    """Read a size in bytes: `500M`, `4 GiB`, `1073741824`."""
    try:
        return read_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def parse_memory(text: str) -> int:
    """Read a slot's memory limit in bytes; 0 for none."""
    size = parse_size(text)
    if size and size < MEMORY_BYTES_MIN:
        least = MEMORY_BYTES_MIN >> 20
        raise click.BadParameter(f"{text!r}: a slot needs at least {least}M; 0 is no limit")
    return size


def _of_the_folder(
    _context: click.Context, _option: click.Parameter, path: str | None
) -> str | None:
    folder = os.environ.get(CONFIG_DIR_VARIABLE)
    return path or (str(Path(folder).expanduser() / CONFIG_FILE) if folder else None)


config_file_option = click.option(
    "--config",
    "path",
    metavar="FILE",
    callback=_of_the_folder,
    help=f"The gateway's configuration. [default: {CONFIG_FILE} of ${CONFIG_DIR_VARIABLE}, if set]",
)
