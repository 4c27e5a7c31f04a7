"""AKS: `az aks nodepool add`, the one profile of the cluster's autoscaler, and Karpenter's node class.

Source: azure-aks-docs (use-nvidia-gpu, cluster-autoscaler), Azure/AKS issues 4472 and 4925.
"""

from collections.abc import Sequence

from gpuscale.base.objects.taints import Taint
from gpuscale.ops.providers.files import PoolFile, command, ready_taint_notes, script
from gpuscale.ops.providers.provider import AcceleratorLabel, Karpenter, NodeLabel, Pool, Provider

_NOTES = (
    "Adds a GPU node pool to an AKS cluster; does nothing where it is there already.",
    "AKS installs the driver only. The device plugin is the installation's (devicePlugin.enabled: true). "
    "With the GPU Operator instead, add --gpu-driver none.",
    "Not used on purpose: the header UseGPUDedicatedVHD (blocked since January 2025), "
    "--skip-gpu-driver-install (retired), and --enable-managed-gpu, whose pools the cluster "
    "autoscaler does not support.",
    "VM size, driver and MIG profile can't be changed later: make another pool.",
)
_INIT_TAINT = (
    "It is one of --node-init-taints: AKS puts --node-taints back, and lets nobody in the cluster take them "
    "off."
)
_PROFILE_NOTES = (
    "The autoscaler's settings hold for the whole cluster. An A100 takes about 14 minutes to come up, and "
    "after 15 the autoscaler would delete the node and try again: hence 25m. expander random, AKS' default, "
    "may pick a GPU pool for pods that want none; least-waste does not.",
    "The threshold for GPU nodes is no key of the profile: a node goes when at most half its GPUs are "
    "requested.",
)


def _pool_files(pool: Pool) -> Sequence[PoolFile]:
    """Return a script that adds the pool, and one that sets the autoscaler profile."""
    where = [
        f"--resource-group {pool.resource_group}",
        f"--cluster-name {pool.cluster}",
        f"--name {pool.name}",
    ]
    show = command(["if az aks nodepool show"], *where, "--output none 2>/dev/null; then")
    there = f'{show}  echo "node pool {pool.name} is there already"\n  exit 0\nfi\n'
    add = command(
        ["az aks nodepool add"],
        *where,
        f"--node-vm-size {pool.instance_type}",
        "--mode User",
        f"--node-count {pool.min_nodes}",
        "--enable-cluster-autoscaler",
        f"--min-count {pool.min_nodes}",
        f"--max-count {pool.max_nodes}",
        f"--node-taints {pool.taint}",
        *([f"--node-init-taints {pool.ready_taint}"] if pool.ready_taint else []),
        f"--labels gpuscale.dev/pool={pool.name}",
        f"--node-osdisk-size {pool.disk_gib}",
        *([f"--zones {pool.zone}"] if pool.zone else []),
        *_spot(pool),
    )
    notes = (*_NOTES, *ready_taint_notes(pool.ready_taint, _INIT_TAINT))
    return [script("node-pool.sh", notes, there, add), _profile(pool)]


def _spot(pool: Pool) -> list[str]:
    """Return the arguments of a spot pool, to which AKS adds a taint of its own."""
    if not pool.spot:
        return []
    return ["--priority Spot", "--eviction-policy Delete", "--spot-max-price -1"]


def _profile(pool: Pool) -> PoolFile:
    update = command(
        ["az aks update"],
        f"--resource-group {pool.resource_group}",
        f"--name {pool.cluster}",
        "--cluster-autoscaler-profile expander=least-waste max-node-provision-time=25m",
    )
    return script("cluster-autoscaler.sh", _PROFILE_NOTES, update)


def _pool_faults(pool: Pool) -> Sequence[str]:
    if pool.resource_group is None:
        return ["found nodePool on aks without resourceGroup, expected the cluster's"]
    return ()


def _node_class(pool: Pool) -> dict[str, object]:
    return {
        "apiVersion": "karpenter.azure.com/v1beta1",
        "kind": "AKSNodeClass",
        "metadata": {"name": pool.name},
        "spec": {"imageFamily": "Ubuntu", "osDiskSizeGB": pool.disk_gib},
    }


ACCELERATOR = NodeLabel("kubernetes.azure.com/accelerator", ("nvidia",))
KARPENTERS = NodeLabel("karpenter.azure.com/sku-gpu-manufacturer", ("nvidia",))
AKS = Provider(
    name="aks",
    title="Azure Kubernetes Service",
    node_labels=(ACCELERATOR, NodeLabel("accelerator", ("nvidia",)), KARPENTERS),
    has_device_plugin=False,  # AKS installs the driver only
    taint=Taint("sku", "gpu"),
    id_schemes=("azure",),
    pool_files=_pool_files,
    pool_faults=_pool_faults,
    karpenter=Karpenter(
        _node_class,
        notes=(
            "Needs az aks update --node-provisioning-mode Auto, which pools with the cluster autoscaler in "
            "the same cluster rule out.",
        ),
    ),
    autoscaler_flags={
        "expander": "random",
        "skip_nodes_with_local_storage": False,
        "scale_down_delay_after_delete_ms": 10_000,  # the scan interval
    },
    accelerator=AcceleratorLabel(ACCELERATOR.key, pool_key="kubernetes.azure.com/agentpool"),
)
