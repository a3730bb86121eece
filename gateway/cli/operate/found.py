"""Makes a site: its keys, its trust book, and a configuration with every setting explained."""

import json
import os
import re
import secrets
import shlex
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import click

from federation.address import default_address, login
from federation.signed.declarations import CONTACT_CHARS_MAX, sign
from federation.signed.identity import FEDERATION_PATTERN
from federation.users import SITE_PATTERN
from federation.words import clean
from gateway.base.clocks import utc_now
from gateway.cli.operate.client import init_client
from gateway.cli.operate.template import TEMPLATE
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    errors_to_exit_codes,
    json_option,
)
from gateway.cli.shared.own_gateway import CONFIG_DIR_VARIABLE, CONFIG_FILE
from gateway.grids.kinds import examples
from gateway.trust import book_file
from gateway.trust.book import TrustBook
from gateway.trust.identity_store import TRUST_FILE
from gateway.trust.invitations import Invitations
from gateway.trust.keys import KeyRing, create_keys, hold, make_generation, write_private

PORT: Final = 7462
HOST_CHARS_MAX: Final = 253
_HOST: Final = r"(?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*\.?"

config_dir_option = click.option(
    "--config-dir",
    metavar="DIR",
    envvar=CONFIG_DIR_VARIABLE,
    help=f"The folder for {CONFIG_FILE}. [default: $GRIDFED_CONFIG_DIR, or ~/.config/gridfed]",
)


def config_folder(given: str | None) -> Path:
    """Return the folder of a site's configuration."""
    if given:
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser().absolute() / "gridfed"


@click.command()
@click.option("--site", help="The name of the site: a-z, 0-9 and -, 3 to 40 characters.")
@click.option(
    "--federation", help="The federation's id, by the same rules. [default: SITE and a number]"
)
@click.option("--host", help="The name or address where others reach it. [default: this host's]")
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(0, 65533))
@click.option("--contact", default="", help="A contact for people at other sites.")
@config_dir_option
@click.option(
    "--client",
    "gateways",
    multiple=True,
    metavar="ADDRESS",
    help="In place of a site: your client file, with this gateway, or srv://NAME; repeatable.",
)
@click.option("--token-file", metavar="FILE", help="With --client: a file with your token.")
@click.option(
    "--fingerprint",
    "fingerprints",
    multiple=True,
    metavar="SHA256",
    help="With --client: of the certificate of a gateway; others are refused.",
)
@click.option("--yes", "is_sure", is_flag=True, help="With --client: ask nothing.")
@json_option
@errors_to_exit_codes
def init(  # noqa: PLR0913 - one parameter an option
    site: str | None,
    federation: str | None,
    host: str | None,
    port: int,
    contact: str,
    config_dir: str | None,
    gateways: tuple[str, ...],
    token_file: str | None,
    fingerprints: tuple[str, ...],
    is_sure: bool,
    as_json: bool,
) -> None:
    """Make a site: signing key, TLS leaf, trust book and gateway.toml.

    With --client make your client file instead: `Client()` then finds the gateway by itself. The
    certificate of a TLS gateway is pinned, after its fingerprint was shown.

    A site is the first member of a federation of its own; `gridfed join` takes it into another's.
    Other gateways connect at PORT, invited sites join at the next port, and other sites fetch
    objects at the one after.
    """
    if gateways:
        if site is not None:
            raise click.UsageError("--client makes no site: omit --site")
        init_client(
            list(gateways), token_file, list(fingerprints), is_sure=is_sure, as_json=as_json
        )
        return
    if site is None:
        raise click.UsageError("give --site for a site of your own, or --client for a gateway's")
    federation = federation or f"{site[:56]}-{secrets.token_hex(2)}"
    for name, text, pattern in (
        ("--site", site, SITE_PATTERN),
        ("--federation", federation, FEDERATION_PATTERN),
    ):
        if not re.fullmatch(pattern, text, re.ASCII):
            raise click.BadParameter(f"{text!r} must match {pattern}", param_hint=name)
        if text[0] == "-" or text[-1] == "-":
            raise click.BadParameter(
                f"{text!r} must begin and end with a letter or digit", param_hint=name
            )
    host = host or socket.getfqdn()
    _check_host(host)
    _check_contact(contact)
    folder = config_folder(config_dir)
    if not str(folder).isprintable():  # as the configuration requires of its folders
        raise click.BadParameter(
            f"{str(folder)!r} has unprintable characters", param_hint="--config-dir"
        )
    path, trust = folder / CONFIG_FILE, folder / "federation"
    for each in (path, trust / "current.pem"):
        if each.exists():
            raise click.ClickException(f"{each} exists already: nothing was changed")
    config = _config(folder, site, federation, host, port, contact, is_named=bool(config_dir))
    utc_s = utc_now()
    with hold(trust):
        generation = make_generation(site, [host], utc_s)
        addresses = () if port == 0 else (_address(host, port),)
        card = KeyRing(generation).card(federation, site, addresses, contact, utc_s)
        book = TrustBook(sign(card, generation.key))
        book_file.save(trust / TRUST_FILE, book, Invitations())
        create_keys(trust, generation)  # last: with them the site exists
    write_private(path, config.encode())  # it may hold addresses of webhooks, and of a database
    fingerprint = book.own.fingerprint
    if as_json:
        show.note_site(site)
        show.as_json(
            {
                "site": site,
                "federation": federation,
                "fingerprint": fingerprint,
                "config": str(path),
            }
        )
        return
    show.say(f"site {site} of federation {federation}")
    show.say(f"fingerprint  {fingerprint}")
    show.say(f"edit         {path}")
    show.say(f"run          gridfed gateway --config {path}")


