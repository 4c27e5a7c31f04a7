"""300 generated clusters with Kueue's queues, to Kueue's own scheduler and to ours: the same admissions.

Each has up to 4 ClusterQueues, some of them in one cohort, and workloads that come and end in steps. Compared
are, after each step, which workloads were admitted with which flavors, and what is said of those tried
in vain.
$GPUSCALE_QUEUE_CASES asks for another number of cases, $GPUSCALE_QUEUE_SEED for others.
"""

import json
import os
import random
import subprocess
from collections import Counter

import pytest

from gpuscale.base.objects.kueue import ClusterQueue, ResourceFlavor
from gpuscale.base.objects.manifests import load_manifests
from gpuscale.hpa.cluster.queues import PodSet, QueuedWorkload, Queues
from gpuscale.hpa.cluster.scheduling import pod_requests
from gpuscale_testing.programs import toolset

CASES = int(os.environ.get("GPUSCALE_QUEUE_CASES", "300"))
SEED = int(os.environ.get("GPUSCALE_QUEUE_SEED", "0"))
API = "kueue.x-k8s.io/v1beta2"
GPU = "nvidia.com/gpu"


def manifest(kind, name, **spec):
    meta = {"name": name}
    if kind == "LocalQueue":
        meta["namespace"] = "default"
    return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec}


