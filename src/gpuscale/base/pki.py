"""Self-made certificates: a CA and a serving certificate, for servers without their own.

The API server verifies a metrics API by the `caBundle` of its APIService, for the name
`<service>.<namespace>.svc`; so these are the names of the certificate, beside those of this machine.
"""

import ipaddress
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
SERVING_DAYS = 365
_BACKDATED = timedelta(minutes=5)
"""For clients whose clocks are behind."""
_CA_NAME = "gpuscale metrics API"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


def names_of_service(service: str, namespace: str) -> tuple[str, ...]:
    """Return the host names and addresses of a server behind a Service."""
    full = f"{service}.{namespace}.svc"
    return (
        full,
        f"{full}.cluster.local",
        f"{service}.{namespace}",
        service,
        "localhost",
        "127.0.0.1",
        "::1",
    )


def make_ca(now_ms: int, days: int = CA_DAYS) -> KeyPair:
    """Return a new CA that is good for so many days."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _CA_NAME)])
    usage = _key_usage(signs_certificates=True)
    builder = (
        _builder(name, name, key.public_key(), now_ms, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return KeyPair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def make_serving(
    ca: KeyPair, names: tuple[str, ...], now_ms: int, days: int = SERVING_DAYS
) -> KeyPair:
    """Return a server's certificate for these names and so many days, signed by the CA."""
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    signer = serialization.load_pem_private_key(ca.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError("found a CA key of another kind, expected an elliptic-curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        _builder(subject, issuer.subject, key.public_key(), now_ms, days)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(each) for each in names]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(purpose, critical=False)
        .add_extension(authority, critical=False)
    )
    return KeyPair(_pem(builder.sign(signer, hashes.SHA256())), _key_pem(key))


@lru_cache(maxsize=64)
def host_names(pem: bytes) -> tuple[str, ...]:
    """Return the host names of the first certificate in a PEM file, in lower case; none if there are none.

    Its common name counts only where it has no alternative names at all.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        extensions = certificate.extensions
    except ValueError:
        return ()
    try:
        alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        attributes = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return tuple(str(each.value).lower() for each in attributes)
    return tuple(name.lower() for name in alternatives.value.get_values_for_type(x509.DNSName))


def can_serve(pair: KeyPair, name: str, at_ms: int) -> bool:
    """Return whether certificate and key match, and are valid for a host name at a time."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, None)
    except (ValueError, TypeError):
        return False
    return (
        name in host_names(pair.certificate)
        and certificate.public_key() == key.public_key()
        and at_ms < certificate.not_valid_after_utc.timestamp() * 1000
    )


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    beside.replace(path)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now_ms: int,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
