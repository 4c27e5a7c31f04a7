"""The Kubernetes client: kubeconfig, credentials, requests and their errors."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.kube.client.answers import METADATA_ONLY, JsonObject
    from gpuscale.kube.client.beside import (
        ClientCredentials,
        kubeconfig_credentials,
        service_account_credentials,
    )
    from gpuscale.kube.client.client import (
        AGGREGATED_DISCOVERY,
        APPLY,
        CONFLICT,
        NOT_FOUND,
        KubeClient,
    )
    from gpuscale.kube.client.errors import ApiStatusError, ApiUnreachableError
    from gpuscale.kube.client.kubeconfig import (
        SERVICE_ACCOUNT,
        cluster_name,
        contexts,
        find_kubeconfigs,
        merged_kubeconfig,
    )
    from gpuscale.kube.client.reader import Reads
    from gpuscale.kube.client.settings import KubeSettings
else:
    __getattr__ = door(__name__)

__all__ = [
    "AGGREGATED_DISCOVERY",
    "APPLY",
    "CONFLICT",
    "METADATA_ONLY",
    "NOT_FOUND",
    "SERVICE_ACCOUNT",
    "ApiStatusError",
    "ApiUnreachableError",
    "ClientCredentials",
    "JsonObject",
    "KubeClient",
    "KubeSettings",
    "Reads",
    "cluster_name",
    "contexts",
    "find_kubeconfigs",
    "kubeconfig_credentials",
    "merged_kubeconfig",
    "service_account_credentials",
]
