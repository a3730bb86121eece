"""TLS leaves: self-signed, no CA, one per site; made here and read strictly when others made them.

A leaf is pinned as it is, so it needs no authority above it and must not be one itself: nng shows
neither who issued a certificate nor the certificate, and a pinned authority could make leaves in
the name of any site. The site's name is the only thing in the subject, for nng prints subjects in
a way that a longer one could fake; and it is a name in the certificate, so that who dials can
always ask for it, whatever the host is called.
"""

import datetime
import hashlib
import ipaddress
import socket
import ssl
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from federation.identity import Refusal, Untrusted

# Long, for a leaf is replaced by rotation; short enough that one which is forgotten ends.
VALID_S: Final = 730 * 86400.0
# Valid from somewhat before it was made: the other sites' clocks are not ours.
EARLY_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class OwnLeaf:
    """A leaf of ours: the certificate (DER) and its private key (PEM)."""

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def pem(self) -> bytes:
        """Certificate and key in one, as a listener or dialler of nng reads them."""
        return to_pem([self.certificate]).encode() + self.key


@dataclass(frozen=True, slots=True)
class LeafFacts:
    """What a leaf says, once it was found fit to be pinned."""

    site: str
    hosts: tuple[str, ...]
    starts_s: float
    ends_s: float


def make_leaf(site: str, hosts: Sequence[str], now_s: float, valid_s: float = VALID_S) -> OwnLeaf:
    """Make a P-256 key and a leaf for it.

    Args:
        site: the site's id: the subject, and a name of the certificate.
        hosts: names and IP addresses under which the gateway is reached, besides.
        now_s: UTC epoch seconds.
        valid_s: for how long.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(site))
        .issuer_name(_subject(site))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_utc(now_s - EARLY_S))
        .not_valid_after(_utc(now_s + valid_s))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(_names(site, hosts)), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return OwnLeaf(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER), private)


def check_leaf(certificate: bytes, site: str) -> LeafFacts:
    """Read another site's leaf (DER) and check that it may be pinned as this site's.

    Whether it is in time is for TLS to say, at every handshake.

    Raises:
        Untrusted: BAD_CERTIFICATE, and which rule it breaks.
    """
    try:
        # What the library will refuse one day it warns of now: such a leaf is not fit either.
        with warnings.catch_warnings():
            warnings.simplefilter("error", CryptographyDeprecationWarning)
            return _check_leaf(certificate, site)
    except CryptographyDeprecationWarning as warning:
        raise _bad(f"is not as it should be: {warning}"[:200]) from None
    except (ValueError, TypeError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise _bad(f"can't be read: {error}"[:200]) from None
    except (x509.UnsupportedGeneralNameType, x509.InvalidVersion, UnsupportedAlgorithm) as error:
        raise _bad(f"can't be read: {error}"[:200]) from None
    except InvalidSignature:
        raise _bad("is not signed by its own key") from None


def _check_leaf(der: bytes, site: str) -> LeafFacts:
    leaf = x509.load_der_x509_certificate(der)
    if not leaf.subject.public_bytes() == leaf.issuer.public_bytes() == _encoded(site):
        raise _bad(f"subject and issuer must be CN={site}, and nothing else")
    key = leaf.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _bad("its key must be P-256")
    leaf.verify_directly_issued_by(leaf)
    if leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
        raise _bad("it must not be an authority (CA:FALSE)")
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = [*names.get_values_for_type(x509.DNSName)]
    if site not in hosts:
        raise _bad(f"{site!r} must be among its DNS names")
    hosts += [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return LeafFacts(
        site=site,
        hosts=tuple(hosts),
        starts_s=leaf.not_valid_before_utc.timestamp(),
        ends_s=leaf.not_valid_after_utc.timestamp(),
    )


def leaf_hash(certificate: bytes) -> bytes:
    """The SHA-256 of a leaf, as an invitation carries it."""
    return hashlib.sha256(certificate).digest()


def to_pem(certificates: Iterable[bytes]) -> str:
    """Leaves one after the other as PEM: what nng is told to believe."""
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in certificates)


def fetch_leaf(host: str, port: int, timeout_s: float, own: str = "") -> bytes:
    """The leaf that whoever listens there shows, believed by nobody yet. Blocks; OSError.

    A joiner compares its hash with the invitation's and pins it before it says anything.

    Args:
        host, port: where.
        timeout_s: for the connection and for the handshake, each.
        own: a file with a leaf of ours and its key, where the port asks for one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if own:
        context.load_cert_chain(own)
    with (
        socket.create_connection((host, port), timeout_s) as plain,
        context.wrap_socket(plain) as shown,
    ):
        leaf = shown.getpeercert(binary_form=True)
    if leaf is None:
        raise OSError("no certificate was shown")
    return leaf


def _bad(what: str) -> Untrusted:
    return Untrusted(Refusal.BAD_CERTIFICATE, f"the TLS leaf {what}")


def _subject(site: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, site)])


def _encoded(site: str) -> bytes:
    return _subject(site).public_bytes()


def _names(site: str, hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [x509.DNSName(site)]
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return list(dict.fromkeys(names))


def _utc(epoch_s: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(int(epoch_s), datetime.UTC)
