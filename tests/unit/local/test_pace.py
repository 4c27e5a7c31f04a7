"""What viewers may ask of a run's time, and what that makes of the machine's."""

import pytest

from gpuscale.base.clock import PacedClock
from gpuscale.lab import find_setup
from gpuscale.lab.local.pace import Pace
from gpuscale.lab.local.present import Present
from gpuscale.lab.sim.world import World
from gpuscale.series.promapi import TimeAxis


@pytest.fixture
def clock() -> PacedClock:
    return PacedClock(10.0)


@pytest.fixture
def axis(clock: PacedClock) -> TimeAxis:
    return TimeAxis(clock.origin.unix_ms, 10.0)


@pytest.fixture
def pace(clock: PacedClock, axis: TimeAxis) -> Pace:
    world = World(find_setup("ack-bert"), clock.now_ms())
    return Pace(Present(world, clock), clock, axis)


async def test_a_pause_keeps_the_speed(clock: PacedClock, axis: TimeAxis, pace: Pace) -> None:
    await pace.order({"paused": True})
    assert (clock.is_paused, clock.speed) == (True, 10)
    now_ms = clock.now_ms()
    assert axis.to_store_ms(clock.origin.unix_ms + 10**9) == now_ms  # whenever they ask
    await pace.order({"speed": 50})
    assert (clock.is_paused, clock.speed, clock.now_ms()) == (True, 50, now_ms)
    await pace.order({"paused": False})
    assert (clock.is_paused, clock.speed) == (False, 50)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, 'expected JSON such as {"speed": 20, "paused": false}'),
        ({"speed": 0}, "speed: found 0, expected 0.1 to 100"),
        ({"speed": 101}, "speed: found 101, expected 0.1 to 100"),
        ({"speed": float("nan")}, "speed: found nan, expected 0.1 to 100"),
        ({"speed": 10**400}, "speed: found 1000"),
        ({"speed": True}, "speed: found True, expected a number"),
        ({"speed": "fast"}, "speed: found fast, expected a number"),
        ({"paused": 1}, "paused: found 1, expected true or false"),
    ],
)
async def test_what_no_run_can_have_is_refused_and_changes_nothing(
    clock: PacedClock, pace: Pace, asked: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match="^" + message.replace("{", r"\{")):
        await pace.order(asked)
    assert (clock.is_paused, clock.speed) == (False, 10)
