"""KServe: InferenceServices and LLMInferenceServices, and what their webhooks refuse.

Source: kserve v0.20 pkg/apis/serving/v1beta1/component.go, predictor.go, inference_service_defaults.go
    (requests), inference_service_validation.go; pkg/controller/v1beta1/inferenceservice/reconcilers
    (hpa_reconciler.go, keda_reconciler.go: the type of an External target is not read);
    pkg/apis/serving/v1alpha2/llm_inference_service_types.go (CEL rules),
    pkg/controller/v1alpha2/llmisvc/scaling.go.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from gpuscale.ops.lint.operators.made import (
    DEPLOYMENT,
    HPA,
    SCALED_OBJECT,
    Made,
    Making,
    as_text,
    default,
    fields,
    limits_of,
    made,
    name_of,
    target,
)
from gpuscale.ops.lint.operators.refusals import Ignored, Refusal, bounds
from gpuscale.ops.lint.parts import Part

_GROUP_SET = "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"
_KNATIVE = "serving.knative.dev/v1", "Service"
_MODE = ("metadata", "annotations", "serving.kserve.io/deploymentMode")
_CLASS = ("metadata", "annotations", "serving.kserve.io/autoscalerClass")
_STANDARD = ("Standard", "RawDeployment")
_SERVERLESS = ("Knative", "Serverless")
_CLASSES = ("hpa", "external", "keda", "none")
_COMPONENTS = ("predictor", "transformer", "explainer")
_SERVERS = (
    *("model", "huggingface", "triton", "pytorch", "tensorflow", "onnx", "sklearn", "xgboost"),
    *("lightgbm", "paddle", "pmml", "art"),
)
"""Fields of a component that are a container beside their own settings."""
_METRICS = ("scaleMetric", "scaleTarget", "autoScaling")
_REQUESTS = {"cpu": "1", "memory": "2Gi"}
"""That the defaulting webhook gives where there are none, unless it is configured otherwise."""
_CPU_PERCENT = 80
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def inference_service(whole: Part) -> Making:
    """Yield each component's pods, and its HPA, ScaledObject or Knative's limits."""
    mode, klass = whole.text(*_MODE), whole.text(*_CLASS)
    for key in _COMPONENTS:
        part = whole.at("spec", key)
        if not part.fields():
            continue
        variant = f"-{part.text('name')}" if part.text("name") else ""
        name = f"{name_of(whole)}{variant}-{key}"
        kind = _KNATIVE if mode in _SERVERLESS else DEPLOYMENT
        yield made(part, kind, name, {"template": _template(part)})
        worker = part.at("workerSpec")
        if worker.fields():
            copies = {"copies": worker.at("pipelineParallelSize")}
            template = {"spec": fields(worker)}
            yield made(worker, DEPLOYMENT, f"{name}-worker", {**copies, "template": template})
        least, most = part.whole("minReplicas"), part.whole("maxReplicas") or 0
        is_scaled = most > (1 if least is None else least) or any(map(part.fields().get, _METRICS))
        if not is_scaled:
            continue
        if (mode in _STANDARD or not mode) and klass == "keda":
            yield _scaled_object(part, name, least, most)
        elif mode in _STANDARD and klass in ("", "hpa"):
            yield _hpa(part, name, least, most)
        elif most and klass not in ("external", "none"):
            yield limits_of(part, kind, name, least=1)


def _template(part: Part) -> dict[str, object]:
    given = [part.at(each) for each in _SERVERS if part.fields(each)]
    given += part.items("containers")
    containers = [{"name": "kserve-container", **fields(each)} for each in given]
    if given:
        first = given[0].at("resources")
        requests = {**_REQUESTS, **fields(first.at("requests"))}
        containers[0]["resources"] = {"requests": requests, "limits": first.at("limits")}
    return {
        "metadata": {"labels": part.at("labels"), "annotations": part.at("annotations")},
        "spec": {**fields(part, "workerSpec", *_SERVERS), "containers": containers},
    }


def _hpa(part: Part, name: str, least: int | None, most: int) -> Made:
    lowest = max(1, least or 1)
    return made(
        part,
        HPA,
        name,
        {
            "scaleTargetRef": target(DEPLOYMENT, name),
            "minReplicas": replace(part.at("minReplicas"), data=lowest),
            "maxReplicas": replace(part.at("maxReplicas"), data=max(lowest, most)),
            "metrics": [*_hpa_metrics(part)],
        },
    )


def _hpa_metrics(part: Part) -> Iterator[dict[str, object]]:
    if part.fields("autoScaling"):
        for each in part.items("autoScaling", "metrics"):
            resource = each.at("resource")
            if resource.text("name") == "cpu":
                utilization = default(resource.at("target", "averageUtilization"), _CPU_PERCENT)
                yield _resource(resource.at("name"), "averageUtilization", utilization)
            elif resource.fields() and resource.text("target", "type") == "Utilization":
                utilization = resource.at("target", "averageUtilization")
                yield _resource(resource.at("name"), "averageUtilization", utilization)
            elif resource.fields():
                value = resource.at("target", "averageValue")
                yield _resource(resource.at("name"), "averageValue", value)
        return
    metric, value = default(part.at("scaleMetric"), "cpu"), part.at("scaleTarget")
    if metric.data == "cpu":
        yield _resource(metric, "averageUtilization", default(value, _CPU_PERCENT))
    elif metric.data == "memory" and value.data is not None:
        yield _resource(metric, "averageUtilization", value)


def _resource(name: Part, key: str, value: Part) -> dict[str, object]:
    type_ = "Utilization" if key == "averageUtilization" else "AverageValue"
    return {
        "type": "Resource",
        "resource": {"name": name, "target": {"type": type_, key: value}},
    }


def _scaled_object(part: Part, name: str, least: int | None, most: int) -> Made:
    lowest = 1 if least is None else least
    behavior = {
        key: {"stabilizationWindowSeconds": rules.at("stabilizationWindowSeconds")}
        for key in ("scaleUp", "scaleDown")
        if (rules := part.at("autoScaling", "behavior", key)).fields()
    }
    return made(
        part,
        SCALED_OBJECT,
        name,
        {
            "scaleTargetRef": {"name": name},
            "minReplicaCount": replace(part.at("minReplicas"), data=lowest),
            "maxReplicaCount": replace(part.at("maxReplicas"), data=max(lowest, most)),
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [
                trigger
                for each in part.items("autoScaling", "metrics")
                if (trigger := _trigger(each))
            ],
        },
    )


def _trigger(metric: Part) -> dict[str, object]:
    if (resource := metric.at("resource")).fields():
        key = {"Utilization": "averageUtilization", "AverageValue": "averageValue"}.get(
            resource.text("target", "type"), "value"
        )
        value = as_text(resource.at("target", key))
        kind = resource.at("target", "type")
        return {"type": resource.at("name"), "metricType": kind, "metadata": {"value": value}}
    if (external := metric.at("external")).fields():
        asked = external.at("metric")
        return {
            "type": asked.at("backend"),
            "metadata": {
                "serverAddress": asked.at("serverAddress"),
                "query": asked.at("query"),
                "threshold": as_text(external.at("target", "value")),
                "namespace": asked.at("namespace"),
                "authModes": external.at("authenticationRef", "authModes"),
            },
            "authenticationRef": external.at("authenticationRef", "authenticationRef"),
        }
    if (pods := metric.at("podmetric")).fields():
        value, query = as_text(pods.at("target", "value")), pods.at("metric", "query")
        address = pods.at("metric", "serverAddress")
        asked_for = {"metricQuery": query, "targetValue": value, "scalerAddress": address}
        return {"type": "external", "metadata": asked_for}
    return {}


def refused_inference_service(whole: Part) -> Iterator[Refusal]:
    """Yield what the webhook refuses."""
    mode, klass = whole.text(*_MODE), whole.text(*_CLASS)
    if not _NAME.fullmatch(name_of(whole)) and "$" not in name_of(whole):
        yield Refusal(whole.at("metadata", "name"), "a name of a-z, 0-9 and -, from a letter on")
    if klass not in ("", *_CLASSES):
        yield Refusal(whole.at(*_CLASS), f"one of {', '.join(_CLASSES)}")
    for key in _COMPONENTS:
        part = whole.at("spec", key)
        if part.whole("maxReplicas") != 0:
            yield from bounds(part, "minReplicas", "maxReplicas")
        metric = part.at("scaleMetric")
        if mode in _STANDARD and klass == "hpa":
            yield from _refused_by_hpa(part)
        elif mode in _STANDARD and klass == "keda":
            if metric.data is not None:
                yield Refusal(metric, "nothing: with KEDA, metrics are in autoScaling")
            yield from _refused_by_keda(part)
        elif mode in _SERVERLESS:
            if metric.data not in (None, "concurrency", "rps"):
                yield Refusal(metric, "concurrency or rps, which Knative has")
            if part.fields("deploymentStrategy"):
                yield Refusal(part.at("deploymentStrategy"), "nothing: it is for Standard mode")


def ignored_in_inference_service(whole: Part) -> Iterator[Ignored]:
    """Yield metrics that what scales a component does not read."""
    mode, klass = whole.text(*_MODE), whole.text(*_CLASS)
    for part in (whole.at("spec", key) for key in _COMPONENTS):
        metrics = tuple(part.items("autoScaling", "metrics"))
        if mode not in _STANDARD or klass not in ("", "hpa", "keda") or not metrics:
            continue
        for key in ("scaleMetric", "scaleTarget"):
            if part.at(key).data is not None:
                what = f"{key} has no effect: KServe reads autoScaling in its place."
                yield Ignored(part.at(key), what, f"Leave {key} out.")
        resources = [each for each in metrics if each.fields("resource")]
        then = "" if resources else ", and with no other it scales on 80 % of the cpu's request"
        for each in metrics:
            if klass != "keda" and each not in resources:
                yield Ignored(
                    each.at("type"),
                    f"Without autoscalerClass: keda, KServe makes an HPA of Resource metrics alone{then}.",
                    "Write the annotation serving.kserve.io/autoscalerClass: keda.",
                )


def _refused_by_hpa(part: Part) -> Iterator[Refusal]:
    metric, value = part.at("scaleMetric"), part.whole("scaleTarget")
    if metric.data not in (None, "cpu", "memory"):
        yield Refusal(metric, "cpu or memory, which an HPA of KServe has")
    if value is not None and not 1 <= value <= 100:
        yield Refusal(part.at("scaleTarget"), "a percentage from 1 to 100")
    for each in part.items("autoScaling", "metrics"):
        if each.text("type") != "Resource":
            yield Refusal(each.at("type"), "Resource; others take autoscalerClass: keda")


def _refused_by_keda(part: Part) -> Iterator[Refusal]:
    for each in part.items("autoScaling", "metrics"):
        if each.text("type") == "Resource":
            is_cpu = each.text("resource", "name") == "cpu"
            kind = each.at("resource", "target", "type")
            known = ("Utilization",) if is_cpu else ("Utilization", "AverageValue")
            if each.fields("resource") and kind.data not in known:
                yield Refusal(kind, " or ".join(known))
            continue
        source = each.at(
            {"External": "external", "PodMetric": "podmetric"}.get(each.text("type"), "")
        )
        if source.fields() and not source.text("metric", "query"):
            yield Refusal(source.at("metric", "query"), "a query")
        if source.fields() and source.at("target", "value").data is None:
            yield Refusal(source.at("target", "value"), "a value, which is the threshold")


def llm_inference_service(whole: Part) -> Making:
    """Yield the pods of both workloads, and what scales them."""
    for section, infix in ((whole.at("spec"), ""), (whole.at("spec", "prefill"), "-prefill")):
        if not section.fields():
            continue
        is_group = bool(section.fields("worker"))
        name = f"{name_of(whole)}-kserve{'-mn' if is_group else ''}{infix}"
        kind = _GROUP_SET if is_group else DEPLOYMENT
        meta = {"labels": section.at("labels"), "annotations": section.at("annotations")}
        replicas = section.at("replicas")
        if is_group:
            templates = {
                "leaderTemplate": {"metadata": meta, "spec": section.at("template")},
                "workerTemplate": {"metadata": meta, "spec": section.at("worker")},
                "size": replace(section.at("parallelism"), data=_nodes(section)),
            }
            yield made(
                section, kind, name, {"replicas": replicas, "leaderWorkerTemplate": templates}
            )
        elif section.fields("template"):
            template = {"metadata": meta, "spec": section.at("template")}
            yield made(section, kind, name, {"replicas": replicas, "template": template})
        scaling = section.at("scaling")
        wva = scaling.at("wva")
        variant = f"{name_of(whole)}-kserve{infix}-va"
        least = default(scaling.at("minReplicas"), 1)
        if wva.at("hpa").data is not None:
            yield made(
                scaling,
                HPA,
                f"{name_of(whole)}-kserve{infix}-hpa",
                {
                    "scaleTargetRef": target(kind, name),
                    "minReplicas": least,
                    "maxReplicas": scaling.at("maxReplicas"),
                    "behavior": wva.at("hpa", "behavior"),
                    "metrics": [
                        {
                            "type": "External",
                            "external": {
                                "metric": {
                                    "name": "wva_desired_replicas",
                                    "selector": {"matchLabels": {"variant_name": variant}},
                                },
                                "target": {"type": "Value", "value": "1"},
                            },
                        }
                    ],
                },
            )
        elif wva.at("keda").data is not None:
            # Its labels make it one row, which is not to be seen in the query.
            query = f'max(wva_desired_replicas{{variant_name="{variant}"}})'
            given = {
                key: wva.at("keda", key)
                for key in ("idleReplicaCount", "fallback", "cooldownPeriod", "advanced")
            }
            yield made(
                scaling,
                SCALED_OBJECT,
                f"{name_of(whole)}-kserve{infix}-keda",
                {
                    **given,
                    "scaleTargetRef": target(kind, name),
                    "minReplicaCount": least,
                    "maxReplicaCount": scaling.at("maxReplicas"),
                    "triggers": [
                        {"type": "prometheus", "metadata": {"query": query, "threshold": "1"}}
                    ],
                },
            )


def _nodes(section: Part) -> int:
    """Return the pods of a group: data parallel ranks over those of one pod, or the stages of a pipeline."""
    counts = {
        key: section.whole("parallelism", key) or 0 for key in ("data", "dataLocal", "pipeline")
    }
    if counts["data"] or counts["dataLocal"]:
        return max(1, max(1, counts["data"]) // max(1, counts["dataLocal"]))
    return counts["pipeline"] or 1


def refused_llm_inference_service(whole: Part) -> Iterator[Refusal]:
    """Yield what the schema refuses."""
    for section in (whole.at("spec"), whole.at("spec", "prefill")):
        scaling = section.at("scaling")
        if not isinstance(scaling.data, dict):
            continue
        wva = scaling.at("wva")
        if section.at("replicas").data is not None:
            yield Refusal(section.at("replicas"), "nothing beside scaling")
        if wva.data is None:
            yield Refusal(wva, "the autoscaler's settings, with hpa or keda")
        elif (wva.at("hpa").data is None) == (wva.at("keda").data is None):
            yield Refusal(wva, "hpa or keda, one of the two")
        yield from bounds(scaling, "minReplicas", "maxReplicas")
        idle = wva.at("keda", "idleReplicaCount")
        least = scaling.whole("minReplicas")
        if isinstance(idle.data, int) and (least is None or idle.data >= least):
            yield Refusal(idle, "a number below minReplicas, which has to be written")
