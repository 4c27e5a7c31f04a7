"""60 generated clusters with PodGroups, to the whole kube-scheduler and to our placement: the same answers.

Each has up to 6 nodes and up to 3 gangs, of which the higher priority comes first. All pods of a case ask for
as many GPUs, so that which of equal nodes the scheduler draws makes no difference. Compared are how many pods
of each gang are bound, and what the scheduler says of those that aren't and of the group.
$GPUSCALE_SCHEDULER_CASES asks for another number of cases, $GPUSCALE_SCHEDULER_SEED for others.
"""

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from gpuscale.base.objects.manifests import load_manifests
from gpuscale.hpa.cluster.scheduling import TOO_FEW_PODS, Placer, node_state, place_gang
from gpuscale_testing.programs import toolset

_PREEMPTION = ", deallocation and deletion of ResourceClaims"
"""With this begins what the scheduler adds of preemption."""
CASES = int(os.environ.get("GPUSCALE_SCHEDULER_CASES", "60"))
SEED = int(os.environ.get("GPUSCALE_SCHEDULER_SEED", "0"))


def drawn(draw):
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{number}", "labels": {"kubernetes.io/hostname": f"n{number}"}},
            "status": {
                "allocatable": {
                    "cpu": "64",
                    "memory": "512Gi",
                    "pods": "110",
                    "nvidia.com/gpu": str(draw.choice((0, 1, 2, 4, 8))),
                }
            },
        }
        for number in range(draw.randint(1, 6))
    ]
    gpus = draw.choice((1, 1, 2, 4))
    groups, pods = [], []
    for number in range(draw.randint(1, 3)):
        name, priority = f"g{number}", 30 - 10 * number
        count = draw.randint(1, 8)
        too_few = draw.random() < 0.05
        least = count + 1 if too_few else draw.choice((count, draw.randint(1, count)))
        groups.append(
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"priority": priority, "schedulingPolicy": {"gang": {"minCount": least}}},
            }
        )
        limits = {"nvidia.com/gpu": str(gpus)}
        pods += [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{name}-{each}", "namespace": "default"},
                "spec": {
                    "schedulingGroup": {"podGroupName": name},
                    "priority": priority,
                    "preemptionPolicy": "Never",
                    "containers": [{"name": "c", "resources": {"limits": limits}}],
                },
            }
            for each in range(count)
        ]
    return {"nodes": nodes, "pending": pods, "podGroups": groups}


def answer(case):
    """Return, by group: pods that are bound, and what may be said of it and of those that aren't.

    A gang that waits is tried again when others have been bound, and may have less room then.
    """
    placer = Placer([node_state(_object(each), ()) for each in case["nodes"]])
    gangs = {}
    for group in case["podGroups"]:
        name = group["metadata"]["name"]
        pods = [_object(each) for each in case["pending"]]
        least = group["spec"]["schedulingPolicy"]["gang"]["minCount"]
        gangs[name] = [pod for pod in pods if pod.spec.scheduling_group == name], least
    tried = {
        name: place_gang(placer, pods, least, 0)
        for name, (pods, least) in gangs.items()
        if len(pods) >= least
    }
    found = {name: (0, [TOO_FEW_PODS], []) for name in gangs}
    for name, placed in tried.items():
        later = place_gang(placer, *gangs[name], 0) if placed.message else placed
        said = [(each.message, Counter(each.messages.values())) for each in (placed, later)]
        found[name] = len(placed.nodes), [each for each, _ in said], [each for _, each in said]
    return found


def _object(data: Mapping[str, Any]) -> Any:
    (found,) = load_manifests(json.dumps(data), "case.json")
    return found


@pytest.fixture(scope="module")
def judge():
    reason = toolset.missing(["scheduler-judge"])
    if reason and not os.environ.get("GPUSCALE_REQUIRE_CLUSTER"):
        pytest.skip(reason)
    program = toolset.find("scheduler-judge")
    running = subprocess.Popen([program, "gangs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    yield running
    running.communicate()


def test_gangs_are_bound_as_kube_scheduler_binds_them(judge) -> None:
    draw, kinds = random.Random(SEED), Counter()
    for number in range(CASES):
        case = drawn(draw)
        judge.stdin.write(json.dumps(case).encode() + b"\n")
        judge.stdin.flush()
        found = json.loads(judge.stdout.readline())
        assert "broken" not in found, (number, found)
        for name, (bound, messages, refusals) in answer(case).items():
            about = number, name, found, case
            assert sum(pod.startswith(f"{name}-") for pod in found["nodes"]) == bound, about
            if messages == [TOO_FEW_PODS]:
                # PreEnqueue holds its pods back, and says so in no condition.
                assert name not in found["groups"], about
                kinds["too few"] += 1
                continue
            said = [m for pod, m in found["messages"].items() if pod.startswith(f"{name}-")]
            assert Counter(each.partition(_PREEMPTION)[0] for each in said) in refusals, about
            if messages[0]:
                assert found["groups"][name].partition(_PREEMPTION)[0] in messages, about
            kinds["part" if messages[0] else "whole"] += 1
            kinds["some refused"] += bool(bound and refusals[0])
    assert all(kinds[each] >= CASES / 30 for each in ("too few", "part", "whole", "some refused"))
