"""The workloads and pods to check: targets of HPAs, users of GPUs, and gpuscale's own."""

from collections.abc import Mapping

from gpuscale.base.objects.fields import Fields
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.snapshot import Snapshot

Key = tuple[str, str, str]
"""Kind, namespace and name."""


@once
def subjects(snapshot: Snapshot) -> Mapping[Key, Fields]:
    """Return the workloads to check; a Deployment stands for its ReplicaSets."""
    scaled = {
        (look.hpa.target.kind, look.namespace, look.hpa.target.name) for look in snapshot.hpas
    }
    servers = {facts.full_name(body) for body, _, _ in facts.metrics_servers(snapshot)}
    found = {}
    for key, body in facts.workloads(snapshot).items():
        kind = key[0]
        if kind == "ReplicaSet" and facts.controller(body) is not None and key not in scaled:
            continue
        is_server = kind == "Deployment" and facts.full_name(body) in servers
        if key in scaled or is_server or wants_gpus(body.child("spec").child("template")):
            found[key] = body
    return found


def wants_gpus(body: Fields) -> bool:
    """Return whether a pod or pod template requests GPUs or claims devices."""
    return facts.asks_for_gpus(body) or bool(facts.claims_of(body.child("spec")))


def key_of(snapshot: Snapshot, pod: Fields) -> Key:
    """Return the key of a pod's workload: kind, namespace and name."""
    kind, name = facts.maker(snapshot, pod)
    return kind, facts.namespace(pod), name


@once
def pods_by_subject(snapshot: Snapshot) -> Mapping[Key, list[Fields]]:
    """Return the pods of each workload to check, and those Jobs and single pods that request GPUs."""
    known = subjects(snapshot)
    found: dict[Key, list[Fields]] = {}
    for pod in snapshot.all("pods"):
        key = key_of(snapshot, pod)
        if key in known or (key[0] in ("Pod", "Job") and wants_gpus(pod)):
            found.setdefault(key, []).append(pod)
    return found


def about(key: Key) -> str:
    """Return a workload's name in findings."""
    kind, namespace, name = key
    return f"{kind.lower()}/{namespace}/{name}"
