"""PEM files of TLS: what a file has, whether its key fits, and until when it is valid."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from federation.clocks import UtcS
from federation.files import read_regular, shown_path
from gateway.base.secret_files import exposure
from gateway.base.toml_lines import Path as Place
from gateway.checking.expiry import check_end
from gateway.checking.findings import FindingList

_BYTES_MAX: Final = 4 << 20
_KEY: Final = b"PRIVATE KEY-----"


@dataclass(frozen=True, slots=True)
class PemFacts:
    """What a PEM file has.

    Attributes:
        names: of the first certificate.
        ends_at_s: when the first of its certificates expires; None without any.
        has_key: whether there is a private key that fits the first certificate.
    """

    names: tuple[str, ...]
    ends_at_s: UtcS | None
    has_key: bool


class BadPem(Exception):
    """A file can't be used for TLS; the text says why."""


def read_pem(path: Path) -> PemFacts:
    """Read the certificates of a file, and its key if there is one. Raises BadPem."""
    try:
        body = read_regular(path, _BYTES_MAX)
    except OSError as error:
        raise BadPem(f"{shown_path(path)}: {error.strerror}") from None
    try:
        chain = x509.load_pem_x509_certificates(body)
    except ValueError:
        raise BadPem(f"{path} has no certificate in PEM form (BEGIN CERTIFICATE)") from None
    has_key = _KEY in body
    if has_key:
        try:
            key = load_pem_private_key(body[body.index(b"-----BEGIN", _key_at(body)) :], None)
        except (ValueError, TypeError) as error:
            why = "it is encrypted" if isinstance(error, TypeError) else "it can't be read"
            raise BadPem(f"the key in {path} can't be used: {why}") from None
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        if key.public_key().public_bytes(*form) != chain[0].public_key().public_bytes(*form):
            raise BadPem(f"the key in {path} is not that of the certificate in it")
    ends_at_s = min(UtcS(each.not_valid_after_utc.timestamp()) for each in chain)
    return PemFacts((chain[0].subject.rfc4514_string(),), ends_at_s, has_key)


def _key_at(body: bytes) -> int:
    """Return where the line that begins a private key begins."""
    return body.rindex(b"-----BEGIN", 0, body.index(_KEY))


def check_pem(
    findings: FindingList,
    path: str,
    subject: str,
    place: Place,
    utc_s: UtcS,
    *,
    needs_key: bool,
) -> None:
    """Check a file with certificates; with `needs_key` it is what a listener shows."""
    found = Path(path).expanduser()
    try:
        facts = read_pem(found)
    except BadPem as error:
        findings.error("tls-file", subject, str(error), place, stops=True)
        return
    if needs_key and not facts.has_key:
        text = (
            f"{found} has a certificate but no private key: put both into this one file "
            "(cat gw.crt gw.key > gw.pem)"
        )
        findings.error("tls-key-missing", subject, text, place, stops=True)
    if needs_key and facts.has_key and (warning := exposure(path)):
        findings.warn("file-exposed", subject, warning, place)
    check_end(
        findings,
        ("certificate-expires", subject, place),
        facts.ends_at_s,
        utc_s,
        f"the certificate in {found}",
        "replace the file, and start the gateway again",
    )
