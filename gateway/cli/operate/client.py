"""Makes the client configuration file of a user: gridfed init --client."""

import hashlib
import json
import ssl
from pathlib import Path
from typing import Final

import click
from cryptography import x509

from federation import Client
from federation.address import check_address, check_bearer, host_and_port, is_weak
from federation.engine.client_file import client_file_path
from federation.errors import GridError
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

    Nothing is written before all of it is known. Raises GridError, and click's errors.
    """
    path = client_file_path()
    if path.exists():
        raise click.ClickException(f"{path} exists already: nothing was changed")
    for address in addresses:
        check_address(address)
    pinned = [
        _pin(address, fingerprints, is_sure=is_sure)
        for address in addresses
        if address.startswith("tls+")
    ]
    token = _token(token_file, is_asked=not is_sure and not any(map(is_weak, addresses)))
    if token:
        for address in addresses:
            check_bearer(address)
    lines = [f"gateways = {json.dumps(addresses)}"]
    if token:
        write_private(path.parent / TOKEN_FILE, f"{token}\n".encode())
        lines.append(f'token_file = "{TOKEN_FILE}"')
    if pinned:
        write_private(path.parent / CERTIFICATES_FILE, "".join(pem for pem, _ in pinned).encode())
        lines.append(f'tls_ca_file = "{CERTIFICATES_FILE}"')
        names = {name for _, name in pinned if name}
        if len(names) == 1:
            lines.append(f"tls_server_name = {json.dumps(names.pop())}")
    write_private(path, "".join(f"{line}\n" for line in lines).encode())
    if not as_json:
        show.say(f"written  {path}")
    with Client(connect_timeout_s=TRY_S) as client:
        found = client.gateway
    if as_json:
        show.note_site(found["site"])
        show.as_json({"file": str(path), "gateway": found["address"], "why": found["why"]})
    else:
        show.say(f"gateway  {found['address']}: {found['why']}")
        show.say("ready    from federation import Client; client = Client()")


def _pin(address: str, fingerprints: list[str], *, is_sure: bool) -> tuple[str, str]:
    """Return the certificate that a gateway shows, and a name in it if the host is not."""
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
            f"{address}: that is not a given --fingerprint: nothing is written"
        )
    if not given and not is_sure:
        click.confirm("Is it the one that the operator of the gateway told you?", abort=True)
    return pem, _server_name(pem, host)


def _server_name(pem: str, host: str) -> str:
    """Return a name of a certificate, if it has not that of its host; else nothing."""
    certificate = x509.load_pem_x509_certificate(pem.encode())
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ""
    known = [
        *names.get_values_for_type(x509.DNSName),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    ]
    if host in known or "*." + host.partition(".")[2] in known:
        return ""
    return known[0] if known else ""


def _token(token_file: str | None, *, is_asked: bool) -> str:
    if token_file is not None:
        return Path(token_file).read_text().strip()
    if not is_asked:
        return ""
    text = click.prompt(
        "Token, from `gridfed token` (empty: none)", default="", hide_input=True, show_default=False
    )
    return str(text).strip()
