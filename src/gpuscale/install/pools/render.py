"""The files of a values file's node pool, whatever the provider."""

from gpuscale.install.pools.ack import ack_files
from gpuscale.install.pools.aks import aks_files
from gpuscale.install.pools.eks import eks_files
from gpuscale.install.pools.files import PoolFile
from gpuscale.install.pools.gke import gke_files
from gpuscale.install.pools.karpenter import karpenter_files
from gpuscale.install.values import Values

_FILES = {"aks": aks_files, "eks": eks_files, "gke": gke_files, "ack": ack_files}


def pool_files(values: Values) -> list[PoolFile]:
    """Return the files that make the node pool; none where the values have no pool."""
    pool = values.spec.node_pool
    if pool is None:
        return []
    if pool.autoscaler == "karpenter":
        return karpenter_files(values)
    return _FILES[values.spec.provider](values)
