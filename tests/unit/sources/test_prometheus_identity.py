"""Who asks an Azure Monitor workspace, from a flag and what Azure's webhook puts into pods."""

from pathlib import Path

import pytest

from gpuscale.server.sources.http.entra import EntraLogin, ManagedIdentity, WorkloadIdentity
from gpuscale.server.sources.prometheus.identity import login_of

ID = "00000000-0000-0000-0000-0000000000aa"
OTHER = "00000000-0000-0000-0000-0000000000cc"
URL = "https://training-abcd.eastus.prometheus.monitor.azure.com"
POD = {
    "AZURE_CLIENT_ID": ID,
    "AZURE_TENANT_ID": "tenant",
    "AZURE_FEDERATED_TOKEN_FILE": "/var/run/token",
    "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com/",
}
PUBLIC = "https://prometheus.monitor.azure.com/.default"


def test_the_pods_own_identity_or_another() -> None:
    for text, client_id in (("azure-workload", ID), (f"azure-workload:{OTHER}", OTHER)):
        identity = WorkloadIdentity("tenant", client_id, Path("/var/run/token"))
        wanted = EntraLogin(identity, PUBLIC, "https://login.microsoftonline.com")
        assert login_of(text, URL, POD) == wanted


def test_the_nodes_identity_needs_no_webhook() -> None:
    assert login_of("azure-managed", URL, {}) == EntraLogin(ManagedIdentity(), PUBLIC)
    assert login_of(f"azure-managed:{ID}", URL, {}) == EntraLogin(ManagedIdentity(ID), PUBLIC)


@pytest.mark.parametrize(
    ("domain", "scope", "authority"),
    [
        ("us", "https://prometheus.monitor.azure.us/.default", "https://login.microsoftonline.us"),
        ("cn", "https://prometheus.monitor.azure.cn/.default", "https://login.chinacloudapi.cn"),
    ],
)
def test_the_address_says_which_cloud_it_is(domain: str, scope: str, authority: str) -> None:
    url = f"https://w.r.prometheus.monitor.azure.{domain}/"
    found = login_of("azure-workload", url, POD)
    assert (found.scope, found.authority) == (scope, authority)


@pytest.mark.parametrize(
    ("text", "url", "environment", "words"),
    [
        ("azure", URL, POD, "found 'azure', expected azure-workload or azure-managed"),
        ("azure-workload:7", URL, POD, "found '7' as CLIENT_ID, expected a UUID"),
        ("azure-managed", "http://w.example", POD, "expected an address that begins with https://"),
        ("azure-workload", URL, {}, "found no AZURE_TENANT_ID in the environment"),
        ("azure-workload", URL, {"AZURE_TENANT_ID": "t"}, "found no AZURE_CLIENT_ID"),
        (
            "azure-workload",
            URL,
            {**POD, "AZURE_AUTHORITY_HOST": "http://x"},
            "AZURE_AUTHORITY_HOST",
        ),
    ],
)
def test_what_can_not_be_used(text: str, url: str, environment, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        login_of(text, url, environment)
