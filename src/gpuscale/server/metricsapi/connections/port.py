"""A listening port with its connections, their limits and the application that answers."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace

from aiohttp import web

from gpuscale.base.errors import UnavailableError
from gpuscale.server.metricsapi.connections.connection import Connection, Phase
from gpuscale.server.metricsapi.connections.counted_log import CountedLog
from gpuscale.server.metricsapi.connections.http import HttpProtocol
from gpuscale.server.metricsapi.connections.listener import (
    ChooseContext,
    Listener,
    bound_sockets,
    room_for,
)
from gpuscale.server.metricsapi.connections.lobby import ConnectionLimits, Lobby

_LAST_REQUESTS_S = 2.0
"""How long clients that are connected have for a last request, once no new ones are accepted."""
_LOOK_S = 0.05
_MAX_HEADER = 64 * 1024
"""Bytes of a request line or header; tokens of some identity providers have more than 8 KiB."""
_NO_TIMER_S = 3600.0
"""aiohttp's own timer of idle connections, out of the way of ours."""


class Port:
    """A port that is listened on.

    Args:
        app: answers the requests.
        limits: of connections.
        malformed: counts requests that are no HTTP.
        choose_context: returns the TLS of a new connection; None serves plain HTTP.
        is_proxy: returns whether a connection showed the certificate of a front proxy.
        goodbye_s: how long requests may take to end when the server stops.
    """

    def __init__(
        self,
        app: web.Application,
        limits: ConnectionLimits,
        malformed: CountedLog,
        choose_context: ChooseContext | None = None,
        is_proxy: Callable[[Connection], bool] = lambda _: False,
        goodbye_s: float = 10.0,
    ) -> None:
        self._goodbye_s = goodbye_s
        room = room_for(limits.total + limits.proxies)
        share = room / (limits.total + limits.proxies)
        limits = replace(
            limits,
            total=max(1, int(limits.total * share)),
            proxies=max(1, int(limits.proxies * share)),
        )
        self.lobby = Lobby(asyncio.get_running_loop(), limits, is_proxy)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=goodbye_s,
            max_line_size=_MAX_HEADER,
            max_field_size=_MAX_HEADER,
            keepalive_timeout=_NO_TIMER_S,
        )
        self._malformed = malformed
        self._choose_context = choose_context
        self._listener: Listener | None = None

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Return host and port of each socket that is listened on."""
        return () if self._listener is None else self._listener.addresses

    async def open(
        self, host: str, port: int, *, shares_port: bool = False, shares_address: bool = False
    ) -> None:
        """Open the listening sockets.

        Raises:
            UnavailableError: it can't be listened there.
        """
        await self._runner.setup()
        server = self._runner.server
        if server is None:
            raise RuntimeError("the application has not started")
        options = server._kwargs  # noqa: SLF001 - what the runner makes of the options above

        def make_protocol() -> HttpProtocol:
            return HttpProtocol(server, self._malformed, loop=self.lobby.loop, **options)

        try:
            sockets = bound_sockets(
                host, port, shares_port=shares_port, shares_address=shares_address
            )
            self._listener = Listener(self.lobby, sockets, self._choose_context, make_protocol)
            self._listener.start()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise UnavailableError(f"can't listen on {shown(host)}:{port}: {reason}") from error

    async def close(self, *, in_haste: bool) -> None:
        """Stop accepting, let running requests finish, and close.

        Args:
            in_haste: gives clients that are connected no time for a last request.
        """
        if self._listener is not None:
            self._listener.close()
        if not in_haste:
            await self._wait(_LAST_REQUESTS_S, (Phase.HANDSHAKE, Phase.HEADER, Phase.ACTIVE))
        for each in self.lobby.connections:
            each.read_now()
        await asyncio.sleep(_LOOK_S)
        for each in self.lobby.connections:
            if each.is_evictable:
                each.close()
        await self._wait(self._goodbye_s, (Phase.ACTIVE, Phase.CLOSING))
        await self._runner.cleanup()
        for each in self.lobby.connections:
            each.drop("server stopped")

    async def _wait(self, seconds: float, phases: tuple[Phase, ...]) -> None:
        """Wait until no connection is in one of these phases, or the time is up."""
        until = self.lobby.loop.time() + seconds
        while self.lobby.loop.time() < until:
            if not any(each.phase in phases for each in self.lobby.connections):
                return
            await asyncio.sleep(_LOOK_S)


def shown(host: str) -> str:
    """Return a host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host