def drawn(draw):
    flavors = [
        manifest(
            "ResourceFlavor",
            f"f{number}",
            nodeLabels={"kind": f"f{number}"} if draw.random() < 0.7 else {},
            nodeTaints=[{"key": "spot", "value": "true", "effect": "NoSchedule"}]
            if draw.random() < 0.2
            else [],
        )
        for number in range(draw.randint(1, 3))
    ]
    queues, locals_ = [], []
    with_cpus = draw.random() < 0.3
    covered = ["cpu", GPU] if with_cpus else [GPU]
    for number in range(draw.randint(1, 4)):
        cohort = draw.choice(("", "c", "c", "d"))
        quotas = []
        for flavor in draw.sample(flavors, draw.randint(1, len(flavors))):
            resources = []
            for name in covered:
                amount = draw.choice((0, 2, 4, 8, 8, 16)) * (4 if name == "cpu" else 1)
                quota = {"name": name, "nominalQuota": str(amount)}
                if cohort and draw.random() < 0.3:
                    quota["borrowingLimit"] = str(draw.choice((0, 2, 4)))
                if cohort and draw.random() < 0.3:
                    quota["lendingLimit"] = str(draw.randint(0, amount))
                resources.append(quota)
            quotas.append({"name": flavor["metadata"]["name"], "resources": resources})
        spec = {
            "resourceGroups": [{"coveredResources": covered, "flavors": quotas}],
            "queueingStrategy": draw.choice(("StrictFIFO", "BestEffortFIFO")),
            "namespaceSelector": {},
            "flavorFungibility": {"whenCanBorrow": draw.choice(("MayStopSearch", "TryNextFlavor"))},
            "preemption": {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"},
        }
        if cohort:
            spec["cohortName"] = cohort
        queues.append(manifest("ClusterQueue", f"q{number}", **spec))
        locals_.append(manifest("LocalQueue", f"l{number}", clusterQueue=f"q{number}"))
    steps, live, made = [], [], 0
    for _ in range(draw.randint(2, 5)):
        step = {"add": [], "finish": []}
        for name in list(live):
            if draw.random() < 0.3:
                live.remove(name)
                step["finish"].append(name)
        for _ in range(draw.randint(1, 8)):
            made += 1
            step["add"].append(workload(draw, made, len(queues), covered))
            live.append(step["add"][-1]["metadata"]["name"])
        steps.append(step)
    return {"flavors": flavors, "clusterQueues": queues, "localQueues": locals_, "steps": steps}


def workload(draw, number, queues, covered):
    sets = []
    for index in range(draw.choice((1, 1, 1, 2))):
        requests = {GPU: str(draw.choice((1, 1, 2, 4, 8)))}
        if "cpu" in covered:
            requests["cpu"] = draw.choice(("500m", "4", "16"))
        elif draw.random() < 0.03:
            requests["amd.com/gpu"] = "1"
        pod: dict = {
            "containers": [{"name": "c", "resources": {"requests": requests, "limits": {}}}]
        }
        if draw.random() < 0.2:
            pod["nodeSelector"] = {"kind": draw.choice(("f0", "f1")), "other": "x"}
        if draw.random() < 0.4:
            pod["tolerations"] = [{"key": "spot", "operator": "Exists"}]
        sets.append(
            {"name": f"set{index}", "count": draw.choice((1, 1, 2, 4)), "template": {"spec": pod}}
        )
    return {
        "metadata": {
            "name": f"w{number}",
            "namespace": "default",
            "uid": f"{number:06}",
            "creationTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
        },
        "spec": {
            "queueName": f"l{draw.randrange(queues)}",
            "active": True,
            "priority": draw.choice((0, 0, 0, 10)),
            "podSets": sets,
        },
    }


def queued(item):
    meta, spec = item["metadata"], item["spec"]
    sets = []
    for each in spec["podSets"]:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
        (read,) = load_manifests(json.dumps(pod | each["template"]), "case.json")
        sets.append(PodSet(each["name"], each["count"], read.spec, pod_requests(read.spec)))
    key, queue = f"default/{meta['name']}", f"q{spec['queueName'][1:]}"
    return QueuedWorkload(key, queue, tuple(sets), spec["priority"], int(meta["uid"]) * 1000)


def answer(case):
    """Return, for each step: workloads to flavors in their order, and what is said of those tried in vain."""
    objects = [
        load_manifests(json.dumps(each), "case.json")[0]
        for each in (*case["flavors"], *case["clusterQueues"])
    ]
    flavors = {each.metadata.name: each for each in objects if isinstance(each, ResourceFlavor)}
    queues = Queues([each for each in objects if isinstance(each, ClusterQueue)], flavors)
    waiting, found = set(), []
    for step in case["steps"]:
        for item in map(queued, step["add"]):
            queues.add(item)
            waiting.add(item.key)
        for name in step["finish"]:
            if f"default/{name}" not in waiting:
                queues.finish(f"default/{name}")
        admitted = {each.workload.key: list(each.flavors) for each in queues.run()}
        waiting -= admitted.keys()
        found.append((admitted, {key: queues.why(key) for key in queues.tried}))
    return found


@pytest.fixture(scope="module")
def judge():
    reason = toolset.missing(["kueue-judge"])
    if reason and not os.environ.get("GPUSCALE_REQUIRE_CLUSTER"):
        pytest.skip(reason)
    program = toolset.find("kueue-judge")
    running = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    yield running
    running.communicate()


def test_workloads_are_admitted_as_kueue_admits_them(judge) -> None:
    draw, kinds = random.Random(SEED), Counter()
    for number in range(CASES):
        case = drawn(draw)
        covered = case["clusterQueues"][0]["spec"]["resourceGroups"][0]["coveredResources"]
        judge.stdin.write(json.dumps(case).encode() + b"\n")
        judge.stdin.flush()
        found = json.loads(judge.stdout.readline())
        assert "broken" not in found, (number, found)
        of_one_set = {
            each["metadata"]["name"]
            for step in case["steps"]
            for each in step["add"]
            if len(each["spec"]["podSets"]) == 1 and "amd.com/gpu" not in str(each)
        }
        for step, (theirs, (admitted, said)) in enumerate(zip(found, answer(case), strict=True)):
            about = number, step, json.dumps(case)
            cycles = [sorted(f"default/{name}" for name in each) for each in theirs["admitted"]]
            assert sorted(admitted) == sorted(name for each in cycles for name in each), about
            flavors = {f"default/{k}": v for each in theirs["admitted"] for k, v in each.items()}
            assert admitted == flavors, about
            for name, message in theirs["pending"].items():
                kinds["waits"] += 1
                # Of two resources Kueue names the one that it happens to look at first, and what is said of
                # pod sets that take turns at flavors depends on the cycle.
                is_plain = covered == [GPU] and name in of_one_set
                if is_plain and (key := f"default/{name}") in said:
                    kinds["said"] += 1
                    assert said[key] == message, about
            kinds["admitted"] += len(admitted)
    assert min(kinds["waits"], kinds["said"], kinds["admitted"]) > CASES
