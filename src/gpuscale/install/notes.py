"""What values allow but may not mean: told when they are rendered, and nothing is stopped by it."""

from gpuscale.install.values import Scale, Values


def notes(values: Values) -> list[str]:
    """Return what a user should know about these values, one sentence or two each."""
    return [*_scaling(values), *_streams(values), *_sharing(values), *_access(values)]


def _scaling(values: Values) -> list[str]:
    spec = values.spec
    found = []
    if any(_needs_custom(scale) for scale in spec.scale) and not spec.metrics_api.enabled:
        found.append(
            "metricsApi is off: HPAs get their values from the metrics API that the cluster has"
        )
    pool = spec.node_pool
    if pool is not None:
        most = pool.max_nodes * pool.gpus * _replicas(values)
        wanted = sum(scale.max_replicas for scale in spec.scale)
        if wanted > most:
            found.append(
                f"scale asks for up to {wanted} pods, and nodePool {pool.name} has GPUs for {most} of one "
                "GPU each: the others will stay pending"
            )
    return found


def _streams(values: Values) -> list[str]:
    if not values.spec.has_streams or not values.spec.has_own_prometheus:
        return []
    return [
        "a Prometheus is installed for alerts and dashboards only: nothing is scaled by it, and without "
        "both it is left out"
    ]


def _needs_custom(scale: Scale) -> bool:
    return scale.autoscaler == "hpa"


def _replicas(values: Values) -> int:
    plugin = values.spec.device_plugin
    return plugin.replicas if plugin.enabled else 1


def _sharing(values: Values) -> list[str]:
    if _replicas(values) == 1:
        return []
    found = []
    if any(scale.signal == "gpu-utilization" for scale in values.spec.scale):
        found.append(
            "GPUs are shared by time-slicing: gpu-utilization has no pods then; signal gpu-share tells "
            "what each pod uses"
        )
    pool = values.spec.node_pool
    if pool is not None and values.spec.provider != "eks":
        found.append(
            "node autoscalers know the GPUs of a node, not the shares that time-slicing makes of them: from "
            "zero nodes they may start one node per pod"
        )
    return found


def _access(values: Values) -> list[str]:
    agent = values.spec.agent
    if values.spec.provider == "gke" and agent.enabled and agent.device_access == "runtime":
        return ["GKE's nodes have no NVIDIA runtime: the agent needs deviceAccess: host there"]
    if agent.enabled and agent.device_access == "host":
        return [
            "deviceAccess: host makes the agent privileged; it is for nodes without NVIDIA's runtime"
        ]
    return []
