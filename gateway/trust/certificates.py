"""TLS leaves: self-signed, no CA, one per site; made here, and read strictly if made by others.

A leaf is pinned as it is, so it needs no authority above it and must not be one itself: nng shows
neither the issuer of a certificate nor the certificate, and a pinned authority could make leaves in
the name of any site. The site's name is the only entry of the subject, because nng prints subjects
in a way that a longer one could fake. It is also a DNS name of the certificate, so that a dialler
can always ask for it, regardless of the host's name.
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
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from federation.clocks import UtcS
from federation.signed.identity import TrustRefusal, Untrusted

# Long, as a leaf is replaced by rotation; short enough that a forgotten leaf expires.
VALID_S: Final = 730 * 86400.0
# Valid from some time before it was made: the clocks of other sites differ.
EARLY_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class OwnLeaf:
    """A leaf of ours: the certificate (DER) and its private key (PEM)."""

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def pem(self) -> bytes:
        """Certificate and key in one, in the format of nng's listeners and diallers."""
        return to_pem([self.certificate]).encode() + self.key


@dataclass(frozen=True, slots=True)
class LeafFacts:
    """The contents of a leaf that has been found fit to be pinned."""

    site: str
    hosts: tuple[str, ...]
    starts_at_s: UtcS
    ends_at_s: UtcS


def make_leaf(site: str, hosts: Sequence[str], utc_s: UtcS, valid_s: float = VALID_S) -> OwnLeaf:
    """Make a P-256 key and a leaf for it.

    Args:
        site: the site's id: the subject, and a name of the certificate.
        hosts: further names and IP addresses under which the gateway is reached.
        utc_s: now.
        valid_s: the period of validity.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(site))
        .issuer_name(_subject(site))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_utc(utc_s - EARLY_S))
        .not_valid_after(_utc(utc_s + valid_s))
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

    TLS checks the period of validity, at every handshake.

    Raises:
        Untrusted: BAD_CERTIFICATE, and which rule it breaks.
    """
    try:
        # The library warns of defects that later versions refuse: such a leaf is unfit as well.
        with warnings.catch_warnings():
            warnings.simplefilter("error", CryptographyDeprecationWarning)
            return _check_leaf(certificate, site)
    except CryptographyDeprecationWarning as warning:
        raise _bad(f"{warning}"[:200]) from None
    except (ValueError, TypeError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise _bad(f"it can't be read: {error}"[:200]) from None
    except (x509.UnsupportedGeneralNameType, x509.InvalidVersion, UnsupportedAlgorithm) as error:
        raise _bad(f"it can't be read: {error}"[:200]) from None
    except InvalidSignature:
        raise _bad("it is not signed with its own key") from None


def _check_leaf(der: bytes, site: str) -> LeafFacts:
    leaf = x509.load_der_x509_certificate(der)
    if not leaf.subject.public_bytes() == leaf.issuer.public_bytes() == _encoded(site):
        raise _bad(f"its subject and issuer must be CN={site}, and nothing else")
    key = leaf.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _bad("its key must be P-256")
    leaf.verify_directly_issued_by(leaf)
    if leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
        raise _bad("it must not be a CA (CA:FALSE)")
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = [*names.get_values_for_type(x509.DNSName)]
    if site not in hosts:
        raise _bad(f"its DNS names must include {site!r}")
    hosts += [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return LeafFacts(
        site=site,
        hosts=tuple(hosts),
        starts_at_s=UtcS(leaf.not_valid_before_utc.timestamp()),
        ends_at_s=UtcS(leaf.not_valid_after_utc.timestamp()),
    )


def leaf_hash(certificate: bytes) -> bytes:
    """The SHA-256 of a leaf, as an invitation carries it."""
    return hashlib.sha256(certificate).digest()


def to_pem(certificates: Iterable[bytes]) -> str:
    """Concatenate leaves as PEM, the format of nng's trusted certificates."""
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in certificates)


def fetch_leaf(host: str, port: int, timeout_s: float, own: str = "") -> bytes:
    """Fetch the leaf that a listener shows, without trusting it. Blocks; raises OSError.

    A joiner compares its hash with the invitation's and pins it before it sends anything.

    Args:
        host, port: the address of the listener.
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
        raise OSError("no certificate was presented")
    return leaf


def _bad(what: str) -> Untrusted:
    return Untrusted(TrustRefusal.BAD_CERTIFICATE, f"the TLS leaf is invalid: {what}")


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


def _utc(at_s: UtcS) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(int(at_s), datetime.UTC)
