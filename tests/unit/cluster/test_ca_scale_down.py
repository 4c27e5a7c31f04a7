"""Which nodes go, and when; each case names the upstream file (release 1.35) it is from."""

from dataclasses import replace

import pytest

from autoscaler_cases import MINUTE, SECOND, Cluster, pod, pods, pool
from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.objects.selectors import selector_of_labels
from gpuscale.base.objects.taints import Taint, Toleration
from gpuscale.hpa.cluster.nodes import AutoscalerSettings, ScaleDown

AT_ONCE = AutoscalerSettings(unneeded_time_ms=0, delay_after_add_ms=0)
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


def loops(cluster, start, end):
    """Return the nodes that go, with the second at which each is told to, while a loop runs each 10 s."""
    found = []
    for second in range(start, end, 10):
        for name in cluster.gone(second * SECOND):
            found.append((second, name))
            cluster.remove(name)
    return found


# core/scaledown/unneeded/nodes.go, core/static_autoscaler.go: isScaleDownInCooldown


@pytest.mark.parametrize(("added", "gone"), [(-3600, 600), (-60, 600), (120, 720)])
def test_an_empty_node_goes_after_10_minutes_and_10_after_the_last_was_added(added, gone):
    other = pool("other", gpus=16)
    cluster = Cluster([pool(), other])
    cluster.grown(added * SECOND, [pod("p", 16, at=-(10**9))])
    cluster.coming("b", of=other)
    cluster.node("a")
    assert loops(cluster, 0, 800)[:1] == [(gone, "a")]


def test_an_order_to_go_comes_5_s_before_the_end():
    # core/scaledown/actuation: node-delete-delay-after-taint is 5 s, and max-pod-eviction-time 120 s more
    cluster = Cluster([pool()], AT_ONCE)
    cluster.node("a")
    assert cluster.scan(MINUTE) == [ScaleDown("gpu", "a", 1, delay_ms=5_000, give_up_ms=125_000)]


def test_use_in_between_starts_the_time_anew():
    cluster = Cluster([pool()])
    cluster.node("a")
    assert loops(cluster, 0, 300) == []
    cluster.node("a", pods(8, 1))
    assert loops(cluster, 300, 310) == []
    cluster.node("a")
    assert loops(cluster, 310, 1000) == [(910, "a")]


def test_the_smallest_size_stays_and_its_nodes_have_no_time():
    # processors/nodes/pre_filtering_processor.go
    cluster = Cluster([pool(low=1)])
    cluster.node("a")
    assert loops(cluster, 0, 700) == []
    cluster.node("b")
    assert loops(cluster, 700, 1400) == [(1300, "a")]


def test_after_a_removal_nothing_goes_for_the_delay():
    # scale-down-delay-after-delete; on AKS it is the scan interval
    delay = 30 * SECOND
    for settings, times in (
        (AT_ONCE, [0, 10]),
        (replace(AT_ONCE, scale_down_delay_after_delete_ms=delay), [0, 30]),
    ):
        cluster = Cluster([pool(high=20)], replace(settings, max_scale_down_parallelism=1))
        cluster.node("a")
        cluster.node("b")
        assert [second for second, _ in loops(cluster, 0, 100)] == times


def test_after_a_removal_that_failed_nothing_goes_for_3_minutes():
    # scale-down-delay-after-failure
    cluster = Cluster([pool(high=20)], AT_ONCE)
    cluster.node("a")
    assert cluster.gone(0) == ["a"]
    # It is there still, and is not going.
    assert cluster.gone(10 * SECOND) == []
    assert cluster.gone(190 * SECOND - 1) == []
    assert cluster.gone(190 * SECOND) == ["a"]


def test_unready_nodes_wait_20_minutes():
    # scale-down-unready-time; the node counts as unready 15 minutes after it joined
    cluster = Cluster([pool()])
    cluster.coming("a", joined=0)
    assert loops(cluster, 0, 2300) == [(900 + 1200, "a")]
    kept = Cluster([pool()], AutoscalerSettings(scale_down_unready_enabled=False))
    kept.coming("a", joined=0)
    assert loops(kept, 0, 2300) == []


def test_scale_down_may_be_off():
    cluster = Cluster([pool()], replace(AT_ONCE, scale_down_enabled=False))
    cluster.node("a")
    assert cluster.gone(MINUTE) == []


# simulator/utilization/info.go, core/scaledown/eligibility/eligibility.go


def test_a_half_used_node_is_drained_when_its_time_has_come():
    # The findings' case: nodes of 8 GPUs with 2 and 4 pods; the pods of the first fit on the second.
    cluster = Cluster([pool()])
    cluster.node("n1", pods(2, 1, prefix="a"))
    cluster.node("n2", pods(4, 1, prefix="b"))
    assert loops(cluster, 0, 700) == [(600, "n1")]


