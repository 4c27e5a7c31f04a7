"""A Prometheus behind TLS of its own: which CAs it is held against, and with what we come to it."""

import ssl
from typing import Any

from yarl import URL

from gpuscale.core.errors import UsageError
from gpuscale.kube.api import Credentials, kubeconfig_credentials, service_account_credentials
from gpuscale.metricsapi.settings import SourceSettings
from gpuscale.sources.http import HttpSession
from gpuscale.sources.prometheus import PrometheusSettings, PrometheusSource


class TlsSession(HttpSession):
    """A session that uses one TLS context for all requests."""

    def __init__(self, tls: ssl.SSLContext, timeout_s: float, max_response_bytes: int) -> None:
        super().__init__(timeout_s, max_response_bytes)
        self._tls = tls

    async def fetch(self, method: str, url: URL, **options: Any) -> tuple[int, bytes]:  # noqa: ANN401
        """Return the status and body of the answer; see `HttpSession`."""
        return await super().fetch(method, url, ssl=self._tls, **options)


class TlsPrometheusSource(PrometheusSource):
    """A Prometheus that is reached with a TLS context of its own."""

    def __init__(self, settings: PrometheusSettings, tls: ssl.SSLContext) -> None:
        super().__init__(settings)
        self._http = TlsSession(tls, settings.timeout_s, settings.max_response_bytes)


def make_source(settings: SourceSettings) -> PrometheusSource:
    """Return the source that these settings describe.

    Raises:
        UsageError: an address or a file that can't be used.
    """
    credentials = _credentials(settings)
    headers = list(settings.headers)
    token_file = settings.token_file
    if credentials is not None and token_file is None:
        token_file = credentials.token_file
        if token_file is None and credentials.token:
            headers.append(("Authorization", f"Bearer {credentials.token}"))
    try:
        found = PrometheusSettings(settings.url, settings.verb, tuple(headers), token_file)
    except ValueError as error:
        raise UsageError(f"--prometheus-url: {error}") from error
    return (
        PrometheusSource(found)
        if credentials is None
        else TlsPrometheusSource(found, credentials.tls)
    )


def _credentials(settings: SourceSettings) -> Credentials | None:
    if settings.in_cluster:
        return service_account_credentials()
    if settings.kubeconfig is not None:
        return kubeconfig_credentials(settings.kubeconfig)
    if settings.ca_file is None and settings.client_files is None:
        return None
    try:
        tls = ssl.create_default_context(cafile=settings.ca_file)
        if settings.client_files is not None:
            tls.load_cert_chain(*settings.client_files)
    except (OSError, ValueError) as error:
        where = settings.ca_file or "the client certificate"
        raise UsageError(f"{where}: can't go to Prometheus with it: {error}") from error
    return Credentials(tls)
