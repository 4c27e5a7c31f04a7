"""Load at a limited rate: GET requests to one address, which end with their `async with` block."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import aiohttp
from yarl import URL

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.unreachable import reason_of
from gpuscale.ops.doctor.pulse.hops import LoadCount
from gpuscale.ops.doctor.pulse.limits import AT_ONCE
from gpuscale.server.sources.http import HttpSession

_PAUSE_S = 0.05
"""After each answer, so that no server gets more than 20 requests a second from one sender."""
_TIMEOUT_S = 60.0
_BAD_STATUS = 400


class PulseLoad:
    """Sends requests while its block runs.

    Args:
        url: that is asked for.
        at_once: requests that may be under way, within `AT_ONCE`.
        for_s: how long they go on at most, should the block take longer.
    """

    def __init__(self, url: str, at_once: int, for_s: float) -> None:
        self._for_s = for_s
        self._url = URL(url)
        self._at_once = int(min(max(AT_ONCE.lowest, at_once), AT_ONCE.highest))
        self.count = LoadCount()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send requests while the block runs; all have ended when it does."""
        async with HttpSession(_TIMEOUT_S) as session:
            senders = [asyncio.create_task(self._bounded(session)) for _ in range(self._at_once)]
            try:
                yield
            finally:
                for sender in senders:
                    sender.cancel()
                await asyncio.gather(*senders, return_exceptions=True)

    async def _bounded(self, session: HttpSession) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._for_s):
                await self._send(session)

    async def _send(self, session: HttpSession) -> None:
        while True:
            try:
                async with session.stream("GET", self._url) as response:
                    async for _ in response.content.iter_any():
                        pass
                self._note(f"status {response.status}" if response.status >= _BAD_STATUS else "")
            except (aiohttp.ClientError, GpuscaleError, TimeoutError, OSError, ValueError) as error:
                self._note(reason_of(error))
            await asyncio.sleep(_PAUSE_S)

    def _note(self, fault: str) -> None:
        if fault:
            self.count = replace(self.count, failed=self.count.failed + 1, fault=fault)
        else:
            self.count = replace(self.count, answered=self.count.answered + 1)