@pytest.mark.parametrize(
    ("gpus", "cpu", "goes"),
    [
        (4, "1", True),  # 0.5 <= 0.5
        (5, "1", False),  # 0.625
        (4, "95", True),  # CPU at 99 % changes nothing
    ],
)
def test_of_a_gpu_node_the_gpus_alone_count(gpus, cpu, goes):
    cluster = Cluster([pool()], AT_ONCE)
    cluster.node("used", [pod("p", gpus, cpu)])
    full = pool("full", low=1)
    cluster.pools.append(full)
    cluster.node("free", of=full)
    assert cluster.gone(MINUTE) == (["used"] if goes else [])


@pytest.mark.parametrize(
    ("cpu", "memory", "goes"),
    [("4", "16Gi", True), ("4100m", "1Gi", False), ("1", "17Gi", False)],
)
def test_of_other_nodes_the_larger_of_cpu_and_memory_counts(cpu, memory, goes):
    small = pool("small", gpus=0, cpu="8", memory="32Gi")
    full = pool("full", gpus=0, low=1)
    cluster = Cluster([small, full], AT_ONCE)
    cluster.node("used", [pod("p", 0, cpu, memory)], of=small)
    cluster.node("free", of=full)
    assert cluster.gone(MINUTE) == (["used"] if goes else [])


def test_thresholds_are_flags():
    settings = replace(AT_ONCE, scale_down_gpu_utilization_threshold=0.7)
    cluster = Cluster([pool()], settings)
    cluster.node("used", pods(5, 1))
    full = pool("full", low=1)
    cluster.pools.append(full)
    cluster.node("free", of=full)
    assert cluster.gone(MINUTE) == ["used"]


@pytest.mark.parametrize(
    ("flags", "made", "goes"),
    [
        # 3 CPUs of 8 and a DaemonSet's 2: 5/8 without the flag, 3/6 with it
        ({"ignore_daemonsets_utilization": True}, {"owner": "DaemonSet"}, True),
        (
            {"ignore_mirror_pods_utilization": True},
            {"annotations": {"kubernetes.io/config.mirror": "x"}},
            True,
        ),
        ({}, {"owner": "DaemonSet"}, False),
    ],
)
def test_pods_that_are_on_every_node_may_be_left_out(flags, made, goes):
    small, full = pool("small", gpus=0, cpu="8"), pool("full", gpus=0, low=1)
    cluster = Cluster([small, full], replace(AT_ONCE, **flags))
    cluster.node("used", [pod("p", 0, "3"), pod("d", 0, "2", **made)], of=small)
    cluster.node("free", of=full)
    assert cluster.gone(MINUTE) == (["used"] if goes else [])


def test_a_pod_that_should_be_gone_does_not_count():
    # utils/drain: IsPodLongTerminating, 30 s of grace and 30 s more
    cluster = Cluster([pool()], AT_ONCE)
    cluster.node("used", pods(8, 1, ending_at=0))
    assert cluster.gone(60 * SECOND) == []
    assert cluster.gone(60 * SECOND + 1) == ["used"]


def test_pods_that_have_finished_or_are_expendable_do_not_count():
    cluster = Cluster([pool()], AT_ONCE)
    done = [
        replace(each, status=replace(each.status, phase=PodPhase.SUCCEEDED))
        for each in pods(2, 0, owner=None)
    ]
    cluster.node("used", [*done, *pods(8, 1, prefix="e", owner=None, priority=-11)])
    assert cluster.gone(MINUTE) == ["used"]


# simulator/drainability/rules


def test_mirror_pods_and_daemon_pods_stay_behind():
    cluster = Cluster([pool()], AT_ONCE)
    mirror = pod("m", owner="Node", annotations={"kubernetes.io/config.mirror": "x"})
    cluster.node("used", [mirror, pod("d", owner="DaemonSet", local_volumes=("v",))])
    assert cluster.gone(MINUTE) == ["used"]


@pytest.mark.parametrize(
    ("case", "made", "settings"),
    [
        ("replicated", {"owner": None}, {}),
        ("replicated", {"owner": "CloneSet"}, {}),
        ("system", {"namespace": "kube-system", "at": 1}, {}),
        ("notsafetoevict", {"annotations": {SAFE: "false"}}, {}),
        ("localstorage", {"local_volumes": ("cache",)}, {}),
        (
            "localstorage",
            {
                "local_volumes": ("cache", "tmp"),
                "annotations": {f"{SAFE}-local-volumes": "cache"},
            },
            {},
        ),
        ("replicated", {"owner": None}, {"skip_nodes_with_custom_controller_pods": False}),
    ],
)
def test_what_keeps_a_node(case, made, settings):
    cluster = Cluster([pool()], replace(AT_ONCE, **settings))
    cluster.node("used", [pod("p", 1, **made)])
    cluster.node("other", pods(5, 1, prefix="o"))
    assert cluster.gone(MINUTE) == [], case
    # Another pod on it would not have kept it.
    cluster.policy = type(cluster.policy)()
    cluster.node("used", [pod("p", 1)])
    assert cluster.gone(MINUTE) == ["used"]


