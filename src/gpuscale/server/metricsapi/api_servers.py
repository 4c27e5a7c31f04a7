"""Connections to the API servers that a metrics API server asks: for objects, tokens and permissions."""

import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from gpuscale.kube.client import SERVICE_ACCOUNT, KubeClient, KubeSettings
from gpuscale.server.metricsapi.backend_settings import BackendSettings
from gpuscale.server.metricsapi.settings import MetricsApiSettings

_LOG = logging.getLogger(__name__)
_WATCH_S = 45
"""After so long the API server ends a watch; one that has not ended ten seconds later is dead."""
_MAX_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class ApiServers:
    """One connection for each purpose: objects, tokens, permissions. All may lead to the same API server."""

    objects: KubeClient
    tokens: KubeClient
    access: KubeClient


def connect(settings: MetricsApiSettings, stack: AsyncExitStack) -> ApiServers | None:
    """Return connections; None without HTTPS and without a cluster, as on a laptop."""
    paths = (
        settings.kubeconfig,
        settings.auth.authentication_kubeconfig,
        settings.auth.authorization_kubeconfig,
    )
    is_alone = settings.kubeconfig is None and not SERVICE_ACCOUNT.exists()
    if is_alone and not settings.serving.secure_port:
        _LOG.warning("there is no API server: single objects can be asked for, * can't")
        return None
    clients = []
    for number, path in enumerate(paths):
        # Only names and labels of objects are needed.
        client = KubeClient(kube_settings(settings, path), metadata_only=number == 0)
        stack.push_async_callback(client.close)
        clients.append(client)
    return ApiServers(*clients)


def connect_objects(settings: BackendSettings, stack: AsyncExitStack) -> KubeClient | None:
    """Return a connection for looking up objects and their labels; None outside a cluster."""
    if settings.kubeconfig is None and not SERVICE_ACCOUNT.exists():
        return None
    client = KubeClient(kube_settings(settings, settings.kubeconfig), metadata_only=True)
    stack.push_async_callback(client.close)
    return client


def kube_settings(settings: BackendSettings, path: Path | None) -> KubeSettings:
    """Return how to reach the API server of a kubeconfig; None stands for the pod's service account."""
    # A watch is renewed, which proves that it works, before its copy counts as too old.
    watch_s = min(_WATCH_S, 0.75 * settings.max_object_age_s)
    return KubeSettings(
        kubeconfig=path,
        context=settings.context,
        watch_s=max(1, round(watch_s)),
        max_retry_s=_MAX_RETRY_S,
    )
