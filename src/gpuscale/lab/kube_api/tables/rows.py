"""The table row of an object, for each kind: one cell for each column.

Source: kubernetes v1.36 pkg/printers/internalversion/printers.go; KEDA v2.21 for ScaledObjects (its CRD's
    additionalPrinterColumns).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuscale.base.objects.hpa import targets_text
from gpuscale.lab.kube_api.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    EVENT,
    HPA,
    JOB,
    LEADER_WORKER_SET,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    SCALED_OBJECT,
    SERVICE,
    STATEFUL_SET,
    ApiResource,
)
from gpuscale.lab.kube_api.tables.ages import age, human_duration, time_ms
from gpuscale.lab.kube_api.tables.cells import (
    condition,
    containers_and_images,
    event_source,
    few,
    label_selector,
    labels_text,
    node_address,
    node_roles,
    pod_state,
    readiness_gates,
    service_addresses,
    service_ports,
)

Cell = str | int | None
Object = Mapping[str, Any]
_NONE = "<none>"
_UNKNOWN = "<unknown>"


def _created(item: Object, now_ms: int) -> str:
    return age(item["metadata"].get("creationTimestamp"), now_ms)


def _template(item: Object) -> tuple[str, str]:
    return containers_and_images(item["spec"]["template"]["spec"].get("containers") or ())


def _pod(item: Object, now_ms: int) -> Sequence[Cell]:
    status, spec = item.get("status", {}), item["spec"]
    state = pod_state(item)
    restarts = str(state.restarts)
    if state.restarts and state.last_restart:
        restarts += f" ({age(state.last_restart, now_ms)} ago)"
    ips = status.get("podIPs") or [{}]
    return (
        item["metadata"]["name"],
        f"{state.ready}/{state.containers}",
        state.reason,
        restarts,
        _created(item, now_ms),
        ips[0].get("ip") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        readiness_gates(item),
    )


def _node(item: Object, now_ms: int) -> Sequence[Cell]:
    status = item.get("status", {})
    info = status.get("nodeInfo", {})
    ready = condition(status, "Ready")
    states = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if item.get("spec", {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    kernel = info.get("kernelVersion") or _UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return (
        item["metadata"]["name"],
        ",".join(states),
        node_roles(item["metadata"].get("labels") or {}) or _NONE,
        _created(item, now_ms),
        info.get("kubeletVersion", ""),
        node_address(status, "InternalIP") or _NONE,
        node_address(status, "ExternalIP") or _NONE,
        info.get("osImage") or _UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or _UNKNOWN,
    )


def _namespace(item: Object, now_ms: int) -> Sequence[Cell]:
    phase = item.get("status", {}).get("phase", "")
    return item["metadata"]["name"], phase, _created(item, now_ms)


def _service(item: Object, now_ms: int) -> Sequence[Cell]:
    spec = item["spec"]
    return (
        item["metadata"]["name"],
        spec.get("type", ""),
        *service_addresses(item),
        service_ports(spec.get("ports") or ()) or _NONE,
        _created(item, now_ms),
        labels_text(spec.get("selector") or {}),
    )


def _endpoint_slice(item: Object, now_ms: int) -> Sequence[Cell]:
    ports = [str(each["port"]) for each in item.get("ports") or ()]
    addresses = [ip for each in item.get("endpoints") or () for ip in each["addresses"]]
    return (
        item["metadata"]["name"],
        item["addressType"],
        few(ports),
        few(addresses),
        _created(item, now_ms),
    )


def _lease(item: Object, now_ms: int) -> Sequence[Cell]:
    holder = item["spec"].get("holderIdentity", "")
    return item["metadata"]["name"], holder, _created(item, now_ms)


def _deployment(item: Object, now_ms: int) -> Sequence[Cell]:
    status = item.get("status", {})
    wanted = item["spec"].get("replicas", 0)
    return (
        item["metadata"]["name"],
        f"{status.get('readyReplicas', 0)}/{wanted}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _created(item, now_ms),
        *_template(item),
        label_selector(item["spec"].get("selector")),
    )


def _replica_set(item: Object, now_ms: int) -> Sequence[Cell]:
    status = item.get("status", {})
    return (
        item["metadata"]["name"],
        item["spec"].get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        _created(item, now_ms),
        *_template(item),
        label_selector(item["spec"].get("selector")) or _NONE,
    )


def _daemon_set(item: Object, now_ms: int) -> Sequence[Cell]:
    status = item.get("status", {})
    return (
        item["metadata"]["name"],
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels_text(item["spec"]["template"]["spec"].get("nodeSelector") or {}),
        _created(item, now_ms),
        *_template(item),
        label_selector(item["spec"].get("selector")) or _NONE,
    )


_JOB_STATES = (
    ("Complete", "Complete"),
    ("Failed", "Failed"),
    ("", "Terminating"),
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)
"""The first condition that holds says the state; the one without a name is deletion."""


def _job(item: Object, now_ms: int) -> Sequence[Cell]:
    spec, status = item["spec"], item.get("status", {})
    done, parallelism = status.get("succeeded", 0), spec.get("parallelism") or 0
    if spec.get("completions") is not None:
        completions = f"{done}/{spec['completions']}"
    else:
        completions = f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"
    started, ended = status.get("startTime"), status.get("completionTime")
    length = ""
    if started:
        length = human_duration((time_ms(ended) if ended else now_ms) - time_ms(started))
    is_leaving = "deletionTimestamp" in item["metadata"]
    state = next(
        (
            shown
            for name, shown in _JOB_STATES
            if (condition(status, name) == "True" if name else is_leaving)
        ),
        "Running",
    )
    return (
        item["metadata"]["name"],
        state,
        completions,
        length,
        _created(item, now_ms),
        *_template(item),
        label_selector(spec.get("selector")) or _NONE,
    )


def _event(item: Object, now_ms: int) -> Sequence[Cell]:
    about, series = item["involvedObject"], item.get("series")
    first = age(item.get("firstTimestamp") or item.get("eventTime"), now_ms)
    last = age(item["lastTimestamp"], now_ms) if item.get("lastTimestamp") else first
    count = item.get("count") or 1
    if series:
        last, count = age(series.get("lastObservedTime"), now_ms), series.get("count", 0)
    kind, name = about.get("kind", "").lower(), about.get("name")
    return (
        last,
        item.get("type", ""),
        item.get("reason", ""),
        f"{kind}/{name}" if name else kind,
        about.get("fieldPath", ""),
        event_source(item),
        item.get("message", "").strip(),
        first,
        count,
        item["metadata"]["name"],
    )


def _hpa(item: Object, now_ms: int) -> Sequence[Cell]:
    spec, status = item["spec"], item.get("status", {})
    reference, least = spec["scaleTargetRef"], spec.get("minReplicas")
    return (
        item["metadata"]["name"],
        f"{reference['kind']}/{reference['name']}",
        targets_text(spec.get("metrics") or (), status.get("currentMetrics") or ()),
        "<unset>" if least is None else str(least),
        spec["maxReplicas"],
        status.get("currentReplicas", 0),
        _created(item, now_ms),
    )


def _scaled_object(item: Object, now_ms: int) -> Sequence[Cell]:
    spec, status = item["spec"], item.get("status", {})
    return (
        item["metadata"]["name"],
        status.get("scaleTargetKind"),
        spec.get("scaleTargetRef", {}).get("name"),
        spec.get("minReplicaCount"),
        spec.get("maxReplicaCount"),
        *(condition(status, each) for each in ("Ready", "Active", "Fallback", "Paused")),
        status.get("triggersTypes"),
        status.get("authenticationsTypes"),
        _created(item, now_ms),
    )


def _stateful_set(item: Object, now_ms: int) -> Sequence[Cell]:
    ready, wanted = item["status"].get("readyReplicas", 0), item["spec"]["replicas"]
    return (
        item["metadata"]["name"],
        f"{ready}/{wanted}",
        _created(item, now_ms),
        *_template(item),
    )


def _leader_worker_set(item: Object, now_ms: int) -> Sequence[Cell]:
    status = item["status"]
    return (
        item["metadata"]["name"],
        status.get("readyReplicas"),
        item["spec"]["replicas"],
        status.get("updatedReplicas"),
        _created(item, now_ms),
    )


ROWS: Mapping[ApiResource, Callable[[Object, int], Sequence[Cell]]] = {
    NAMESPACE: _namespace,
    NODE: _node,
    POD: _pod,
    SERVICE: _service,
    ENDPOINT_SLICE: _endpoint_slice,
    LEASE: _lease,
    EVENT: _event,
    DEPLOYMENT: _deployment,
    REPLICA_SET: _replica_set,
    DAEMON_SET: _daemon_set,
    JOB: _job,
    HPA: _hpa,
    SCALED_OBJECT: _scaled_object,
    STATEFUL_SET: _stateful_set,
    LEADER_WORKER_SET: _leader_worker_set,
}
"""What returns the cells of one object, given the time in milliseconds since the epoch."""
