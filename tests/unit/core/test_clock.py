import asyncio
import time

import pytest

from gpuscale.base.clock import FollowingClock, ManualClock, PacedClock, WallClock


async def test_a_sped_up_clock_sleeps_less() -> None:
    clock = WallClock(speed=1000.0)
    before = clock.now_ms()
    await clock.sleep(5)
    assert clock.now_ms() - before >= 5_000


async def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(1_000)
    assert clock.now_ms() == 1_000
    clock.advance(0.5)
    await clock.sleep(2)
    assert clock.now_ms() == 3_500


@pytest.mark.parametrize("speed", [0.5, 1.0, 20.0])
def test_time_never_goes_back(speed: float) -> None:
    clock = WallClock(speed)
    moments = [clock.now_ms() for _ in range(100)]
    assert moments == sorted(moments)


HOUR_NS = 3_600_000_000_000
HOUR_MS = 3_600_000
BUSY_MS = 10_000
"""How long a busy machine may keep a test waiting."""


class Machine:
    """A machine whose clock is set by hand."""

    def __init__(self) -> None:
        self.set_by_ns = 0

    def unix_ns(self):
        return time.time_ns() + self.set_by_ns


@pytest.mark.parametrize("hours", [1, -1, 24 * 365])
def test_a_clock_that_was_set_is_followed_only_when_asked(hours: int) -> None:
    machine = Machine()
    clock = FollowingClock(machine.unix_ns)
    before_ms = clock.now_ms()
    machine.set_by_ns = hours * HOUR_NS
    assert 0 <= clock.now_ms() - before_ms < BUSY_MS
    assert clock.follow() == pytest.approx(hours * 3600, abs=BUSY_MS / 1000)
    assert 0 <= clock.now_ms() - (before_ms + hours * HOUR_MS) < BUSY_MS
    assert clock.follow() == 0


def test_a_clock_that_was_not_set_stays() -> None:
    clock = FollowingClock()
    origin = clock.origin
    assert clock.follow() == 0
    assert clock.origin is origin


async def test_sleeping_takes_as_long_while_the_clock_is_set_back() -> None:
    machine = Machine()
    clock = FollowingClock(machine.unix_ns)
    machine.set_by_ns = -HOUR_NS
    clock.follow()
    before_ms = clock.now_ms()
    await clock.sleep(0.01)
    assert 0 <= clock.now_ms() - before_ms < BUSY_MS


async def test_a_paused_clock_stands_still_and_goes_on_where_it_was() -> None:
    clock = PacedClock(1e6)  # a thousand seconds of it in each millisecond
    clock.pace(1e6, is_paused=True)
    stopped_ms = clock.now_ms()
    sleeping = asyncio.create_task(clock.sleep(1_000))
    await asyncio.sleep(0.005)
    assert clock.now_ms() == stopped_ms
    assert not sleeping.done()
    clock.pace(1e6, is_paused=False)
    await sleeping
    assert clock.now_ms() >= stopped_ms + 1_000_000


async def test_sleepers_follow_a_new_speed() -> None:
    clock = PacedClock(0.001)  # it would take days
    started_ms = clock.now_ms()
    sleeping = asyncio.create_task(clock.sleep(3_600))
    await asyncio.sleep(0)
    clock.pace(1e9, is_paused=False)
    await sleeping
    assert clock.now_ms() >= started_ms + 3_600_000


async def test_who_sleeps_no_time_is_not_held_by_a_pause() -> None:
    clock = PacedClock(1.0)
    clock.pace(1.0, is_paused=True)
    await clock.sleep(0)
    await clock.sleep(-1)
