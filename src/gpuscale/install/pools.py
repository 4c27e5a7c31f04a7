"""The files of a values file's node pool, as its provider makes them.

`install` does not run them: nodes cost money, and making them needs rights in the cloud.
"""

from collections.abc import Sequence

from gpuscale.install.values import Values
from gpuscale.providers import PoolFile
from gpuscale.providers.karpenter import karpenter_files


def pool_files(values: Values) -> Sequence[PoolFile]:
    """Return the files that make the node pool; none where the values have no pool."""
    pool, provider = values.spec.node_pool, values.spec.provider
    if pool is None or provider.pool_files is None:
        return ()
    made = values.spec.pool(pool)
    if pool.autoscaler == "karpenter" and provider.karpenter is not None:
        return karpenter_files(made, provider.karpenter)
    return provider.pool_files(made)
