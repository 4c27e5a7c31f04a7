"""Which certificate a client gets that names the server, as Kubernetes' own servers choose it."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from OpenSSL import SSL

from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import UsageError
from gpuscale.server.metricsapi.security.client_tls import TlsRules
from gpuscale.server.metricsapi.security.named_certificates import NamedCertificates, NamedFiles
from gpuscale.server.metricsapi.security.serving_certificate import (
    CertificateFiles,
    ServingCertificate,
)


@pytest.fixture
def put(tmp_path: Path, cas):
    def put(name, *hosts):
        """Write the pair `name`, for these hosts and with the first as common name."""
        files = CertificateFiles(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
        pem, key = cas["clients"].client(hosts[0], usage=(), hosts=hosts)
        files.certificate.write_text(pem)
        files.key.write_text(key)
        return files

    return put


@pytest.fixture
def served(connect):
    def served(certificate, name):
        """Return the common name that a client sees which asks for `name`."""
        client = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
        client.set_connect_state()
        if name is not None:
            client.set_tlsext_host_name(name.encode())
        server = SSL.Connection(certificate.context(), None)
        server.set_accept_state()
        connect(client, server)
        shown = client.get_peer_certificate().to_cryptography()
        (attribute,) = shown.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return attribute.value

    return served


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        pytest.param(None, "main.example", id="no name"),
        pytest.param("elsewhere.example", "main.example", id="of no pair"),
        pytest.param("own.example", "own.example", id="in the certificate"),
        pytest.param("second.own.example", "own.example", id="in the certificate, second"),
        pytest.param("OWN.example", "own.example", id="in any case"),
        pytest.param("flag.example", "pattern.example", id="of the flag"),
        pytest.param("pattern.example", "main.example", id="in the certificate beside patterns"),
        pytest.param("any.corp.example", "pattern.example", id="first label stands for any"),
        pytest.param("full.corp.example", "full.corp.example", id="full name before a star"),
        pytest.param("a.b.corp.example", "main.example", id="a star is one label"),
        pytest.param("corp.example", "main.example", id="a star is not nothing"),
        pytest.param("taken.example", "pattern.example", id="flag before certificate"),
        pytest.param("twice.example", "own.example", id="first before second"),
    ],
)
def test_a_client_gets_the_certificate_of_the_name_it_asks_for(
    put, served, asked: str | None, shown: str
) -> None:
    own = put("own", "own.example", "second.own.example", "twice.example", "taken.example")
    full = put("full", "full.corp.example", "twice.example")
    pattern = put("pattern", "pattern.example")
    pairs = [
        NamedFiles(own),
        NamedFiles(full),
        NamedFiles(pattern, ("Flag.example", "*.corp.example", "taken.example")),
    ]
    named = NamedCertificates(pairs, TlsRules(), ManualClock())
    main = ServingCertificate(put("main", "main.example"), TlsRules(), ManualClock(), named.context)
    assert served(main, asked) == shown


def test_renewed_files_count_for_new_connections(put, served) -> None:
    named = NamedCertificates([NamedFiles(put("a", "a.example"))], TlsRules(), ManualClock())
    main = ServingCertificate(put("main", "main.example"), TlsRules(), ManualClock(), named.context)
    put("a", "b.example", "a.example")
    assert served(main, "a.example") == "a.example"
    named.reload()
    assert served(main, "a.example") == "b.example"
    assert served(main, "b.example") == "b.example"
    main.reload()
    put("main", "new.example")
    main.reload()
    assert served(main, "b.example") == "b.example"


def test_files_that_dont_fit_leave_the_last_good_pair_and_are_reported(put) -> None:
    files = put("a", "a.example")
    named = NamedCertificates([NamedFiles(files)], TlsRules(), ManualClock())
    files.key.write_text("")
    named.reload()
    assert named.context("a.example") is not None
    (fault,) = named.faults()
    assert "expected a PEM certificate and its key" in fault


def test_a_certificate_without_names_needs_some(tmp_path: Path, cas) -> None:
    files = CertificateFiles(tmp_path / "crt", tmp_path / "key")
    pem, key = cas["clients"].client("", usage=())
    files.certificate.write_text(pem)
    files.key.write_text(key)
    assert not x509.load_pem_x509_certificate(pem.encode()).subject
    with pytest.raises(UsageError) as caught:
        NamedCertificates([NamedFiles(files)], TlsRules(), ManualClock())
    assert str(caught.value) == (
        f"--tls-sni-cert-key: {files.certificate}: found no host name in the certificate, expected one "
        "there, or names after a colon"
    )
    NamedCertificates([NamedFiles(files, ("a.example",))], TlsRules(), ManualClock())
