"""The load of a pulse: as much as was allowed, counted, and nothing after its end."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from gpuscale.ops.doctor.pulse.load import PulseLoad

LIMIT_S = 60.0


class Endpoint:
    """Keeps every request until it is let go."""

    def __init__(self, status=200) -> None:
        self.status = status
        self.now = self.most = 0
        self.free = asyncio.Event()

    @asynccontextmanager
    async def serving(self):
        app = web.Application()
        app.router.add_get("/", self._answer)
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
        finally:
            await runner.cleanup()

    async def _answer(self, _):
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.free.wait()
        finally:
            self.now -= 1
        return web.Response(status=self.status)


async def until(what) -> None:
    for _ in range(round(LIMIT_S / 0.02)):
        if what():
            return
        await asyncio.sleep(0.02)
    pytest.fail("it did not come in time")


@pytest.mark.parametrize(("asked", "allowed"), [(3, 3), (99, 16)])
async def test_no_more_requests_than_allowed_and_none_after_the_end(
    asked: int, allowed: int
) -> None:
    endpoint = Endpoint()
    async with endpoint.serving() as url:
        load = PulseLoad(url, asked, LIMIT_S)
        async with load.running():
            await until(lambda: endpoint.now == allowed)
        await until(lambda: endpoint.now == 0)
        assert endpoint.most == allowed
        assert (load.count.answered, load.count.failed) == (0, 0)


async def test_answers_are_counted() -> None:
    endpoint = Endpoint()
    endpoint.free.set()
    async with endpoint.serving() as url:
        load = PulseLoad(url, 2, LIMIT_S)
        async with load.running():
            await until(lambda: load.count.answered > 3)
    assert load.count.failed == 0


async def test_it_ends_by_itself_when_its_time_is_over() -> None:
    endpoint = Endpoint()
    async with endpoint.serving() as url, PulseLoad(url, 2, 2.0).running():
        await until(lambda: endpoint.most > 0)
        await until(lambda: endpoint.now == 0)


async def test_errors_are_counted_with_the_last_reason() -> None:
    endpoint = Endpoint(status=503)
    endpoint.free.set()
    async with endpoint.serving() as url:
        load = PulseLoad(url, 2, LIMIT_S)
        async with load.running():
            await until(lambda: load.count.failed > 1)
    assert (load.count.answered, load.count.fault) == (0, "status 503")
    gone = PulseLoad(url, 1, LIMIT_S)
    async with gone.running():
        await until(lambda: gone.count.failed > 1)
    assert "connection refused" in gone.count.fault
