"""HorizontalPodAutoscalers with the status their controller writes, and ScaledObjects.

Source: kubernetes v1.37 pkg/controller/podautoscaler/horizontal.go (setStatus, computeStatusFor...);
    pkg/apis/autoscaling/v1/conversion.go and annotations.go (what v1 keeps in annotations).
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.hpa.manifest import hpa_manifest
from gpuscale.base.objects.scaled_object import API_VERSION, KIND, ScaledObject
from gpuscale.base.quantity import milli_text
from gpuscale.hpa import Decision, MetricStatus
from gpuscale.hpa.terms import HPA_GENERATION, parse_version
from gpuscale.lab.kube_api.objects.run import Json, Run
from gpuscale.lab.sim.keda import ScaledStatus

_KIND = "HorizontalPodAutoscaler"
_PREFIX = "autoscaling.alpha.kubernetes.io/"
_SOURCES = {
    "Pods": "pods",
    "Object": "object",
    "External": "external",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
"""A metric's type to the field that has the rest."""
_V1_TARGETS = {"averageValue": "targetAverageValue", "value": "targetValue"}
_V1_CURRENTS = {"averageValue": "currentAverageValue", "value": "currentValue"}
"""The amounts of a metric to what they are called in v1."""


def hpa_body(run: Run, hpa: HorizontalPodAutoscaler, decision: Decision | None) -> Json:
    """Return an HPA in `autoscaling/v2`.

    Args:
        run: it belongs to.
        hpa: of the simulation.
        decision: the controller's latest; None before the first.
    """
    manifest = hpa_manifest(hpa)
    # A run's HPAs never change, so that each has been observed at its first generation.
    has_generation = HPA_GENERATION.is_on(parse_version(run.kubernetes_version))
    status = _status(run, manifest["spec"]["metrics"], decision)
    if has_generation and decision is not None:
        status["observedGeneration"] = 1
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": _KIND,
        "metadata": run.metadata(_KIND, hpa.metadata, generation=1 if has_generation else None),
        "spec": manifest["spec"],
        "status": status,
    }


def _status(run: Run, metrics: list[Json], decision: Decision | None) -> Json:
    if decision is None:
        return {"currentMetrics": None, "desiredReplicas": 0}
    body: Json = {}
    state = decision.next_state
    if state.last_scale_ms is not None:
        body["lastScaleTime"] = run.time(state.last_scale_ms)
    if decision.current_replicas:
        body["currentReplicas"] = decision.current_replicas
    body["desiredReplicas"] = decision.desired_replicas
    body["currentMetrics"] = _current(metrics, decision.metrics) if decision.metrics else None
    body["conditions"] = [
        {
            "type": each.type,
            "status": each.status,
            "lastTransitionTime": run.time(each.last_transition_ms),
            "reason": each.reason,
            "message": each.message,
        }
        for each in decision.conditions
    ]
    return body


def _current(metrics: list[Json], statuses: tuple[MetricStatus, ...]) -> list[Json]:
    """Return a status entry for each metric; a failed metric gets an empty one."""
    found: list[Json] = [{"type": ""} for _ in metrics]
    for status in statuses:
        if status.error is not None:
            continue
        kind = metrics[status.index]["type"]
        source, current = dict(metrics[status.index][_SOURCES[kind]]), dict[str, Any]()
        del source["target"]
        if status.value_milli is not None:
            current["value"] = milli_text(status.value_milli)
        if status.average_value_milli is not None:
            current["averageValue"] = milli_text(status.average_value_milli)
        if status.average_utilization is not None:
            current["averageUtilization"] = status.average_utilization
        found[status.index] = {"type": kind, _SOURCES[kind]: {**source, "current": current}}
    return found


