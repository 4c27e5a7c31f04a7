"""CAs and certificates of every kind that clients may come with."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL import SSL

CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH


class Ca:
    """A CA, or with `issuer` an intermediate one."""

    def __init__(self, name, issuer=None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name(name)
        signer = issuer or self
        builder = _builder(self.name, signer.name, self.key, days=(-1, 1))
        builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
        self.certificate = builder.sign(signer.key, hashes.SHA256())

    @property
    def pem(self):
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def client(self, name, groups=(), *, usage=(CLIENT,), days=(-1, 1), hosts=()):
        """A pair as PEM: (certificate, key)."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name, groups), self.name, key, days)
        if usage:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        return (
            certificate.public_bytes(serialization.Encoding.PEM).decode(),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
        )

    def server(self, *hosts, **options):
        return self.client(hosts[0], usage=(SERVER,), hosts=hosts, **options)


def _name(name, groups=()):
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    if name:
        parts.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    return x509.Name(parts)


def _builder(subject, issuer, key, days):
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
    )


def connect(client, server) -> None:
    """Let two connections of pyOpenSSL shake hands."""
    for _ in range(4):
        for side, other in ((client, server), (server, client)):
            with suppress(SSL.WantReadError):
                side.do_handshake()
            with suppress(SSL.WantReadError):
                other.bio_write(side.bio_read(65536))
