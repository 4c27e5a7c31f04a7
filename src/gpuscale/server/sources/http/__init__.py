"""HTTP access to sources: sessions, TLS, secrets, Azure's tokens, a client of the metrics APIs."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.sources.http.access import SecretFile, SourceAccess, tls_to
    from gpuscale.server.sources.http.aiohttp_start import import_aiohttp
    from gpuscale.server.sources.http.entra import token_of
    from gpuscale.server.sources.http.metrics_client import HttpMetricsClient
    from gpuscale.server.sources.http.session import HttpSession
else:
    __getattr__ = door(__name__)

__all__ = [
    "HttpMetricsClient",
    "HttpSession",
    "SecretFile",
    "SourceAccess",
    "import_aiohttp",
    "tls_to",
    "token_of",
]