def _check_host(host: str) -> None:
    """Refuse text that is neither the name of a host nor its address."""
    try:
        ip_address(host)
    except ValueError:
        if len(host) > HOST_CHARS_MAX or not re.fullmatch(_HOST, host, re.ASCII):
            raise click.BadParameter(
                f"{host!r} is neither a host name (letters, digits, - and .) nor an IP address",
                param_hint="--host",
            ) from None


def _check_contact(contact: str) -> None:
    if len(contact) > CONTACT_CHARS_MAX or not contact.isprintable():
        raise click.BadParameter(
            (
                f"{contact[:60]!r} must be one line of at most {CONTACT_CHARS_MAX} printable "
                "characters"
            ),
            param_hint="--contact",
        )


def _address(host: str, port: int) -> str:
    return f"tls+tcp://[{host}]:{port}" if ":" in host else f"tls+tcp://{host}:{port}"


def _config(
    folder: Path, site: str, federation: str, host: str, port: int, contact: str, *, is_named: bool
) -> str:
    is_here = host.startswith("127.") or host in ("localhost", "::1")
    bound = host if is_here else "0.0.0.0"  # noqa: S104 - others must be able to reach it
    join_port, bulk_port = (port + 1, port + 2) if port else (0, 0)
    own = f"ipc://{folder / 'gateway.sock'}" if is_named else default_address()
    advertise = f"advertise = [{_toml_string(_address(host, port))}]"
    join_advertise = f"join_advertise = {_toml_string(_address(host, join_port))}"
    bulk_advertise = f"bulk_advertise = {_toml_string(_address(host, bulk_port))}"
    text = TEMPLATE.format(
        site=site,
        federation=federation,
        path=shlex.quote(str(folder / CONFIG_FILE)),
        site_text=_toml_string(site),
        listen=_toml_string(own),
        state=_toml_string(str(folder / "state")),
        folder=_toml_string(str(folder / "federation")),
        peer_listen=_toml_string(_address(bound, port)),
        join_listen=_toml_string(_address(bound, join_port)),
        bulk_listen=_toml_string(_address(bound, bulk_port)),
        advertise="# advertise = []" if is_here else advertise,
        bulk_advertise='# bulk_advertise = ""' if is_here else bulk_advertise,
        join_advertise='# join_advertise = ""' if is_here else join_advertise,
        contact=_toml_string(contact or clean(f"{login()}@{host}")[:CONTACT_CHARS_MAX]),
    )
    return text + "".join(f"# {line}\n" for each in examples() for line in each.splitlines())


def _toml_string(value: str) -> str:
    """Format a printable string for TOML; JSON's strings are valid there."""
    return json.dumps(value)
