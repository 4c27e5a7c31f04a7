# mypy: disable-error-code="attr-defined"
"""Groups of LeaderWorkerSets in a simulation, held against the rules of its source, and arithmetic."""

import pytest

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import check_no_groups
from gpuscale.lab.sim.simulation import simulate
from gpuscale.lab.sim.world import World

LWS = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: llm}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 3
    workerTemplate:
      metadata: {labels: {app: llm}}
      spec:
        containers:
        - name: main
          image: llm:1
          resources: {limits: {nvidia.com/gpu: 1}}
"""
HPA = """---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: llm}
spec:
  scaleTargetRef: {apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: llm}
  minReplicas: 1
  maxReplicas: 3
  metrics:
  - type: Pods
    pods:
      metric: {name: gpu_util}
      target: {type: AverageValue, averageValue: 60}
"""
SCENARIO = """
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: groups}
spec:
  duration: 20m
  manifests: [{file: llm.yaml}]
  rules:
    inline: |
      rules:
      - seriesQuery: DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}
        resources:
          overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}}
        name: {as: gpu_util}
        metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
  nodePools:
  - {name: gpu, gpuModel: Tesla T4, gpus: 1, min: 6, max: 9, provisioningTime: 10s}
  workloads:
  - leaderWorkerSet: llm
    imagePull: 10s
    startup: 20s
    service: {gpuSecondsPerRequest: 3}
    load: {shape: constant, rate: 1}
