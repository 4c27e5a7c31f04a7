import pytest

from gpuscale.core.clock import ManualClock, WallClock


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
