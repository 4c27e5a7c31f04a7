"""Faults of pods that ask for GPUs, and of claims, that the API server refuses or that share GPUs.

Source: kubernetes v1.37 pkg/apis/core/validation (ValidateResourceRequirements: extended resources are whole,
    with a limit and a request that are equal; claims of containers are claims of the pod),
    pkg/apis/resource/validation (requests of devices), resource.k8s.io v1 and v1beta1 types;
    NVIDIA k8s-device-plugin v0.20 internal/rm (requests of shared resources).
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from gpuscale.base.findings import Checks, Severity
from gpuscale.base.objects.devices import (
    DeviceClass,
    device_classes,
    read_device_claim,
    read_device_class,
    read_resource_slice,
)
from gpuscale.base.objects.fields import QUANTITY, Fields
from gpuscale.base.objects.gpu_resources import GpuKind, gpu_kind
from gpuscale.base.quantity import Quantity, parse_quantity
from gpuscale.base.words import counted
from gpuscale.hpa.cluster.verdicts import Offered, judge
from gpuscale.hpa.cluster.victims import DELETION_COST
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.gpu_pods import GpuPods, containers_of
from gpuscale.ops.lint.inputs import FileJudge, Inputs
from gpuscale.ops.lint.node_pools import NODE_GROUP, NODE_POOL
from gpuscale.ops.lint.parts import Part
from gpuscale.ops.lint.problems import REFUSED_MANIFEST
from gpuscale.ops.lint.workloads import key_of

_CHECKS = Checks()
SEVERAL_SHARES = _CHECKS.add(
    "several-shares",
    Severity.WARNING,
    "A pod that asks for more than one share of a GPU.",
    "Ask for 1; a pod that needs more asks for whole GPUs.",
)
SHARES_UNSEEN = _CHECKS.add(
    "shares-unseen",
    Severity.NOTE,
    "GPUs that are shared on nodes which an autoscaler adds: it counts whole ones until a node runs.",
    "Expect more nodes than the shares need; on AWS, tell Cluster Autoscaler by the tag "
    "k8s.io/cluster-autoscaler/node-template/resources/nvidia.com/gpu.",
)
CLAIMS_UNDER_KARPENTER = _CHECKS.add(
    "claims-under-karpenter",
    Severity.NOTE,
    "Pods with resource claims beside a NodePool: Karpenter adds no node for them as it is installed.",
    "Ask for the extended resource instead, keep nodes for such pods, or set IGNORE_DRA_REQUESTS=false where "
    "the provider has device templates.",
)
CLAIM_WITHOUT_DEVICE = _CHECKS.add(
    "claim-without-device",
    Severity.WARNING,
    "Pods with a claim that no device of the files' ResourceSlices, or of a scenario's pools, matches.",
    "Loosen the selectors of the claim or its class, or add nodes with such devices.",
)
NO_MIG_RESOURCES = _CHECKS.add(
    "no-mig-resources",
    Severity.WARNING,
    "Pods that ask for MIG instances by profile, of a device plugin that does not offer these.",
    "Give the device plugin the MIG strategy mixed, or ask for nvidia.com/gpu.",
)
NO_DELETION_COST = _CHECKS.add(
    "no-deletion-cost",
    Severity.NOTE,
    "A deletion cost that chooses no pod: in a template, where all pods have it, or of a kind that takes "
    "pods away in an order of its own.",
    "Take it away. For Karpenter, which reads it too, write karpenter.sh/disruption-cost.",
)

_MIG = "nvidia.com/mig-"
_OWN_ORDER = {
    "StatefulSet": "A StatefulSet always loses its highest ordinal",
    "LeaderWorkerSet": "A LeaderWorkerSet always loses its highest group",
    "Job": "A Job of less parallelism reads no deletion costs",
    "DaemonSet": "A DaemonSet has one pod on each node",
}
_BY_COST = frozenset({"Deployment", "ReplicaSet", "Rollout"})
_RESOURCES_TAG = "k8s.io/cluster-autoscaler/node-template/resources/"
_NANO = 1_000_000_000
_PLACEHOLDER = re.compile(r"[$<{]|[A-Z]{2,}_")


def gpu_pod_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the faults of the files' pods and claims."""
    has_pool = any(each.kind == NODE_POOL for each in inputs.nodes.pools)
    for pods in inputs.nodes.pods:
        for container in containers_of(pods.part):
            yield from _amounts(pods, container)
            yield from _claims(pods, container)
        yield from _pod_claims(pods)
        yield from _deletion_cost(pods)
        yield from _several(inputs, pods)
        if has_pool and pods.part.at("resourceClaims").data:
            yield CLAIMS_UNDER_KARPENTER.found(
                pods.part.place("resourceClaims"),
                "Karpenter refuses pods with resource claims, unless IGNORE_DRA_REQUESTS is false "
                "(karpenter#1231).",
            )
    for kind in ("ResourceClaim", "ResourceClaimTemplate"):
        for claim in inputs.nodes.objects.get(kind, ()):
            yield from _requests(claim, kind)
    if inputs.nodes.slices:
        yield from _without_device(inputs)
    yield from _unseen(inputs)
    yield from _mig(inputs)


