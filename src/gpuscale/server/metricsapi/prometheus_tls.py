"""TLS and credentials for reaching a Prometheus."""

from collections.abc import Callable
from pathlib import Path

from gpuscale.base.errors import UsageError
from gpuscale.kube.client import (
    SERVICE_ACCOUNT,
    ClientCredentials,
    kubeconfig_credentials,
    service_account_credentials,
)
from gpuscale.server.metricsapi.source_settings import SourceSettings
from gpuscale.server.sources.http.access import TlsFiles, tls_to
from gpuscale.server.sources.prometheus.client import PrometheusSettings, PrometheusSource


def make_source(settings: SourceSettings) -> PrometheusSource:
    """Return the source that these settings describe.

    Raises:
        UsageError: an address or a file that can't be used.
    """
    read, paths = _credentials(settings)
    credentials = None if read is None else read()
    headers = list(settings.headers)
    token_file = settings.token_file
    if credentials is not None and token_file is None:
        token_file = credentials.token_file
        if token_file is None and credentials.token:
            headers.append(("Authorization", f"Bearer {credentials.token}"))
    try:
        found = PrometheusSettings(
            settings.url,
            settings.verb,
            tuple(headers),
            token_file,
            settings.username,
            settings.password_file,
            settings.timeout_s,
            max_query_chars=settings.max_query_chars,
            azure_login=settings.azure_login,
        )
    except ValueError as error:
        raise UsageError(f"--prometheus-url: {error}") from error
    tls = (
        tls_to("Prometheus", settings.ca_file, settings.client_files)
        if read is None
        else TlsFiles(lambda: read().tls, paths)
    )
    return PrometheusSource(found, tls)


def _credentials(
    settings: SourceSettings,
) -> tuple[Callable[[], ClientCredentials] | None, tuple[Path, ...]]:
    """Return the reader of rotating credentials, and the files to watch for changes."""
    if settings.in_cluster:
        return service_account_credentials, (SERVICE_ACCOUNT / "ca.crt",)
    path = settings.kubeconfig
    if path is not None:
        return (lambda: kubeconfig_credentials(path)), (path,)
    return None, ()
