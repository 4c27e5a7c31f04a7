"""Nodes that don't come, pools that fail, GPUs that are late; from upstream's files of release 1.35."""

import pytest

from autoscaler_cases import MINUTE, SECOND, Cluster, pod, pool
from gpuscale.hpa.cluster.nodes import AutoscalerSettings, LaunchFailure, Offering, ScaleDown
from gpuscale.hpa.cluster.nodes.pools import NotTriggered

HOUR = 60 * MINUTE


def failure(of="gpu", at=0):
    return LaunchFailure(of, "gpu", Offering(), at, "InsufficientInstanceCapacity")


def closed_until(cluster, from_ms, to_ms, step=30 * SECOND):
    """Return the first time at which the pool grows again."""
    waiting = [pod("p", 1, at=0)]
    times = range(from_ms, to_ms, step)
    return next((at for at in times if cluster.grown(at, waiting)), None)


# utils/backoff/exponential_backoff.go, clusterstate.go: handleInstanceCreationErrors


def test_failures_close_a_pool_for_5_10_20_and_30_minutes():
    cluster = Cluster([pool()])
    for minute, minutes in ((0, 5), (6, 10), (17, 20), (38, 30), (69, 30)):
        at = minute * MINUTE
        assert cluster.grown(at, [pod("p", 1)], [failure(at=at)]) == {}
        end = at + minutes * MINUTE
        # `backoffUntil.Before(currentTime)` is strict, so at its end the pool is still closed.
        assert closed_until(cluster, at, end + MINUTE, 10 * SECOND) == end + 10 * SECOND


def test_a_failure_within_the_time_makes_it_no_longer():
    cluster = Cluster([pool()])
    cluster.scan(0, [pod("p", 1)], [failure()])
    cluster.scan(2 * MINUTE, [pod("p", 1)], [failure()])
    assert closed_until(cluster, 2 * MINUTE, HOUR) == 7 * MINUTE + 30 * SECOND


def test_after_3_quiet_hours_it_begins_anew():
    cluster = Cluster([pool()])
    cluster.scan(0, (), [failure()])
    cluster.scan(6 * MINUTE, (), [failure()])
    at = 6 * MINUTE + 3 * HOUR + 10 * SECOND
    cluster.scan(at, (), [failure()])
    assert closed_until(cluster, at, at + HOUR, 10 * SECOND) == at + 5 * MINUTE + 10 * SECOND


def test_meanwhile_another_pool_helps_and_the_reason_is_told():
    pools = [pool("a", gpus=1), pool("b", gpus=1)]
    cluster = Cluster(pools)
    assert cluster.grown(MINUTE, [pod("p", 1)], [failure("a")]) == {"b": 1}
    both = Cluster(pools[:1])
    (note,) = both.scan(MINUTE, [pod("p", 1)], [failure("a")])
    assert note == NotTriggered(
        "default/p", "pod didn't trigger scale-up: 1 in backoff after failed scale-up"
    )


# clusterstate.go: updateScaleRequests, updateReadinessStats; static_autoscaler.go: removeOldUnregisteredNodes


def test_a_node_that_does_not_come_within_15_minutes_is_given_up():
    cluster = Cluster([pool()])
    waiting = [pod("p", 8)]
    assert cluster.grown(0 + MINUTE, waiting) == {"gpu": 1}
    cluster.coming("a")
    # It is seen a loop after it was asked for.
    for at in range(MINUTE + 10 * SECOND, 16 * MINUTE + 10 * SECOND, 10 * SECOND):
        assert cluster.scan(at, waiting) == []
    # By now the request is late, and the pool is closed; the node is removed a loop later.
    actions = cluster.scan(16 * MINUTE + 10 * SECOND, waiting)
    assert [each for each in actions if isinstance(each, ScaleDown)] == []
    removal, note = cluster.scan(16 * MINUTE + 20 * SECOND, waiting)
    assert (removal.node, removal.reason) == ("a", "Removed unregistered node a")
    assert note.message.endswith("1 in backoff after failed scale-up")


def test_late_nodes_stay_where_the_pool_would_be_too_small():
    # force-delete-unregistered-nodes is off
    cluster = Cluster([pool(low=1)])
    cluster.coming("a")
    cluster.coming("b")
    cluster.scan(0)
    assert cluster.gone(16 * MINUTE) == ["a"]
    forced = Cluster([pool(low=1)], AutoscalerSettings(force_delete_unregistered_nodes=True))
    forced.coming("a")
    forced.scan(0)
    assert forced.gone(16 * MINUTE) == ["a"]


def test_the_time_that_nodes_may_take_is_a_flag():
    cluster = Cluster([pool()], AutoscalerSettings(max_node_provision_time_ms=MINUTE))
    cluster.coming("a")
    cluster.scan(0)
    assert cluster.gone(MINUTE) == []
    assert cluster.gone(MINUTE + 1) == ["a"]


# clusterstate.go: IsClusterHealthy, IsNodeGroupHealthy


