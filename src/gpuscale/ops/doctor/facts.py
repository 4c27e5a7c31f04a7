"""Facts of objects, read from their fields: GPU nodes, agents, device plugins, API servers."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.gpu_resources import (
    GpuKind,
    class_resources,
    counts_gpus,
    gpu_kind,
    has_fraction,
    shares_by,
)
from gpuscale.base.objects.label_index import LabelIndex
from gpuscale.base.objects.nodes import read_taint
from gpuscale.base.objects.pods import PodSpec, read_pod_spec
from gpuscale.base.objects.selectors import Selector, parse_selector
from gpuscale.base.objects.taints import BLOCKING_EFFECTS, PassingTaint, Taint, moment_of
from gpuscale.kube import read_node_record
from gpuscale.kube.informers import NodeRecord
from gpuscale.ops.doctor.snapshot import HpaLook, Snapshot
from gpuscale.ops.install.common import METRICS_API, NODE_AGENT
from gpuscale.ops.lint.workloads import found_kind
from gpuscale.ops.providers import every

T = TypeVar("T")
P = ParamSpec("P")


def once(
    function: Callable[Concatenate[Snapshot, P], T],
) -> Callable[Concatenate[Snapshot, P], T]:
    """Decorate a function of a snapshot so that each result is computed once."""

    @wraps(function)
    def remembered(snapshot: Snapshot, /, *args: P.args, **more: P.kwargs) -> T:
        key = (function, args, *more.items())
        if key not in snapshot.memory:
            snapshot.memory[key] = function(snapshot, *args, **more)
        found: T = snapshot.memory[key]
        return found

    return remembered


def read_once(function: Callable[[Fields], T]) -> Callable[[Fields], T]:
    """Decorate a function of an object so that its result is computed once for each object."""
    known: WeakKeyDictionary[Fields, T] = WeakKeyDictionary()

    @wraps(function)
    def remembered(body: Fields) -> T:
        try:
            return known[body]
        except KeyError:
            return known.setdefault(body, function(body))

    return remembered


GPU = "nvidia.com/gpu"
NODE_POOL = "karpenter.sh/nodepool"
_TOLD_BY_STATE = frozenset(
    f"node.kubernetes.io/{state}" for state in ("unschedulable", "not-ready", "unreachable")
)
"""Taints that say again that a node is cordoned or not Ready."""
UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
_SERVERS = (
    ("gpuscale", "gpuscale"),
    ("keda", "KEDA"),
    ("prometheus-adapter", "prometheus-adapter"),
    ("metrics-server", "metrics-server"),
)
"""A word in names and labels, and whose it is."""
_PLUGINS = re.compile(
    r"k8s-device-plugin|nvidia-device-plugin|nvidia-gpu-device-plugin|gpu-operator"
)


# Names


def name(body: Fields) -> str:
    """Return an object's name."""
    return body.child("metadata").text("name")


def namespace(body: Fields) -> str:
    """Return an object's namespace."""
    return body.child("metadata").text("namespace")


@read_once
def labels(body: Fields) -> Mapping[str, str]:
    """Return an object's labels."""
    return body.child("metadata").labels("labels")


def full_name(body: Fields) -> str:
    """Return `namespace/name`."""
    return f"{namespace(body)}/{name(body)}"


def allowing(subject: str, resources: str, verbs: str = "get,list") -> str:
    """Return the kubectl commands that grant a user a right that the doctor needs.

    Args:
        subject: what it is about, for the names of role and binding.
        resources: as `--resource` of kubectl create clusterrole takes them.
        verbs: likewise.
    """
    role = f"gpuscale-doctor-{subject}"
    return (
        f"kubectl create clusterrole {role} --verb={verbs} --resource={resources} && "
        f"kubectl create clusterrolebinding {role} --clusterrole={role} --user=USER"
    )


def quoted(*words: str) -> str:
    """Return words quoted for a shell."""
    return shlex.join(words)


# GPUs


