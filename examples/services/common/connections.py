"""Connections that are bounded: clients that send nothing, send slowly or take nothing are closed in time."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Connections:
    """Closes connections whose clients keep the service waiting.

    Args:
        idle_s: how long a client may take to send a request, or to take more of an answer.
    """

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self._since_s: dict[web.RequestHandler, float] = {}
        """Since when it waits for each client."""
        self._unsent: dict[web.RequestHandler, int] = {}
        """Bytes of answers that are being made, which the client has not taken."""

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Take the body while the client is waited for; the answer takes as long as it wants."""
        connection = request.protocol
        self._since_s[connection] = time.monotonic()
        try:
            await request.read()  # no more than client_max_size
        except ConnectionError:
            return web.Response(status=400)  # the client has gone
        self._unsent[connection] = 0
        try:
            return await handler(request)
        finally:
            self._unsent.pop(connection, None)
            self._since_s[connection] = time.monotonic()

    async def watch(self, server: web.Server) -> None:
        """Close what is over its time, until cancelled."""
        while True:
            await asyncio.sleep(min(1.0, self.idle_s / 4))
            now_s = time.monotonic()
            there = server.connections
            self._since_s = {each: self._since_s.get(each, now_s) for each in there}
            for each in there:
                if each in self._unsent and self._takes(each):
                    self._since_s[each] = now_s
                elif now_s - self._since_s[each] > self.idle_s and each.transport is not None:
                    each.transport.abort()

    def _takes(self, connection: web.RequestHandler) -> bool:
        """Return whether a client takes what it is sent; nothing may be there to be sent."""
        transport = connection.transport
        before, left = self._unsent[connection], 0
        if isinstance(transport, asyncio.WriteTransport):
            left = transport.get_write_buffer_size()
        self._unsent[connection] = left
        return left == 0 or left < before
