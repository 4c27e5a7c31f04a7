"""OTLP metrics pushed to /otlp: the request body is read, bounded and forwarded to the collector's socket.

RBAC for the path says who may push; without an account no one may. A body is read here, so that a slow or an
endless one never reaches the collector.

Source: OTLP specification 1.x (OTLP/HTTP): protobuf and JSON, gzip, 429 and 503 for what may be tried again.
"""

import asyncio
from collections import Counter

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gpuscale.base.errors import GpuscaleError
from gpuscale.server.metricsapi.collector.client import HOST, CollectorClient
from gpuscale.server.metricsapi.collector.prometheus_api import refused_without_account
from gpuscale.server.metricsapi.security.guard import ASKS
from gpuscale.server.sources.otlp.settings import CLIENT_HEADER, MAX_BODY_BYTES, PATH

_TYPES = ("application/x-protobuf", "application/json")
_AT_ONCE = 16
_OF_ONE_CLIENT = 4
_BODY_S = 10.0
"""How long a body may take, in the machine's seconds."""
_TIMEOUT = aiohttp.ClientTimeout(total=30.0)
_RETRY_S = "5"


class OtlpApi:
    """Forwards pushed OTLP requests to the collector.

    Args:
        collector: takes them.
    """

    def __init__(self, collector: CollectorClient) -> None:
        self._collector = collector
        self._inside: Counter[str] = Counter()

    def add_routes(self, app: web.Application) -> None:
        """Add the OTLP route to `app`."""
        app.router.add_post(PATH, self.handle)

    async def handle(self, request: web.Request) -> web.Response:
        if (refusal := refused_without_account(request)) is not None:
            return refusal
        if request.content_type not in _TYPES:
            return _error(415, f"found {request.content_type}, expected {' or '.join(_TYPES)}")
        user = ASKS.get()
        client = "loopback" if user is None else user.name
        is_crowded = self._inside[client] >= _OF_ONE_CLIENT
        if is_crowded or self._inside.total() >= _AT_ONCE:
            return _error(429, f"too many requests at once, expected {_OF_ONE_CLIENT} of a client")
        self._inside[client] += 1
        try:
            return await self._passed_on(request, client)
        finally:
            self._inside[client] -= 1
            self._inside += Counter()  # None means no samples were dropped

    async def _passed_on(self, request: web.Request, client: str) -> web.Response:
        try:
            async with asyncio.timeout(_BODY_S):
                body = await _body(request)
        except TimeoutError:
            return _error(408, f"there was no whole request within {_BODY_S:.0f} s")
        except (web.RequestPayloadError, HttpProcessingError):
            return _error(400, "the body can't be decompressed")
        if body is None:
            return _error(413, f"expected at most {MAX_BODY_BYTES} bytes, decompressed")
        # A user's name may contain characters that a header can't.
        name = client.encode().hex()
        headers = [("Content-Type", request.content_type), (CLIENT_HEADER, name)]
        try:
            http = await self._collector.http()
            status, content_type, found = await http.fetch_typed(
                "POST", HOST.with_path(PATH), headers=headers, data=body, timeout=_TIMEOUT
            )
        except (aiohttp.ClientError, OSError, TimeoutError, GpuscaleError) as error:
            return _error(503, f"the collector does not answer: {error}")
        return web.Response(status=status, body=found, headers={"Content-Type": content_type})


async def _body(request: web.Request) -> bytes | None:
    """Return the decompressed body; None if it is too large."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _error(status: int, text: str) -> web.Response:
    headers = {"Retry-After": _RETRY_S} if status in {429, 503} else {}
    return web.Response(status=status, text=f"{text}\n", headers=headers)