def gpus(counts: Mapping[str, int]) -> int:
    """Return the number of GPUs in resource amounts; partitions and shares count as one each."""
    return sum(count for key, count in counts.items() if counts_gpus(key))


@read_once
def amounts(node: Fields) -> NodeRecord:
    """Return a node's capacity and allocatable amounts of device plugin resources, as integers."""
    return read_node_record(node.data)


def capacity(node: Fields) -> int:
    """Return how many GPUs a node has."""
    return gpus(amounts(node).capacity)


def whole_gpus(node: Fields) -> int:
    """Return a node's number of GPUs that are neither partitioned nor shared."""
    has = amounts(node).capacity
    return sum(count for key, count in has.items() if gpu_kind(key) is GpuKind.WHOLE)


def allocatable(node: Fields) -> int:
    """Return how many GPUs of a node are allocatable."""
    return gpus(amounts(node).allocatable)


def offers_gpus(node: Fields) -> bool:
    """Return whether a node offers GPUs to pods, whole or in parts, under any resource name."""
    gives = amounts(node).allocatable
    return any(count > 0 and gpu_kind(key) is not None for key, count in gives.items())


def has_gpu_label(node: Fields) -> bool:
    """Return whether a label says that a node has GPUs."""
    given = labels(node)
    return any(label.is_on(given) for provider in every() for label in provider.gpu_node_labels())


@once
def gpu_nodes(snapshot: Snapshot) -> tuple[Fields, ...]:
    """Return the nodes that have GPUs, or have a GPU node's labels."""
    return tuple(
        node
        for node in snapshot.all("nodes")
        if capacity(node) > 0 or offers_gpus(node) or has_gpu_label(node)
    )


