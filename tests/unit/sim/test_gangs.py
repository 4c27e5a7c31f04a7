# mypy: disable-error-code="attr-defined"
"""Gangs in a simulation: pods that get nodes together or not at all."""

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.lab.sim.document.jobs import JobProgress, job_progress
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.world import World

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completions: 4
  parallelism: 4
  scheduling: {schedulingPolicy: {gang: {}}}
  template:
    spec:
      containers:
      - name: main
        image: train:1
        resources: {limits: {nvidia.com/gpu: 1}}
"""
SCENARIO = """
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: gangs}
spec:
  duration: 20m
  manifests: [{file: job.yaml}]
  nodePools:
  - {name: gpu, gpuModel: Tesla T4, gpus: 2, min: 3, max: 3}
  workloads:
  - job: train
    imagePull: 0s
    run: {copies: 2, at: 60s, duration: 300s}
"""


def world(manifest=JOB, scenario=SCENARIO):
    return World(load_setup(scenario, "s.yaml", {"job.yaml": manifest}.__getitem__), 0)


def at(site, seconds):
    site.engine.run_until(seconds * 1000)
    return job_progress(site)["train"]


def said(site, kind):
    return [(e.object, e.reason) for e in site.cluster.events.since(0) if e.kind == kind]


def test_of_two_gangs_one_runs_where_both_would_block_each_other() -> None:
    # Six GPUs: the first Job takes four, and two pods of the second would fit.
    site = world()
    assert at(site, 61) == JobProgress(8, 8, 4, 4, 0)
    assert said(site, "Unschedulable") == [
        (
            "PodGroup/train-2",
            "group of which a part fits: 2 of 4 pods; minCount (4) cannot be satisfied: 2 scheduled, 1 "
            "remaining",
        )
    ]
    # The second has its four when the first has ended.
    assert at(site, 361) == JobProgress(8, 8, 0, 4, 4)
    assert at(site, 661) == JobProgress(8, 8, 0, 0, 8)


def test_without_a_gang_the_same_jobs_share_what_is_there() -> None:
    site = world(JOB.replace("  scheduling: {schedulingPolicy: {gang: {}}}\n", ""))
    assert at(site, 61) == JobProgress(8, 8, 2, 6, 0)


def test_the_node_autoscaler_sees_the_pods_one_by_one() -> None:
    # Cluster Autoscaler has no PodGroup in its code: it counts the pods that no node takes.
    site = world(scenario=SCENARIO.replace("min: 3, max: 3}", "min: 1, max: 9}"))
    at(site, 600)
    grown = said(site, "TriggeredScaleUp")
    # Of the eight pods two would fit on the node that is there, so three more are bought at once.
    assert [name for name, _ in grown] == ["NodePool/gpu"]
    assert site.cloud.sizes("gpu") == (4, 4)


POD_GROUP = """---
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: both}
spec:
  schedulingPolicy: {gang: {minCount: 8}}
"""


def test_pods_of_a_group_wait_until_enough_of_them_are_made() -> None:
    manifest = JOB.replace("  scheduling: {schedulingPolicy: {gang: {}}}\n", "").replace(
        "    spec:\n", "    spec:\n      schedulingGroup: {podGroupName: both}\n"
    )
    late = SCENARIO.replace("copies: 2,", "copies: 2, every: 60s,").replace("gpus: 2", "gpus: 4")
    site = world(manifest + POD_GROUP, late)
    assert at(site, 119) == JobProgress(8, 4, 4, 0, 0)
    assert [reason for _, reason in said(site, "Unschedulable")] == [
        "waiting for minCount pods from a gang to appear in scheduling queue"
    ]
    assert at(site, 121) == JobProgress(8, 8, 0, 8, 0)


@pytest.mark.parametrize("field", ["schedulingConstraints: {}", "disruptionMode: {all: {}}"])
def test_what_is_not_simulated_of_a_group_is_refused(field) -> None:
    with pytest.raises(ConfigError) as error:
        world(JOB + POD_GROUP + f"  {field}\n")
    name = field.partition(":")[0]
    assert f"job.yaml:21: spec.{name}: found one, expected none" in str(error.value)


def test_a_group_is_read_with_its_faults() -> None:
    with pytest.raises(ConfigError, match=r"minCount: found 0, expected one or more"):
        world(JOB + POD_GROUP.replace("minCount: 8", "minCount: 0"))
    with pytest.raises(ConfigError, match="expected exactly one of basic and gang"):
        world(JOB + POD_GROUP.replace("gang: {minCount: 8}", ""))
