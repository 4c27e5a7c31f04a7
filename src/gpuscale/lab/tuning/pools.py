"""Which node pool `gpuscale tune` may search: that of a workload which no other uses."""

from collections.abc import Sequence

from gpuscale.hpa.cluster.nodes import ClusterAutoscaler
from gpuscale.hpa.cluster.scheduling import gpu_count
from gpuscale.lab.plan.tuning.pooled import DedicatedPool
from gpuscale.lab.sim.control.machines import CloudPool
from gpuscale.lab.sim.fluid.run import fleet_pool, home_pool
from gpuscale.lab.sim.scenario.setup import ServiceSetup, Setup
from gpuscale.ops.providers import named


def home_of(setup: Setup, chosen: ServiceSetup) -> CloudPool:
    """Return the pool of a workload's pods."""
    deployment = next(each for each in setup.deployments if each.metadata.key == chosen.deployment)
    return home_pool(setup, deployment) or setup.pools[0]


def is_growing(pool: CloudPool) -> bool:
    """Return whether the autoscaler may change the pool's size."""
    return pool.pool.max_nodes > pool.pool.min_nodes


def has_scale_down_times(pool: CloudPool) -> bool:
    """Return whether the provider's node autoscaler lets one say how long empty nodes stay."""
    provider = named(pool.provider)
    return provider is None or provider.has_scale_down_times


def own_pool(
    setup: Setup, chosen: ServiceSetup, pool: CloudPool, options: Sequence[str]
) -> tuple[DedicatedPool | None, str]:
    """Return the node pool that may be searched with a workload, or why there is none.

    Args:
        setup: the scenario.
        chosen: the workload.
        pool: that its pods are on.
        options: given ones that make it another pool than the scenario's.
    """
    if not is_growing(pool):
        return None, ""
    others = [each for each in setup.deployments if each.metadata.key != chosen.deployment]
    with_gpus = [each for each in others if gpu_count(each.template.spec)]
    why = "so its settings were not searched."
    if setup.jobs or with_gpus:
        return None, f"Other workloads use the node pool {pool.pool.name} too, {why}"
    if setup.node_policy is not ClusterAutoscaler:
        return None, f"The node pool {pool.pool.name} has a policy of its own, {why}"
    if options:
        return None, f"With {options[0]} the node pool is not the scenario's, {why}"
    start_ms = chosen.lifecycle.image_pull_ms + chosen.lifecycle.startup_ms
    found = DedicatedPool(
        pool.pool.name,
        pool.provider,
        fleet_pool(setup, pool),
        chosen.model.gpus,
        start_ms / 1000,
        has_scale_down_times(pool),
    )
    return found, ""
