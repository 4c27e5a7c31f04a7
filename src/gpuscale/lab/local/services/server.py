"""The HTTP server of one service, which answers any request when the simulated pods are done with it.

Clients may send anything: connections, headers and slow clients are bounded by
`server.metricsapi.connections`, bodies and waiting here.
"""

import asyncio
import json

from aiohttp import web

from gpuscale.lab.local.services.desk import Desk, UnservedError
from gpuscale.server.metricsapi.connections import (
    Connection,
    ConnectionLimits,
    CountedLog,
    Port,
    without_server,
)
from gpuscale.server.page import only_host

LIMITS = ConnectionLimits(total=1_000, per_address=1_000, proxies=1, header_s=10.0, idle_s=60.0)
"""One request at a time on each. All clients may be one address.

Requests whose clients have gone are work all the same, as for most servers: the scenario's queue bounds what
waits.
"""
BODY_BYTES = 16 * 1024 * 1024
"""Read and dropped; a photo has less."""
BODY_S = 30.0
"""For a client to send a body."""
ANSWER_S = 120.0
"""Of real time, after which a request that still waits is given up."""
_LAST_ANSWERS_S = 0.05
"""For those who wait to get their refusal when the run ends."""
_OF_BROWSERS = "/favicon.ico"


class ServiceServer:
    """The HTTP server of one service.

    Args:
        desk: where they wait.
        host: address to listen on.
    """

    def __init__(self, desk: Desk, host: str) -> None:
        self._desk = desk
        self._host = host
        app = web.Application(middlewares=[only_host(host)])
        app.on_response_prepare.append(without_server)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self.listening = Port(app, LIMITS, CountedLog("malformed request"))

    async def open(self, port: int) -> int:
        """Listen, and return the port.

        Raises:
            UnavailableError: it can't be listened there.
        """
        await self.listening.open(self._host, port)
        return self.listening.addresses[0][1]

    async def close(self) -> None:
        """Refuse waiting requests, and close all connections."""
        self._desk.close()
        await asyncio.sleep(_LAST_ANSWERS_S)
        # Deadlines are no longer checked, so that clients can't be waited for.
        for each in self.listening.lobby.connections:
            if each.is_evictable:
                each.drop("the run has ended")
        await self.listening.close(in_haste=True)

    async def _answer(self, request: web.Request) -> web.Response:
        if isinstance(request.transport, Connection):
            request.transport.request_begins()
        if request.headers.get("Sec-Fetch-Site") == "cross-site":
            return _refusal(403, "the request comes from another site's page")
        if request.path == _OF_BROWSERS:
            return _refusal(404, "there is no picture")
        refusal = await _drop_body(request)
        if refusal is not None:
            return await _cut_off(request, refusal)
        try:
            async with asyncio.timeout(ANSWER_S):
                served = await self._desk.serve()
        except UnservedError as error:
            return _refusal(503, str(error), {"Retry-After": "1"})
        except TimeoutError:
            return _refusal(504, f"not served within {ANSWER_S:g} s")
        answer = {
            "service": self._desk.deployment,
            "scenarioSeconds": round(served.seconds, 6),
            "readyPods": served.ready_pods,
        }
        headers = {"Cache-Control": "no-store", "X-Compute": "simulated"}
        return web.Response(
            text=json.dumps(answer) + "\n", content_type="application/json", headers=headers
        )


async def _drop_body(request: web.Request) -> web.Response | None:
    """Read and discard a request's body; return the refusal of one that is too long or slow."""
    count = 0
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.content.iter_any():
                count += len(piece)
                if count > BODY_BYTES:
                    return _refusal(413, f"found a body above {BODY_BYTES} bytes")
    except TimeoutError:
        return _refusal(408, f"the body took more than {BODY_S:g} s")
    except ConnectionError:
        return _refusal(400, "the client has gone")  # the client is gone
    return None


async def _cut_off(request: web.Request, refusal: web.Response) -> web.Response:
    """Respond and close the connection, where aiohttp would read on for ten seconds."""
    refusal.force_close()
    await refusal.prepare(request)
    await refusal.write_eof()
    if request.transport is not None:
        request.transport.close()
    return refusal


def _refusal(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=headers)
