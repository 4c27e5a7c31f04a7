# mypy: disable-error-code="arg-type"
"""Rows of resource queries against the usage that upstream makes of them.

The cases, the numbers and the times are those of prometheus-adapter's pkg/resourceprovider
(provider_test.go), release v0.12.0; what differs here on purpose stands in its own test.
"""

import math

import pytest

from gpuscale.base.errors import UpstreamError
from gpuscale.series.values import Scalar, Vector, VectorSample
from gpuscale.server.rules.config import load_rules
from gpuscale.server.rules.resources import KUBERNETES
from gpuscale.server.sources.usage import (
    NodeUsage,
    PodContainersUsage,
    Usage,
    nodes_usage,
    pods_usage,
)

# The labels of upstream's config-gen: a node is in `instance`.
RULES = load_rules(
    """
resourceRules:
  cpu: &both
    containerQuery: sum(c{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    nodeQuery: sum(n{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    containerLabel: container
    resources:
      overrides:
        namespace: {resource: namespace}
        pod: {resource: pod}
        instance: {resource: node}
  memory: *both
  window: 1m
""",
    "rules.yaml",
    KUBERNETES,
).resource_rules


def pods(*rows):
    return Vector(
        tuple(
            VectorSample({"pod": pod, "container": container}, value, time_ms)
            for pod, container, value, time_ms in rows
        )
    )


def nodes(*rows):
    return Vector(
        tuple(VectorSample({"instance": node}, value, time_ms) for node, value, time_ms in rows)
    )


def used(cpu, memory):
    return Usage(round(cpu * 1000), round(memory * 1000))


CPU = (
    ("pod1", "cont1", 1100.0, 10),
    ("pod1", "cont2", 1110.0, 20),
    ("pod3", "cont1", 1300.0, 10),
    ("pod3", "cont2", 1310.0, 20),
)
MEMORY = (
    ("pod1", "cont1", 3100.0, 11),
    ("pod1", "cont2", 3110.0, 21),
    ("pod3", "cont1", 3300.0, 11),
    ("pod3", "cont2", 3310.0, 21),
)
POD1 = PodContainersUsage({"cont1": used(1100, 3100), "cont2": used(1110, 3110)}, 10)
POD3 = PodContainersUsage({"cont1": used(1300, 3300), "cont2": used(1310, 3310)}, 10)


def test_containers_belong_to_their_pods_and_the_earliest_time_counts() -> None:
    assert pods_usage(RULES, pods(*CPU), pods(*MEMORY)) == {"pod1": POD1, "pod3": POD3}


def test_a_pod_without_one_of_the_two_is_left_out() -> None:
    assert pods_usage(RULES, pods(*CPU), pods(*MEMORY[:2])) == {"pod1": POD1}
    assert pods_usage(RULES, pods(*CPU[2:]), pods(*MEMORY)) == {"pod3": POD3}


def test_negative_usage_is_none_at_all() -> None:
    cpu = pods(("pod1", "cont1", -1100.0, 10), ("pod1", "cont2", 1310.0, 20))
    memory = pods(("pod1", "cont1", 3100.0, 11), ("pod1", "cont2", -3310.0, 21))
    assert pods_usage(RULES, cpu, memory) == {
        "pod1": PodContainersUsage({"cont1": used(0, 3100), "cont2": used(1310, 0)}, 10)
    }


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_left_out_where_upstream_makes_zero_or_garbage(value) -> None:
    cpu = pods(("pod1", "cont1", value, 10), ("pod1", "cont2", 1110.0, 20))
    assert pods_usage(RULES, cpu, pods(*MEMORY)) == {
        "pod1": PodContainersUsage({"cont1": Usage(None, 3_100_000), "cont2": used(1110, 3110)}, 11)
    }
    assert pods_usage(RULES, pods(("pod1", "cont1", value, 10)), pods(*MEMORY)) == {}


def test_a_row_without_a_container_is_a_container_without_a_name() -> None:
    rows = Vector((VectorSample({"pod": "pod1"}, 2.0, 7),))
    assert pods_usage(RULES, rows, rows) == {"pod1": PodContainersUsage({"": used(2, 2)}, 7)}


def test_nodes_take_their_first_rows_and_the_earlier_time() -> None:
    cpu = nodes(("node1", 1100.0, 10), ("node2", 1200.0, 14), ("node2", 9.0, 1))
    memory = nodes(("node1", 2100.0, 11), ("node2", 2200.0, 12), ("node3", 1.0, 12))
    assert nodes_usage(RULES, cpu, memory) == {
        "node1": NodeUsage(used(1100, 2100), 10),
        "node2": NodeUsage(used(1200, 2200), 12),
    }


def test_a_node_with_a_negative_value_uses_nothing_and_one_without_a_number_is_left_out() -> None:
    cpu = nodes(("node1", -1100.0, 10), ("node2", 1200.0, 14))
    memory = nodes(("node1", 2100.0, 11), ("node2", math.nan, 12))
    assert nodes_usage(RULES, cpu, memory) == {"node1": NodeUsage(used(0, 2100), 10)}


def test_anything_but_a_vector_is_an_error() -> None:
    with pytest.raises(UpstreamError, match="gave a Scalar"):
        pods_usage(RULES, Scalar(1.0), pods(*MEMORY))
