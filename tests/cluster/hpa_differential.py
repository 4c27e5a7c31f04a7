"""One case of `hpa_cases` as `decide` answers it, in the shape of the compiled controller's answer."""

import re

from gpuscale.base.documents.documents import Document
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import (
    ExternalMetric,
    ObjectMetric,
    PodsMetric,
    read_hpa,
)
from gpuscale.base.objects.metric_values import (
    milli_of,
    read_external_values,
    read_object_value,
    read_pod_values,
    time_ms,
)
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa import (
    Condition,
    ContainerInfo,
    ContainerUsages,
    ControllerSettings,
    ExternalValues,
    FetchError,
    HpaState,
    ObjectValue,
    PodInfo,
    PodUsage,
    PodValues,
    ReadyCondition,
    Scale,
    decide,
    failed,
    hpas_selecting,
    scale_unreadable,
    succeeded,
)

OWN = "default/h"


def hpa_of(manifest: object, *, scale_to_zero: bool):
    """Return the HPA of a manifest.

    Raises:
        ConfigError: with its faults.
    """
    fields = Fields(Document("case", 0, manifest, {(): 1}), manifest)
    hpa = read_hpa(fields, scale_to_zero=scale_to_zero)
    fields.finish()
    return hpa


def answers(case: dict, decide=decide, minor: int = 37) -> list[dict]:
    """Return what each sync of a case does in Kubernetes 1.N."""
    settings = settings_of(case["settings"], minor)
    hpa = hpa_of(case["hpa"], scale_to_zero=settings.scale_to_zero)
    state, replicas, selectors = state_of(case), 0, {}
    found, selectors = [], {o["key"]: parse_selector(o["selector"]) for o in case["others"]}
    for sync in case["syncs"]:
        replicas = sync["scale"].get("spec", replicas)
        answer, state, replicas = _sync(hpa, sync, state, settings, replicas, selectors, decide)
        found.append(answer)
    return found


def settings_of(given: dict, minor: int) -> ControllerSettings:
    return ControllerSettings(
        downscale_stabilization_s=given["downscaleStabilizationS"],
        tolerance=given["tolerance"],
        cpu_initialization_period_s=given["cpuInitializationPeriodS"],
        initial_readiness_delay_s=given["initialReadinessDelayS"],
        scale_to_zero=given["scaleToZero"],
        minor=minor,
    )


def state_of(case: dict) -> HpaState:
    """Return what the controller remembers at first: what the status says."""
    given = case.get("status", {}).get("conditions", [])
    return HpaState(
        conditions=tuple(
            Condition(
                c["type"], c["status"], c["reason"], c["message"], time_ms(c["lastTransitionTime"])
            )
            for c in given
        )
    )


def _sync(hpa, sync, state, settings, replicas, selectors, decide):
    now_ms = sync["nowMs"]
    if "scaleError" in sync:
        outcome = scale_unreadable(state, sync["scaleError"], now_ms)
        return _answer(None, outcome.state, [outcome.event], ()), outcome.state, replicas
    selector = sync["scale"]["selector"]
    scale = Scale(replicas, sync["scale"].get("status", replicas), selector)
    pods = _pods(sync, selector)
    selecting = _selecting(pods, selector, selectors)
    observations = tuple(_observation(spec, sync) for spec in hpa.metrics)
    decision = decide(
        hpa, scale, pods, observations, state, now_ms, settings, selecting_hpas=selecting
    )
    written = None
    if decision.rescale and "writeError" in sync:
        outcome = failed(decision, sync["writeError"], now_ms)
    else:
        outcome = succeeded(decision)
        if decision.rescale:
            written = replicas = decision.desired_replicas
    events = [*decision.warnings, outcome.event]
    return _answer(written, outcome.state, events, decision.metrics), outcome.state, replicas


def _pods(sync, selector):
    try:
        wanted = parse_selector(selector)
    except ValueError:
        return ()
    pods = (pod_of(pod) for pod in sync["pods"])
    return tuple(pod for pod in pods if wanted.matches(pod.labels))


def _selecting(pods, selector, selectors):
    try:
        if selector:
            selectors[OWN] = parse_selector(selector)
    except ValueError:
        return ()
    return hpas_selecting(pods, selectors)


def pod_of(pod: dict) -> PodInfo:
    """Return a pod of the API as the controller looks at it."""
    meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
    ready = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), None)
    return PodInfo(
        name=meta["name"],
        labels=meta["labels"],
        phase=PodPhase(status["phase"]),
        deleted="deletionTimestamp" in meta,
        ready=ReadyCondition.ABSENT if ready is None else ReadyCondition(ready["status"]),
        ready_transition_ms=_time(ready or {}, "lastTransitionTime"),
        start_ms=_time(status, "startTime"),
        containers=_containers(spec["containers"]),
        init_containers=_containers(spec.get("initContainers", [])),
        pod_requests=_quantities(spec.get("resources", {})),
        overhead=_quantities({"requests": spec.get("overhead", {})}),
    )