def _amounts(pods: GpuPods, container: Part) -> Iterator[LintFinding]:
    limits, requests = (container.at("resources", each) for each in ("limits", "requests"))
    for part in (limits, requests):
        for name in part.fields():
            if _is_placeholder(part.at(name).data):
                continue
            amount = _quantity(part.at(name).data)
            if gpu_kind(str(name)) is None:
                if amount is None and pods.kind != "Deployment":  # which is read whole elsewhere
                    found = part.text(name) or "another form"
                    yield _refused(part.at(name), f"found {found}, expected {QUANTITY}")
            elif amount is None or amount.nano % _NANO or amount.nano < 0:
                shown = part.text(name) or "another form"
                yield _refused(part.at(name), f"found {shown}, expected a whole number of {name}")
    for name in requests.fields():
        if gpu_kind(str(name)) is None or _is_placeholder(requests.at(name).data):
            continue
        limit = limits.at(name)
        asked, most = _quantity(requests.at(name).data), _quantity(limit.data)
        if limit.data is None:
            yield _refused(
                requests.at(name), f"found a request of {name} without a limit, expected a limit"
            )
        elif asked is not None and most is not None and asked.nano != most.nano:
            yield _refused(
                requests.at(name),
                f"found a request of {asked} and a limit of {most}, expected the same of both: {name} is "
                "never overcommitted",
            )


def _mig(inputs: Inputs) -> Iterator[LintFinding]:
    """Source: NVIDIA k8s-device-plugin v0.20 README (strategies none, single and mixed)."""
    plugins = [
        container
        for pods in inputs.nodes.pods
        if pods.is_node_part
        for container in containers_of(pods.part)
        if "device-plugin" in container.text("image")
    ]
    strategies = [*map(_strategy, plugins)]
    if not plugins or not {each.text() for each in strategies} <= {"none", "single"}:
        return
    for pods in inputs.nodes.pods:
        for container in containers_of(pods.part):
            for name in container.fields("resources", "limits"):
                if str(name).startswith(_MIG):
                    yield NO_MIG_RESOURCES.found(
                        container.place("resources", "limits", name),
                        f"The device plugin's MIG strategy is {strategies[0].text()}: no node offers {name}, "
                        "as single offers instances as nvidia.com/gpu, and none offers whole GPUs.",
                        f"{strategies[0].place()}",
                    )


