"""What a diagnosis does grows with the cluster, and not with its square."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from clusters import AGENT_LABELS, GPU, PLUGIN, cluster, findings_of, node, workload
from workload_cases import pending, pods, wanting


def calls_of(function) -> int:
    """Return how many Python functions are called."""
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def world(size):
    """As many nodes as workloads, and one pod that waits; nothing tolerates the taint of the nodes."""
    taint = {"key": "gpu", "effect": "NoSchedule"}
    sets = [workload("agent", "gpuscale", AGENT_LABELS), workload("plugin", image=PLUGIN)]
    return cluster(
        nodes=[node(f"gpu-{index}", 8, 8, taints=[taint]) for index in range(size)],
        deployments=[workload(f"model-{index}", gpus=1) for index in range(size)],
        daemonsets=sets,
        **pods(pending("0/1 nodes are available.", age_s=1020, **wanting(GPU))),
    )


def test_four_times_the_nodes_and_workloads_are_four_times_the_work() -> None:
    assert "taint-not-tolerated" in findings_of(world(50))
    few, many = (calls_of(lambda size=size: findings_of(world(size))) for size in (50, 200))
    assert many < 5 * few  # 4 where it is linear, 16 where each workload looks at each node
