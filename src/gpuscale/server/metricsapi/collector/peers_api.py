"""The stream below /peers, which other replicas read: it is forwarded from the collector's socket.

RBAC for the path says who may read it; without an account no one may, as it holds the series of all
namespaces.
"""

import logging
from collections.abc import Callable

import aiohttp
from aiohttp import web

from gpuscale.base.errors import GpuscaleError
from gpuscale.server.metricsapi.collector.client import HOST, CollectorClient
from gpuscale.server.metricsapi.collector.prometheus_api import refused_without_account
from gpuscale.server.sources.feeds.sharing_settings import PATH

_LOG = logging.getLogger(__name__)
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_read=5.0)
_BUFFER_BYTES = 256 * 1024


class PeersApi:
    """Forwards the collector's stream to another replica.

    Args:
        collector: delivers it.
        is_stopping: returns whether the server is about to end.
    """

    def __init__(self, collector: CollectorClient, is_stopping: Callable[[], bool]) -> None:
        self._collector = collector
        self._is_stopping = is_stopping

    def add_routes(self, app: web.Application) -> None:
        """Add the route of the stream to `app`."""
        app.router.add_get(PATH, self.handle, allow_head=False)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if (refusal := refused_without_account(request)) is not None:
            return refusal
        answer = None
        try:
            http = await self._collector.http()
            async with http.stream(
                "GET", HOST.with_path(PATH), timeout=_TIMEOUT, read_bufsize=_BUFFER_BYTES
            ) as found:
                answer = web.StreamResponse(status=found.status)
                answer.content_type = found.content_type
                await answer.prepare(request)
                async for piece in found.content.iter_any():
                    if self._is_stopping():
                        break
                    await answer.write(piece)
                await answer.write_eof()
                return answer
        except (aiohttp.ClientError, OSError, TimeoutError, GpuscaleError) as error:
            if answer is None or not answer.prepared:
                return web.Response(status=503, text=f"the collector does not answer: {error}\n")
            _LOG.info("the stream for another replica broke off: %s", error)
        if request.transport is not None:
            request.transport.abort()
        return answer
