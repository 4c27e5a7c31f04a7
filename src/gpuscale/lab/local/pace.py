"""The time of a live run in its viewers' hands: it can be paused, and go on at another speed."""

from collections.abc import Mapping

from gpuscale.base.clock import FASTEST, SLOWEST, PacedClock, WallClock
from gpuscale.lab.local.present import Present
from gpuscale.series.promapi import TimeAxis


class Pace:
    """Sets the clock of a run, and tells the APIs that answer by the machine's time.

    Load, GPUs, agents, scrapes, HPAs, pods and nodes follow the clock, and stop with it. What is outside does
    not: clients of services go on waiting for their answers.

    Args:
        present: the world as of now.
        clock: which it follows.
        axis: from the machine's time.
    """

    def __init__(self, present: Present, clock: PacedClock, axis: TimeAxis) -> None:
        self._present = present
        self._clock = clock
        self._axis = axis
        self._machine = WallClock(1.0, clock.origin)

    async def order(self, asked: Mapping[str, object]) -> None:
        """Set `speed`, `paused` or both.

        Raises:
            ValueError: not a speed that a run can have, or nothing to set.
        """
        speed = asked.get("speed", self._clock.speed)
        is_paused = asked.get("paused", self._clock.is_paused)
        if not asked.keys() & {"speed", "paused"}:
            raise ValueError('expected JSON such as {"speed": 20, "paused": false}')
        if isinstance(speed, bool) or not isinstance(speed, (int, float)):
            raise ValueError(f"speed: found {str(speed)[:30]}, expected a number")
        if not SLOWEST <= speed <= FASTEST:
            raise ValueError(f"speed: found {str(speed)[:30]}, expected {SLOWEST:g} to {FASTEST:g}")
        if not isinstance(is_paused, bool):
            raise ValueError(f"paused: found {str(is_paused)[:30]}, expected true or false")
        self._clock.pace(float(speed), is_paused=is_paused)
        self._present.catch_up()
        self._axis.turn(
            self._machine.now_ms(), self._clock.now_ms(), float(speed), is_paused=is_paused
        )
