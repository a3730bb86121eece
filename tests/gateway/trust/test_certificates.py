"""TLS leaves: ours, and the ones of others that we would pin."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pure.site_keys import NOW_S, leaf

from federation.signed.identity import TrustRefusal, Untrusted
from gateway.trust.certificates import check_leaf, make_leaf, to_pem

P256 = ec.generate_private_key(ec.SECP256R1())


def name(*parts):
    """A distinguished name of these RDNs, each a list of (oid, text)."""
    return x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(*each) for each in part])
            for part in parts
        ]
    )


CN = [(NameOID.COMMON_NAME, "london")]


def certificate(
    subject=None, issuer=None, key=P256, signer=None, ca=False, dns=("london",), extra=None
):
    day = datetime.timedelta(days=1)
    now = datetime.datetime.fromtimestamp(NOW_S, datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject or name(CN))
        .issuer_name(issuer or subject or name(CN))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - day)
        .not_valid_after(now + day)
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca, None), critical=True)
    if dns is not None:
        names = x509.SubjectAlternativeName([x509.DNSName(each) for each in dns])
        builder = builder.add_extension(names, critical=False)
    if extra is not None:
        builder = builder.add_extension(extra, critical=False)
    algorithm = None if isinstance(signer or key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(signer or key, algorithm).public_bytes(Encoding.DER)


def test_our_leaf_is_what_another_site_would_pin():
    made = make_leaf("london", ["gw.london.example", "192.0.2.7", "::1"], NOW_S, 86400)
    facts = check_leaf(made.certificate, "london")
    assert facts.hosts == ("london", "gw.london.example", "192.0.2.7", "::1")
    assert facts.starts_at_s <= NOW_S - 3600
    assert facts.ends_at_s == NOW_S + 86400


def test_our_leaf_as_anybody_reads_it():
    read = x509.load_der_x509_certificate(leaf("london").certificate)
    assert [len(rdn) for rdn in read.subject.rdns] == [1]
    assert read.subject.rfc4514_string() == "CN=london" == read.issuer.rfc4514_string()
    constraints = read.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert not constraints.value.ca
    assert isinstance(read.public_key().curve, ec.SECP256R1)
    names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "london" in names.get_values_for_type(x509.DNSName)


def test_two_leaves_have_two_keys():
    one, other = leaf("london", 1), leaf("london", 2)
    assert one.certificate != other.certificate
    assert one.key != other.key


def test_the_private_key_is_not_shown():
    assert b"PRIVATE KEY" in leaf("london").pem
    assert "PRIVATE" not in repr(leaf("london"))


def test_a_leaf_of_the_plainest_kind_is_fit():
    assert check_leaf(certificate(), "london").hosts == ("london",)


ORGANISATION = [(NameOID.ORGANIZATION_NAME, "Dept X")]
SITE_B = [(NameOID.COMMON_NAME, "paris")]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: certificate(ca=True), "must not be a CA"),
        (lambda: certificate(ca=None), "can't be read"),
        (lambda: certificate(name(SITE_B)), "CN=london"),
        (lambda: certificate(name(CN, ORGANISATION)), "CN=london"),
        (lambda: certificate(name(CN, SITE_B)), "CN=london"),
        (lambda: certificate(name(CN + ORGANISATION)), "CN=london"),
        (lambda: certificate(name([(NameOID.COMMON_NAME, "london, O=x")])), "CN=london"),
        (lambda: certificate(name([(NameOID.COMMON_NAME, "londo\u0148")])), "CN=london"),
        (lambda: certificate(name(ORGANISATION)), "CN=london"),
        (lambda: certificate(issuer=name(SITE_B)), "CN=london"),
        (lambda: certificate(dns=None), "can't be read"),
        (lambda: certificate(dns=("paris",)), "DNS names"),
        (lambda: certificate(key=ec.generate_private_key(ec.SECP384R1())), "P-256"),
        (lambda: certificate(key=ed25519.Ed25519PrivateKey.generate()), "P-256"),
        (lambda: certificate(key=rsa.generate_private_key(65537, 2048)), "P-256"),
        (lambda: certificate(signer=ec.generate_private_key(ec.SECP256R1())), "its own key"),
        (lambda: certificate() + b"\0", "can't be read"),
        (lambda: to_pem([certificate()]).encode(), "can't be read"),
        (lambda: b"", "can't be read"),
    ],
)
def test_what_must_not_be_pinned(made, why):
    with pytest.raises(Untrusted, match=why) as caught:
        check_leaf(made(), "london")
    assert caught.value.refusal is TrustRefusal.BAD_CERTIFICATE


def test_a_leaf_with_a_negative_number_is_refused():
    der = bytearray(leaf("london").certificate)
    der[15] |= 0x80
    with pytest.raises(Untrusted, match="negative"):
        check_leaf(bytes(der), "london")


def test_a_leaf_is_for_one_site():
    with pytest.raises(Untrusted, match="CN=paris"):
        check_leaf(leaf("london").certificate, "paris")


# cryptography warns of a name that is too long or too short; what matters is that it is refused.
@pytest.mark.filterwarnings("ignore:Attribute's length:UserWarning")
@settings(max_examples=300)
@given(st.data())
def test_a_spoilt_leaf_is_refused(data):
    """In the signed part: around that, DER leaves some freedom, and pins are bytes."""
    der = bytearray(leaf("london").certificate)
    signed = x509.load_der_x509_certificate(bytes(der)).tbs_certificate_bytes
    first = der.index(signed)
    at = data.draw(st.integers(first, first + len(signed) - 1))
    der[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Untrusted):
        check_leaf(bytes(der), "london")


@given(st.binary(max_size=300))
def test_noise_is_no_leaf(data):
    with pytest.raises(Untrusted):
        check_leaf(data, "london")
