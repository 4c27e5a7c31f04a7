"""The scaler behind TLS and mutual TLS: who gets in, wrong files, and renewal while streams go on."""

import asyncio
import os
import time

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from answering import measured
from gpuscale.base.errors import UsageError
from gpuscale.base.pki import KeyPair, make_ca, make_serving
from gpuscale.server.scaler.certificate import ScalerTlsFiles, WatchedCertificate
from scaler_client import client_of, ref, served

Code = grpc.StatusCode
NOW_MS = time.time_ns() // 1_000_000


def client_pair(ca):
    """Return a certificate for a client, signed by the CA."""
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    signer = serialization.load_pem_private_key(ca.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "keda-operator")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(issuer.not_valid_after_utc)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return KeyPair(made.public_bytes(serialization.Encoding.PEM), private)


def put(path, content, seconds=0):
    path.write_bytes(content)
    os.utime(path, (time.time() + seconds, time.time() + seconds))


class Folder:
    """A CA for servers, one for clients, and the files of a server."""

    def __init__(self, path):
        self.path = path
        self.ca, self.client_ca = make_ca(NOW_MS), make_ca(NOW_MS)
        self.files = ScalerTlsFiles(path / "tls.crt", path / "tls.key", path / "client-ca.crt")
        self.put_pair(make_serving(self.ca, ("localhost",), NOW_MS))
        put(self.files.client_cas, self.client_ca.certificate)

    def put_pair(self, pair, seconds=0):
        put(self.files.certificate, pair.certificate, seconds)
        put(self.files.key, pair.key, seconds)

    def plain(self):
        return WatchedCertificate(ScalerTlsFiles(self.files.certificate, self.files.key))

    def mutual(self):
        return WatchedCertificate(self.files)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def trusting(ca, pair=None):
    if pair is None:
        return grpc.ssl_channel_credentials(ca.certificate)
    return grpc.ssl_channel_credentials(ca.certificate, pair.key, pair.certificate)


async def code_of(found, credentials):
    """Return the status of a call over a connection of its own."""
    async with client_of(found, credentials) as client:
        try:
            async with asyncio.timeout(5.0):
                await client.get_spec(ref())
        except grpc.aio.AioRpcError as error:
            return error.code()
        return Code.OK


async def test_tls_lets_in_who_trusts_the_ca(folder) -> None:
    async with served(folder.plain()) as scaler:
        assert await code_of(scaler, trusting(folder.ca)) is Code.OK
        assert await code_of(scaler, trusting(make_ca(NOW_MS))) is Code.UNAVAILABLE
        assert await code_of(scaler, None) is Code.UNAVAILABLE


async def test_mutual_tls_wants_a_certificate_of_the_clients_ca(folder) -> None:
    stranger = client_pair(make_ca(NOW_MS))
    async with served(folder.mutual()) as scaler:
        keda = trusting(folder.ca, client_pair(folder.client_ca))
        assert await code_of(scaler, keda) is Code.OK
        for credentials in (trusting(folder.ca), trusting(folder.ca, stranger), None):
            assert await code_of(scaler, credentials) is Code.UNAVAILABLE
        assert await code_of(scaler, keda) is Code.OK


async def test_renewed_files_count_for_new_connections_and_streams_go_on(
    folder, monkeypatch
) -> None:
    monkeypatch.setattr("gpuscale.server.scaler.certificate._LOOK_S", 0.05)
    certificate = folder.mutual()
    watching = asyncio.ensure_future(certificate.run())
    old = trusting(folder.ca, client_pair(folder.client_ca))
    async with served(certificate) as scaler, client_of(scaler, old) as keda:
        scaler.answers.set("queue", measured(0.0))
        stream = keda.activity(ref())
        assert (await stream.read()).result is False
        folder.ca, folder.client_ca = make_ca(NOW_MS), make_ca(NOW_MS)
        folder.put_pair(make_serving(folder.ca, ("localhost",), NOW_MS), seconds=10)
        put(folder.files.client_cas, folder.client_ca.certificate, 10)
        new = trusting(folder.ca, client_pair(folder.client_ca))
        for _ in range(100):
            if await code_of(scaler, new) is Code.OK:
                break
            await asyncio.sleep(0.05)
        assert await code_of(scaler, new) is Code.OK
        assert await code_of(scaler, old) is Code.UNAVAILABLE
        scaler.answers.set("queue", measured(1.0))
        assert (await stream.read()).result is True
        assert (await keda.is_active(ref())).result is True
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_half_renewed_pair_leaves_the_last_good_one(folder, monkeypatch, caplog) -> None:
    monkeypatch.setattr("gpuscale.server.scaler.certificate._LOOK_S", 0.05)
    certificate = folder.plain()
    watching = asyncio.ensure_future(certificate.run())
    async with served(certificate) as scaler:
        pair = make_serving(folder.ca, ("localhost",), NOW_MS)
        put(folder.files.certificate, pair.certificate, 10)
        for _ in range(100):
            if certificate.fault:
                break
            await asyncio.sleep(0.05)
        assert "expected a certificate and its key" in certificate.fault
        assert await code_of(scaler, trusting(folder.ca)) is Code.OK
        put(folder.files.key, pair.key, 20)
        for _ in range(100):
            if certificate.fault is None:
                break
            await asyncio.sleep(0.05)
        assert certificate.fault is None
        assert await code_of(scaler, trusting(folder.ca)) is Code.OK
    assert caplog.text.count("kept as it was") == 1
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def test_files_that_can_not_be_used_are_said(folder) -> None:
    other = make_serving(folder.ca, ("localhost",), NOW_MS)
    put(folder.files.client_cas, b"nothing")
    with pytest.raises(UsageError, match="--client-ca-file"):
        folder.mutual()
    put(folder.files.key, other.key)
    with pytest.raises(UsageError, match="expected a certificate and its key"):
        folder.plain()
    folder.files.key.unlink()
    with pytest.raises(UsageError, match="No such file"):
        folder.plain()
