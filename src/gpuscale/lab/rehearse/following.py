"""Watches on the API server that copy a rehearsal's objects into its simulated site."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from gpuscale.base.clock import Clock
from gpuscale.kube.client import JsonObject, KubeClient, KubeSettings
from gpuscale.kube.informers import Reflector
from gpuscale.lab.local.present import Present
from gpuscale.lab.rehearse.happenings import Happenings
from gpuscale.lab.rehearse.mirror import Mirror

_SETTINGS = KubeSettings(retry_s=0.5, max_retry_s=5.0)
_PODS = "/api/v1/pods"
_DEPLOYMENTS = "/apis/apps/v1/deployments"
_HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
_NODES = "/api/v1/nodes"
_JOBS = "/apis/batch/v1/jobs"
_EVENTS = "/api/v1/namespaces/{}/events"
Items = Mapping[str, JsonObject]


class Following:
    """Watches the objects with the rehearsal's label, and the events of its namespaces.

    Args:
        connection: to the API server.
        present: the site, brought up to the time of each change first.
        mirror: gets the objects.
        happenings: gets the events.
        see_nodes: gets the nodes, where others make them.
        clock: times the waits.
    """

    def __init__(
        self,
        connection: KubeClient,
        present: Present,
        mirror: Mirror,
        happenings: Happenings,
        clock: Clock,
        see_nodes: Callable[[Items], None] | None = None,
    ) -> None:
        self._connection = connection
        self._present = present
        self._mirror = mirror
        self._happenings = happenings
        self._clock = clock
        self._see_nodes = see_nodes

    async def run(self, selector: str, namespaces: Iterable[str]) -> None:
        """Watch until cancelled.

        Args:
            selector: label selector of the objects.
            namespaces: whose events count.
        """
        mirror = self._mirror
        async with asyncio.TaskGroup() as group:
            looks: list[tuple[str, Callable[[Items], None]]] = [
                (_PODS, lambda pods: mirror.see_pods(pods, self._present.catch_up())),
                (_DEPLOYMENTS, mirror.see_deployments),
                (_HPAS, mirror.see_hpas),
                (_JOBS, mirror.see_jobs),
            ]
            if (see_nodes := self._see_nodes) is not None:
                looks.append(
                    (_NODES, lambda nodes: (self._present.catch_up(), see_nodes(nodes))[1])
                )
            for path, see in looks:
                group.create_task(self._objects(path, selector, see), name=f"follow {path}")
            for namespace in namespaces:
                path = _EVENTS.format(namespace)
                group.create_task(self._events(path), name=f"follow {path}")

    async def _objects(self, path: str, selector: str, see: Callable[[Items], None]) -> None:
        copy: Reflector[JsonObject]

        def changed() -> None:
            see(copy.items)

        params = {"labelSelector": selector}
        copy = Reflector(
            self._connection, _SETTINGS, path, params, lambda body: body, self._clock, changed
        )
        await copy.run()

    async def _events(self, path: str) -> None:
        """Pass on each event as it arrives, without storing it."""
        log: Reflector[JsonObject] = Reflector(
            self._connection, _SETTINGS, path, {}, self._hear, self._clock, lambda: None
        )
        await log.run()

    def _hear(self, body: JsonObject) -> None:
        event = self._happenings.read(body, self._present.catch_up())
        if event is not None:
            self._present.world.cluster.events.add(event)