def _containers(given):
    return tuple(
        ContainerInfo(
            c["name"], _quantities(c.get("resources", {})), c.get("restartPolicy") == "Always"
        )
        for c in given
    )


def _time(data, key):
    return time_ms(data[key]) if key in data else None


def _quantities(resources):
    return {name: parse_quantity(text) for name, text in resources.get("requests", {}).items()}


def _observation(spec, sync):
    given = _given(spec, sync)
    if "error" in given:
        return FetchError(given["error"])
    items = given["items"]
    match spec:
        case PodsMetric():
            return PodValues(read_pod_values(items))
        case ObjectMetric():
            value = read_object_value(items)
            return ObjectValue(value.value_milli, value.measured_ms)
        case ExternalMetric():
            return ExternalValues(tuple(v.value_milli for v in read_external_values(items)))
        case _:
            return ContainerUsages(tuple(_usage(item, spec.name) for item in items))


def _given(spec, sync):
    match spec:
        case PodsMetric() | ObjectMetric():
            return sync["custom"][spec.name]
        case ExternalMetric():
            return sync["external"][spec.name]
        case _:
            return sync["resource"]


def _usage(item, resource):
    containers = {
        c["name"]: milli_of(c["usage"][resource]) if resource in c["usage"] else None
        for c in item["containers"]
    }
    window_ms = parse_duration_ms(item["window"])
    return PodUsage(item["metadata"]["name"], containers, time_ms(item["timestamp"]), window_ms)


# One shape for both answers


def _answer(written, state, events, metrics):
    return {
        "written": written,
        "desired": state.desired_replicas or 0,
        "lastScaleMs": state.last_scale_ms,
        "conditions": [
            [c.type, c.status, c.reason, c.message, c.last_transition_ms] for c in state.conditions
        ],
        "events": [[e.type, e.reason, e.message] for e in events if e is not None],
        "recommendations": [[r.replicas, r.time_ms] for r in state.recommendations],
        "ups": [[e.replica_change, e.time_ms, int(e.outdated)] for e in state.scale_up_events],
        "downs": [[e.replica_change, e.time_ms, int(e.outdated)] for e in state.scale_down_events],
        "metrics": [[m.value_milli, m.average_value_milli, m.average_utilization] for m in metrics],
    }


def shaped(answer: dict) -> dict:
    """Return the compiled controller's answer to one sync in the shape of ours."""
    conditions = answer["conditions"] or []
    shape = {key: answer[key] for key in ("written", "desired", "lastScaleMs", "events")}
    return shape | {
        "conditions": [
            [c["type"], c["status"], c["reason"], c["message"], c["sinceMs"]] for c in conditions
        ],
        "recommendations": answer["recommendations"],
        "ups": answer["ups"],
        "downs": answer["downs"],
        "metrics": [_current(metric) for metric in answer["metrics"] or []],
    }


def _current(metric):
    source = metric.get(metric["type"][:1].lower() + metric["type"][1:]) if metric["type"] else None
    current = (source or {}).get("current", {})
    value, average = current.get("value"), current.get("averageValue")
    return [
        None if value is None else parse_quantity(value).milli_value(),
        None if average is None else parse_quantity(average).milli_value(),
        current.get("averageUtilization"),
    ]


_LACKING = re.compile(
    r"missing (pod-level )?request for \S+ in (container \S+ of )?Pod \S+|container \S+ not found in Pod \S+"
)
_KEYS = re.compile(r"(multiple HPAs: |more than one HPA \(e\.g\. )\[([^]]*)\]")
_HINTS = re.compile(
    r"(; name part must consist of .*? an alphanumeric character)? \(e\.g\. .*? validation is '[^']*'\)"
)
_UNPARSED = re.compile(r"(internal selector object: ).*")


def comparable(answer: dict, sync: dict) -> dict:
    """Return an answer without what is random or known to differ.

    Upstream names whichever pod lacks a request, and keys of HPAs, in random order. The mean over no pods is
    the smallest number there, and none here. The status of a sync without a scale is that of the last. What
    is wrong with a selector is said in other words, and of a label without the hints behind the first fault.
    """
    replaced = {
        "conditions": [[*c[:3], _plain(c[3]), c[4]] for c in answer["conditions"]],
        "events": [[*e[:2], _plain(e[2])] for e in answer["events"]],
    }
    replaced["metrics"] = [
        [value, None if average == _NO_MEAN else average, utilization]
        for value, average, utilization in answer["metrics"]
        if "scaleError" not in sync
    ]
    return answer | replaced


_NO_MEAN = -(2**63)


def _plain(text: str) -> str:
    text = _KEYS.sub(lambda found: f"{found[1]}{sorted(found[2].split())}", text)
    text = _HINTS.sub("", text)
    return _LACKING.sub("a pod lacks a request", _UNPARSED.sub(r"\1one", text))
