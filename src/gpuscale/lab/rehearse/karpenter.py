"""A rehearsal's nodes as a real Karpenter makes them, with its provider of nodes without machines.

Karpenter gets the scenario's pools as NodePools, buys for pods that the real scheduler leaves, and takes away
what it finds too much. Its nodes join the simulated machines when they are seen, with the GPUs that the
scenario gives their instance types.
"""

from collections.abc import Iterator, Mapping, Sequence

from gpuscale.base.errors import UsageError
from gpuscale.base.objects.gpu_resources import WHOLE_GPUS
from gpuscale.base.objects.selectors import OPERATOR_WORDS, Operator, Requirement
from gpuscale.hpa.cluster.nodes import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ZONE,
    Action,
    NodeRequest,
    Offering,
)
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import JsonObject, KubeClient
from gpuscale.lab.rehearse.mark import RehearsalMark
from gpuscale.lab.rehearse.site import ClusterControlPlane, RehearsalSite
from gpuscale.lab.sim.control.machines import CloudPool, Machine
from gpuscale.lab.sim.scenario.setup import Setup

NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"
NODE_CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
_GROUPS = ("karpenter.sh/v1", "karpenter.kwok.sh/v1alpha1")
_POOL = "karpenter.sh/nodepool"


class NoPolicy:
    """Leaves the nodes to others."""

    def scan(self, _request: NodeRequest) -> Sequence[Action]:
        return ()


class KarpenterControlPlane(ClusterControlPlane):
    """Kubernetes' own controllers, and Karpenter for the nodes: nothing is ordered for those."""

    def node_joined(self, name: str, pool: CloudPool, machine: Machine) -> None: ...

    def node_usable(self, name: str) -> None: ...

    def node_left(self, name: str) -> None:
        self._site.containers.end_orphans()


async def check_karpenter(client: KubeClient, setup: Setup, speed: float) -> None:
    """Raise unless the cluster has a Karpenter whose nodes cost nothing, and the scenario suits it.

    Raises:
        UsageError: it has none, or one of a real cloud alone; or the scenario has what it can't do.
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    for group in _GROUPS:
        if await client.find(f"/apis/{group}") is None:
            raise UsageError(
                f"--karpenter: found no {group} on the cluster, expected Karpenter with its KWOK provider, "
                "whose nodes have no machines and cost nothing"
            )
    if speed != 1:
        raise UsageError(
            f"--karpenter: found --speed {speed:g}, expected 1: Karpenter waits by its own clock"
        )
    for item in setup.pools:
        if item.pool.min_nodes:
            raise UsageError(
                f"--karpenter: found min {item.pool.min_nodes} in node pool {item.pool.name}, expected 0: a "
                "NodePool has no smallest size"
            )


def karpenter_manifests(setup: Setup, mark: RehearsalMark) -> Iterator[tuple[str, JsonObject]]:
    """Yield the class of nodes and the NodePools of a placed scenario, each with the path to create it at."""
    for item in setup.pools:
        name = pool_name(item, mark)
        metadata = {"name": name, "labels": dict(mark.labels)}
        yield (
            NODE_CLASSES,
            {
                "apiVersion": _GROUPS[1],
                "kind": "KWOKNodeClass",
                "metadata": metadata,
                "spec": {"nodeRegistrationDelay": f"{round(item.machine.provisioning.mean)}s"},
            },
        )
        yield NODE_POOLS, _node_pool(item, metadata)


def pool_name(item: CloudPool, mark: RehearsalMark) -> str:
    """Return the name of a pool's NodePool, which no other of the cluster has."""
    return f"{item.pool.name[:40]}-{mark.id.rpartition('-')[2]}"


def _node_pool(item: CloudPool, metadata: Mapping[str, object]) -> JsonObject:
    pool, disruption = item.pool, item.pool.disruption
    names = tuple(sorted(each.name for each in pool.instance_types))
    required = (Requirement(INSTANCE_TYPE, Operator.IN, names), *pool.requirements)
    after_ms, expiry_ms = disruption.consolidate_after_ms, disruption.expire_after_ms
    spec: JsonObject = {
        "limits": {"nodes": str(pool.max_nodes), **{k: str(v) for k, v in pool.limits.items()}},
        "disruption": {
            "consolidationPolicy": disruption.consolidation_policy,
            "consolidateAfter": _seconds(after_ms),
            "budgets": [
                {
                    "nodes": each.nodes,
                    **({"reasons": list(each.reasons)} if each.reasons else {}),
                    **(
                        {
                            "schedule": each.schedule,
                            "duration": f"{each.duration_ms // 60_000}m",
                        }
                        if each.schedule
                        else {}
                    ),
                }
                for each in disruption.budgets
            ],
        },
        "template": {
            "metadata": {"labels": dict(pool.labels)},
            "spec": {
                "expireAfter": _seconds(expiry_ms),
                "nodeClassRef": {
                    "group": _GROUPS[1].partition("/")[0],
                    "kind": "KWOKNodeClass",
                    "name": metadata["name"],
                },
                "requirements": [
                    {
                        "key": each.key,
                        "operator": OPERATOR_WORDS[each.operator],
                        "values": list(each.values),
                    }
                    for each in required
                ],
                "taints": [
                    {"key": each.key, "value": each.value, "effect": each.effect}
                    for each in pool.taints
                ],
            },
        },
    }
    if pool.weight:
        spec["weight"] = pool.weight
    return {
        "apiVersion": _GROUPS[0],
        "kind": "NodePool",
        "metadata": dict(metadata),
        "spec": spec,
    }


def _seconds(time_ms: int | None) -> str:
    """Return a duration in the only units that a NodePool takes."""
    return "Never" if time_ms is None else f"{time_ms // 1000}s"


def see_nodes(site: RehearsalSite, mark: RehearsalMark, nodes: Mapping[str, JsonObject]) -> None:
    """Let the machines of Karpenter's nodes come and go as the API server has them.

    Args:
        site: whose machines they are.
        mark: of the rehearsal.
        nodes: all with its label.
    """
    pools = {pool_name(item, mark): item for item in site.cloud.pools.values()}
    there = {text_of(mapping_of(body.get("metadata")).get("name")) for body in nodes.values()}
    for name in tuple(site.cluster.nodes):
        if name not in there:
            site.cloud.lose(name)
    for body in nodes.values():
        metadata = mapping_of(body.get("metadata"))
        name, labels = text_of(metadata.get("name")), mapping_of(metadata.get("labels"))
        item = pools.get(text_of(labels.get(_POOL)))
        if item is None:
            continue
        if name not in site.cluster.nodes:
            machine = item.named(text_of(labels.get(INSTANCE_TYPE)))
            had = text_of(labels.get(CAPACITY_TYPE)), text_of(labels.get(ZONE))
            site.cloud.adopt(name, item, machine, _offering(machine, *had))
        offered = mapping_of(mapping_of(body.get("status")).get("allocatable"))
        if any(text_of(offered.get(resource)) not in {"", "0"} for resource in WHOLE_GPUS):
            site.cloud.offer_gpus(name)


def _offering(machine: Machine, capacity_type: str, zone: str) -> Offering:
    """Return the offering of a machine that was had; the first of its capacity type where zones differ."""
    of_type = [o for o in machine.shape.offerings if o.capacity_type in {capacity_type, ""}]
    exact = [each for each in of_type if each.zone == zone]
    return (exact or of_type or list(machine.shape.offerings))[0]
