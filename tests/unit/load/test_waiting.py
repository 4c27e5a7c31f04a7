"""Waiting for the moment of a request."""

import asyncio
import sys
import time

import pytest

from gpuscale.load.http.waiting import Alarm
from gpuscale.load.run import new_runner


async def _wait_each_ms(count: int) -> tuple[float, float]:
    """Wait for moments 1 ms apart as a sender does; return processor seconds and seconds."""
    with Alarm() as alarm:
        cpu_s, start_s = time.process_time(), time.monotonic()
        for index in range(1, count + 1):
            while (ahead_s := start_s + index / 1000 - time.monotonic()) > 0:
                await alarm.wait(ahead_s)
        return time.process_time() - cpu_s, time.monotonic() - start_s


def test_moments_a_millisecond_apart_are_met_and_leave_the_processor_to_others() -> None:
    with new_runner() as runner:
        cpu_s, passed_s = runner.run(_wait_each_ms(500))
    assert passed_s >= 0.5
    # Looking at the clock takes all of it, however busy the machine is otherwise.
    assert cpu_s < 0.5 * passed_s


def test_without_a_timer_of_the_kernel_moments_are_met_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "elsewhere")
    with new_runner() as runner:
        _, passed_s = runner.run(_wait_each_ms(20))
    assert passed_s >= 0.02


def test_a_wait_that_is_cancelled_leaves_the_alarm_usable() -> None:
    async def run() -> float:
        with Alarm() as alarm:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await alarm.wait(60)
            start_s = time.monotonic()
            while (ahead_s := start_s + 0.01 - time.monotonic()) > 0:
                await alarm.wait(ahead_s)
            return time.monotonic() - start_s

    with new_runner() as runner:
        assert runner.run(run()) >= 0.01
