"""Which pods a ReplicaSet deletes first: the order of Kubernetes' ActivePodsWithRanks (v1.37.2)."""

from itertools import permutations

import pytest

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import Container, Pod, PodPhase, PodSpec, PodStatus
from gpuscale.hpa.cluster.victims import DELETION_COST, deletion_cost, victims_first

HOUR_MS = 3_600_000
NOW_MS = 10_000 * HOUR_MS
MONTH_MS = NOW_MS - 720 * HOUR_MS


def pod(
    name: str,
    node: str = "node",
    phase: PodPhase = PodPhase.RUNNING,
    ready_ms: int | None = None,
    made_ms: int = MONTH_MS,
    cost: str | None = None,
) -> Pod:
    annotations = {} if cost is None else {DELETION_COST: cost}
    status = PodStatus(phase, made_ms, ready_ms is not None, ready_ms)
    meta = ObjectMeta(name, annotations=annotations, creation_ms=made_ms)
    return Pod(meta, PodSpec((Container("c"),), node_name=node), status)


# Each one goes before all that follow it.
ORDER = (
    pod("unassigned", node="", phase=PodPhase.PENDING),
    pod("pending", phase=PodPhase.PENDING, cost="2147483647"),
    pod("unknown", phase=PodPhase.UNKNOWN, cost="7"),
    pod("not-ready", cost="2147483647"),
    pod("cheap", ready_ms=MONTH_MS, cost="-1"),
    pod("no-cost-ready-now", ready_ms=NOW_MS),
    pod("no-cost-2-hours", ready_ms=NOW_MS - 2 * HOUR_MS),
    pod("no-cost-5-hours-young", ready_ms=NOW_MS - 5 * HOUR_MS, made_ms=NOW_MS - 5 * HOUR_MS),
    pod("no-cost-5-hours", ready_ms=NOW_MS - 5 * HOUR_MS),
    pod("alone-on-its-node", node="other", ready_ms=NOW_MS),
    pod("dear", ready_ms=NOW_MS, cost="10"),
    pod("dearer", ready_ms=NOW_MS, cost="100"),
)


@pytest.mark.parametrize("start", range(len(ORDER)))
def test_pods_go_in_the_order_of_a_replica_set(start: int) -> None:
    mixed = (*ORDER[start:], *ORDER[:start])
    gone = victims_first(mixed, ORDER, NOW_MS)
    assert [each.metadata.name for each in gone] == [each.metadata.name for each in ORDER]


def test_ages_are_alike_within_a_power_of_two() -> None:
    # log2 of 5 h and of 8 h in nanoseconds are 44.03 and 44.71; of 2 h: 42.71.
    five, eight = (pod(str(h), ready_ms=NOW_MS - h * HOUR_MS) for h in (5, 8))
    for pair in permutations((five, eight)):
        assert victims_first(pair, pair, NOW_MS) == list(pair)


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("0", 0),
        ("-100", -100),
        ("-08", -8),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("2147483648", 0),
        ("+10", 0),
        ("008", 0),
        ("", 0),
        ("1.5", 0),
        ("ten", 0),
        ("٣", 0),
        ("9" * 5000, 0),
    ],
)
def test_a_cost_is_an_int32_as_the_api_server_reads_it(text: str, cost: int) -> None:
    assert deletion_cost({DELETION_COST: text}) == cost


def test_no_annotation_costs_nothing() -> None:
    assert deletion_cost({}) == 0
