"""Which of a Deployment's pods go, when fewer are wanted."""

from dataclasses import replace

import pytest

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import Container, PodPhase, PodSpec, PodStatus, PodTemplate
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.base.objects.workloads import Deployment
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.control.controllers import owner_of_replicas, reconcile

TEMPLATE = PodTemplate({"app": "web"}, PodSpec((Container("c"),)))
WEB = Deployment(ObjectMeta("web", "default"), 0, parse_selector("app=web"), TEMPLATE)
READY = PodStatus(PodPhase.RUNNING, 0, True, 0)


def scaled(cluster: Cluster, replicas: int, now_ms: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    cluster.deployments["default/web"] = replace(WEB, replicas=replicas)
    cluster.control(owner_of_replicas(cluster, WEB), "default/web")
    done = reconcile(cluster, now_ms)
    return done.created, done.deleted


@pytest.mark.parametrize("seed", range(5))
def test_pods_go_youngest_first_and_those_made_together_whatever_they_are_called(seed) -> None:
    cluster = Cluster(seed)
    old, _ = scaled(cluster, 2, 0)
    young, _ = scaled(cluster, 5, 60_000)
    for key in (*old, *young):
        cluster.set_status(key, READY)
    _, gone = scaled(cluster, 1, 120_000)
    # By ActivePods (controller_utils.go of Kubernetes 1.36) the young go first; the drawn names say nothing.
    assert gone == (*reversed(young), old[1])


def test_a_pod_that_is_not_ready_goes_before_younger_ones_that_are() -> None:
    cluster = Cluster(1)
    old, _ = scaled(cluster, 2, 0)
    young, _ = scaled(cluster, 3, 60_000)
    for key in (old[1], *young):
        cluster.set_status(key, READY)
    cluster.set_status(old[0], replace(READY, ready=False))
    assert scaled(cluster, 2, 120_000)[1] == (old[0],)
