"""Actions of a rehearsal on the API server, and the lives of its pods."""

from gpuscale.base.objects.pods import Lifecycle
from gpuscale.kube.client import JsonObject, KubeClient
from gpuscale.kube.simulated import SimulatedKubelet
from gpuscale.lab.rehearse.manifests import job_manifest, path_of, simulated_node
from gpuscale.lab.rehearse.mark import RehearsalMark
from gpuscale.lab.rehearse.mirror import owner_of
from gpuscale.lab.rehearse.site import AddNode, CreateJob, RehearsalSite, RemoveNode
from gpuscale.lab.sim.scenario.setup import STOP_MS


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
                case AddNode(name, pool):
                    await self._kubelet.add(simulated_node(name, pool, self._mark))
                case RemoveNode(name):
                    await self._kubelet.remove(name)
                case CreateJob(run):
                    await self.create(job_manifest(run, setup, self._mark, self._speed))
            orders.popleft()


def lifecycle_of(site: RehearsalSite, pod: JsonObject) -> Lifecycle:
    """Return the durations of a pod's life on its node, as the scenario gives them for its workload."""
    owner = owner_of(pod, site.cluster)
    if owner is None:
        return Lifecycle(stop_ms=STOP_MS)
    key = f"{owner.kind} {pod['metadata']['namespace']}/{owner.name}"
    return site.lifecycle_now(key)
