"""The energy of a cluster's GPUs: idle power while their node exists, plus the energy of work.

It is that of the simulated readings, whose power is linear in how busy a GPU is.
"""

from gpuscale.agent.gpu import GpuModel, mean_power_w
from gpuscale.base.objects.pods import Pod
from gpuscale.lab.sim.control.cloud import Cloud
from gpuscale.lab.sim.load.agents import COPY_PER_BUSY
from gpuscale.lab.sim.pod_index import OwnerKey, PodIndex

_JOULES_PER_KWH = 3_600_000


def work_w(model: GpuModel) -> float:
    """Return the power in watts that full work adds to a GPU's idle power."""
    return mean_power_w(model, 1.0, COPY_PER_BUSY) - model.idle_power_w


class WorkEnergy:
    """The energy that work has added.

    Args:
        index: of the pods.
        cloud: knows the GPUs of their nodes.
    """

    def __init__(self, index: PodIndex, cloud: Cloud) -> None:
        self._index = index
        self._cloud = cloud
        self._known: dict[OwnerKey, tuple[int, float]] = {}
        """Of an owner, what the version of its pods was, and what they draw."""
        models = {m.gpu_model for pool in cloud.pools.values() for m in pool.machines}
        self._only_w = work_w(models.pop()) if len(models) == 1 else None
        self._joules = 0.0

    def add_ready(self, owner: OwnerKey, busy_gpu_ms: float) -> None:
        """Count work that an owner's ready pods share evenly."""
        if busy_gpu_ms:
            self._joules += busy_gpu_ms / 1000 * self._ready_w(owner)

    def add_pod(self, pod: Pod, busy_gpu_ms: float) -> None:
        """Count the work of one pod."""
        self._joules += busy_gpu_ms / 1000 * self._pod_w(pod)

    def kwh(self, now_ms: int) -> float:
        """Return the energy of all GPUs so far, in kWh, while their nodes were usable."""
        idle_wh = sum(
            (each.hours(now_ms) - each.starting_hours(now_ms))
            * each.gpus
            * each.machine.gpu_model.idle_power_w
            for each in self._cloud.rentals
        )
        return idle_wh / 1000 + self._joules / _JOULES_PER_KWH

    def _ready_w(self, owner: OwnerKey) -> float:
        if self._only_w is not None:
            return self._only_w
        version = self._index.owner_versions[owner]
        known = self._known.get(owner)
        if known is None or known[0] != version:
            pods = self._index.owned_by(owner)
            watts = [self._pod_w(pod) for pod in pods if pod.status.ready]
            known = self._known[owner] = version, sum(watts) / max(len(watts), 1)
        return known[1]

    def _pod_w(self, pod: Pod) -> float:
        return work_w(self._cloud.machine_of(pod.spec.node_name).gpu_model)
