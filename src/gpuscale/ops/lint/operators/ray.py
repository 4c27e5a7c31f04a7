"""KubeRay: RayClusters, and those in RayServices and RayJobs.

Source: kuberay v1.7 ray-operator/apis/ray/v1/raycluster_types.go (WorkerGroupSpec),
    ray-operator/controllers/ray/utils/validation.go (ValidateRayClusterSpec).
"""

from collections.abc import Iterator

from gpuscale.ops.lint.operators.made import Making, fields, limits_of, made, name_of
from gpuscale.ops.lint.operators.refusals import Refusal, bounds
from gpuscale.ops.lint.parts import Part

_V2 = "RAY_enable_autoscaler_v2"
_OF_NODES = ("num-cpus", "num-gpus", "memory", "resources")


def ray_cluster(whole: Part) -> Making:
    """Yield the pods of the head and of each group, and the limits of groups that Ray scales."""
    for cluster in _clusters(whole):
        head = cluster.at("headGroupSpec", "template")
        kind = "ray.io/v1", "RayCluster"
        yield made(head, kind, f"{name_of(whole)}/head", {"template": fields(head)})
        for group in cluster.items("workerGroupSpecs"):
            name = f"{name_of(whole)}/{group.text('groupName')}"
            template, copies = fields(group.at("template")), group.at("numOfHosts")
            yield made(group, kind, name, {"copies": copies, "template": template})
            least, most = group.whole("minReplicas") or 0, group.whole("maxReplicas")
            is_scaled = cluster.at("enableInTreeAutoscaling").data is True
            if is_scaled and most is not None and least < most:
                yield limits_of(group, kind, name, least=0)


def _clusters(whole: Part) -> Iterator[Part]:
    """Yield where an object says what its cluster is."""
    for path in (("spec",), ("spec", "rayClusterConfig"), ("spec", "rayClusterSpec")):
        if whole.fields(*path, "headGroupSpec"):
            yield whole.at(*path)


def refused_ray_cluster(whole: Part) -> Iterator[Refusal]:
    """Yield what the operator refuses."""
    for cluster in _clusters(whole):
        head = cluster.at("headGroupSpec")
        is_scaled = cluster.at("enableInTreeAutoscaling").data is True
        is_second = cluster.text("autoscalerOptions", "version") == "v2"
        groups = (head, *cluster.items("workerGroupSpecs"))
        is_asked = any(
            env.text("name") == _V2 and env.text("value") in ("1", "true")
            for container in head.items("template", "spec", "containers")
            for env in container.items("env")
        )
        for group in groups:
            params = group.fields("rayStartParams")
            if group.fields("resources") and any(params.get(key) for key in _OF_NODES):
                yield Refusal(
                    group.at("resources"), "resources here or in rayStartParams, not both"
                )
            restarts = group.at("template", "spec", "restartPolicy")
            if is_scaled and is_second and restarts.data not in (None, "Never"):
                yield Refusal(restarts, "Never, as autoscaler v2 has it")
            if not any(True for _ in group.items("template", "spec", "containers")):
                yield Refusal(group.at("template", "spec", "containers"), "a container")
            yield from bounds(group, "minReplicas", "maxReplicas")
            idle = group.at("idleTimeoutSeconds")
            if group is not head and idle.data is not None and not (is_second or is_asked):
                yield Refusal(idle, "autoscalerOptions.version: v2, which alone reads it")
