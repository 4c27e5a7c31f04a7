"""Pods with claims for devices (dynamic resource allocation), where node autoscalers see them."""

import pytest

from autoscaler_cases import pool
from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.objects.pods import Pod, PodClaim
from gpuscale.hpa.cluster.nodes import (
    AutoscalerSettings,
    Karpenter,
    NodeRequest,
    NotTriggered,
    ScaleUp,
)
from gpuscale.hpa.cluster.scheduling import demands

CLAIMING = """\
apiVersion: v1
kind: Pod
metadata: {name: claiming}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
  containers:
  - {name: c, resources: {requests: {cpu: 1}, claims: [{name: gpu}]}}
"""
PLAIN = """\
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  containers:
  - {name: c, resources: {requests: {cpu: 1}}}
"""


def pod_of(text: str) -> Pod:
    (found,) = load_manifests(text, "pod.yaml")
    assert isinstance(found, Pod)
    return found


def test_a_claim_makes_pods_unlike_others() -> None:
    claiming, plain = pod_of(CLAIMING).spec, pod_of(PLAIN).spec
    assert claiming.claims == (PodClaim("gpu", "one-gpu"),)
    assert demands(claiming) != demands(plain)


def test_karpenter_refuses_a_pod_with_claims_whole() -> None:
    # karpenter 1.15 pkg/controllers/provisioning/scheduling/scheduler.go (add), IGNORE_DRA_REQUESTS=true
    karpenter, pods = Karpenter(), (pod_of(CLAIMING), pod_of(PLAIN))
    actions = []
    for now_ms in (60_000, 61_000):
        request = NodeRequest((pool(),), (), pods, now_ms, AutoscalerSettings())
        actions += karpenter.scan(request)
    (bought,) = (each for each in actions if isinstance(each, ScaleUp))
    assert bought.pods == ("default/plain",)
    (told,) = (each for each in actions if isinstance(each, NotTriggered))
    assert told == NotTriggered(
        "default/claiming",
        "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter",
        "FailedScheduling",
    )


@pytest.mark.parametrize(("text", "bought"), [(CLAIMING, 1), (PLAIN, 0)])
def test_karpenter_leaves_daemon_sets_with_claims_out_of_the_overhead(text, bought) -> None:
    # The same file, DaemonOverheadGroup: this DaemonSet's pod would fill a node of 96 CPUs.
    daemon = pod_of(text.replace("cpu: 1}", "cpu: 96}"))
    karpenter, actions = Karpenter(), []
    for now_ms in (60_000, 61_000):
        request = NodeRequest(
            (pool(),), (), (pod_of(PLAIN),), now_ms, AutoscalerSettings(), daemons=(daemon,)
        )
        actions += karpenter.scan(request)
    assert sum(isinstance(each, ScaleUp) for each in actions) == bought