def _strategy(plugin: Part) -> Part:
    """Return a device plugin's MIG strategy; another text where a file decides."""
    words = (*plugin.texts("command"), *plugin.texts("args"))
    given = [word.partition("=")[2] for word in words if word.startswith("--mig-strategy=")]
    variables = {each.text("name"): each.at("value") for each in plugin.items("env")}
    if "CONFIG_FILE" in variables or any("--config-file" in word for word in words):
        return replace(plugin, data="of a file")
    if given:
        return replace(plugin.at("args"), data=given[-1])
    return variables.get("MIG_STRATEGY", replace(plugin, data="none"))


def _claims(pods: GpuPods, container: Part) -> Iterator[LintFinding]:
    known = {each.text("name") for each in pods.part.items("resourceClaims")}
    for claim in container.items("resources", "claims"):
        name = claim.text("name")
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            yield _refused(
                claim.at("name"),
                f"found the claim {name!r}, expected one of the pod's resourceClaims: {listed}",
            )


def _pod_claims(pods: GpuPods) -> Iterator[LintFinding]:
    forms = ("resourceClaimName", "resourceClaimTemplateName")
    for claim in pods.part.items("resourceClaims"):
        has = [each for each in forms if claim.text(each)]
        if len(has) != 1:
            found = (
                "source" if claim.at("source").data is not None else " and ".join(has) or "neither"
            )
            yield _refused(claim, f"found {found}, expected one of {' and '.join(forms)}")


def _deletion_cost(pods: GpuPods) -> Iterator[LintFinding]:
    """Source: kubernetes v1.37 pkg/controller/statefulset, pkg/controller/job; lws v0.9 pkg/controllers."""
    if DELETION_COST not in pods.annotations:
        return
    place = pods.template.place("metadata", "annotations", DELETION_COST)
    if pods.kind in _OWN_ORDER:
        what = f"{_OWN_ORDER[pods.kind]}; the cost has no effect on a scale-in."
        yield NO_DELETION_COST.found(place, what)
    elif pods.kind in _BY_COST:
        what = f"All pods of this {pods.kind} have this cost, so a scale-in prefers none of them."
        yield NO_DELETION_COST.found(place, what)


def _requests(claim: Part, kind: str) -> Iterator[LintFinding]:
    path = ("spec", "spec") if kind == "ResourceClaimTemplate" else ("spec",)
    version = claim.text("apiVersion").rpartition("/")[2]
    is_nested = version in ("v1", "v1beta2")
    if not is_nested and version != "v1beta1":
        return
    for request in claim.at(*path).items("devices", "requests"):
        has = [each for each in ("exactly", "firstAvailable") if request.at(each).data is not None]
        flat = request.at("deviceClassName")
        if is_nested and not has:
            expected = "exactly, with deviceClassName in it, or firstAvailable"
            found = "deviceClassName" if flat.data is not None else "neither"
            yield _refused(request, f"found {found} in {version}, expected {expected}")
        elif not is_nested and "exactly" in has:
            yield _refused(
                request.at("exactly"), "found exactly in v1beta1, expected its fields themselves"
            )
        elif "exactly" in has and not request.text("exactly", "deviceClassName"):
            yield _refused(
                request.at("exactly"), "found no deviceClassName, expected a DeviceClass' name"
            )


