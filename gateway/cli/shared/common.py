"""Shared parts of the commands: options, the connection, and errors turned into exit codes."""

import functools
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final
from zoneinfo import ZoneInfo

import click

from federation import Client
from federation.address import AddressError, NoToken
from federation.errors import GatewayUnreachable, GridError
from federation.transport import TlsSettings
from federation.words import clean_lines, read_size
from gateway.base.secret_files import read_secret, read_token
from gateway.base.values import MEMORY_BYTES_MIN, ConfigError
from gateway.cli.shared import show
from gateway.cli.shared.codes import UNREACHABLE, WRONG
from gateway.cli.shared.own_gateway import of_files, own_gateway


@dataclass(frozen=True, slots=True)
class DialOptions:
    """How a command reaches a gateway, by its options.

    `config` is the configuration of that gateway, in place of an address.
    """

    address: str | None
    secret: str | None
    token: str | None
    tls: TlsSettings | None
    config: str | None = None

    def client(self) -> Client:
        """Return a client of that gateway."""
        found = self.resolved()
        return Client(found.address, secret=found.secret, token=found.token, tls=found.tls)

    def resolved(self) -> "DialOptions":
        """Return the same with an address, if a configuration gives one.

        At its own socket a gateway knows its operator by the user, and without a token.
        """
        own = own_gateway(self.config) if self.address is None else None
        if own is None:
            return self
        secret = own.secret if self.secret is None else self.secret
        return replace(self, address=own.address, secret=secret, token=self.token or NoToken())


_GATEWAY_HELP: Final = (
    "The gateway's address, or srv://NAME. [default: $GRIDFED_GATEWAY, or that of the site in "
    "$GRIDFED_CONFIG_DIR, or your own gateway]"
)
_CREDENTIAL_OPTIONS: Final = (
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


def reach_options(
    command: Callable[..., Any], gateway_help: str = _GATEWAY_HELP
) -> Callable[..., Any]:
    """Give a command the options that select a gateway, and pass them to it as one `reach`."""

    @functools.wraps(command)
    def wrapped(*args: Any, reach: DialOptions, of_config: str | None, **kwargs: Any) -> Any:
        if of_config is not None and reach.address is not None:
            raise click.UsageError("give only one of --gateway and --config")
        return command(*args, reach=replace(reach, config=of_config), **kwargs)

    about = "The configuration of the gateway, in place of --gateway."
    made: Callable[..., Any] = of_files(about, by_environment=False, name="of_config")(
        address_options(wrapped, gateway_help)
    )
    return made


def address_options(
    command: Callable[..., Any], gateway_help: str = _GATEWAY_HELP
) -> Callable[..., Any]:
    """Give a command the options that name a gateway, but not its configuration, as `reach`."""

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
            secret = read_secret(secret_file, from_pipe=True) if secret_file else None
            token = read_token(token_file, from_pipe=True) if token_file else None
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        files = (tls_certificate_file, tls_ca_file, tls_server_name)
        tls = TlsSettings(*files) if any(files) else None
        return command(*args, reach=DialOptions(address, secret, token, tls), **kwargs)

    for option in reversed(_CREDENTIAL_OPTIONS):
        wrapped = option(wrapped)
    return click.option("--gateway", "address", metavar="URL", help=gateway_help)(wrapped)


all_users_option = click.option(
    "--all-users",
    is_flag=True,
    help="Of all users; needs the operator's socket, the shared secret, or the scope audit.",
)


def of_users(*, all_users: bool) -> dict[str, bool]:
    """Return the details of a question that select all users' rows."""
    return {"all_users": True} if all_users else {}


exact_option = click.option(
    "--exact",
    is_flag=True,
    expose_value=False,
    callback=lambda _context, _option, value: show.note_exact(value),
    help="Show all nine decimals of amounts, in place of their currency's.",
)
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
        note_zone(client)
        show.note_site(client.gateway["site"])
    return found


def note_zone(client: Client) -> None:
    """Ask the zone of the site for the times that people read; UTC if it is an older gateway."""
    context = click.get_current_context(silent=True)
    if context is None or context.params.get("as_json") or show.has_zone():
        return
    with suppress(GridError, ValueError):
        show.note_zone(str(client.ask("status").get("zone", "UTC")))


yes_option = click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")


def at_terminal() -> bool:
    """Whether somebody can answer a question."""
    return sys.stdin.isatty()


def confirm(question: str, lines: Callable[[], Iterable[str]], *, is_sure: bool) -> None:
    """Say what follows from an order, and ask at the terminal whether to give it.

    Args:
        question: `Expel paris?`.
        lines: returns the consequences; not called if the caller is sure.
        is_sure: --yes was given: nothing is said or asked.

    Raises:
        click.UsageError: there is no terminal to ask at (exit code 2).
        click.Abort: the answer is no.
    """
    if is_sure:
        return
    for line in lines():
        show.say(show.clean(line), err=True)
    if not at_terminal():
        raise click.UsageError(
            f"{question} There is no terminal to ask at, and nothing was changed: give --yes if "
            "you are sure"
        )
    click.confirm(question, abort=True, err=True)


def consequences(reach: DialOptions, verb: str, **details: Any) -> list[str]:
    """Ask a gateway what follows from an order; GridError if it would refuse the order itself."""
    given = {key: value for key, value in details.items() if value is not None}
    return told_by(lambda: ask(reach, "consequences", order=verb, details=given))


def told_by(asking: Callable[[], Any]) -> list[str]:
    """Return the consequences in an answer; of an older gateway, that it knows none."""
    try:
        return list(map(str, asking()["lines"]))
    except GridError as error:
        if not str(error).startswith("no question 'consequences'"):
            raise
        return ["this gateway is of an older version, and does not show the consequences"]


def site_zone(reach: DialOptions) -> ZoneInfo:
    """Ask a gateway for the time zone of its site; UTC if it is an older one."""
    found = str(ask(reach, "status").get("zone", "UTC"))
    show.note_zone(found)
    return ZoneInfo(found)


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
        number = text.strip()
        how = f", and a plain number is bytes: write {number}M for MiB" * number.isdigit()
        raise click.BadParameter(f"{text!r}: a slot needs at least {least}M{how}; 0 is no limit")
    return size


config_file_option = of_files("The gateway's configuration.")
