"""300 generated clusters, to kube-scheduler's own plugins and to our placement: the same answers.

Each has up to 8 nodes with labels, taints and pods, and up to 8 pods that come one after the other. Compared
are all nodes with the most points, the message of a pod that fits nowhere, who is preempted for it or why
nobody is. $GPUSCALE_SCHEDULER_CASES asks for another number of cases, $GPUSCALE_SCHEDULER_SEED for others.
"""

import json
import os
import subprocess
from collections import Counter

import pytest

from gpuscale_testing.programs import toolset
from scheduler_cases import Cases
from scheduler_twin import answer

CASES = int(os.environ.get("GPUSCALE_SCHEDULER_CASES", "300"))
SEED = int(os.environ.get("GPUSCALE_SCHEDULER_SEED", "0"))


@pytest.fixture(scope="module")
def judge():
    reason = toolset.missing(["scheduler-judge"])
    if reason and not os.environ.get("GPUSCALE_REQUIRE_CLUSTER"):
        pytest.skip(reason)
    program = toolset.find("scheduler-judge")
    running = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    yield running
    running.communicate()


def test_pods_go_where_kube_scheduler_puts_them(judge) -> None:
    cases, kinds = Cases(SEED), Counter()
    for number in range(CASES):
        case = cases.case()
        judge.stdin.write(json.dumps(case).encode() + b"\n")
        judge.stdin.flush()
        found = json.loads(judge.stdout.readline())
        assert "broken" not in found, (number, found)
        scores = [each.pop("scores", {}) for each in found["pods"]]
        assert answer(case) == found["pods"], (number, scores, case)
        kinds.update(key for each in found["pods"] for key in each)
    # Each kind of answer has to be there often enough to mean something.
    assert all(kinds[each] >= CASES / 10 for each in ("best", "message", "victims", "noVictims"))
