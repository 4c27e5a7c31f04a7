"""The simulated scheduler: priorities, preemption, gates, and the profile of a scenario."""

from textwrap import indent

import pytest

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.base.objects.pods import PodPhase
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale.lab.sim.world import World

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
TRAIN = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    metadata: {labels: {app: train}}
    spec: {priority: 100, MORE containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
BUDGET = """\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: web}}}
"""


def setup(*manifests, nodes=1, gpus=2, more="", job=True):
    files = "".join(
        f"    - inline: |\n{indent(each.replace('MORE', more), ' ' * 8)}" for each in manifests
    )
    work = "workloads: [{job: train, imagePull: 0s, run: {at: 1m, duration: 1m}}]" if job else ""
    scheduler = "" if job else more
    return load_setup(
        f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: priorities}}
spec:
  duration: 5m
  manifests:
{files}
  nodePools:
    - {{name: gpu, gpuModel: Tesla T4, gpus: {gpus}, min: {nodes}, max: {nodes}, provisioningTime: 60s}}
  {work}{scheduler}
""",
        "s.yaml",
        lambda _path: "",
    )


def at(world, seconds):
    world.engine.run_until(seconds * 1000)
    return sorted(
        pod.metadata.labels["app"]
        for pod in world.cluster.pods.values()
        if pod.spec.node_name
        and "app" in pod.metadata.labels
        and pod.status.phase is not PodPhase.SUCCEEDED
    )


def said(world, kind):
    return [each.reason for each in world.cluster.events.since(0) if each.kind == kind]


def test_a_pod_of_a_higher_priority_takes_the_place_of_another() -> None:
    world = World(setup(WEB, TRAIN), 0)
    assert at(world, 59) == ["web", "web"]
    # One of the two is told to end at 60 s, and takes 2 s for it.
    assert at(world, 61) == ["web", "web"]
    assert world.control_plane.unschedulable()[0].metadata.labels == {"app": "web"}
    assert at(world, 63) == ["train", "web"]
    (preempted,) = said(world, "Preempted")
    assert preempted.startswith("Preempted by pod default/train-")
    # The Job is done at 122 s; the Deployment's other pod has waited for that.
    assert at(world, 123) == ["web", "web"]


@pytest.mark.parametrize("more", ["preemptionPolicy: Never,", "nodeSelector: {no: such},"])
def test_nobody_is_preempted_in_vain(more) -> None:
    world = World(setup(WEB, TRAIN, more=more), 0)
    assert at(world, 120) == ["web", "web"]
    assert said(world, "Preempted") == []


def test_a_budget_is_kept_only_where_there_is_another_way() -> None:
    world = World(setup(WEB, BUDGET, TRAIN), 0)
    assert at(world, 63) == ["train", "web"]


CLASS = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
"""


@pytest.mark.parametrize(
    ("more", "after"), [("", ["train", "web"]), ("preemptionPolicy: Never\n", ["web", "web"])]
)
def test_a_priority_class_gives_its_priority(more, after) -> None:
    train = TRAIN.replace("priority: 100", "priorityClassName: urgent")
    world = World(setup(WEB, CLASS + more, train), 0)
    assert at(world, 63) == after


def test_the_default_class_is_that_of_pods_that_name_none() -> None:
    # The web pods have 1000 by it, and the Job's 100 stay below.
    world = World(setup(WEB, CLASS + "globalDefault: true\n", TRAIN), 0)
    assert at(world, 63) == ["web", "web"]


def test_a_class_that_is_not_there_is_named() -> None:
    train = TRAIN.replace("priority: 100", "priorityClassName: urgent")
    with pytest.raises(ConfigError) as caught:
        setup(WEB, train)
    assert "found priorityClassName urgent in Job train" in str(caught.value)


def test_a_gated_pod_waits_without_a_word() -> None:
    world = World(setup(WEB, TRAIN, nodes=2, more="schedulingGates: [{name: queue}],"), 0)
    assert at(world, 200) == ["web", "web"]
    assert said(world, "FailedScheduling") == []
    assert world.control_plane.unschedulable() == []


PACKED = """
  scheduler:
    scoringStrategy:
      type: MostAllocated
      resources: [{name: nvidia.com/gpu, weight: 10}, {name: cpu, weight: 1}]
    weights: {PodTopologySpread: 0, NodeResourcesBalancedAllocation: 0}
"""


@pytest.mark.parametrize(("scheduler", "on_each"), [("", [1, 1]), (PACKED, [0, 2])])
def test_a_packing_profile_fills_a_node_first(scheduler, on_each) -> None:
    world = World(setup(WEB, nodes=2, more=scheduler, job=False), 0)
    at(world, 10)
    held = [
        sum(map(len, world.cluster.devices.holders(name))) for name in sorted(world.cluster.nodes)
    ]
    assert sorted(held) == on_each


@pytest.mark.parametrize(
    ("scheduler", "fault"),
    [
        ("scoringStrategy: {type: RequestedToCapacityRatio}", "expected both or neither"),
        (
            "scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: "
            "[{utilization: 50, score: 1}, {utilization: 50, score: 2}]}}",
            "don't rise",
        ),
        ("weights: {ImageLocality: 1}", "ImageLocality"),
    ],
)
def test_a_profile_that_can_not_be_is_refused(scheduler, fault) -> None:
    with pytest.raises(ConfigError) as caught:
        setup(WEB, more=f"\n  scheduler: {{{scheduler}}}", job=False)
    assert fault in str(caught.value)


def test_the_fluid_refuses_a_profile() -> None:
    with pytest.raises(UsageError, match="found scheduler"):
        simulate(setup(WEB, more=PACKED, job=False), fidelity="fluid")
