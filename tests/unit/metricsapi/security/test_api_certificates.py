# mypy: disable-error-code="operator"
"""The certificate that the server shows: made here, or from files that are replaced."""

import ssl
import stat
from pathlib import Path

import pytest
from OpenSSL import SSL

from gpuscale.base.clock import ManualClock, WallClock
from gpuscale.base.errors import UsageError
from gpuscale.base.pki import make_ca, make_serving, names_of_service, write_private
from gpuscale.server.metricsapi.security.client_tls import TlsRules
from gpuscale.server.metricsapi.security.serving_certificate import (
    CertificateFiles,
    OwnCertificate,
    ServingCertificate,
    given_in,
)

NOW_MS = 1_760_000_000_000
NAMES = names_of_service("gpuscale-metrics-api", "monitoring")


def test_a_service_goes_by_the_name_that_the_api_server_asks_for() -> None:
    assert NAMES[0] == "gpuscale-metrics-api.monitoring.svc"
    assert {"localhost", "127.0.0.1", "::1"} < set(NAMES)


def test_a_made_certificate_is_verified_by_its_ca(tmp_path: Path) -> None:
    now_ms = WallClock().now_ms()
    ca = make_ca(now_ms)
    pair = make_serving(ca, NAMES, now_ms)
    folder = tmp_path
    (folder / "crt").write_bytes(pair.certificate)
    (folder / "key").write_bytes(pair.key)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    server.load_cert_chain(folder / "crt", folder / "key")
    client.load_verify_locations(cadata=ca.certificate.decode())
    for name in (NAMES[0], "127.0.0.1", "::1"):
        shake_hands(client, server, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(client, server, "other.monitoring.svc")
    assert "PRIVATE" not in repr(pair)


def shake_hands(client, server, name) -> None:
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(back, there, server_hostname=name)
    other = server.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for side in (one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"old")
    write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_a_ca_stays_while_its_folder_does(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    first = OwnCertificate(folder, NAMES, ManualClock(NOW_MS))
    again = OwnCertificate(folder, NAMES, ManualClock(NOW_MS + 1000))
    assert first.ca_bundle == again.ca_bundle == (folder / "ca.crt").read_text()
    other = OwnCertificate(tmp_path / "other", NAMES, ManualClock(NOW_MS))
    assert other.ca_bundle != first.ca_bundle
    assert given_in(folder) is None


async def test_a_made_certificate_is_renewed_after_two_thirds_of_its_time(tmp_path: Path) -> None:
    clock = EndingClock(NOW_MS, days=244)
    own = OwnCertificate(tmp_path, NAMES, clock)
    before = own.files.certificate.read_bytes()
    with pytest.raises(TimeoutError):
        await own.run()
    # 365 days x 2 / 3 are 243 days; one hour later it is made again.
    assert own.files.certificate.read_bytes() != before


class EndingClock(ManualClock):
    def __init__(self, now_ms, days) -> None:
        super().__init__(now_ms)
        self.end_ms = now_ms + days * 86_400_000

    async def sleep(self, seconds) -> None:
        self.advance(seconds)
        if self.now_ms() > self.end_ms:
            raise TimeoutError


def test_a_folder_that_cant_be_written_to_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as caught:
        OwnCertificate(tmp_path / "file" / "x", NAMES, ManualClock(NOW_MS))
    assert str(caught.value) == (
        f"can't write certificates to {tmp_path}/file/x: Not a directory; name a folder that can be "
        "written to by --cert-dir, or give --tls-cert-file and --tls-private-key-file"
    )


def test_a_broken_ca_key_is_reported(tmp_path: Path) -> None:
    OwnCertificate(tmp_path, NAMES, ManualClock(NOW_MS))
    (tmp_path / "ca.key").write_text("broken")
    with pytest.raises(UsageError, match=r"ca\.key: .*; remove it to get a new CA"):
        OwnCertificate(tmp_path, NAMES, ManualClock(NOW_MS))


@pytest.fixture
def files(tmp_path: Path, cas):
    return put(CertificateFiles(tmp_path / "apiserver.crt", tmp_path / "apiserver.key"), cas)


def put(files, cas):
    pem, key = cas["clients"].server("localhost")
    files.certificate.write_text(pem)
    files.key.write_text(key)
    return files


def test_files_that_somebody_gave_are_used_as_they_are(tmp_path: Path, files) -> None:
    assert given_in(tmp_path) == files


def test_replaced_files_count_for_new_connections(files, cas) -> None:
    serving = ServingCertificate(files, TlsRules(), ManualClock())
    first = serving.context()
    serving.reload()
    assert serving.context() is first
    put(files, cas)
    serving.reload()
    assert serving.context() is not first
    assert serving.fault is None


def test_files_that_dont_fit_together_leave_the_last_good_pair(
    files, cas, caplog: pytest.LogCaptureFixture
) -> None:
    serving = ServingCertificate(files, TlsRules(), ManualClock())
    first = serving.context()
    pem, _ = cas["clients"].server("localhost")
    files.certificate.write_text(pem)
    for _ in range(2):
        serving.reload()
    assert serving.context() is first
    assert "expected a PEM certificate and its key" in serving.fault
    assert len(caplog.records) == 1
    put(files, cas)
    serving.reload()
    assert (serving.context() is not first, serving.fault) == (True, None)


@pytest.mark.parametrize("text", [None, "", "no PEM"])
def test_files_that_hold_nothing_are_told_at_the_start(files, text: str | None) -> None:
    if text is None:
        files.key.unlink()
    else:
        files.key.write_text(text)
    with pytest.raises(UsageError, match="expected a PEM certificate and its key"):
        ServingCertificate(files, TlsRules(), ManualClock())


def test_unknown_ciphers_are_reported(files) -> None:
    with pytest.raises(UsageError, match="found no cipher match"):
        ServingCertificate(files, TlsRules(ciphers=("NONE-SUCH",)), ManualClock())


@pytest.mark.parametrize(
    ("version", "expected"),
    [(SSL.TLS1_1_VERSION, None), (SSL.TLS1_2_VERSION, "TLSv1.2"), (SSL.TLS1_3_VERSION, "TLSv1.3")],
)
def test_tls_begins_at_1_2(files, version, expected: str | None, connect) -> None:
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_cipher_list(b"DEFAULT:@SECLEVEL=0")
    context.set_max_proto_version(version)
    client = SSL.Connection(context, None)
    client.set_connect_state()
    server = SSL.Connection(ServingCertificate(files, TlsRules(), ManualClock()).context(), None)
    server.set_accept_state()
    if expected is None:
        with pytest.raises(SSL.Error, match=r"unsupported protocol|no protocols available"):
            connect(client, server)
    else:
        connect(client, server)
        assert server.get_protocol_version_name() == expected
