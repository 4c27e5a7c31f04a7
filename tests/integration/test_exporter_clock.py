"""An agent on a machine whose clock is set while it runs."""

import asyncio
import time

import pytest

from gpuscale.agent.exporter.agent import NodeAgent
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.nvml.reader import NvmlReader
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.base.clock import FollowingClock
from gpuscale.signals import DEFAULT_COUNTERS
from gpuscale.testing.nvml import FakeGpu, FakeNvml

UTIL = "DCGM_FI_DEV_GPU_UTIL"
HOUR_MS = 3_600_000
NEAR_MS = 20_000
"""How long a busy machine may take from a reading to the look at it."""
LIMIT_S = 20


class Machine:
    """A machine whose clock, and so its driver's, is set by hand."""

    def __init__(self) -> None:
        self.set_by_ms = 0

    def unix_ns(self):
        return time.time_ns() + self.set_by_ms * 1_000_000


async def until(condition):
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - a condition of the agent's, which sends no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("hours", [1, -1])
async def test_values_have_the_new_time_and_go_on(hours: int, caplog) -> None:
    machine = Machine()
    clock = FollowingClock(machine.unix_ns)
    nvml = FakeNvml([FakeGpu(busy_percent=40)], now_us=lambda: machine.unix_ns() // 1000)
    reader = NvmlReader(NvmlSettings(), nvml, fields=frozenset({UTIL}), clock=clock)
    counters = [each for each in DEFAULT_COUNTERS if each.field == UTIL]
    agent = NodeAgent(reader, lambda _: None, counters, FamilyOptions("n1"), clock, 0.1)
    await agent.start("127.0.0.1", 0)

    def lag_ms():
        return abs(machine.unix_ns() // 1_000_000 - agent.snapshot.measured_ms)

    try:
        await until(lambda: agent.snapshot.status.collects > 2)
        assert lag_ms() < NEAR_MS
        machine.set_by_ms = hours * HOUR_MS
        await until(lambda: lag_ms() < NEAR_MS)
        collects = agent.snapshot.status.collects
        await until(lambda: agent.snapshot.status.collects > collects + 3)
        assert lag_ms() < NEAR_MS
        assert abs(agent.age_s(agent.snapshot.measured_ms)) < NEAR_MS / 1000
        assert "DCGM_FI_DEV_GPU_UTIL{" in agent.snapshot.text.decode()
        assert agent.snapshot.status.failures == 0
    finally:
        await agent.stop()
        reader.close()
    (line,) = [each.getMessage() for each in caplog.records if "clock was set" in each.message]
    assert line.startswith(f"the machine's clock was set by {'+' if hours > 0 else '-'}3")
