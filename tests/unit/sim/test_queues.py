# mypy: disable-error-code="attr-defined"
"""Queues of Kueue in a simulation: Jobs that are suspended until there is quota for them."""

import json

import pytest

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.lab.kube_api.objects.cluster import WorldObjects
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.document.document import summary
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import check_no_groups
from gpuscale.lab.sim.world import World
from gpuscale.series.promapi import TimeAxis


def kueue(kind, name, **spec):
    meta = {"name": name}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta, "spec": spec}


def cluster_queue(name, *flavors, **spec):
    """Return a ClusterQueue with GPUs: of each flavor its name and quota."""
    quotas = [
        {"name": flavor, "resources": [{"name": "nvidia.com/gpu", **quota}]}
        for flavor, quota in flavors
    ]
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": quotas}
    return kueue("ClusterQueue", name, namespaceSelector={}, resourceGroups=[group], **spec)


def job(name, gpus=1, *, queue="gpu", labels=(), **spec):
    """Return a Job of one pod, unless told otherwise."""
    container = {"name": "c", "image": "i:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue, **dict(labels)}},
        "spec": {"suspend": True, **spec, "template": {"spec": {"containers": [container]}}},
    }


FLAVOR, LOCAL = kueue("ResourceFlavor", "l4"), kueue("LocalQueue", "gpu", clusterQueue="team")
FOUR = cluster_queue("team", ("l4", {"nominalQuota": 4}))


def setup_of(*manifests, pools=(), **runs):
    """Return the setup of Jobs that come a second after each other, each for 100 s unless told otherwise."""
    named = [each["metadata"]["name"] for each in manifests if each["kind"] in ("Job", "JobSet")]
    kinds = {each["metadata"]["name"]: each["kind"] for each in manifests}
    scenario = {
        "apiVersion": "gpuscale.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": "queues"},
        "spec": {
            "duration": "20m",
            "manifests": [{"file": "m.yaml"}],
            "nodePools": [
                *pools,
                {"name": "gpu", "gpuModel": "Tesla T4", "gpus": 8, "min": 1, "max": 1},
            ],
            "workloads": [
                {
                    "jobSet" if kinds[name] == "JobSet" else "job": name,
                    "imagePull": "0s",
                    "run": {"at": f"{number}s", "duration": runs.get(name, "100s")},
                }
                for number, name in enumerate(named, start=1)
            ],
        },
    }
    text = "\n---\n".join(json.dumps(each) for each in manifests)
    return load_setup(json.dumps(scenario), "s.yaml", {"m.yaml": text}.__getitem__)


def started(*manifests, until=1000, **more):
    """Return the second in which each Job got its quota, by name."""
    world = World(setup_of(*manifests, **more), 0)
    world.engine.run_until(until * 1000)
    return world, {
        event.object.partition("-")[2]: event.time_ms // 1000
        for event in world.cluster.events.since(0)
        if event.kind == "QuotaReserved"
    }


def test_a_job_without_quota_has_no_pods_and_gets_no_node_until_another_is_done() -> None:
    pool = {"name": "more", "gpuModel": "Tesla T4", "gpus": 8, "min": 0, "max": 5}
    pool |= {"provisioningTime": "10s"}
    world, at = started(
        FLAVOR, FOUR, LOCAL, job("a", 4), job("b", 4), job("c", 4), until=90, pools=[pool]
    )
    assert at == {"a": 1}
    assert [key for key in world.cluster.pods if "-b" in key or "-c" in key] == []
    assert world.cloud.sizes("more") == (0, 0)
    said = [(e.object, e.reason) for e in world.cluster.events.since(0) if e.kind == "Pending"]
    why = (
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor l4, "
        "4 more needed"
    )
    assert said == [("Workload/job-b", why), ("Workload/job-c", why)]
    world.engine.run_until(1000 * 1000)
    assert summary(world)["queues"] == {
        "team": {
            "submitted": 3,
            "admitted": 3,
            "waiting": 0,
            # Each runs for 100 s; b came at 2 s and c at 3 s.
            "meanWaitTime": pytest.approx((0 + 99 + 198) / 3, abs=0.001),
            "longestWaitTime": 198.0,
        }
    }
    assert len(world.cluster.completed_jobs) == 3


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("StrictFIFO", {"a": 1, "b": 101, "c": 201}), ("BestEffortFIFO", {"a": 1, "b": 101, "c": 3})],
)
def test_a_large_job_keeps_those_behind_it_waiting_in_a_strict_queue_alone(
    strategy, expected
) -> None:
    strict = cluster_queue("team", ("l4", {"nominalQuota": 4}), queueingStrategy=strategy)
    _, at = started(FLAVOR, strict, LOCAL, job("a", 2), job("b", 4), job("c", 1), c="50s")
    assert at == expected


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ({}, {"a": 1}),
        ({"borrowingLimit": 1}, {}),
        ({"borrowingLimit": 2}, {"a": 1}),
    ],
)
def test_a_queue_borrows_what_its_cohort_lends_up_to_its_limit(quota, expected) -> None:
    mine = cluster_queue("team", ("l4", {"nominalQuota": 2, **quota}), cohortName="all")
    other = cluster_queue("other", ("l4", {"nominalQuota": 2}), cohortName="all")
    _, at = started(FLAVOR, mine, other, LOCAL, job("a", 4))
    assert at == expected


