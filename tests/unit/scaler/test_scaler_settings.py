"""The flags of the scaler."""

from pathlib import Path

import pytest

from gpuscale.base.errors import UsageError
from gpuscale.server.scaler.certificate import ScalerTlsFiles
from gpuscale.server.scaler.settings import read_settings

GIVEN = {"prometheus-url": ["http://prometheus:9090"]}


def test_defaults() -> None:
    settings = read_settings(GIVEN)
    assert (settings.host, settings.port, settings.metrics_port) == ("0.0.0.0", 6000, 8080)
    assert settings.tls is None
    assert settings.source.url == "http://prometheus:9090"
    assert settings.limits.stream_lifetime_s < settings.limits.age_grace_s


def test_tls_and_limits() -> None:
    settings = read_settings(
        {
            "tls-cert-file": ["c"],
            "tls-private-key-file": ["k"],
            "client-ca-file": ["ca"],
            "metrics-port": ["0"],
            "max-connections": ["7"],
            "max-connection-age": ["3m"],
        }
    )
    assert settings.tls == ScalerTlsFiles(Path("c"), Path("k"), Path("ca"))
    assert settings.metrics_port is None
    assert settings.limits.connections == 7
    assert (settings.limits.age_s, settings.limits.stream_lifetime_s) == (180.0, 90.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"port": ["0"]}, "--port: found 0"),
        ({"port": ["8080"]}, "--metrics-port: found 8080, expected another port"),
        ({"tls-cert-file": ["c"]}, "--tls-cert-file: found it alone"),
        ({"client-ca-file": ["c"]}, "--client-ca-file: found it alone"),
        ({"source": ["nothing"]}, "--source"),
    ],
)
def test_what_can_not_be_is_said(given, said) -> None:
    with pytest.raises(UsageError, match=said):
        read_settings(given)