"""


def setup_of(manifest=LWS, scenario=SCENARIO):
    return load_setup(scenario, "s.yaml", {"llm.yaml": manifest}.__getitem__)


def world(manifest=LWS, scenario=SCENARIO):
    return World(setup_of(manifest, scenario), 0)


def run_until(site, seconds) -> None:
    site.engine.run_until(round(seconds * 1000))


def pods(site):
    """Return the names of pods of groups that are not to end."""
    return sorted(
        pod.metadata.name
        for pod in site.cluster.pods.values()
        if pod.metadata.name.startswith("llm-") and pod.metadata.deletion_ms is None
    )


def group(index, size=3):
    return [f"llm-{index}", *(f"llm-{index}-{each}" for each in range(1, size))]


def said(site, kind):
    return [(e.object, e.reason) for e in site.cluster.events.since(0) if e.kind == kind]


def test_pods_have_the_names_and_labels_of_their_group() -> None:
    # lws v0.9.0 api/leaderworkerset/v1/leaderworkerset_types.go (names), pkg/webhooks/pod_webhook.go (labels)
    site = world()
    run_until(site, 0)
    assert pods(site) == sorted(group(0) + group(1))
    prefix = "leaderworkerset.sigs.k8s.io"
    leader, worker = site.cluster.pods["default/llm-1"], site.cluster.pods["default/llm-1-2"]
    key = leader.metadata.labels[f"{prefix}/group-key"]
    assert leader.metadata.labels == {
        "app": "llm",
        f"{prefix}/name": "llm",
        f"{prefix}/worker-index": "0",
        f"{prefix}/group-index": "1",
        # printf default/llm-1 | sha1sum
        f"{prefix}/group-key": "d4f7af51b5c97052db49989a4264005c5311c2c2",
    }
    assert worker.metadata.labels == {
        "app": "llm",
        f"{prefix}/name": "llm",
        f"{prefix}/worker-index": "2",
        f"{prefix}/group-index": "1",
        f"{prefix}/group-key": key,
    }
    assert worker.metadata.annotations[f"{prefix}/leader-name"] == "llm-1"
    assert (worker.metadata.owner.kind, worker.metadata.owner.name) == ("StatefulSet", "llm-1")
    assert (leader.metadata.owner.kind, leader.metadata.owner.name) == ("StatefulSet", "llm")


def test_the_hpa_sees_leaders_only() -> None:
    # lws v0.9.0 pkg/controllers/leaderworkerset_controller.go (updateStatus: HPAPodSelector, Replicas)
    site = world(LWS + HPA)
    run_until(site, 0)
    target = HpaController(site).target(site.cluster.hpas["default/llm"])
    prefix = "leaderworkerset.sigs.k8s.io"
    assert target.scale.selector == f"{prefix}/name=llm,{prefix}/worker-index=0"
    assert (target.scale.spec_replicas, target.scale.status_replicas) == (2, 2)
    assert [pod.name for pod in target.pods] == ["llm-0", "llm-1"]


def test_workers_wait_for_a_leader_that_is_to_be_ready_first() -> None:
    # lws v0.9.0 pkg/controllers/pod_controller.go (Reconcile: LeaderReadyStartupPolicy)
    manifest = LWS.replace("  replicas: 2\n", "  replicas: 2\n  startupPolicy: LeaderReady\n")
    site = world(manifest)
    run_until(site, 1)
    # What is there at the start is ready at once.
    assert pods(site) == sorted(group(0) + group(1))
    site.set_replicas("default/llm", 3)
    run_until(site, 2)
    assert [pod for pod in pods(site) if pod.startswith("llm-2")] == ["llm-2"]
    run_until(site, 600)
    leader, *workers = (site.cluster.pods[f"default/{pod}"] for pod in group(2))
    assert {pod.metadata.creation_ms for pod in workers} == {leader.status.ready_transition_ms}


def test_a_group_serves_when_all_of_it_is_ready() -> None:
    # lws v0.9.0 pkg/controllers/leaderworkerset_controller.go (updateConditions: readyCount)
    site = world(LWS.replace("replicas: 2", "replicas: 1"))
    run_until(site, 1)
    site.set_replicas("default/llm", 2)
    # Bound at once, as there are nodes: 10 s for the image and 20 s to start.
    run_until(site, 30)
    assert (site.ready_pods("default/llm"), len(site.serving_pods("default/llm"))) == (1, 1)
    run_until(site, 32)
    assert [pod.metadata.name for pod in site.serving_pods("default/llm")] == ["llm-0", "llm-1"]
    assert said(site, "ReplicasReady") == [
        (
            "LeaderWorkerSet/llm",
            "2 of 2 groups are ready, 30s after the decision, 31s after the load rose",
        )
    ]


def test_the_highest_groups_go_first_and_workers_after_their_leader() -> None:
    # lws v0.9.0 api/leaderworkerset/v1/leaderworkerset_types.go (replicas); kubernetes v1.37
    # pkg/controller/statefulset (condemned: highest ordinals), garbagecollector (background deletion)
    site = world()
    run_until(site, 60)
    site.set_replicas("default/llm", 1)
    run_until(site, 61)
    assert pods(site) == sorted([*group(0), "llm-1-1", "llm-1-2"])
    # The leader takes 2 s to end, then its workers do.
    run_until(site, 62.5)
    assert pods(site) == group(0)
    assert "default/llm-1-1" in site.cluster.pods
    run_until(site, 64.5)
    assert "default/llm-1-1" not in site.cluster.pods
    deleted = [("StatefulSet/llm", "delete Pod llm-1 in StatefulSet llm successful")]
    assert said(site, "SuccessfulDelete") == deleted


def test_a_lost_worker_restarts_its_group() -> None:
    # lws v0.9.0 pkg/controllers/pod_controller.go (handleRestartPolicy)
    site = world()
    run_until(site, 60)
    site.control_plane.evict("default/llm-1-2")
    run_until(site, 61)
    assert pods(site) == group(0)
    assert said(site, "RecreateGroup") == [
        (
            "LeaderWorkerSet/llm",
            "Worker pod llm-1-2 failed, deleted leader pod llm-1 to recreate group 1",
        )
    ]
    assert site.ready_pods("default/llm") == 1
    run_until(site, 63)
    assert {site.cluster.pods[f"default/{pod}"].metadata.creation_ms for pod in group(1)} == {
        62_000
    }
    run_until(site, 93)
    assert site.ready_pods("default/llm") == 2


def test_without_the_policy_only_the_lost_worker_comes_back() -> None:
    for policy in ("None", "Default"):  # v0.9.0: Default is the old name
        site = world(LWS.replace("    size: 3", f"    size: 3\n    restartPolicy: {policy}"))
        run_until(site, 60)
        site.control_plane.evict("default/llm-1-2")
        run_until(site, 63)
        made = [site.cluster.pods[f"default/{pod}"].metadata.creation_ms for pod in group(1)]
        assert made == [0, 0, 62_000]
        assert not said(site, "RecreateGroup")


def test_a_group_that_starts_is_left_alone_by_recreate_after_start() -> None:
    # lws v0.9.0 pkg/controllers/pod_controller.go (handleRestartPolicy: pendingPodsInGroup)
    site = world(
        LWS.replace("    size: 3", "    size: 3\n    restartPolicy: RecreateGroupAfterStart")
    )
    run_until(site, 60)
    site.set_replicas("default/llm", 3)
    run_until(site, 61)  # no node for the third group: its pods are pending
    site.control_plane.evict("default/llm-2-1")
    run_until(site, 62)
    assert not said(site, "RecreateGroup")
    assert [pod for pod in pods(site) if pod.startswith("llm-2")] == group(2)
    site.control_plane.evict("default/llm-1-1")
    run_until(site, 63)
    assert [reason for _, reason in said(site, "RecreateGroup")] == [
        "Worker pod llm-1-1 failed, deleted leader pod llm-1 to recreate group 1"
    ]


def test_workers_go_where_their_leader_is_and_no_other_group_comes_there() -> None:
    # lws v0.9.0 pkg/webhooks/pod_webhook.go (affinities) and pkg/controllers/pod_controller.go (the
    # node selector of workers)
    manifest = LWS.replace(
        "metadata: {name: llm}",
        "metadata: {name: llm, annotations: {leaderworkerset.sigs.k8s.io/exclusive-topology: rack}}",
    )
    pools = "".join(
        f"  - {{name: {name}, gpuModel: Tesla T4, gpus: 1, min: 3, max: 3, labels: {{rack: {name}}}}}\n"
        for name in ("east", "west")
    )
    head, _, tail = SCENARIO.partition("  - {name: gpu")
    site = world(manifest, head + pools + "  workloads" + tail.partition("  workloads")[2])
    run_until(site, 5)
    racks = [
        {site.cluster.nodes[site.cluster.pods[f"default/{pod}"].spec.node_name].metadata.labels["rack"]
         for pod in group(index)}
        for index in (0, 1)
    ]  # fmt: skip
    assert sorted(map(tuple, racks)) == [("east",), ("west",)]


def test_a_half_group_holds_gpus_and_serves_nothing() -> None:
    site = world(scenario=SCENARIO.replace("min: 6, max: 9", "min: 5, max: 5"))
    run_until(site, 600)
    assert site.ready_pods("default/llm") == 1
    # Two pods of the second group have nodes, for all of 600 s.
    assert site.held_gpu_ms["default/llm"] == 2 * 600_000


def test_a_run_reports_groups_and_their_pods() -> None:
    run = simulate(setup_of(LWS + HPA))
    # 1 request/s x 3 GPU-seconds keep 3 of the 6 GPUs of two groups busy, 50 % against a target of 60 %:
    # within two groups; one alone would be at 100 %.
    assert run["summary"]["groups"] == {
        "llm": {
            "podsPerReplica": 3,
            "finalReplicas": 2,
            "readyReplicas": 2,
            "finalPods": 6,
            "heldGpuHours": 0.0,
        }
    }
    # 3 busy GPUs for 20 minutes, less what still waits.
    assert run["summary"]["busyGpuHours"] == pytest.approx(1.0, abs=0.01)


def test_formulas_give_what_the_pipeline_gives() -> None:
    setup = setup_of(LWS + HPA, SCENARIO.replace("rate: 1}", "rate: 1.9}"))
    by_formula = simulate(setup)
    assert by_formula.pop("fidelity")["used"] == "formula"
    through = simulate(setup, through_pipeline=True)
    assert through.pop("fidelity")["used"] == "pipeline"
    assert by_formula == through
    assert through["summary"]["hpas"]["llm"]["finalReplicas"] == 3


def refused(manifest, scenario=SCENARIO):
    with pytest.raises(ConfigError) as error:
        setup_of(manifest, scenario)
    return str(error.value)


def test_faults_name_file_and_line() -> None:
    found = refused(LWS.replace("size: 3", "size: 0"))
    assert "llm.yaml:8: spec.leaderWorkerTemplate.size: found 0, expected one or more" in found
    found = refused(LWS.replace("    size: 3", "    size: 3\n    restartPolicy: Never"))
    assert "llm.yaml:9: spec.leaderWorkerTemplate.restartPolicy: found 'Never'" in found
    subgroups = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology: rack"
    found = refused(LWS.replace("{name: llm}", f"{{name: llm, annotations: {{{subgroups}}}}}", 1))
    assert "llm.yaml:4: " in found
    assert "places of subgroups are not simulated" in found
    found = refused(LWS, SCENARIO.replace("leaderWorkerSet: llm", "leaderWorkerSet: other"))
    assert "s.yaml:19: spec.workloads[0].leaderWorkerSet: found 'other'" in found
    found = refused(LWS + HPA.replace("kind: LeaderWorkerSet", "kind: Deployment"))
    assert "found Deployment default/llm in HorizontalPodAutoscaler llm" in found


def test_what_does_no_groups_says_so() -> None:
    with pytest.raises(UsageError, match="--fidelity fluid: found LeaderWorkerSets, expected"):
        simulate(setup_of(), fidelity="fluid")
    with pytest.raises(
        UsageError,
        match="groups: tune: found LeaderWorkerSet default/llm, expected",
    ):
        check_no_groups(setup_of(), "tune")
