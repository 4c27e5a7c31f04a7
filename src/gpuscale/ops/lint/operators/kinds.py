"""Custom resources that lint knows: what their operators make of them, refuse, and let others scale.

A kind is one entry. What is made is judged as if it had been written, with places where the custom resource
says the same.

Source: of scale subresources, the CRDs of the releases that the modules name; leaderworkerset v0.10, rbg
    v0.8, kthena v1.0, llmaz v0.1, kaito v0.12, kubeai v0.21, argo-rollouts v1.9.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from gpuscale.ops.lint.operators import aibrix, keda_http, kserve, kthena, kubeai, nvidia, ome, ray
from gpuscale.ops.lint.operators.made import Made
from gpuscale.ops.lint.operators.refusals import Ignored, Refusal
from gpuscale.ops.lint.parts import Part


class Scale(Enum):
    """Whether an HPA can scale objects of a kind."""

    NONE = auto()
    """There is no scale subresource."""
    UNCOUNTED = auto()
    """There is one without `labelSelectorPath`: nobody can tell the pods."""
    WHOLE = auto()


@dataclass(frozen=True, slots=True)
class CustomKind:
    """What is known of a kind."""

    scale: Scale = Scale.NONE
    makes: Callable[[Part], Iterator[Made]] | None = None
    refuses: Callable[[Part], Iterator[Refusal]] | None = None
    refuser: str = ""
    """Who refuses, as in `KServe's webhook`."""
    ignores: Callable[[Part], Iterator[Ignored]] | None = None
    instead: str = ""
    """What to do in place of an HPA of such an object."""
    served: frozenset[str] = frozenset()
    """The versions that a cluster serves; empty where that is unknown."""


_RAY = CustomKind(
    Scale.NONE,
    ray.ray_cluster,
    ray.refused_ray_cluster,
    "KubeRay's operator",
    instead="Set enableInTreeAutoscaling, with minReplicas and maxReplicas of the worker groups.",
)
_SCALED = CustomKind(Scale.WHOLE)
_KINDS: Mapping[tuple[str, str], CustomKind] = {
    ("apps.nvidia.com", "NIMService"): CustomKind(
        makes=nvidia.nim_service,
        instead="Name its Deployment, or write the HPA into spec.scale.hpa.",
    ),
    ("apps.nvidia.com", "NIMPipeline"): CustomKind(makes=nvidia.nim_pipeline),
    ("grove.io", "PodClique"): CustomKind(Scale.WHOLE, nvidia.clique),
    ("grove.io", "PodCliqueSet"): CustomKind(Scale.WHOLE, nvidia.clique_set),
    ("grove.io", "PodCliqueScalingGroup"): _SCALED,
    ("nvidia.com", "DynamoGraphDeployment"): CustomKind(
        makes=nvidia.graph,
        ignores=nvidia.ignored_in_graph,
        instead="Give the service a scalingAdapter, and name its DynamoGraphDeploymentScalingAdapter.",
    ),
    ("nvidia.com", "DynamoComponentDeployment"): CustomKind(),
    ("nvidia.com", "DynamoGraphDeploymentScalingAdapter"): _SCALED,
    ("serving.kserve.io", "InferenceService"): CustomKind(
        Scale.NONE,
        kserve.inference_service,
        kserve.refused_inference_service,
        "KServe's webhook",
        kserve.ignored_in_inference_service,
        "Write its autoScaling, or autoscalerClass: external and name Deployment NAME-predictor.",
    ),
    ("serving.kserve.io", "LLMInferenceService"): CustomKind(
        Scale.NONE,
        kserve.llm_inference_service,
        kserve.refused_llm_inference_service,
        "the schema of KServe's kind",
        instead="Write its scaling.",
    ),
    ("ray.io", "RayCluster"): _RAY,
    ("ray.io", "RayService"): _RAY,
    ("ray.io", "RayJob"): _RAY,
    ("autoscaling.aibrix.ai", "PodAutoscaler"): CustomKind(
        Scale.NONE,
        aibrix.pod_autoscaler,
        aibrix.refused_pod_autoscaler,
        "AIBrix' webhook",
    ),
    ("orchestration.aibrix.ai", "StormService"): _SCALED,
    ("orchestration.aibrix.ai", "RayClusterFleet"): _SCALED,
    ("http.keda.sh", "HTTPScaledObject"): CustomKind(
        Scale.NONE,
        keda_http.http_scaled_object,
        keda_http.refused_http_scaled_object,
        "the schema of the add-on's kind, or KEDA",
    ),
    ("argoproj.io", "Rollout"): _SCALED,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _SCALED,
    ("jobset.x-k8s.io", "JobSet"): CustomKind(),
    ("ome.io", "InferenceService"): CustomKind(
        Scale.NONE, ome.ome_service, ome.refused_ome_service, "OME's webhook"
    ),
    ("ome.io", "ServingRuntime"): CustomKind(makes=ome.ome_runtime),
    ("ome.io", "ClusterServingRuntime"): CustomKind(makes=ome.ome_runtime),
    ("workload.serving.volcano.sh", "ModelBooster"): CustomKind(makes=kthena.model_booster),
    ("workload.serving.volcano.sh", "ModelServing"): _SCALED,
    ("workloads.x-k8s.io", "RoleBasedGroupScalingAdapter"): _SCALED,
    ("workloads.x-k8s.io", "RoleBasedGroupSet"): CustomKind(Scale.UNCOUNTED),
    ("inference.llmaz.io", "Playground"): _SCALED,
    ("inference.llmaz.io", "Service"): _SCALED,
    ("kaito.sh", "InferenceSet"): _SCALED,
    ("kubeai.org", "Model"): CustomKind(
        Scale.UNCOUNTED,
        kubeai.model,
        kubeai.refused_model,
        "the schema of KubeAI's kind",
        instead="Write its minReplicas, maxReplicas and targetRequests.",
    ),
}


KNOWN: frozenset[tuple[str, str]] = frozenset(_KINDS)
"""Groups and kinds."""


def kind_of_definition(whole: Part) -> tuple[tuple[str, str], CustomKind]:
    """Return group and kind of a CustomResourceDefinition, and how objects of it are scaled.

    Source: kubernetes apiextensions v1 CustomResourceSubresourceScale (labelSelectorPath is optional there,
    and an HPA needs it).
    """
    versions = [
        each for each in whole.items("spec", "versions") if each.at("served").data is not False
    ]
    scales = [each.at("subresources", "scale") for each in (whole.at("spec"), *versions)]
    given = [each for each in scales if each.fields()]
    scale = Scale.NONE if not given else Scale.UNCOUNTED
    if any(each.text("labelSelectorPath") for each in given):
        scale = Scale.WHOLE
    served = frozenset(each.text("name") for each in versions)
    key = whole.text("spec", "group"), whole.text("spec", "names", "kind")
    known = _KINDS.get(key, CustomKind())
    return key, replace(known, scale=scale, served=served)


def custom_kind(api_version: str, kind: str) -> CustomKind | None:
    """Return what is known of a kind; None where that is nothing."""
    return _KINDS.get((api_version.rpartition("/")[0], kind))
