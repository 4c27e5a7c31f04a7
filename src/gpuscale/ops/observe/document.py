"""Builds a Decision document from API objects of one HPA."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.base.documents.documents import dump_documents
from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    HorizontalPodAutoscaler,
    ResourceMetric,
)
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.decisions import API_VERSION, KIND
from gpuscale.hpa.kernel import MAX_INT64
from gpuscale.hpa.terms import SCALE_TO_ZERO, SCALED_TO_ZERO, KubernetesVersion
from gpuscale.kube import mapping_of, text_of
from gpuscale.ops.observe.answers import Entry, age_s, conditions_of, count
from gpuscale.ops.observe.history import History

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_META = ("name", "namespace", "labels", "annotations", "creationTimestamp", "generation")
"""Of an HPA's metadata, what a reader may want; the rest is the server's bookkeeping."""
_PHASES = frozenset(phase.value for phase in PodPhase)
_FLAGS = (
    "Its flags. Taken to be the defaults: tolerance 0.1, downscale stabilization 5m, CPU initialization "
    "period 5m, initial readiness delay 30s."
)


@dataclass(frozen=True, slots=True)
class Sight:
    """The API server's objects of one HPA and its target, as read."""

    body: Mapping[str, object]
    """Of the HPA, in autoscaling/v2."""
    hpa: HorizontalPodAutoscaler
    """The same, read."""
    now_ms: int
    """When."""
    scale: Mapping[str, object] = field(default_factory=dict)
    scale_error: str = ""
    """The controller's words; empty where the scale was read."""
    pods: Sequence[Mapping[str, object]] = ()
    selecting_hpas: Sequence[str] = ()
    observed: Sequence[Entry] = ()
    """One per metric; none where the controller looks at no metric."""
    history: History = field(default_factory=lambda: History({}, ()))
    unknown: tuple[str, ...] = ()
    """What could not be read beside."""
    nodes: tuple[str, ...] = ()
    """Whether nodes come for the pods that wait for one."""
    kubernetes: KubernetesVersion | None = None
    """The cluster's release; None where it can't be read."""


def decision_document(sight: Sight) -> dict[str, object]:
    """Return the document; ages count back from the time of reading."""
    meta = sight.hpa.metadata
    spec: dict[str, object] = {"hpa": _hpa(sight.body), "scale": _scale(sight)}
    if sight.pods:
        has_usage = any(
            isinstance(m, ResourceMetric | ContainerResourceMetric) for m in sight.hpa.metrics
        )
        spec["pods"] = [pod_entry(pod, sight.now_ms, has_usage=has_usage) for pod in sight.pods]
    if len(sight.selecting_hpas) > 1:
        spec["selectingHpas"] = list(sight.selecting_hpas)
    if sight.observed:
        spec["observed"] = list(sight.observed)
    if sight.history.entries:
        spec["history"] = sight.history.entries
    if config := _config(sight):
        spec["config"] = config
    unknown = [*sight.unknown, *((*sight.history.unknown, _FLAGS) if sight.observed else ())]
    if unknown:
        spec["unknown"] = unknown
    if sight.nodes:
        spec["nodes"] = list(sight.nodes)
    metadata = {"name": meta.name, "namespace": meta.namespace}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def document_text(sight: Sight) -> str:
    """Return the document as YAML."""
    return dump_documents([decision_document(sight)])


def pod_entry(body: Mapping[str, object], now_ms: int, *, has_usage: bool) -> Entry:
    """Return a pod's entry; its containers' requests are included only for Resource metrics."""
    meta, spec = mapping_of(body.get("metadata")), mapping_of(body.get("spec"))
    status = mapping_of(body.get("status"))
    entry: Entry = {"name": text_of(meta.get("name")), "labels": _texts(meta.get("labels"))}
    if text_of(status.get("phase")) in _PHASES:
        entry["phase"] = status["phase"]
    entry |= _ready(body, now_ms)
    if text_of(status.get("startTime")):
        entry["startAge"] = age_s(status["startTime"], now_ms)
    if meta.get("deletionTimestamp") is not None:
        entry["deleted"] = True
    if has_usage:
        own, overhead = _requests(spec), _amounts(spec.get("overhead"))
        entry |= {"requests": own} if own else {}
        entry |= {"overhead": overhead} if overhead else {}
        entry["containers"] = _containers(spec.get("containers"))
        init = _containers(spec.get("initContainers"), are_init=True)
        entry |= {"initContainers": init} if init else {}
    return entry


def _hpa(body: Mapping[str, object]) -> Entry:
    meta = mapping_of(body.get("metadata"))
    kept: Entry = {key: meta[key] for key in _META if meta.get(key) is not None}
    annotations = {
        key: text
        for key, text in mapping_of(meta.get("annotations")).items()
        if key != _LAST_APPLIED
    }
    kept.pop("annotations", None)
    if annotations:
        kept["annotations"] = annotations
    manifest: Entry = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    manifest |= {"metadata": kept, "spec": body.get("spec")}
    if body.get("status"):
        manifest["status"] = body["status"]
    return manifest


def _scale(sight: Sight) -> Entry:
    if sight.scale_error:
        return {"error": sight.scale_error}
    status = mapping_of(sight.scale.get("status"))
    return {
        "specReplicas": count(mapping_of(sight.scale.get("spec")).get("replicas")),
        "statusReplicas": count(status.get("replicas")),
        "selector": text_of(status.get("selector")),
    }


def _config(sight: Sight) -> Entry:
    """Return the cluster's release, and the HPAScaleToZero gate if it differs from its default."""
    version = sight.kubernetes
    config: Entry = {} if version is None else {"kubernetesVersion": str(version)}
    # Either shows that the cluster lets HPAs reach zero.
    types = [each.get("type") for each in conditions_of(sight.body)]
    has_zero = sight.hpa.min_replicas == 0 or SCALED_TO_ZERO in types
    if has_zero and not (version is not None and SCALE_TO_ZERO.is_on(version)):
        config["scaleToZero"] = True
    return config


def _ready(body: Mapping[str, object], now_ms: int) -> Entry:
    for each in conditions_of(body):
        if each.get("type") == "Ready" and each.get("status") in ("True", "False", "Unknown"):
            entry: Entry = {"ready": each["status"]}
            if text_of(each.get("lastTransitionTime")):
                entry["readyTransitionAge"] = age_s(each["lastTransitionTime"], now_ms)
            return entry
    return {}


def _containers(found: object, *, are_init: bool = False) -> list[Entry]:
    """Return the containers; an init container with restartPolicy Always is a sidecar."""
    bodies = [mapping_of(each) for each in (found if isinstance(found, list) else ())]
    entries: list[Entry] = []
    for each in bodies:
        if name := text_of(each.get("name")):
            entry: Entry = {"name": name, "requests": _requests(each)}
            if are_init and each.get("restartPolicy") == "Always":
                entry["restartPolicy"] = "Always"
            entries.append(entry)
    return entries


def _requests(holder: Mapping[str, object]) -> dict[str, object]:
    return _amounts(mapping_of(holder.get("resources")).get("requests"))


def _amounts(found: object) -> dict[str, object]:
    """Return a container's requests; the API server has already validated them."""
    return {name: amount for name, amount in mapping_of(found).items() if _is_amount(amount)}


def _is_amount(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return False
    try:
        return 0 <= parse_quantity(value).milli_value() <= MAX_INT64
    except ValueError:
        return False


def _texts(labels: object) -> dict[str, str]:
    return {key: text for key, text in mapping_of(labels).items() if isinstance(text, str)}
