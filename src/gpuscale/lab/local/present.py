"""The simulation in real time: the event engine follows a clock instead of running ahead.

The HPA controller asks the metrics API over HTTP, as in a cluster.
"""

from collections.abc import Awaitable, Callable

from gpuscale.base.clock import Clock
from gpuscale.hpa.controller import MetricsClient, observe
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.pipeline import phase_ms
from gpuscale.lab.sim.site import Site


class Present:
    """A simulation that is advanced to the clock's time before each look at it."""

    def __init__(self, world: Site, clock: Clock) -> None:
        self.world = world
        self._clock = clock

    def catch_up(self) -> int:
        """Run all events that are due, and return the time in milliseconds."""
        now_ms = self._clock.now_ms()
        self.world.engine.run_until(now_ms)
        return now_ms


async def every(
    clock: Clock, first_ms: int, period_ms: int, action: Callable[[], Awaitable[None]]
) -> None:
    """Call something at `first_ms` and then once every period, for ever; late calls are not made up for."""
    due_ms = first_ms
    while True:
        await clock.sleep((due_ms - clock.now_ms()) / 1000)
        await action()
        late_ms = max(0, clock.now_ms() - due_ms)
        due_ms += period_ms * (1 + late_ms // period_ms)


async def paced(
    clock: Clock, world: Site, hop: str, period_ms: int, action: Callable[[], Awaitable[None]]
) -> None:
    """Call something once every period, at the same times as a simulation of this seed.

    In step, the HPAs would see what was scraped just now or a period ago, as it happens.
    """
    first_ms = world.start_ms + phase_ms(world.setup.seed, hop, period_ms)
    await every(clock, first_ms, period_ms, action)


class LiveHpas:
    """Fetches each HPA's metrics, then lets the controller decide."""

    def __init__(self, present: Present, controller: HpaController, client: MetricsClient) -> None:
        self._present = present
        self._controller = controller
        self._client = client

    async def sync_all(self) -> None:
        """Sync every HPA once, one after the other."""
        self._present.catch_up()
        for key, hpa in self._present.world.cluster.hpas.items():
            selector = self._controller.target(hpa).scale.selector
            observations = await observe(self._client, hpa, selector)
            self._controller.sync(key, observations, self._present.catch_up())
