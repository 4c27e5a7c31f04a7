"""Table cells whose text takes some computing.

Source: kubernetes v1.36 pkg/printers/internalversion/printers.go (printPod and the helpers below it).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]
_NONE = "<none>"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE = "kubernetes.io/role"
_LOST = "NodeLost"
_TERMINAL = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class PodState:
    """What a pod's columns show of its containers."""

    ready: int
    containers: int
    reason: str
    restarts: int
    last_restart: str | None


def pod_state(pod: Object) -> PodState:
    """Return what a pod's columns show of all its containers."""
    spec, status, metadata = pod["spec"], pod.get("status", {}), pod["metadata"]
    phase = status.get("phase", "")
    reason = status.get("reason") or phase
    conditions = status.get("conditions") or ()
    for each in conditions:
        if (each.get("type"), each.get("reason")) == ("PodScheduled", "SchedulingGated"):
            reason = "SchedulingGated"
    sidecars = {
        each["name"]
        for each in spec.get("initContainers") or ()
        if each.get("restartPolicy") == "Always"
    }
    starting = _starting(status.get("initContainerStatuses") or (), sidecars, spec)
    ready, restarts, last = starting.ready, starting.restarts, starting.last_restart
    if starting.reason and condition(status, "Initialized") != "True":
        reason = starting.reason
    else:
        main = _running(status.get("containerStatuses") or (), reason, conditions)
        ready += main.ready
        restarts = starting.sidecar_restarts + main.restarts
        last = max(filter(None, (starting.sidecar_last, main.last_restart)), default=None)
        reason = main.reason
    if "deletionTimestamp" in metadata:
        if status.get("reason") == _LOST:
            reason = "Unknown"
        elif phase not in _TERMINAL:
            reason = "Terminating"
    total = len(spec.get("containers") or ()) + len(sidecars)
    return PodState(ready, total, reason, restarts, last)


@dataclass(frozen=True, slots=True)
class _Starting:
    """The state of the init containers; the reason is empty if none blocks the pod."""

    reason: str
    ready: int
    restarts: int
    last_restart: str | None
    sidecar_restarts: int
    sidecar_last: str | None


def _starting(statuses: Sequence[Object], sidecars: set[str], spec: Object) -> _Starting:
    ready = restarts = sidecar_restarts = 0
    last: str | None = None
    sidecar_last: str | None = None
    reason = ""
    for index, each in enumerate(statuses):
        restarts += each.get("restartCount", 0)
        ended = _last_end(each)
        last = max(filter(None, (last, ended)), default=None)
        is_sidecar = each.get("name") in sidecars
        if is_sidecar:
            sidecar_restarts += each.get("restartCount", 0)
            sidecar_last = max(filter(None, (sidecar_last, ended)), default=None)
        state = each.get("state", {})
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if is_sidecar and each.get("started"):
            ready += bool(each.get("ready"))
            continue
        if terminated is not None:
            reason = f"Init:{_end(terminated)}"
        elif waiting is not None and waiting.get("reason") not in (None, "", "PodInitializing"):
            reason = f"Init:{waiting['reason']}"
        else:
            reason = f"Init:{index}/{len(spec.get('initContainers') or ())}"
        break
    return _Starting(reason, ready, restarts, last, sidecar_restarts, sidecar_last)


def _running(statuses: Sequence[Object], reason: str, conditions: Sequence[Object]) -> PodState:
    ready = restarts = 0
    last: str | None = None
    failure = ""
    is_running = False
    for each in reversed(statuses):
        restarts += each.get("restartCount", 0)
        last = max(filter(None, (last, _last_end(each))), default=None)
        state = each.get("state", {})
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if waiting is not None and waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated is not None:
            reason = _end(terminated)
            if terminated.get("exitCode"):
                failure = reason
        elif each.get("ready") and state.get("running") is not None:
            is_running = True
            ready += 1
    if reason == "Completed":
        if is_running and condition({"conditions": conditions}, "Ready") == "True":
            reason = "Running"
        elif failure:
            reason = failure
        elif is_running:
            reason = "NotReady"
    return PodState(ready, 0, reason, restarts, last)


def _end(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _last_end(status: Object) -> str | None:
    terminated = (status.get("lastState") or {}).get("terminated") or {}
    found = terminated.get("finishedAt")
    return None if found is None else str(found)


def readiness_gates(pod: Object) -> str:
    """Return how many of a pod's readiness gates are true."""
    gates = pod["spec"].get("readinessGates") or ()
    if not gates:
        return _NONE
    status = pod.get("status", {})
    is_open = [condition(status, each.get("conditionType", "")) == "True" for each in gates]
    return f"{sum(is_open)}/{len(gates)}"


def condition(status: Object, name: str) -> str | None:
    """Return a condition's status; None if there is no such condition."""
    for each in status.get("conditions") or ():
        if each.get("type") == name:
            return str(each.get("status"))
    return None


def node_roles(labels: Mapping[str, str]) -> str:
    """Return the roles that a node's labels name, sorted."""
    roles = {
        key.removeprefix(_ROLE_PREFIX)
        for key in labels
        if key.startswith(_ROLE_PREFIX) and key != _ROLE_PREFIX
    }
    if labels.get(_ROLE):
        roles.add(labels[_ROLE])
    return ",".join(sorted(roles))


def node_address(status: Object, kind: str) -> str | None:
    """Return a node's first address of a kind."""
    for each in status.get("addresses") or ():
        if each.get("type") == kind:
            return str(each["address"])
    return None


def containers_and_images(containers: Sequence[Object]) -> tuple[str, str]:
    """Return the containers' names and images, each joined with commas."""
    names = ",".join(str(each["name"]) for each in containers)
    return names, ",".join(str(each.get("image", "")) for each in containers)


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels as text, sorted; `<none>` if there are none."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or _NONE


def few(texts: Sequence[str], most: int = 3) -> str:
    """Return the first few texts joined with commas, and the number of the others."""
    shown = ",".join(texts[:most])
    if len(texts) > most:
        return f"{shown} + {len(texts) - most} more..."
    return shown or "<unset>"


def label_selector(selector: Object | None) -> str:
    """Return a `LabelSelector` as text, sorted by key; empty for an empty one."""
    if selector is None:
        return ""
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        key, values = each["key"], ",".join(sorted(each.get("values") or ()))
        text = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        terms.append((key, text.get(each["operator"], key)))
    return ",".join(text for _, text in sorted(terms, key=lambda term: term[0]))


def event_source(event: Object) -> str:
    """Return an event's reporter and node."""
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent", "")
    host = source.get("host") or event.get("reportingInstance", "")
    return f"{component}, {host}" if host else str(component)


def service_addresses(service: Object) -> tuple[str, str]:
    """Return a Service's cluster IP and external address."""
    spec = service["spec"]
    internal = (spec.get("clusterIPs") or [_NONE])[0]
    outside = list(spec.get("externalIPs") or ())
    kind = spec.get("type")
    if kind == "ExternalName":
        return internal, spec.get("externalName", "")
    if kind == "LoadBalancer":
        ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
        found = {each.get("ip") or each.get("hostname") for each in ingress}
        return internal, ",".join([*sorted(filter(None, found)), *outside]) or "<pending>"
    return internal, ",".join(outside) or _NONE


def service_ports(ports: Sequence[Object]) -> str:
    """Return ports with protocols and node ports."""
    return ",".join(
        f"{each['port']}:{each['nodePort']}/{each['protocol']}"
        if each.get("nodePort")
        else f"{each['port']}/{each['protocol']}"
        for each in ports
    )