@pytest.mark.parametrize(
    ("made", "settings"),
    [
        ({"owner": None, "annotations": {SAFE: "true"}, "local_volumes": ("v",)}, {}),
        ({"owner": "Job"}, {}),
        ({"owner": "StatefulSet"}, {}),
        ({"owner": "CloneSet"}, {"skip_nodes_with_custom_controller_pods": False}),
        ({"namespace": "kube-system", "at": 1}, {"skip_nodes_with_system_pods": False}),
        # blocking-system-pod-distruption-timeout is an hour
        ({"namespace": "kube-system", "at": -61 * MINUTE}, {}),
        ({"local_volumes": ("v",)}, {"skip_nodes_with_local_storage": False}),
        ({"local_volumes": ("a", "b"), "annotations": {f"{SAFE}-local-volumes": "a,b"}}, {}),
    ],
)
def test_what_does_not_keep_it(made, settings):
    cluster = Cluster([pool()], replace(AT_ONCE, **settings))
    cluster.node("used", [pod("p", 1, **made)])
    cluster.node("other", pods(5, 1, prefix="o"))
    assert cluster.gone(MINUTE) == ["used"]


def test_a_node_may_say_that_it_stays():
    # core/scaledown/eligibility: HasNoScaleDownAnnotation
    cluster = Cluster([pool()], AT_ONCE)
    key = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
    cluster.node("a", annotations={key: "true"})
    assert cluster.gone(MINUTE) == []


def budget(allowed, app="web", namespace="default"):
    meta, selector = ObjectMeta("b", namespace), selector_of_labels({"app": app})
    return PodDisruptionBudget(meta, selector, disruptions_allowed=allowed)


def test_budgets_keep_nodes_and_are_used_up():
    # core/scaledown/pdb/basic.go, rules/pdb
    settings = replace(AT_ONCE, max_drain_parallelism=9)
    for allowed, gone in ((0, []), (1, ["a"]), (2, ["a", "b"])):
        cluster = Cluster([pool()], settings, budgets=(budget(allowed),))
        for name in ("a", "b"):
            cluster.node(name, [pod(f"on-{name}", 1, labels={"app": "web"})])
        cluster.node("c", pods(5, 1, prefix="o"))
        assert cluster.gone(MINUTE) == gone, allowed
    # Budgets of other pods and of other namespaces don't matter.
    cluster.budgets = budget(0, "x"), budget(0, namespace="n")
    cluster.policy = type(cluster.policy)()
    assert cluster.gone(MINUTE) == ["a", "b"]


def test_a_budget_makes_a_pod_of_kube_system_movable():
    # rules/system: pods with a budget are not the rule's business
    system = pod("p", 1, namespace="kube-system", at=1, labels={"app": "web"})
    cluster = Cluster([pool()], AT_ONCE, budgets=(budget(1, namespace="kube-system"),))
    cluster.node("used", [system])
    cluster.node("other", pods(5, 1, prefix="o"))
    assert cluster.gone(MINUTE) == ["used"]


def test_nodes_whose_pods_can_not_be_evicted_at_once_go_last():
    # core/scaledown/planner: sortByRisk
    apart = pool("apart", taints=[Taint("team", "a")])
    cluster = Cluster([pool(), apart], AT_ONCE, budgets=(budget(1),))
    cluster.node("risky", [pod(f"r{n}", 1, labels={"app": "web"}) for n in range(2)])
    cluster.node("plain", [pod("p", 1, tolerations=(Toleration("team", value="a"),))], of=apart)
    cluster.node("other", pods(5, 1, prefix="o"))
    assert cluster.gone(MINUTE) == ["plain"]


# simulator/cluster.go: SimulateNodeRemoval; core/scaledown/planner/planner.go


def test_pods_must_fit_on_nodes_that_are_there():
    cluster = Cluster([pool()], AT_ONCE)
    cluster.node("used", pods(4, 1))
    cluster.node("other", pods(5, 1, prefix="o"))
    assert cluster.gone(MINUTE) == []
    # A node on its way is no place for them.
    cluster.coming("coming")
    assert cluster.gone(20 * MINUTE) == []
    cluster.remove("coming")
    cluster.node("third", pods(7, 1, prefix="t"))
    assert cluster.gone(40 * MINUTE) == ["used"]


