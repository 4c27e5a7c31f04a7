"""A service's real requests, each delayed for as long as the simulated pods need."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from gpuscale.base.clock import Clock
from gpuscale.lab.local.present import Present
from gpuscale.lab.sim.load.line import WaitingLine
from gpuscale.lab.sim.load.service import SimulatedService

_LOGGED_STEP = 1.0
"""Requests per second; a few that someone sends by hand are no other load."""


class UnservedError(Exception):
    """A request was refused, with the reason."""


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """How long a request waited and was served."""

    seconds: float
    """From its arrival to its answer, in scenario time."""
    ready_pods: int
    """That take requests now."""


class Desk:
    """Takes real requests for one Deployment, as a Service would.

    Args:
        present: the world as of now.
        clock: which it follows.
        deployment: key of the Deployment.
        look_s: returns how often the line is looked at while pods may come and go, in seconds of the clock.
    """

    def __init__(
        self, present: Present, clock: Clock, deployment: str, look_s: Callable[[], float]
    ) -> None:
        self.deployment = deployment
        self._present = present
        self._clock = clock
        self._look_s = look_s
        self._line = WaitingLine(self.service, clock.now_ms())
        self._waiting: set[asyncio.Future[float]] = set()
        self._has_come = asyncio.Event()
        self._logged_rate = 0.0

    @property
    def service(self) -> SimulatedService:
        """Return the Deployment's simulated load, to which real requests are added."""
        return self._present.world.services[self.deployment]

    @property
    def ready_pods(self) -> int:
        """Return the number of pods that accept requests."""
        return self._present.world.ready_pods(self.deployment)

    async def serve(self) -> ServedRequest:
        """Wait until the pods would have answered.

        Raises:
            UnservedError: no pod is ready, too many requests wait, or the run ends.
        """
        now_ms = self._present.catch_up()
        done: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        def tell(due_ms: float) -> None:
            if not done.done():
                done.set_result(due_ms)

        pods = self.ready_pods
        if not self._line.join(now_ms, pods, tell):
            raise UnservedError("too many requests wait" if pods else "no pod is ready")
        self._has_come.set()
        self._waiting.add(done)
        try:
            due_ms = await done
        finally:
            self._waiting.discard(done)
        await self._clock.sleep((due_ms - self._clock.now_ms()) / 1000)
        return ServedRequest((due_ms - now_ms) / 1000, self.ready_pods)

    async def run(self) -> None:
        """Wake requests when they are due, until cancelled."""
        while True:
            await self._has_come.wait()
            while self._line:
                # A millisecond more, as times are rounded down: the first request is served then.
                left_s = (self._line.due_ms(self.ready_pods) - self._clock.now_ms() + 1) / 1000
                await self._clock.sleep(min(left_s, self._look_s()))
                self._line.look(self._present.catch_up(), self.ready_pods)
            self._has_come.clear()

    async def log_load(self) -> None:
        """Log a change of load: real requests have begun, ended, doubled or halved."""
        now_ms = self._present.catch_up()
        self._present.world.advance_load(now_ms)
        before, after = self._logged_rate, self.service.single_rate
        has_ended = before > 0 and not after
        is_other = abs(after - before) >= _LOGGED_STEP and not before / 2 <= after <= 2 * before
        if has_ended or is_other:
            self._logged_rate = after
            others = self.service.rate - after
            before, after = round(others + before, 1), round(others + after, 1)
            self._present.world.log_load(self.deployment, before, after, now_ms)

    def close(self) -> None:
        """Refuse all waiting requests."""
        for each in self._waiting:
            if not each.done():
                each.set_exception(UnservedError("the run has ended"))
