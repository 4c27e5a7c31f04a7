"""40 generated clusters whose pods claim devices, to kube-scheduler's own plugins and to our placement.

Each has up to 4 nodes with slices of GPUs and network cards, whole or in parts, and up to 7 pods that come
one after the other. Compared are all nodes with the most points, every device that is allocated after each
pod, the message of a pod that fits nowhere and why nobody is preempted for it, and what can't be judged.
$GPUSCALE_DEVICE_CASES asks for another number of cases, $GPUSCALE_SCHEDULER_SEED for others.
"""

import json
import os
import subprocess
from collections import Counter

import pytest

from device_cases import DeviceCases, answer
from gpuscale_testing.programs import toolset

CASES = int(os.environ.get("GPUSCALE_DEVICE_CASES", "40"))
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


def test_pods_get_the_devices_that_kube_scheduler_gives_them(judge) -> None:
    cases, kinds = DeviceCases(SEED), Counter()
    for number in range(CASES):
        case = cases.case()
        judge.stdin.write(json.dumps(case).encode() + b"\n")
        judge.stdin.flush()
        found = json.loads(judge.stdout.readline())
        assert "broken" not in found, (number, found, case)
        for mine, theirs in zip(answer(case), found["pods"], strict=True):
            scores = theirs.pop("scores", {})
            faults = [_told(each) for each in theirs.pop("faults", ())]
            if "fault" in mine:
                assert _told(mine["fault"]) in faults, (number, mine, faults, case)
                kinds["fault"] += 1
                continue
            if "best" in theirs:
                theirs.setdefault("allocated", [])
            assert (mine, []) == (theirs, faults), (number, scores, case)
            kinds["best" if "best" in mine else "message"] += 1
            kinds["devices"] += bool(mine.get("allocated"))
    assert all(kinds[each] >= CASES / 2 for each in ("best", "message", "devices"))
    assert kinds["fault"] >= CASES / 20


def _told(fault: str) -> str:
    """Return a fault without the device, which is of the node that is tried first, and CEL's own words."""
    return fault.partition(" on device ")[0]
