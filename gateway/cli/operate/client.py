"""Makes the client configuration file of a user: gridfed init --client."""

import hashlib
import json
import ssl
import sys
from typing import Final, NamedTuple

import click
from cryptography import x509

from federation import Client
from federation.address import check_bearer, host_and_port, is_weak
from federation.engine.dialling.client_file import client_file_path
from federation.engine.dialling.resolver import find_candidates
from federation.errors import GridError
from gateway.base.secret_files import read_token
from gateway.base.values import ConfigError
from gateway.cli.shared import show
from gateway.trust.keys import write_private

TRY_S: Final = 10.0
CERTIFICATES_FILE: Final = "gateways.pem"
TOKEN_FILE: Final = "token"  # noqa: S105 - the name of a file


def init_client(
    addresses: list[str],
    token_file: str | None,
    fingerprints: list[str],
    *,
    is_sure: bool,
    as_json: bool,
) -> None:
    """Pin the certificates of gateways, take a token, write the file, and try it.

    Nothing is written before all of it is known, and nothing is left of files with which no
    gateway is reached. Raises GridError, and click's errors.
    """
    path = client_file_path()
    if path.exists():
        raise click.ClickException(
            f"{path} exists already: nothing was changed; remove it to make it anew"
        )
    pinned = _pin_all(addresses, fingerprints, is_sure=is_sure)
    server_name = _common_name(pinned)
    token = _token(token_file, is_asked=not is_sure and not any(map(is_weak, addresses)))
    if token:
        for address in addresses:
            check_bearer(address)
    lines = [f"gateways = {json.dumps(addresses)}"]
    written = [path]
    if token:
        written.append(path.parent / TOKEN_FILE)
        write_private(path.parent / TOKEN_FILE, f"{token}\n".encode())
        lines.append(f'token_file = "{TOKEN_FILE}"')
    if pinned:
        written.append(path.parent / CERTIFICATES_FILE)
        write_private(
            path.parent / CERTIFICATES_FILE, "".join(each.pem for each in pinned).encode()
        )
        lines.append(f'tls_ca_file = "{CERTIFICATES_FILE}"')
        if server_name:
            lines.append(f"tls_server_name = {json.dumps(server_name)}")
    write_private(path, "".join(f"{line}\n" for line in lines).encode())
    try:
        with Client(connect_timeout_s=TRY_S) as client:
            found = client.gateway
    except BaseException:  # a file that does not work would be used by all later commands
        for each in written:
            each.unlink(missing_ok=True)
        raise
    if not as_json:
        show.say(f"written  {path}")
    if as_json:
        show.note_site(found["site"])
        show.as_json({"file": str(path), "gateway": found["address"], "why": found["why"]})
    else:
        show.say(f"gateway  {found['address']}: {found['why']}")
        show.say("ready    from federation import Client; client = Client()")


class _Pinned(NamedTuple):
    """The certificate of a gateway.

    Attributes:
        wanted: the name that it must have: that of the service, or of the host.
        names: that it has.
    """

    address: str
    pem: str
    wanted: str
    names: tuple[str, ...]


def _pin_all(addresses: list[str], fingerprints: list[str], *, is_sure: bool) -> list[_Pinned]:
    """Return the certificates of all gateways that use TLS; of a service, those that answer now."""
    found = find_candidates(addresses, TRY_S)
    silent: list[GridError] = []
    pinned: list[_Pinned] = []
    for address in (each for group in found.groups for each in group):
        if not address.startswith("tls+"):
            continue
        service = found.certificate_names.get(address, "")
        try:
            pinned.append(_pin(address, service, fingerprints, is_sure=is_sure))
        except GridError as error:
            if not service:
                raise
            silent.append(error)
    if silent and not pinned:
        raise silent[0]
    for each in silent:
        show.say(f"gridfed: {each}: it is not pinned, and will be refused", err=True)
    return pinned


def _pin(address: str, service: str, fingerprints: list[str], *, is_sure: bool) -> _Pinned:
    """Return the certificate that a gateway shows, after its fingerprint was confirmed."""
    host, port = host_and_port(address)
    try:
        pem = ssl.get_server_certificate((host, int(port)), timeout=TRY_S)
    except (OSError, ssl.SSLError) as error:
        raise GridError(f"{address}: no certificate could be read: {error}") from None
    found = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    show.say(f"{address} shows the certificate with the SHA-256 fingerprint", err=True)
    show.say("  " + ":".join(found[at : at + 2] for at in range(0, len(found), 2)), err=True)
    given = {each.replace(":", "").lower() for each in fingerprints}
    if given and found not in given:
        raise click.ClickException(
            f"{address}: no given --fingerprint is that one: nothing was written"
        )
    if not given and not is_sure:
        click.confirm(
            "Is it the fingerprint that the operator of the gateway gave you?", abort=True
        )
    return _Pinned(address, pem, service or host, _names(pem))


def _names(pem: str) -> tuple[str, ...]:
    """Return the DNS names and IP addresses of a certificate."""
    certificate = x509.load_pem_x509_certificate(pem.encode())
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return (*names.get_values_for_type(x509.DNSName), *addresses)


def _common_name(pinned: list[_Pinned]) -> str:
    """Return a name that each pinned certificate has, where one lacks that which it must have.

    Empty: each has its own. Raises GridError if they have no name in common.
    """
    lacking = [
        each
        for each in pinned
        if each.wanted not in each.names and "*." + each.wanted.partition(".")[2] not in each.names
    ]
    if not lacking:
        return ""
    for name in lacking[0].names:
        if all(name in each.names for each in pinned):
            return name
    raise GridError(
        f"the certificate of {lacking[0].address} has not the name {lacking[0].wanted}, and the "
        "certificates of these gateways have no name in common: nothing is written. Ask their "
        f"operator for certificates with the name {lacking[0].wanted}"
    )


def _token(token_file: str | None, *, is_asked: bool) -> str:
    if token_file is not None:
        try:
            return read_token(token_file, from_pipe=True)
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
    if not is_asked:
        return ""
    if not sys.stdin.isatty():  # getpass would warn, and echo the input
        raise click.UsageError(
            "there is no terminal to ask for the token at: give --token-file FILE (/dev/stdin for "
            "a pipe), or --yes for none"
        )
    text = click.prompt(
        "Token, from `gridfed token` (empty: none)", default="", hide_input=True, show_default=False
    )
    return str(text).strip()
