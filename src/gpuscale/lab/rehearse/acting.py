"""Actions of a rehearsal on the API server, and the lives of its pods."""

from gpuscale.base.objects.pods import Lifecycle
from gpuscale.kube.client import NOT_FOUND, ApiStatusError, JsonObject, KubeClient
from gpuscale.kube.simulated import SimulatedKubelet
from gpuscale.lab.rehearse.manifests import job_manifest, path_of, simulated_node
from gpuscale.lab.rehearse.mark import RehearsalMark
from gpuscale.lab.rehearse.mirror import owner_of
from gpuscale.lab.rehearse.site import (
    AddNode,
    CordonNode,
    CreateJob,
    EvictPod,
    OfferGpus,
    RehearsalSite,
    RemoveNode,
)
from gpuscale.lab.sim.scenario.setup import STOP_MS

_HELD_BACK = 429
"""The eviction API's answer where a budget has nothing left."""


class Actor:
    """Carries out a site's orders on the API server.

    Args:
        client: to the API server.
        kubelet: of the site's nodes.
        site: whose orders they are.
        mark: of all that is made.
        speed: of the rehearsal.
    """

    def __init__(
        self,
        client: KubeClient,
        kubelet: SimulatedKubelet,
        site: RehearsalSite,
        mark: RehearsalMark,
        speed: float = 1.0,
    ) -> None:
        self._client = client
        self._kubelet = kubelet
        self._site = site
        self._mark = mark
        self._speed = speed

    async def create(self, manifest: JsonObject) -> None:
        """Create an object.

        Raises:
            ApiStatusError: it is refused.
            ApiUnreachableError: no answer, or not now.
        """
        await self._client.create(path_of(manifest), manifest)

    async def carry_out(self) -> None:
        """Carry out the site's orders; each stays queued until it is done.

        Raises:
            ApiStatusError: something is refused.
            ApiUnreachableError: no answer, or not now.
        """
        orders, setup = self._site.orders, self._site.setup
        while orders:
            match orders[0]:
                case AddNode(name, pool, machine):
                    await self._kubelet.add(simulated_node(name, pool, machine, self._mark))
                case OfferGpus(name, machine):
                    resource = machine.gpu_model.resource
                    await self._kubelet.offer(name, {resource: str(machine.gpus)})
                case CordonNode(name, is_cordoned):
                    change = {"spec": {"unschedulable": is_cordoned}}
                    await self._client.patch(f"/api/v1/nodes/{name}", change)
                case EvictPod(key):
                    await self._evict(key)
                case RemoveNode(name):
                    await self._kubelet.remove(name)
                case CreateJob(run):
                    await self.create(job_manifest(run, setup, self._mark, self._speed))
            orders.popleft()

    async def _evict(self, key: str) -> None:
        """Ask for a pod's eviction; one that a budget holds back, or that is gone, stays as it is."""
        namespace, _, name = key.partition("/")
        metadata = {"name": name, "namespace": namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        try:
            await self._client.create(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)
        except ApiStatusError as error:
            if error.code not in {NOT_FOUND, _HELD_BACK}:
                raise


def lifecycle_of(site: RehearsalSite, pod: JsonObject) -> Lifecycle:
    """Return the durations of a pod's life on its node, as the scenario gives them for its workload."""
    owner = owner_of(pod, site.cluster)
    if owner is None:
        return Lifecycle(stop_ms=STOP_MS)
    key = f"{owner.kind} {pod['metadata']['namespace']}/{owner.name}"
    return site.lifecycle_now(key)