def test_what_a_queue_does_not_lend_nobody_borrows() -> None:
    mine = cluster_queue("team", ("l4", {"nominalQuota": 2}), cohort="all")
    other = cluster_queue("other", ("l4", {"nominalQuota": 2, "lendingLimit": 1}), cohort="all")
    _, at = started(FLAVOR, mine, other, LOCAL, job("a", 4), job("b", 3))
    assert at == {"b": 2}


def test_a_job_goes_to_the_nodes_of_the_flavor_that_has_quota() -> None:
    taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
    toleration = {"key": "spot", "operator": "Exists"}
    spot = kueue(
        "ResourceFlavor",
        "spot",
        nodeLabels={"kind": "spot"},
        nodeTaints=[taint],
        tolerations=[toleration],
    )
    pool = {"name": "spot", "gpuModel": "Tesla T4", "gpus": 1, "min": 1, "max": 1}
    pool |= {"labels": {"kind": "spot"}, "taints": [taint]}
    both = cluster_queue("team", ("l4", {"nominalQuota": 1}), ("spot", {"nominalQuota": 1}))
    world, at = started(FLAVOR, spot, both, LOCAL, job("a"), job("b"), until=60, pools=[pool])
    assert at == {"a": 1, "b": 2}
    nodes = {
        pod.metadata.owner.name: world.cluster.nodes[pod.spec.node_name].metadata.labels.get("kind")
        for pod in world.cluster.pods.values()
        if pod.metadata.owner.kind == "Job"
    }
    assert nodes == {"a": None, "b": "spot"}


def test_a_priority_class_of_workloads_goes_before_the_order_they_came_in() -> None:
    high = {**kueue("WorkloadPriorityClass", "high"), "value": 100}
    labels = {"kueue.x-k8s.io/priority-class": "high"}
    _, at = started(high, FLAVOR, FOUR, LOCAL, job("a", 4), job("b", 4), job("c", 4, labels=labels))
    assert at == {"a": 1, "c": 101, "b": 201}


def test_the_quota_of_pods_that_a_job_no_longer_needs_is_given_back() -> None:
    # Two at once, three in all: after 100 s one is left, and its neighbour's GPU is free.
    two = cluster_queue("team", ("l4", {"nominalQuota": 2}))
    _, at = started(FLAVOR, two, LOCAL, job("a", parallelism=2, completions=3), job("b"))
    assert at == {"a": 1, "b": 101}


def test_a_job_set_is_admitted_as_a_whole() -> None:
    def role(name, replicas):
        spec = job("x", 1)["spec"]
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s", "labels": {"kueue.x-k8s.io/queue-name": "gpu"}},
        "spec": {"replicatedJobs": [role("driver", 1), role("workers", 3)]},
    }
    _, at = started(FLAVOR, FOUR, LOCAL, job("a"), job_set, job("b", 4))
    assert at == {"a": 1, "s": 101, "b": 201}


def test_kubectl_sees_a_suspended_job() -> None:
    world, _ = started(FLAVOR, FOUR, LOCAL, job("a", 4), job("b", 4), until=50)
    axis = TimeAxis(world.start_ms, 1)
    objects = WorldObjects(world, HpaController(world), axis).facts()
    jobs = {each.name: each.body() for each in objects if each.resource == "jobs.batch"}
    assert [jobs[name]["spec"]["suspend"] for name in "ab"] == [False, True]
    assert [each["type"] for each in jobs["b"]["status"]["conditions"]] == ["Suspended"]
    assert "startTime" not in jobs["b"]["status"]


@pytest.mark.parametrize(
    ("manifests", "found"),
    [
        ((FLAVOR, FOUR, job("a")), "default/gpu in Job a, expected a LocalQueue of the manifests"),
        ((FLAVOR, LOCAL, job("a")), "team in LocalQueue gpu, expected a ClusterQueue"),
        ((FOUR, LOCAL, job("a")), "l4 in ClusterQueue team, expected a ResourceFlavor"),
        (
            (
                FLAVOR,
                cluster_queue("team", preemption={"withinClusterQueue": "LowerPriority"}),
                LOCAL,
            ),
            "m.yaml:3: spec.preemption.withinClusterQueue: found LowerPriority, expected Never",
        ),
        (
            (FLAVOR, cluster_queue("team", admissionChecks=["prov"]), LOCAL),
            "spec.admissionChecks: found one, expected none: it is not simulated",
        ),
    ],
)
def test_what_is_missing_or_not_simulated_is_refused(manifests, found) -> None:
    with pytest.raises(ConfigError) as refused:
        setup_of(*manifests)
    assert found in str(refused.value)


def test_a_rehearsal_refuses_jobs_in_queues() -> None:
    with pytest.raises(UsageError, match="found Job default/a in a queue of Kueue"):
        check_no_groups(setup_of(FLAVOR, FOUR, LOCAL, job("a")), "rehearse")
