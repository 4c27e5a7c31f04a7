"""The HTTP servers of all services of a scenario."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from gpuscale.base.clock import PacedClock
from gpuscale.base.errors import UnavailableError
from gpuscale.lab.local.present import Present, every
from gpuscale.lab.local.services.desk import Desk
from gpuscale.lab.local.services.server import ServiceServer
from gpuscale.server.page import own_host, url_host

_LOOK_S = 0.05
"""Real seconds in which a pod that became ready is noticed by those who wait."""
_LOG_MS = 5_000
"""Of the clock, in which a load of real requests becomes an event; rates are of as much time."""
_HIGHEST_PORT = 65_535


class ServiceServers:
    """An HTTP server for each Deployment with a load.

    Args:
        present: the world as of now.
        clock: which it follows.
        host: address to listen on.
    """

    def __init__(self, present: Present, clock: PacedClock, host: str) -> None:
        self._present = present
        self._clock = clock
        self._host = host
        self._desks: list[Desk] = []
        self._servers: list[ServiceServer] = []
        self.urls: dict[str, str] = {}
        """Deployment name to its address."""

    async def open(self, after: int) -> None:
        """Listen, if possible on the ports after `after`; 0 means any free ports.

        Raises:
            UnavailableError: there is no port at all.
        """
        for key in self._present.world.services:
            desk = Desk(self._present, self._clock, key, lambda: _LOOK_S * self._clock.speed)
            server = ServiceServer(desk, self._host)
            self._desks.append(desk)
            self._servers.append(server)
            port = await self._open(server, after)
            after = port if after else 0
            name = key.partition("/")[2]
            self.urls[name] = f"http://{url_host(own_host(self._host))}:{port}/"

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """Return the tasks to run while the servers are open."""
        return [
            *(each.run() for each in self._desks),
            *(
                every(self._clock, self._clock.now_ms(), _LOG_MS, each.log_load)
                for each in self._desks
            ),
            *(each.listening.lobby.run() for each in self._servers),
        ]

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._servers))

    async def _open(self, server: ServiceServer, after: int) -> int:
        if 0 < after < _HIGHEST_PORT:
            try:
                return await server.open(after + 1)
            except UnavailableError:
                pass  # taken by another program
        return await server.open(0)
