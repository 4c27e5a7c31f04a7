"""The HTTP server of a live run: page, Prometheus API and Kubernetes API, with limits on connections.

Clients are browsers, kubectl, operators and whatever else reaches the port. What connects, sends nothing,
sends slowly or takes nothing is closed in time, and gives way to others when there are too many.
"""

import errno
import os

from aiohttp import web
from aiohttp.typedefs import Handler

from gpuscale.base.errors import UnavailableError
from gpuscale.server.metricsapi.connections import Connection, ConnectionLimits, CountedLog, Port
from gpuscale.server.page.addresses import port_holder, url_host

LIMITS = ConnectionLimits(total=1_500, per_address=1_000, proxies=1, header_s=10.0, idle_s=60.0)
"""All watches that there may be, and as many others. All clients of this machine are one address."""
BODY_S = 10.0
"""For a client to send a body: queries, load orders and reviews are short."""
_GOODBYE_S = 1.0
"""For streams and watches to end with the run."""


class PortTakenError(UnavailableError):
    """Another program listens on the port."""


class Front:
    """A listening port with a live run's routes; create it in the serving event loop.

    Args:
        app: answers.
        host: to listen on.
    """

    def __init__(self, app: web.Application, host: str) -> None:
        app.middlewares.insert(0, _timed)
        self._app = app
        self._host = host
        self._port = Port(app, LIMITS, CountedLog("malformed request"), goodbye_s=_GOODBYE_S)

    async def open(self, port: int) -> int:
        """Listen, and return the port number.

        Raises:
            PortTakenError: another program has the port.
            UnavailableError: the host is none to listen on.
        """
        try:
            await self._port.open(self._host, port)
        except UnavailableError as failure:
            await self._port.close(in_haste=True)
            error = failure.__cause__
            if not isinstance(error, OSError):
                raise
            if error.errno == errno.EADDRINUSE:
                by = port_holder(port)
                raise PortTakenError(f"{port} is taken" + (f" by {by}" if by else "")) from error
            where = f"{url_host(self._host)}:{port}"
            # asyncio's message repeats the address; the system's is short.
            is_systems = error.errno is not None and error.errno > 0
            reason = os.strerror(error.errno or 0) if is_systems else error.strerror
            raise UnavailableError(f"can't listen on {where}: {reason or error}") from error
        return self._port.addresses[0][1]

    async def run(self) -> None:
        """Check connection deadlines until cancelled."""
        await self._port.lobby.run()

    async def close(self) -> None:
        """End streams and watches, and close all connections."""
        await self._app.shutdown()
        # Deadlines are no longer checked, so that clients can't be waited for.
        for each in self._port.lobby.connections:
            if each.is_evictable:
                each.drop("the run has ended")
        await self._port.close(in_haste=True)


@web.middleware
async def _timed(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Limit the time for a request's body, but not for the response."""
    connection = request.transport
    if not isinstance(connection, Connection):
        return await handler(request)
    is_answered = False

    def has_body() -> None:
        if not is_answered:
            connection.request_begins()

    if request.can_read_body:
        connection.request_begins(BODY_S)
        request.content.on_eof(has_body)
    else:
        connection.request_begins()
    try:
        return await handler(request)
    except ConnectionError:
        return web.Response(status=400)  # the client has gone
    finally:
        is_answered = True
