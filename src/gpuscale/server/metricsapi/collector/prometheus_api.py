"""The collector's Prometheus HTTP API for people and their tools, below /prometheus.

A path of its own, because every authenticated user of a cluster may `get` below /api by the ClusterRole
system:discovery, and these answers hold the series of all namespaces.

Requests are passed on over the collector's socket, and answers are passed back piece by piece, so that a
large one or a slow reader costs the server little.
"""

import asyncio
import logging

import aiohttp
from aiohttp import web
from yarl import URL

from gpuscale.base.errors import UnavailableError
from gpuscale.server.metricsapi.collector.client import HOST, CollectorClient
from gpuscale.server.metricsapi.security.authorization import attributes_of, forbidden_message
from gpuscale.server.metricsapi.security.guard import ASKS
from gpuscale.server.metricsapi.security.reviews import UNAUTHENTICATED
from gpuscale.server.metricsapi.wire.responses import status_response
from gpuscale.server.metricsapi.wire.statuses import forbidden

_LOG = logging.getLogger(__name__)
PREFIX = "/prometheus"
_ROUTE = PREFIX + "/{path:api/v1/.+|federate}"
_TIMEOUT_S = 50.0
"""For a whole request, in the machine's seconds; less than the server's own limit for any."""
_AT_ONCE = 20
_KEPT_HEADERS = ("Accept", "Content-Type")
"""Of a request; credentials stay here."""
_BUFFER_BYTES = 64 * 1024


class PrometheusApi:
    """Forwards requests of Prometheus' HTTP API to the collector.

    Args:
        collector: answers them.
    """

    def __init__(self, collector: CollectorClient) -> None:
        self._collector = collector
        self._inside = 0

    def add_routes(self, app: web.Application) -> None:
        """Add the API to `app`; the app's limit on request size applies."""
        app.router.add_get(_ROUTE, self.handle)
        app.router.add_post(_ROUTE, self.handle)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if (refusal := refused_without_account(request)) is not None:
            return refusal
        if self._inside >= _AT_ONCE:
            return _error("unavailable", f"too many requests at once, expected {_AT_ONCE}")
        self._inside += 1
        try:
            return await self._passed_on(request)
        finally:
            self._inside -= 1

    async def _passed_on(self, request: web.Request) -> web.StreamResponse:
        answer = None
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                body = await request.read()
                http = await self._collector.http()
                url = URL(
                    f"{HOST}/{request.rel_url.raw_path_qs.removeprefix(PREFIX)[1:]}", encoded=True
                )
                headers = [
                    (name, request.headers[name])
                    for name in _KEPT_HEADERS
                    if name in request.headers
                ]
                async with http.stream(
                    request.method,
                    url,
                    headers=headers,
                    data=body or None,
                    read_bufsize=_BUFFER_BYTES,
                ) as found:
                    answer = web.StreamResponse(status=found.status)
                    answer.content_type = found.content_type
                    answer.charset = found.charset
                    await answer.prepare(request)
                    async for piece in found.content.iter_any():
                        await answer.write(piece)
                    await answer.write_eof()
                    return answer
        except TimeoutError:
            kind, reason = "timeout", f"there was no whole answer within {_TIMEOUT_S:.0f} s"
        except (aiohttp.ClientError, OSError, UnavailableError) as error:
            kind, reason = "unavailable", f"the collector does not answer: {error}"
        if answer is None or not answer.prepared:
            return _error(kind, reason)
        # Half of the response is sent; only a broken connection can signal the error.
        _LOG.warning("an answer to %s broke off: %s", request.path, reason)
        if request.transport is not None:
            request.transport.abort()
        return answer


def refused_without_account(request: web.Request) -> web.Response | None:
    """Return the refusal for an anonymous client, even if RBAC would allow it; None for others."""
    user = ASKS.get()
    if user is None or UNAUTHENTICATED not in user.groups:
        return None
    attributes = attributes_of(request.method, request.rel_url.raw_path, request.path)
    return status_response(request, forbidden(forbidden_message(user, attributes), "", "", ""))


def _error(kind: str, text: str) -> web.Response:
    """Return an error in the JSON form of Prometheus."""
    body = {"status": "error", "errorType": kind, "error": text}
    return web.json_response(body, status=503)
