"""One service's server in this process, where time goes as a test wants it."""

import aiohttp
import pytest

from background import started
from gpuscale.base.clock import WallClock
from gpuscale.lab.local.present import Present
from gpuscale.lab.local.services import server
from gpuscale.lab.local.services.desk import Desk
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.world import World

KEY = "default/bert-intent-detection"


@pytest.fixture
async def slow():
    """A service whose requests take 5 s: 0.05 s of a GPU, at a hundredth of the speed."""
    clock = WallClock(0.01)
    world = World(find_setup("ack-bert"), clock.now_ms() - 30_000)  # half a minute before its load
    present = Present(world, clock)
    present.catch_up()
    desk = Desk(present, clock, KEY, look_s=lambda: 0.0005)
    assert desk.ready_pods == 1
    serving = server.ServiceServer(desk, "127.0.0.1")
    port = await serving.open(0)
    async with started(desk.run()), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        yield desk, client
    await serving.close()


async def test_a_request_that_waits_too_long_is_given_up(slow, monkeypatch) -> None:
    desk, client = slow
    monkeypatch.setattr(server, "ANSWER_S", 0.2)
    async with client.get("/predict") as response:
        assert response.status == 504
        assert await response.text() == "not served within 0.2 s\n"
    assert desk.service.arrived == 1  # the pod works on it all the same


async def test_who_waits_when_the_run_ends_is_told(slow) -> None:
    desk, client = slow
    async with started(client.get("/predict")) as asked:
        while desk.service.single == 0:
            await client.get("/favicon.ico")
        desk.close()
        response = await asked
        assert response.status == 503
        assert await response.text() == "the run has ended\n"
