"""When the agent may do without OpenSSL: never where it serves by TLS or asks the API server."""

import pytest

from gpuscale.agent.exporter.settings import read_settings
from gpuscale.cli.servers.agent import _needs_tls

LABELS = {"kubernetes": ["true"], "kubernetes-enable-pod-labels": ["true"]}


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        pytest.param({}, False, id="plain"),
        pytest.param({"kubernetes": ["true"]}, False, id="kubelet alone"),
        pytest.param(LABELS, True, id="API server for labels"),
        pytest.param({"configmap-data": ["ns:name"]}, True, id="API server for counters"),
        pytest.param({"ready-taint": ["x.dev/not-ready"]}, True, id="API server for the node"),
        pytest.param({"web-config-file": ["web.yml"]}, True, id="TLS"),
        pytest.param({"web-users-folder": ["users"]}, True, id="passwords"),
    ],
)
def test_openssl_is_there_where_it_is_needed(given, needed: bool) -> None:
    assert _needs_tls(read_settings(given, {}, "n1")) is needed
