"""GKE: `gcloud container node-pools create`, with drivers and device plugin from Google.

Source: GKE how-to pages; container-engine-accelerators.
"""

from collections.abc import Sequence

from gpuscale.ops.providers.files import PoolFile, command, ready_taint_notes, script
from gpuscale.ops.providers.provider import NodeLabel, Pool, Provider

_NOTES = (
    "Adds a GPU node pool to a GKE cluster.",
    "GKE taints its GPU nodes nvidia.com/gpu=present:NoSchedule by itself, and adds the toleration to pods "
    "that request GPUs: no taint is given here. It installs driver and device plugin, so "
    "devicePlugin.enabled stays false; time-slicing is a property of the pool.",
    "Its nodes have the driver in a folder and no NVIDIA runtime: agent.deviceAccess has to be host.",
    "min and max are for the whole pool; --min-nodes would count per zone. ANY takes the zone that "
    "has GPUs; BALANCED would wait for all.",
)
_STARTUP_TAINT = "GKE's autoscaler knows start-up taints by their prefix alone."
_PROFILE_NOTES = (
    "optimize-utilization packs GPU nodes and removes them sooner; the default spreads pods, and nodes "
    "with one pod of eight GPUs never empty.",
)


def _pool_files(pool: Pool) -> Sequence[PoolFile]:
    """Return a script that adds the pool, and one that sets the autoscaler profile."""
    accelerator = f"type={pool.gpu},count={pool.gpus},gpu-driver-version=latest"
    if pool.slices > 1:
        accelerator += (
            f",gpu-sharing-strategy=time-sharing,max-shared-clients-per-gpu={pool.slices}"
        )
    create = command(
        ["gcloud container node-pools create", pool.name],
        f"--cluster {pool.cluster}",
        f"--location {pool.region}",
        *([f"--node-locations {pool.zone}"] if pool.zone else []),
        f"--machine-type {pool.instance_type}",
        f"--accelerator {accelerator}",
        f"--disk-size {pool.disk_gib}",
        f"--num-nodes {pool.min_nodes}",
        "--enable-autoscaling",
        f"--total-min-nodes {pool.min_nodes}",
        f"--total-max-nodes {pool.max_nodes}",
        "--location-policy ANY",
        f"--node-labels gpuscale.dev/pool={pool.name}",
        *([f"--node-taints {pool.ready_taint}"] if pool.ready_taint else []),
        *(["--spot"] if pool.spot else []),
    )
    notes = (*_NOTES, *ready_taint_notes(pool.ready_taint, _STARTUP_TAINT))
    update = command(
        ["gcloud container clusters update", pool.cluster],
        f"--location {pool.region}",
        "--autoscaling-profile optimize-utilization",
    )
    return [
        script("node-pool.sh", notes, create),
        script("cluster-autoscaler.sh", _PROFILE_NOTES, update),
    ]


GKE = Provider(
    name="gke",
    title="Google Kubernetes Engine",
    has_scale_down_times=False,  # except for one of two profiles
    node_labels=(NodeLabel("cloud.google.com/gke-accelerator"),),
    has_device_plugin=True,
    id_schemes=("gce",),
    device_access="host",
    needs_host="GKE's nodes have no NVIDIA runtime: the agent needs deviceAccess: host there",
    pool_files=_pool_files,
)