def test_a_node_that_could_not_be_emptied_is_looked_at_again_after_5_minutes():
    # unremovable-node-recheck-timeout
    cluster = Cluster([pool()], AT_ONCE)
    cluster.node("used", pods(4, 1))
    cluster.node("other", pods(5, 1, prefix="o"))
    assert cluster.gone(0) == []
    cluster.node("other", pods(1, 1, prefix="o", annotations={SAFE: "false"}))
    assert cluster.gone(5 * MINUTE - 1) == []
    assert cluster.gone(5 * MINUTE) == ["used"]


def test_nodes_do_not_move_to_each_other():
    # Successful simulations are kept: once a is to go, b is full of its pods.
    settings = replace(AT_ONCE, max_drain_parallelism=9)
    cluster = Cluster([pool()], settings)
    cluster.node("a", pods(4, 1, prefix="a"))
    cluster.node("b", pods(4, 1, prefix="b"))
    assert cluster.gone(MINUTE) == ["a"]


def test_a_node_that_pending_pods_go_to_is_needed():
    cluster = Cluster([pool()], AT_ONCE)
    cluster.node("a")
    assert cluster.gone(MINUTE, pods(5, 1)) == []


# core/scaledown/budgets/budgets.go


def test_ten_empty_nodes_go_in_a_loop():
    cluster = Cluster([pool(high=50)], AT_ONCE)
    for number in range(14):
        cluster.node(f"n{number:02}")
    assert loops(cluster, 0, 30) == [
        *((0, f"n{number:02}") for number in range(10)),
        *((10, f"n{number:02}") for number in range(10, 14)),
    ]


def test_one_node_is_drained_at_a_time():
    cluster = Cluster([pool()], AT_ONCE)
    for name in ("a", "b", "c"):
        cluster.node(name, [pod(f"on-{name}", 1)])
    cluster.node("d", pods(5, 1, prefix="o"))
    assert cluster.gone(0) == ["a"]
    cluster.node("a", [pod("on-a", 1, ending_at=0)], leaving=True)
    assert cluster.gone(10 * SECOND) == []
    cluster.remove("a")
    assert cluster.gone(20 * SECOND) == ["b"]


def test_nodes_that_are_going_count_for_the_ten_and_for_the_smallest_size():
    names = [f"n{number:02}" for number in range(14)]
    cluster = Cluster([pool(low=2, high=50)], AT_ONCE)
    for name in names:
        cluster.node(name)
    assert cluster.gone(0) == names[:10]
    for name in names[:8]:
        cluster.node(name, leaving=True)
    for name in names[8:10]:
        cluster.remove(name)
    # 10 at once less 8, and 12 nodes less 8 less the smallest size of 2: two may go either way.
    assert cluster.gone(10 * SECOND) == names[10:12]


def test_nodes_that_leave_by_themselves_do_not_count():
    # nodedeletiontracker.go knows the autoscaler's own removals
    cluster = Cluster([pool()], AT_ONCE)
    cluster.node("spot", [pod("s", 1)], leaving=True)
    cluster.node("used", [pod("p", 1)])
    cluster.node("other", pods(5, 1, prefix="o"))
    assert cluster.gone(0) == ["used"]


def test_empty_nodes_go_before_used_ones():
    cluster = Cluster([pool()], replace(AT_ONCE, max_scale_down_parallelism=1))
    cluster.node("used", [pod("p", 1)])
    cluster.node("empty")
    cluster.node("other", pods(5, 1, prefix="o"))
    assert cluster.gone(MINUTE) == ["empty"]


def test_the_cluster_keeps_its_fewest_cores_and_memory():
    # core/scaledown/resource/limits.go
    cores = replace(AT_ONCE, cores_total=(200, 9_999))
    for settings in (cores, replace(AT_ONCE, memory_total=(2_100, 9_999))):
        cluster = Cluster([pool(high=20)], settings)
        for number in range(4):
            cluster.node(f"n{number}")
        # 4 nodes of 96 cores and 1000 GiB: without one of them it is 288 and 3000, without two 192 and 2000.
        assert cluster.gone(0) == ["n0"]


def test_no_more_nodes_are_looked_at_than_could_go():
    # core/scaledown/planner: unneededNodesLimit. The first loop finds 2N = 20; each later one 20 more.
    cluster = Cluster([pool(high=100)])
    for number in range(50):
        cluster.node(f"n{number:02}")
    assert loops(cluster, 0, 640) == [
        *((600, f"n{number:02}") for number in range(10)),
        *((610, f"n{number:02}") for number in range(10, 20)),
        *((620, f"n{number:02}") for number in range(20, 30)),
        *((630, f"n{number:02}") for number in range(30, 40)),
    ]
