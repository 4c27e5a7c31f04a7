"""ProvisioningRequests and CapacityBuffers of scenarios, served by the Cluster Autoscaler's policy (1.35)."""

from typing import Any

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import simulate

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CHECK = "check-capacity.autoscaling.x-k8s.io"


def setup(fields: str, policy: str = "cluster-autoscaler") -> Setup:
    """Return a scenario with four pods on four nodes of a GPU each, of which there may be ten."""
    text = f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: small}}
spec:
  duration: 5m
  manifests: [{{file: m}}]
  nodeAutoscaler: {{policy: {policy}}}
  nodePools: [{{name: gpu, gpuModel: Tesla T4, gpus: 1, min: 4, max: 10, provisioningTime: 60s}}]
  {fields}
"""
    return load_setup(text, "s.yaml", lambda _: WEB)


def request(kind: str, count: int, at: str = "65s") -> str:
    pods = f"podSets: [{{count: {count}, podTemplateRef: web}}]"
    return f"provisioningRequests: [{{name: r, at: {at}, provisioningClassName: {kind}, {pods}}}]"


def events(document: dict[str, Any], *kinds: str) -> list[tuple[float, str, str]]:
    return [
        (each["t"], each["kind"], each["object"])
        for each in document["events"]
        if each["kind"] in kinds
    ]


@pytest.mark.parametrize(
    ("kind", "count", "expected"),
    [
        # Six of ten nodes are left. The next loop after 65 s is at 70 s; nothing waits for a GPU to be old.
        (ATOMIC, 6, [(70, "TriggeredScaleUp", "NodePool/gpu"), (70, "CapacityIsProvisioned", "")]),
        (ATOMIC, 7, [(70, "CapacityIsNotFound", ""), (130, "CapacityIsNotFound", "")]),
        (CHECK, 1, [(70, "CapacityIsNotFound", ""), (130, "CapacityIsNotFound", "")]),
    ],
)
def test_requests(kind: str, count: int, expected: list[tuple[float, str, str]]) -> None:
    # processors/provreq/injector.go: after a failure it is tried again in 1 min, then 2 min after that
    document = simulate(setup(request(kind, count)))
    names = ("TriggeredScaleUp", "CapacityIsProvisioned", "CapacityIsNotFound", "CapacityIsFound")
    wanted = [(t, name, of or "ProvisioningRequest/r") for t, name, of in expected]
    if expected[0][1] == "CapacityIsNotFound":
        wanted.append((250, "CapacityIsNotFound", "ProvisioningRequest/r"))
    assert events(document, *names) == wanted


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [
        ("podTemplateRef: web, replicas: 2", 2),
        ("scalableRef: web, percentage: 50", 2),  # of 4
        ("scalableRef: web, percentage: 10", 1),  # 0.4, rounded up
        ("scalableRef: web, percentage: 100, replicas: 3", 3),  # the smaller
        ("podTemplateRef: web, limits: {nvidia.com/gpu: '5'}", 5),
        ("podTemplateRef: web, replicas: 4, limits: {nvidia.com/gpu: '3', cpu: '1'}", 3),
    ],
)
def test_buffers_are_room_beside_the_pods(fields: str, nodes: int) -> None:
    document = simulate(setup(f"capacityBuffers: [{{name: spare, {fields}}}]"))
    assert document["summary"]["nodePools"]["gpu"]["maxNodes"] == 4 + nodes


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (request(ATOMIC, 1).replace("web", "train"), "a Deployment or Job of the manifests"),
        (request("atomic", 1), "best-effort-atomic-scale-up.autoscaling.x-k8s.io"),
        ("capacityBuffers: [{name: b, replicas: 1}]", "one of podTemplateRef and scalableRef"),
        ("capacityBuffers: [{name: b, podTemplateRef: web, percentage: 5}]", "without scalableRef"),
        ("capacityBuffers: [{name: b, podTemplateRef: web}]", "replicas, percentage, or limits"),
        ("capacityBuffers: [{name: b, scalableRef: x, replicas: 1}]", "a Deployment of the manif"),
    ],
)
def test_faults_are_named(fields: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        setup(fields)


def test_karpenters_policy_does_not_serve_them() -> None:
    with pytest.raises(ConfigError, match="which does not serve them here"):
        setup(request(ATOMIC, 1), policy="karpenter")