@once
def gpu_node_names(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of the GPU nodes."""
    return frozenset(map(name, gpu_nodes(snapshot)))


@once
def claimed_nodes(snapshot: Snapshot) -> frozenset[str]:
    """Return the nodes whose devices are allocated through resource claims, without a device plugin."""
    return frozenset(each.child("spec").text("nodeName") for each in snapshot.all("resourceslices"))


@once
def claimed_resources(snapshot: Snapshot) -> frozenset[str]:
    """Return the resources that DeviceClasses provide through claims, so that no node lists them."""
    return frozenset(
        resource
        for each in snapshot.all("deviceclasses")
        for resource in class_resources(name(each), each.child("spec").text("extendedResourceName"))
    )


def shares_gpus(node: Fields) -> bool:
    """Return whether a node counts one GPU as several."""
    return shares_by(labels(node), node.child("metadata").labels("annotations"))


@once
def taints(snapshot: Snapshot, node: Fields) -> tuple[Taint, ...]:
    """Return a node's lasting taints, for which pods may get tolerations."""
    return tuple(
        each for each in _taints(snapshot)[name(node)] if moment(snapshot, node, each) is None
    )


def moment(snapshot: Snapshot, node: Fields, taint: Taint) -> PassingTaint | None:
    """Return what a taint says of the moment: by its key, or as Karpenter starts the pool's nodes with it."""
    found = moment_of(taint.key)
    pool = labels(node).get(NODE_POOL, "")
    is_startup = (pool, taint.key) in _startup_taints(snapshot)
    return PassingTaint.NOT_YET if found is None and is_startup else found


@once
def momentary(snapshot: Snapshot, node: Fields) -> tuple[tuple[Taint, PassingTaint], ...]:
    """Return a node's temporary taints that keep pods off, except those that have findings of their own."""
    return tuple(
        (each, found)
        for each in _taints(snapshot)[name(node)]
        if each.effect in BLOCKING_EFFECTS and each.key not in _TOLD_BY_STATE
        if (found := moment(snapshot, node, each)) is not None
    )


@once
def _taints(snapshot: Snapshot) -> Mapping[str, tuple[Taint, ...]]:
    return {
        name(node): tuple(map(read_taint, node.child("spec").items("taints")))
        for node in snapshot.all("nodes")
    }


@once
def _startup_taints(snapshot: Snapshot) -> frozenset[tuple[str, str]]:
    """Return pool and key of the startup taints of Karpenter's pools."""
    return frozenset(
        (name(pool), taint.text("key"))
        for pool in snapshot.all("nodepools")
        for taint in pool.child("spec").child("template").child("spec").items("startupTaints")
    )


def is_ready(body: Fields) -> bool:
    """Return whether the condition Ready of a node or pod holds."""
    return condition(body, "Ready") == "True"


def condition(body: Fields, kind: str) -> str:
    """Return a condition's status; empty if there is no such condition."""
    listed = body.child("status").items("conditions")
    return next((each.text("status") for each in listed if each.text("type") == kind), "")


# Pods


@read_once
def spec_of(body: Fields) -> PodSpec:
    """Return the spec of a pod."""
    return read_pod_spec(body.child("spec"))


@read_once
def template_of(body: Fields) -> PodSpec:
    """Return the pod spec in a workload's template."""
    return read_pod_spec(body.child("spec").child("template").child("spec"))


def wanted_gpus(spec: PodSpec) -> int:
    """Return how many GPUs a pod requests; partitions and shares count as one each."""
    return gpus(wanted(spec))


def wanted(spec: PodSpec) -> dict[str, int]:
    """Return a pod's GPU requests by resource name."""
    return {
        key: count
        for key, count in limits_of(spec).items()
        if gpu_kind(key) not in (None, GpuKind.QUALIFIER)
    }


def limits_of(spec: PodSpec) -> dict[str, int]:
    """Return a pod's limits of device plugin resources, as integers."""
    found: dict[str, int] = {}
    for each in spec.containers:
        for key, amount in each.limits.items():
            if "/" in key and amount.nano > 0:
                found[key] = found.get(key, 0) + amount.nano // 1_000_000_000
    return found


def asks_for_gpus(body: Fields) -> bool:
    """Return whether a pod or pod template requests a GPU, whole or partial, in any way."""
    metadata = body.child("metadata")
    return any(gpu_kind(key) is not None for key in limits_of(spec_of(body))) or has_fraction(
        metadata.labels("annotations"), metadata.labels("labels")
    )


def claims_of(spec: Fields) -> tuple[Fields, ...]:
    """Return a pod's resource claims (dynamic resource allocation)."""
    return tuple(spec.items("resourceClaims"))


@once
def active_pods(snapshot: Snapshot) -> tuple[Fields, ...]:
    """Return the pods that have not ended."""
    ended = ("Succeeded", "Failed")
    return tuple(
        pod for pod in snapshot.all("pods") if pod.child("status").text("phase") not in ended
    )


@once
def waiting_pods(snapshot: Snapshot) -> tuple[Fields, ...]:
    """Return the unscheduled pods that request GPUs."""
    return tuple(
        pod
        for pod in active_pods(snapshot)
        if condition(pod, "PodScheduled") == "False" and asks_for_gpus(pod)
    )


@once
def unplaced_pods(snapshot: Snapshot) -> tuple[Fields, ...]:
    """Return the unscheduled pods that request GPUs or claim devices."""
    return tuple(
        pod
        for pod in active_pods(snapshot)
        if condition(pod, "PodScheduled") == "False"
        and (asks_for_gpus(pod) or claims_of(pod.child("spec")))
    )


def is_gated(pod: Fields) -> bool:
    """Return whether a scheduling gate keeps a pod from schedulers and autoscalers."""
    return any(True for _ in pod.child("spec").items("schedulingGates"))


def why_waiting(pod: Fields) -> str:
    """Return the scheduler's message about a pod."""
    listed = pod.child("status").items("conditions")
    return next((one.text("message") for one in listed if one.text("type") == "PodScheduled"), "")


def owner_kind(pod: Fields) -> tuple[str, str]:
    """Return kind and name of a pod's controller."""
    return controller(pod) or ("Pod", name(pod))


def controller(body: Fields) -> tuple[str, str] | None:
    """Return kind and name of an object's controller; None without one."""
    for each in body.child("metadata").items("ownerReferences"):
        if each.boolean("controller"):
            return each.text("kind"), each.text("name")
    return None


def maker(snapshot: Snapshot, pod: Fields) -> tuple[str, str]:
    """Return kind and name of a pod's workload: its ReplicaSet's Deployment, if there is one."""
    kind, called = owner_kind(pod)
    if kind == "ReplicaSet":
        body = named(snapshot, kind, namespace(pod), called)
        return (None if body is None else controller(body)) or (kind, called)
    return kind, called


def place_of(kind: str, body: Fields) -> str:
    """Return a workload's name in findings."""
    return f"{kind.lower()}/{full_name(body)}"


def pods_of(snapshot: Snapshot, look: HpaLook) -> tuple[Fields, ...]:
    """Return the pods that an HPA scales."""
    return _pods_of(snapshot, look.namespace, look.selector) if look.selector else ()


@once
def _pods_of(snapshot: Snapshot, place: str, selector: str) -> tuple[Fields, ...]:
    return selected(snapshot, place, parse_selector(selector))


def selected(snapshot: Snapshot, place: str, selector: Selector) -> tuple[Fields, ...]:
    """Return a namespace's active pods that match a selector."""
    found = _pods_by_namespace(snapshot).get(place)
    return () if found is None else tuple(found.selected(selector))


@once
def _pods_by_namespace(snapshot: Snapshot) -> Mapping[str, LabelIndex[Fields]]:
    found: dict[str, list[tuple[Fields, Mapping[str, str]]]] = {}
    for pod in active_pods(snapshot):
        found.setdefault(namespace(pod), []).append((pod, labels(pod)))
    return {place: LabelIndex(pods) for place, pods in found.items()}


@once
def hpas_by_namespace(snapshot: Snapshot) -> Mapping[str, Sequence[HpaLook]]:
    """Return the HPAs, by namespace."""
    found: dict[str, list[HpaLook]] = {}
    for look in snapshot.hpas:
        found.setdefault(look.namespace, []).append(look)
    return found


@once
def hpas_by_target(snapshot: Snapshot) -> Mapping[tuple[str, str, str], Sequence[HpaLook]]:
    """Return the HPAs by kind, namespace and name of their targets."""
    found: dict[tuple[str, str, str], list[HpaLook]] = {}
    for look in snapshot.hpas:
        target = look.hpa.target
        found.setdefault((target.kind, look.namespace, target.name), []).append(look)
    return found


@once
def by_full_name(snapshot: Snapshot, plural: str) -> Mapping[str, Fields]:
    """Return the objects of a kind, by `namespace/name`."""
    return {full_name(body): body for body in snapshot.all(plural)}


@once
def namespaces_by_name(snapshot: Snapshot, plural: str) -> Mapping[str, Sequence[str]]:
    """Return the namespaces that have an object of a name, for each name of a kind."""
    found: dict[str, list[str]] = {}
    for body in snapshot.all(plural):
        found.setdefault(name(body), []).append(namespace(body))
    return found


WORKLOADS = {
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "ReplicaSet": "replicasets",
}
"""What HPAs scale, by kind, with its plural name."""


def workload_of(snapshot: Snapshot, look: HpaLook) -> Fields | None:
    """Return an HPA's target, if it is of a built-in kind."""
    target = look.hpa.target
    return named(snapshot, target.kind, look.namespace, target.name)


def named(snapshot: Snapshot, kind: str, place: str, called: str) -> Fields | None:
    """Return a workload by its name."""
    return workloads(snapshot).get((found_kind(kind), place, called))


@once
def workloads(snapshot: Snapshot) -> Mapping[tuple[str, str, str], Fields]:
    """Return the workloads that HPAs can scale, by kind, namespace and name."""
    return {
        (kind, namespace(body), name(body)): body
        for kind, plural in WORKLOADS.items()
        for body in snapshot.all(plural)
    }


@once
def nodes_by_name(snapshot: Snapshot) -> Mapping[str, Fields]:
    """Return the nodes."""
    return {name(node): node for node in snapshot.all("nodes")}


@once
def pods_by_node(snapshot: Snapshot) -> Mapping[str, list[Fields]]:
    """Return the active pods, by node."""
    found: dict[str, list[Fields]] = {}
    for pod in active_pods(snapshot):
        found.setdefault(pod.child("spec").text("nodeName"), []).append(pod)
    return found


# Parts


def _images(spec: PodSpec) -> str:
    return " ".join(each.image for each in spec.containers)


def _is_part(given: Mapping[str, str], part: str) -> bool:
    is_ours = given.get("app.kubernetes.io/name") == "gpuscale"
    return is_ours and given.get("app.kubernetes.io/component") == part


def is_own_agent(body: Fields) -> bool:
    """Return whether a pod or DaemonSet is gpuscale's node agent."""
    return _is_part(labels(body), NODE_AGENT)


def is_agent(body: Fields, spec: PodSpec) -> bool:
    """Return whether a pod or DaemonSet runs an agent: gpuscale's or dcgm-exporter."""
    return is_own_agent(body) or "dcgm-exporter" in f"{_images(spec)} {name(body)}"


@once
def agent_pods(snapshot: Snapshot) -> tuple[Fields, ...]:
    """Return the agents' pods."""
    return tuple(pod for pod in active_pods(snapshot) if is_agent(pod, spec_of(pod)))


@once
def agent_sets(snapshot: Snapshot) -> tuple[Fields, ...]:
    """Return the agents' DaemonSets."""
    return tuple(body for body in snapshot.all("daemonsets") if is_agent(body, template_of(body)))


@once
def plugin_pods(snapshot: Snapshot) -> tuple[Fields, ...]:
    """Return the pods of device plugins."""
    return tuple(pod for pod in active_pods(snapshot) if _is_plugin(pod, spec_of(pod)))


@once
def plugin_sets(snapshot: Snapshot) -> tuple[Fields, ...]:
    """Return the DaemonSets of device plugins."""
    return tuple(body for body in snapshot.all("daemonsets") if _is_plugin(body, template_of(body)))


def _is_plugin(body: Fields, spec: PodSpec) -> bool:
    return _PLUGINS.search(f"{_images(spec)} {name(body)}") is not None


@once
def metrics_servers(snapshot: Snapshot) -> Sequence[tuple[Fields, PodSpec, dict[str, str]]]:
    """Return the Deployments of metrics APIs based on Prometheus, with pod spec and flags."""
    found = []
    for body in snapshot.all("deployments"):
        spec = template_of(body)
        if is_own_server(body) or "prometheus-adapter" in f"{_images(spec)} {name(body)}":
            found.append((body, spec, flags_of(body)))
    return found


def is_own_server(body: Fields) -> bool:
    """Return whether a Deployment is gpuscale's metrics API."""
    return _is_part(labels(body), METRICS_API)


def flags_of(body: Fields) -> dict[str, str]:
    """Return the command-line flags of a workload's containers."""
    given: dict[str, str] = {}
    for each in body.child("spec").child("template").child("spec").items("containers"):
        words = (*each.texts("command"), *each.texts("args"))
        for word, following in zip(words, (*words[1:], ""), strict=False):
            key, equals, value = word.partition("=")
            if key.startswith("--"):
                given[key] = value if equals or following.startswith("--") else following
    return given


def server_of(api_service: Fields) -> str:
    """Return who serves an API: gpuscale, KEDA, prometheus-adapter, metrics-server, or its Service."""
    service = service_fields(api_service.child("spec").child("service"))
    for text in (name(service), " ".join(labels(api_service).values()), namespace(service)):
        for word, server in _SERVERS:
            if word in text.lower():
                return server
    return f"Service {full_name(service)}"


def service_fields(service: Fields) -> Fields:
    """Return a Service reference in the form of an object with metadata."""
    return Fields(service.document, {"metadata": service.data})


@once
def own_services(snapshot: Snapshot) -> tuple[Fields, ...]:
    """Return the Services of gpuscale's metrics API; none if it is not installed."""
    return tuple(each for each in snapshot.all("services") if _is_part(labels(each), METRICS_API))
