"""Logins to a cloud's managed Prometheus by the identity of the pod or the node.

Source: Microsoft, "Query Prometheus metrics using the API and PromQL" and "Workload identity overview" (what
    its webhook puts into pods); the names are those of KEDA's `podIdentity`.
"""

import os
from collections.abc import Mapping
from uuid import UUID

from yarl import URL

from gpuscale.server.sources.http.entra import (
    CLIENT_VARIABLE,
    QUERY_SCOPES,
    TENANT_VARIABLE,
    EntraLogin,
    ManagedIdentity,
    WorkloadIdentity,
    authority,
    is_safe,
    service_account_token,
)

PROVIDERS = ("azure-workload", "azure-managed")
_EXPECTED = f"expected {' or '.join(PROVIDERS)}, or one of them with :CLIENT_ID"
_DOMAINS = {
    ".prometheus.monitor.azure.us": "AzureGovernment",
    ".prometheus.monitor.azure.cn": "AzureChina",
}


def login_of(text: str, url: str, environment: Mapping[str, str] = os.environ) -> EntraLogin:
    """Return the login for queries to an Azure Monitor workspace.

    Args:
        text: `azure-workload` for the pod's identity, `azure-managed` for the node's, or one of them with
            `:CLIENT_ID`.
        url: query endpoint of the workspace; its domain says which cloud it is of.
        environment: with what Azure's webhook has put there.

    Raises:
        ValueError: a text that is none, an address that would send tokens in the clear, or a pod that the
            webhook has not prepared.
    """
    provider, colon, client_id = text.partition(":")
    if provider not in PROVIDERS:
        raise ValueError(f"found {text!r}, {_EXPECTED}")
    if colon:
        try:
            client_id = str(UUID(client_id))
        except ValueError:
            raise ValueError(f"found {client_id!r} as CLIENT_ID, expected a UUID") from None
    if not is_safe(url):
        raise ValueError(f"found it beside {url}, expected an address that begins with https://")
    host = URL(url).host or ""
    cloud = next((name for domain, name in _DOMAINS.items() if host.endswith(domain)), None)
    scope = QUERY_SCOPES[cloud or "AzurePublic"]
    if provider == "azure-managed":
        return EntraLogin(ManagedIdentity(client_id), scope)
    tenant_id = environment.get(TENANT_VARIABLE, "")
    client_id = client_id or environment.get(CLIENT_VARIABLE, "")
    missing = {TENANT_VARIABLE: tenant_id, CLIENT_VARIABLE: client_id}
    for name, value in missing.items():
        if not value:
            raise ValueError(
                f"found no {name} in the environment, expected what Azure's webhook puts into pods with the "
                'label azure.workload.identity/use: "true" and a service account that has the annotation '
                "azure.workload.identity/client-id"
            )
    identity = WorkloadIdentity(tenant_id, client_id, service_account_token(environment))
    return EntraLogin(identity, scope, authority(cloud, environment))