def _without_device(inputs: Inputs) -> Iterator[LintFinding]:
    objects = inputs.nodes.objects
    claims = {
        (kind, *key_of(whole)[::2]): whole
        for kind in ("ResourceClaim", "ResourceClaimTemplate")
        for whole in objects.get(kind, ())
        if whole.at("status", "allocation").data is None
    }
    classes = [read_device_class(_fields(each)) for each in objects.get("DeviceClass", ())]
    devices = [
        device
        for each in inputs.nodes.slices
        for device in read_resource_slice(_fields(each), "").devices
    ]
    for pods in inputs.nodes.pods:
        asked = []
        for each in pods.spec.claims:
            kind = "ResourceClaimTemplate" if each.template else "ResourceClaim"
            whole = claims.get((kind, pods.namespace, each.template or each.claim))
            if whole is not None:
                path = ("spec", "spec") if each.template else ("spec",)
                asked.append(replace(each, asks=read_device_claim(_fields(whole.at(*path)))))
        # A class that is in none of the files selects nobody knows what.
        named = {
            ask.class_name
            for each in asked
            for of in (each.asks.requests if each.asks else ())
            for ask in of.asks
        }
        others = map(DeviceClass, sorted(named - {each.name for each in classes}))
        known = device_classes([*others, *classes])
        spec = replace(pods.spec, claims=tuple(asked))
        for reason in judge(spec, (), offered=Offered(known, devices)).reasons:
            place = next(
                each
                for each in pods.part.items("resourceClaims")
                if each.text("name") == reason.key
            )
            which = (
                f"none of {counted(len(devices), 'device')} here meets {reason.wanted[0]}"
                if reason.wanted
                else "no ResourceSlice here has any"
            )
            yield CLAIM_WITHOUT_DEVICE.found(
                place.place(),
                f"{pods.title} claims a device, and {which}: no node takes its pods.",
            )


def _fields(part: Part) -> Fields:
    """Return a part as its reader takes it, with faults of its own."""
    return Fields(part.document, part.fields(), part.path)


def _several(inputs: Inputs, pods: GpuPods) -> Iterator[LintFinding]:
    for container in containers_of(pods.part):
        for name, value in container.fields("resources", "limits").items():
            amount = _quantity(value)
            if amount is None or amount.value() < 2 or amount.nano % _NANO:
                continue
            shared = next((each for each in inputs.nodes.sharing if each.resource == name), None)
            if shared is not None:
                refuses = (
                    "the kubelet refuses the pod with UnexpectedAdmissionError"
                    if shared.refuses_more
                    else "they give no more of it, and may be two turns on one GPU"
                )
                evidence = f"{shared.part.place()}: {shared.how}, {shared.replicas} replicas"
            elif gpu_kind(str(name)) is GpuKind.SHARE and str(name).endswith(".shared"):
                refuses, evidence = "they give no more of it, and may be two turns on one GPU", ""
            else:
                continue
            yield SEVERAL_SHARES.found(
                container.place("resources", "limits", name),
                f"{name} are shares of GPUs. This asks for {amount}: {refuses} (k8s-device-plugin#321).",
                evidence,
            )


def _unseen(inputs: Inputs) -> Iterator[LintFinding]:
    for pool in inputs.nodes.pools:
        if not pool.is_of_gpus or (pool.kind == NODE_GROUP and pool.least > 0):
            continue
        for shared in inputs.nodes.sharing:
            tag = pool.part.text("tags", f"{_RESOURCES_TAG}{shared.resource}")
            if not tag:
                yield SHARES_UNSEEN.found(
                    shared.part.place("replicas"),
                    f"For a node of {pool.title} that it has not seen running, an autoscaler counts GPUs and "
                    f"not {shared.replicas} shares of each: pods that come together get a node for each GPU "
                    "that they ask for (karpenter#729, Azure/AKS#3427).",
                    f"{pool.part.place()}: {pool.title}",
                )


def _is_placeholder(value: object) -> bool:
    """Return whether a value is to be filled in by another tool: `$GPUS`, `{GPUS}`, `NUM_GPUS`, nothing."""
    if value is None or isinstance(value, dict):
        return True
    return isinstance(value, str) and _PLACEHOLDER.search(value) is not None


def _quantity(value: object) -> Quantity | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return parse_quantity(value)
    except ValueError:
        return None


def _refused(part: Part, what: str) -> LintFinding:
    text = f"{what[:1].upper()}{what[1:]}."
    return REFUSED_MANIFEST.found(part.place(), text, "", "Correct it; the API server refuses it.")


JUDGE = FileJudge("gpu-pods", _CHECKS, gpu_pod_findings)
