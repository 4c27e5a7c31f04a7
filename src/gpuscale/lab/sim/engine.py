"""The event queue of a simulation, on a time line of whole milliseconds.

Everything is ordered by one key: time, then stage, then the order of asking. Two things at the same
moment therefore always happen in the order of the loop (load before readings, readings before the
autoscaler, decisions before placement), and the same run always takes the same path.
"""

import heapq
from collections.abc import Callable
from enum import IntEnum

Action = Callable[[int], None]
"""Called with the time of the event, milliseconds."""


class EventStage(IntEnum):
    """An event's stage in the loop; of events at the same time, earlier stages run first."""

    LOAD = 0
    KUBELET = 1
    CLOUD = 2
    SCRAPE = 3
    RULES = 4
    DISCOVERY = 5
    KEDA = 6
    HPA = 7
    CONTROLLERS = 8
    SCHEDULER = 9
    NODE_AUTOSCALER = 10
    RECORD = 11


class Engine:
    """A queue of events, and the current time."""

    def __init__(self, start_ms: int) -> None:
        self.now_ms = start_ms
        self._queue: list[tuple[int, int, int, Action]] = []
        self._asked = 0

    def at(self, time_ms: int, stage: EventStage, action: Action) -> None:
        """Call `action` at `time_ms`, or now if that has passed."""
        self._asked += 1
        heapq.heappush(self._queue, (max(time_ms, self.now_ms), stage, self._asked, action))

    def after(self, delay_ms: int, stage: EventStage, action: Action) -> None:
        """Call `action` after `delay_ms`."""
        self.at(self.now_ms + delay_ms, stage, action)

    def every(self, period_ms: int, stage: EventStage, action: Action, *, first_ms: int) -> None:
        """Call `action` at `first_ms` and then once every period, for ever.

        Raises:
            ValueError: the period is not above zero.
        """
        if period_ms <= 0:
            raise ValueError(f"found a period of {period_ms} ms, expected more than zero")

        def tick(now_ms: int) -> None:
            action(now_ms)
            self.at(now_ms + period_ms, stage, tick)

        self.at(first_ms, stage, tick)

    def run_until(self, end_ms: int) -> None:
        """Run all events up to and including `end_ms`."""
        while self._queue and self._queue[0][0] <= end_ms:
            time_ms, _, _, action = heapq.heappop(self._queue)
            self.now_ms = time_ms
            action(time_ms)
        self.now_ms = max(self.now_ms, end_ms)
