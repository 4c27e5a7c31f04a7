"""ProvisioningRequests and CapacityBuffers; from upstream's files of release 1.35."""

from autoscaler_cases import MINUTE, SECOND, Cluster, pod, pods, pool
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import PodTemplate
from gpuscale.hpa.cluster.nodes import AutoscalerSettings, ScaleUp
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.requests import (
    BEST_EFFORT_ATOMIC,
    CHECK_CAPACITY,
)
from gpuscale.hpa.cluster.nodes.policy import CapacityBuffer, PodSet, ProvisioningRequest
from gpuscale.hpa.cluster.nodes.pools import ProvisioningCondition

ON = AutoscalerSettings(
    enable_provisioning_requests=True, capacity_buffer_pod_injection_enabled=True
)


def template(gpus):
    return PodTemplate({}, pod("t", gpus).spec)


def request(kind, count, gpus=8, name="r"):
    return ProvisioningRequest(ObjectMeta(name), kind, (PodSet(count, template(gpus)),))


def conditions(actions):
    return [each for each in actions if isinstance(each, ProvisioningCondition)]


def test_an_atomic_request_gets_nodes_for_all_of_its_pods():
    # provisioningrequest/besteffortatomic/provisioning_class.go; no wait for GPUs (scaleup_enforcer.go)
    cluster = Cluster([pool(high=3)], ON, provisioning_requests=(request(BEST_EFFORT_ATOMIC, 3),))
    growth, condition = cluster.scan(0)
    assert (growth.from_nodes, growth.to_nodes) == (0, 3)
    assert condition == ProvisioningCondition("default/r", True, "CapacityIsProvisioned")


def test_or_none():
    cluster = Cluster([pool(high=2)], ON, provisioning_requests=(request(BEST_EFFORT_ATOMIC, 3),))
    assert cluster.scan(0) == [ProvisioningCondition("default/r", False, "CapacityIsNotFound")]


def test_it_is_tried_again_after_1_2_4_8_and_10_minutes():
    # processors/provreq/injector.go
    cluster = Cluster([pool(high=2)], ON, provisioning_requests=(request(BEST_EFFORT_ATOMIC, 3),))
    tried = [minute for minute in range(40) if conditions(cluster.scan(minute * MINUTE))]
    assert tried == [0, 1, 3, 7, 15, 25, 35]


def test_a_check_only_looks():
    # provisioningrequest/checkcapacity
    cluster = Cluster([pool()], ON, provisioning_requests=(request(CHECK_CAPACITY, 1),))
    assert cluster.scan(0) == [ProvisioningCondition("default/r", False, "CapacityIsNotFound")]
    cluster.node("a")
    assert cluster.scan(MINUTE) == [ProvisioningCondition("default/r", True, "CapacityIsFound")]


def test_the_room_is_kept_for_10_minutes():
    # processors/provreq/processor.go: bookCapacity, defaultReservationTime
    cluster = Cluster([pool()], ON, provisioning_requests=(request(CHECK_CAPACITY, 1),))
    cluster.node("a")
    cluster.scan(0)
    waiting = [pod("p", 8, at=-MINUTE)]
    assert cluster.grown(10 * MINUTE, waiting) == {"gpu": 1}
    cluster.policy = type(cluster.policy)()
    cluster.scan(0)
    assert cluster.grown(10 * MINUTE + SECOND, waiting) == {}


def test_the_pods_that_it_was_for_bring_nothing_themselves():
    # processors/provreq/pods_filter.go
    cluster = Cluster([pool()], ON)
    key = "autoscaling.x-k8s.io/consume-provisioning-request"
    assert cluster.grown(MINUTE, [pod("p", 8, annotations={key: "r"})]) == {}


def test_requests_are_passed_over_where_they_are_off():
    cluster = Cluster([pool()], provisioning_requests=(request(BEST_EFFORT_ATOMIC, 1),))
    assert cluster.scan(MINUTE) == []


def test_a_buffer_is_room_beside_the_pods():
    # processors/capacitybuffer/pod_list_processor.go
    buffer = CapacityBuffer(ObjectMeta("b"), 2, template(8))
    cluster = Cluster([pool()], ON, capacity_buffers=(buffer,))
    cluster.node("a", pods(8, 1))
    (growth,) = cluster.scan(MINUTE)
    assert isinstance(growth, ScaleUp)
    assert growth.to_nodes - growth.from_nodes == 2
    cluster.node("b")
    cluster.node("c")
    # The nodes that it fits on are needed.
    assert cluster.scan(60 * MINUTE) == []
    assert cluster.scan(80 * MINUTE) == []