def hpa_v1(body: Mapping[str, Any]) -> Json:
    """Return an `autoscaling/v2` HPA as `autoscaling/v1`, which keeps most fields in annotations."""
    spec, status = body["spec"], body.get("status", {})
    metadata = deepcopy(body["metadata"])
    annotations = dict(metadata.get("annotations", {}))
    kept = {
        key: spec[key] for key in ("scaleTargetRef", "minReplicas", "maxReplicas") if key in spec
    }
    others: list[Json] = []
    for metric in spec.get("metrics") or ():
        percent = _cpu_percent(metric, "target")
        if percent is None or "targetCPUUtilizationPercentage" in kept:
            others.append(_v1(metric, "target", _V1_TARGETS))
        else:
            kept["targetCPUUtilizationPercentage"] = percent
    current = [each for each in status.get("currentMetrics") or () if each["type"]]
    shown = {
        key: status[key]
        for key in ("lastScaleTime", "currentReplicas", "desiredReplicas")
        if key in status
    }
    shown = {"currentReplicas": 0, "desiredReplicas": 0} | shown
    for each in current:
        percent = _cpu_percent(each, "current")
        if percent is not None:
            shown["currentCPUUtilizationPercentage"] = percent
    for name, values in (
        ("metrics", others),
        ("current-metrics", [_v1(each, "current", _V1_CURRENTS) for each in current]),
        ("conditions", status.get("conditions")),
        ("behavior", _v1_behavior(spec.get("behavior") or {})),
    ):
        if values:
            annotations[f"{_PREFIX}{name}"] = json.dumps(values, separators=(",", ":"))
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "autoscaling/v1",
        "kind": _KIND,
        "metadata": metadata,
        "spec": kept,
        "status": shown,
    }


def _cpu_percent(metric: Mapping[str, Any], field: str) -> int | None:
    """Return the utilisation of a Resource metric on CPU; None for every other metric."""
    source = metric.get("resource") or {}
    found = source.get(field, {}).get("averageUtilization") if source.get("name") == "cpu" else None
    return None if found is None else int(found)


def _v1(metric: Mapping[str, Any], field: str, names: Mapping[str, str]) -> Json:
    """Return a metric in the flat form of `autoscaling/v1`."""
    kind = metric["type"]
    place = _SOURCES[kind]
    source = metric[place]
    body: Json = {}
    if "describedObject" in source:
        body["target"] = source["describedObject"]
    named = source.get("metric")
    if named is not None:
        body["metricName"] = named["name"]
        if "selector" in named:
            body["metricSelector" if kind == "External" else "selector"] = named["selector"]
    body |= {key: source[key] for key in ("name", "container") if key in source}
    amounts = source[field]
    for key, flat in names.items():
        if key in amounts:
            # An Object metric's average keeps its name, as v1 only had the plain value.
            body["averageValue" if kind == "Object" and key == "averageValue" else flat] = amounts[
                key
            ]
    if "averageUtilization" in amounts:
        body[f"{field}AverageUtilization"] = amounts["averageUtilization"]
    if kind == "Object" or (kind == "External" and field == "current"):
        body.setdefault(f"{field}Value", "0")  # required in that version
    return {"type": kind, place: body}


def _v1_behavior(behavior: Mapping[str, Any]) -> Json:
    """Return a behavior with Kubernetes' internal field names, which v1 annotations use."""
    return {
        f"S{direction[1:]}": {
            "StabilizationWindowSeconds": rules.get("stabilizationWindowSeconds"),
            "SelectPolicy": rules.get("selectPolicy"),
            "Policies": [
                {
                    "Type": each["type"],
                    "Value": each["value"],
                    "PeriodSeconds": each["periodSeconds"],
                }
                for each in rules["policies"]
            ],
            "Tolerance": rules.get("tolerance"),
        }
        for direction, rules in behavior.items()
    }


def scaled_object_body(run: Run, scaled: ScaledObject, shown: ScaledStatus | None) -> Json:
    """Return a ScaledObject.

    Args:
        run: it belongs to.
        scaled: of the simulation.
        shown: what KEDA's latest look found; None before the first, and while it is paused.
    """
    meta = replace(scaled.metadata, creation_ms=run.start_ms)
    written = deepcopy(dict(run.manifest(KIND, scaled.key).get("spec", {})))
    status: Json = {
        "conditions": _keda_conditions(scaled, shown),
        "hpaName": scaled.hpa_name,
        "scaleTargetKind": f"{scaled.target_api_version}.{scaled.target_kind}",
        "triggersTypes": ",".join(dict.fromkeys(each.kind for each in scaled.triggers)),
    }
    if shown is not None and shown.last_active_ms is not None:
        status["lastActiveTime"] = run.time(shown.last_active_ms)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": run.metadata(KIND, meta, generation=1),
        "spec": written,
        "status": status,
    }


def _keda_conditions(scaled: ScaledObject, shown: ScaledStatus | None) -> list[Json]:
    """Return KEDA's conditions, which have no times."""
    found: list[Json] = []
    if shown is not None:
        for kind, (status, reason) in (("Ready", shown.ready), ("Active", shown.active)):
            if status:
                found.append({"type": kind, "status": status, "reason": reason})
        found.append({"type": "Fallback", "status": str(shown.is_falling_back)})
    return [*found, {"type": "Paused", "status": str(scaled.is_paused)}]
