from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.objects.nodes import Taint
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.cluster.nodes.autoscale import AutoscalerState, autoscale
from gpuscale.hpa.cluster.nodes.policy import PoolNode
from gpuscale.hpa.cluster.nodes.pools import (
    AutoscalerSettings,
    InstanceType,
    NodePool,
    ScaleDown,
    ScaleUp,
)
from gpuscale.hpa.cluster.scheduling.fit import NodeState

MINUTE = 60_000


def pool(name="gpu", low=1, high=3, gpus=1, taints=()):
    allocatable = {
        key: parse_quantity(value)
        for key, value in {"nvidia.com/gpu": gpus, "cpu": 8, "memory": "32Gi", "pods": 110}.items()
    }
    return NodePool(name, low, high, (InstanceType(name, allocatable),), {}, tuple(taints))


def pods(count, gpus=1, created_ms=0):
    text = "\n---\n".join(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p{n}, creationTimestamp: "
        f"'1970-01-01T00:00:{created_ms // 1000:02d}Z'}}\n"
        f"spec: {{containers: [{{name: c, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]}}"
        for n in range(count)
    )
    return load_manifests(text, "pods.yaml")


def there(of, name, *, ready=True, empty=True, taken=()):
    state = NodeState(of.node(name))
    for pod in taken:
        state = state.with_pod(pod.spec)
    return PoolNode(of.name, state, ready=ready, empty=empty)


def test_pending_gpu_pods_bring_as_many_nodes_as_they_fill() -> None:
    of = pool(gpus=2, high=10)
    busy = there(of, "a", empty=False, taken=pods(2))
    outcome = autoscale([of], [busy], pods(3), AutoscalerState(), MINUTE)
    # 3 pods of one GPU on nodes of two: ceil(3 / 2) = 2 nodes
    assert outcome.actions == (ScaleUp("gpu", 1, 3, ("default/p0", "default/p1", "default/p2")),)
    assert outcome.state.last_scale_up_ms == MINUTE


def test_growth_stops_at_the_largest_size() -> None:
    of = pool(high=3)
    busy = there(of, "a", empty=False, taken=pods(1))
    (action,) = autoscale([of], [busy], pods(19), AutoscalerState(), MINUTE).actions
    assert (action.to_nodes, len(action.pods)) == (3, 2)


def test_gpu_pods_wait_half_a_minute_before_they_bring_nodes() -> None:
    waiting = pods(1, created_ms=1_000)
    busy = [there(pool(), "a", empty=False, taken=pods(1))]
    assert autoscale([pool()], busy, waiting, AutoscalerState(), 30_999).actions == ()
    assert autoscale([pool()], busy, waiting, AutoscalerState(), 31_000).actions != ()


def test_nodes_on_their_way_count_so_that_nobody_buys_twice() -> None:
    of = pool()
    coming = there(of, "b", ready=False, empty=False)
    busy = there(of, "a", empty=False, taken=pods(1))
    assert autoscale([of], [busy, coming], pods(1), AutoscalerState(), MINUTE).actions == ()


def test_pods_that_no_pool_can_take_bring_nothing() -> None:
    of = pool(taints=[Taint("sku", "gpu")])
    assert autoscale([of], [], pods(1), AutoscalerState(), MINUTE).actions == ()
    assert autoscale([pool(gpus=1)], [], pods(1, gpus=8), AutoscalerState(), MINUTE).actions == ()


def test_the_first_pool_that_can_help_grows() -> None:
    tainted, plain = pool("a", taints=[Taint("sku", "gpu")]), pool("b")
    (action,) = autoscale([tainted, plain], [], pods(1), AutoscalerState(), MINUTE).actions
    assert action.pool == "b"


def test_an_empty_node_goes_after_ten_minutes_and_the_smallest_size_stays() -> None:
    of = pool(low=1)
    nodes = [there(of, "a"), there(of, "b")]
    first = autoscale([of], nodes, (), AutoscalerState(), 0)
    assert first.actions == ()
    early = autoscale([of], nodes, (), first.state, 10 * MINUTE - 1)
    assert early.actions == ()
    late = autoscale([of], nodes, (), early.state, 10 * MINUTE)
    assert late.actions == (ScaleDown("gpu", "a", 2),)
    assert late.state.unneeded_since_ms == {"b": 0}


def test_of_nodes_that_are_empty_for_as_long_the_oldest_goes_whatever_it_is_called() -> None:
    of = pool(low=1)
    nodes = [there(of, "b"), there(of, "a")]
    late = autoscale([of], nodes, (), AutoscalerState({"a": 0, "b": 0}), 10 * MINUTE)
    assert late.actions == (ScaleDown("gpu", "b", 2),)


def test_use_in_between_starts_the_time_anew() -> None:
    of = pool(low=0)
    state = autoscale([of], [there(of, "a")], (), AutoscalerState(), 0).state
    used = there(of, "a", empty=False)
    state = autoscale([of], [used], (), state, 5 * MINUTE).state
    state = autoscale([of], [there(of, "a")], (), state, 6 * MINUTE).state
    assert autoscale([of], [there(of, "a")], (), state, 15 * MINUTE).actions == ()
    assert autoscale([of], [there(of, "a")], (), state, 16 * MINUTE).actions != ()


def test_nothing_goes_for_ten_minutes_after_nodes_were_added() -> None:
    of = pool(low=0)
    state = AutoscalerState({"a": 0}, last_scale_up_ms=5 * MINUTE)
    nodes = [there(of, "a")]
    assert autoscale([of], nodes, (), state, 14 * MINUTE).actions == ()
    assert autoscale([of], nodes, (), state, 15 * MINUTE).actions == (ScaleDown("gpu", "a", 1),)


def test_young_gpu_pods_hold_up_removals_too() -> None:
    of = pool(low=0)
    state = AutoscalerState({"a": 0})
    young = pods(1, gpus=8, created_ms=59_000)
    quick = AutoscalerSettings(unneeded_time_ms=0, delay_after_add_ms=0)
    assert autoscale([of], [there(of, "a")], young, state, MINUTE, quick).actions == ()
    assert autoscale([of], [there(of, "a")], (), state, MINUTE, quick).actions != ()


def test_without_a_wait_empty_nodes_go_and_busy_ones_stay() -> None:
    of = pool(low=0)
    nodes = [
        there(of, "a", empty=False, taken=pods(1)),
        there(of, "b"),
        there(of, "c", ready=False),
    ]
    at_once = AutoscalerSettings(unneeded_time_ms=0, delay_after_add_ms=0)
    outcome = autoscale([of], nodes, (), AutoscalerState(), MINUTE, at_once)
    assert outcome.actions == (ScaleDown("gpu", "b", 3),)
