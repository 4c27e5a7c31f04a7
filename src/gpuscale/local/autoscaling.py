"""The HPA controller of the live loop: it asks the metrics API over HTTP, as in a cluster."""

from gpuscale.hpa.client import MetricsClient, observe
from gpuscale.local.present import Present
from gpuscale.sim.autoscaler import HpaController


class LiveHpas:
    """Fetches what each HPA looks at, then lets the controller decide."""

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