@pytest.mark.parametrize(
    ("unready", "ready", "works"),
    [
        (3, 0, True),  # ok-total-unready-count 3
        (4, 4, False),  # 50 % > max-total-unready-percentage 45
        (4, 5, True),  # 44 %
    ],
)
def test_with_too_many_unready_nodes_nothing_is_done(unready, ready, works):
    cluster = Cluster([pool(), pool("other", gpus=16)])
    for number in range(ready):
        cluster.node(f"r{number}", [pod(f"on{number}", 8)])
    for number in range(unready):
        cluster.coming(f"u{number}", joined=0)
    # Ready without GPUs for longer than max-node-startup-time, 15 minutes
    at = 16 * MINUTE
    assert bool(cluster.grown(at, [pod("p", 16)])) is works


def test_a_pool_that_lost_many_nodes_does_not_grow():
    cluster = Cluster([pool(high=20)])
    for number in range(4):
        cluster.coming(f"u{number}", joined=0)
    for number in range(5):
        cluster.node(f"r{number}", [pod(f"on{number}", 8)])
    # 4 of 9 are unready: the cluster may go on (44 %), and so may the pool.
    assert cluster.grown(16 * MINUTE, [pod("p", 8)]) == {"gpu": 1}
    for number in range(4, 8):
        cluster.coming(f"u{number}", joined=0)
    other = pool("other", gpus=0)
    cluster.pools.append(other)
    for number in range(9):
        cluster.node(f"o{number}", [pod(f"so{number}", 0, "96")], of=other)
    # 8 of 22 (36 %), but of the pool's 13 it is 8 (62 %).
    (note,) = cluster.scan(17 * MINUTE, [pod("p", 8)])
    reasons = "1 Insufficient nvidia.com/gpu, 1 not ready for scale-up"
    assert note.message == f"pod didn't trigger scale-up: {reasons}"


# processors/customresources/gpu_processor.go, processors/nodeinfosprovider/mixed_nodeinfos_processor.go

AWS = AutoscalerSettings(cloud_provider="aws")
LABEL = "k8s.amazonaws.com/accelerator"


def bought(cluster):
    """Return at which seconds nodes are bought for one pod of one GPU.

    A node is Ready 90 s after it was asked for, and its GPU is there 120 s later.
    """
    waiting, asked, times = [pod("p", 1)], {}, []
    for second in range(30, 400, 10):
        for name, at in asked.items():
            if second - at >= 210:
                cluster.node(name, joined_ms=(at + 90) * SECOND)
            elif second - at >= 90:
                cluster.coming(name, joined=(at + 90) * SECOND)
            else:
                cluster.coming(name)
        for _ in cluster.grown(second * SECOND, waiting):
            asked[f"n{len(asked)}"] = second
            times.append(second - 30)
    return times


def test_a_labelled_node_counts_as_coming_until_its_gpu_is_there():
    cluster = Cluster([pool(gpus=1, labels={LABEL: "nvidia-l4"})], AWS)
    assert bought(cluster) == [0]


@pytest.mark.parametrize("cloud", ["azure", "gce", "alicloud"])
def test_managed_services_label_their_nodes_themselves(cloud):
    assert bought(Cluster([pool(gpus=1)], AutoscalerSettings(cloud_provider=cloud))) == [0]


def test_without_the_label_each_node_that_is_ready_too_early_brings_another():
    # AWS: the instance type's GPUs are added to the template, so it goes on: Ready at 90 and 180, GPU at 210.
    assert bought(Cluster([pool(gpus=1)], AWS)) == [0, 90, 180]


def test_elsewhere_the_template_loses_its_gpus_and_the_pool_can_not_help_any_more():
    # A node serves as the template once it has been ready for a minute: after 150 s.
    from gpuscale.hpa.cluster.nodes.cluster_autoscaler import clouds

    settings = AutoscalerSettings(cloud_provider="self-managed")
    unlabelled = clouds.CloudProvider("cloud/accelerator", labels_nodes=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(clouds.CLOUDS, "self-managed", unlabelled)
        assert bought(Cluster([pool(gpus=1)], settings)) == [0, 90]


def test_a_node_with_a_dra_driver_needs_no_gpu_to_be_ready():
    # utils/gpu: ExposedViaDra
    label = {"cloud.google.com/gke-gpu-dra-driver": "true"}
    cluster = Cluster([pool(gpus=1, labels=label)], AutoscalerSettings(cloud_provider="gce"))
    cluster.coming("a", joined=0)
    assert cluster.grown(MINUTE, [pod("p", 1)]) == {"gpu": 1}


def test_pods_of_daemon_sets_on_a_node_make_new_nodes_smaller():
    # simulator/node_info_utils.go
    cluster = Cluster([pool(gpus=1, cpu="4")])
    cluster.node("a", [pod("d", 0, "1", owner="DaemonSet"), pod("on", 1)], joined_ms=0)
    assert cluster.grown(2 * MINUTE, [pod("p", 1, "4")]) == {}
    assert cluster.grown(2 * MINUTE, [pod("q", 1, "3")]) == {"gpu": 1}
