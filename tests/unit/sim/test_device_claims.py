"""Scenarios whose pods claim devices (dynamic resource allocation)."""

from textwrap import indent

import pytest

from gpuscale.base.errors import ConfigError, UnavailableError
from gpuscale.hpa.cluster.scheduling.devices import selecting
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.simulation import simulate

CLASS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec:
  selectors: [{cel: {expression: device.driver == "gpu.example.com"}}]
"""
TEMPLATE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}
"""
TRAIN = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
      containers: [{name: c, resources: {requests: {cpu: 1}}}]
"""
BY_RESOURCE = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
TWO = """\
      resourceSlices:
      - driver: gpu.example.com
        devices: [{name: gpu-0}, {name: gpu-1}]
"""
# One GPU of 7 slices: as a whole, or a half and two quarters.
PARTS = """\
      resourceSlices:
      - {driver: gpu.example.com, sharedCounters: [{name: g, counters: {slices: {value: 7}}}]}
      - driver: gpu.example.com
        devices:
        - {name: whole, consumesCounters: [{counterSet: g, counters: {slices: {value: 7}}}]}
        - {name: half, consumesCounters: [{counterSet: g, counters: {slices: {value: 4}}}]}
        - {name: q-0, consumesCounters: [{counterSet: g, counters: {slices: {value: 2}}}]}
        - {name: q-1, consumesCounters: [{counterSet: g, counters: {slices: {value: 2}}}]}
"""


def setup(*manifests, slices=TWO, gpus=2, least=1, most=1, copies=3, more="", pools=""):
    files = "".join(f"    - inline: |\n{indent(each, ' ' * 8)}" for each in manifests)
    return load_setup(
        f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: claims}}
spec:
  duration: 10m
  manifests:
{files}
  nodePools:
    - name: gpu
      gpuModel: Tesla T4
      gpus: {gpus}
      min: {least}
      max: {most}
      provisioningTime: 60s
{slices}{pools}
  workloads:
  - {{job: train, imagePull: 0s, run: {{copies: {copies}, at: 1m, duration: 1m, utilization: 100}}}}
{more}
""",
        "claims.yaml",
        lambda name: pytest.fail(f"reads {name}"),
    )


def said(document, kind):
    return [(each["t"], each["reason"]) for each in document["events"] if each["kind"] == kind]


def times(document, kind):
    return [time for time, _ in said(document, kind)]


def test_a_device_is_given_back_at_a_pods_end() -> None:
    document = simulate(setup(CLASS, TEMPLATE, TRAIN))
    # Two devices for three pods, of a minute each.
    assert times(document, "Scheduled") == [60, 60, 120]
    refused = "0/1 nodes are available: 1 cannot allocate all claims."
    assert said(document, "FailedScheduling") == [(60, refused)]
    assert document["summary"]["busyGpuHours"] == pytest.approx(3 / 60, rel=0.01)


def test_the_cluster_autoscaler_makes_nodes_for_claims() -> None:
    document = simulate(setup(CLASS, TEMPLATE, TRAIN, least=0, most=5, copies=5))
    (grown,) = said(document, "TriggeredScaleUp")
    # Five pods on nodes of two devices.
    assert grown[1] == "pod triggered scale-up: [{gpu 0->3 (max: 5)}]"
    assert len(times(document, "Completed")) == 5


def test_no_node_is_made_for_a_claim_that_no_node_satisfies() -> None:
    three = TEMPLATE.replace("deviceClassName: gpu", "deviceClassName: gpu, count: 3")
    document = simulate(setup(CLASS, three, TRAIN, least=0, most=5, copies=1))
    assert said(document, "TriggeredScaleUp") == []
    (told,) = {text for _, text in said(document, "NotTriggerScaleUp")}
    assert told == "pod didn't trigger scale-up: 1 cannot allocate all claims"


def test_karpenter_refuses_pods_with_claims_by_name() -> None:
    policy = "  nodeAutoscaler: {policy: karpenter}\n"
    document = simulate(setup(CLASS, TEMPLATE, TRAIN, least=0, most=5, copies=1, more=policy))
    assert times(document, "Scheduled") == []
    karpenters = (
        "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter"
    )
    assert karpenters in {text for _, text in said(document, "FailedScheduling")}


def test_parts_of_a_gpu_run_beside_each_other() -> None:
    # The first takes the whole GPU, as it comes first; alone a half fits beside a quarter.
    document = simulate(setup(CLASS, TEMPLATE, TRAIN, slices=PARTS, gpus=1, copies=2))
    assert times(document, "Scheduled") == [60, 120]
    parts = "".join(line for line in PARTS.splitlines(keepends=True) if "whole" not in line)
    document = simulate(setup(CLASS, TEMPLATE, TRAIN, slices=parts, gpus=1, copies=3))
    assert times(document, "Scheduled") == [60, 60, 120]


def test_a_resource_is_served_by_a_device_class() -> None:
    serving = CLASS + "  extendedResourceName: nvidia.com/gpu\n"
    document = simulate(setup(serving, BY_RESOURCE, least=0, most=5))
    assert len(times(document, "Scheduled")) == 3
    (grown,) = said(document, "TriggeredScaleUp")
    assert grown[1] == "pod triggered scale-up: [{gpu 0->2 (max: 5)}]"
    # Without a class that serves it, nobody offers it.
    document = simulate(setup(CLASS, BY_RESOURCE))
    assert {text for _, text in said(document, "FailedScheduling")} == {
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    }


@pytest.mark.parametrize(
    ("manifests", "given", "expected"),
    [
        (
            (CLASS, TRAIN),
            {},
            "a ResourceClaimTemplate of the manifests (there: no ResourceClaimTemplate)",
        ),
        ((TEMPLATE, TRAIN), {}, "a DeviceClass of the manifests (there: no DeviceClass)"),
        (
            (CLASS, TRAIN.replace("resourceClaimTemplateName", "resourceClaimName")),
            {},
            "claims that pods share are not simulated",
        ),
        ((CLASS, TEMPLATE, TRAIN), {"gpus": 3}, "found 2, expected 3 GPUs in the devices"),
        (
            (CLASS.replace("device.driver ==", "device.driver = "), TEMPLATE, TRAIN),
            {},
            "an expression in CEL",
        ),
        (
            (CLASS, TEMPLATE, TRAIN),
            {"slices": TWO.replace("gpu-1", "gpu-0")},
            "each device's name once in a pool",
        ),
        (
            (CLASS, TEMPLATE, TRAIN),
            {"slices": PARTS.replace("counterSet: g,", "counterSet: h,", 1), "gpus": 1},
            "in a counter set 'h' of sharedCounters",
        ),
        (
            (CLASS + "  extendedResourceName: nvidia.com/gpu\n", BY_RESOURCE),
            {"pools": "    - {name: other, gpuModel: Tesla T4, gpus: 1, min: 0, max: 1}"},
            "resourceSlices in all pools or in none",
        ),
        (
            (CLASS + "  extendedResourceName: nvidia.com/gpu\n", BY_RESOURCE),
            {"more": "  nodeAutoscaler: {policy: karpenter}"},
            "Karpenter is not simulated with resources that DeviceClasses serve",
        ),
        (
            (CLASS + "  extendedResourceName: nvidia.com/gpu\n", BY_RESOURCE),
            {
                "more": "  scheduler: {scoringStrategy: {type: MostAllocated,"
                " resources: [{name: nvidia.com/gpu, weight: 1}]}}"
            },
            "points for others are not simulated",
        ),
        (
            (CLASS, TEMPLATE, TRAIN),
            {"slices": TWO + "      mig: {1g.10gb: 1}\n"},
            "found resourceSlices beside sharing, mig or instanceTypes",
        ),
    ],
)
def test_what_is_not_simulated_is_refused_by_name(manifests, given, expected) -> None:
    with pytest.raises(ConfigError) as caught:
        setup(*manifests, **given)
    assert expected in str(caught.value)


def test_the_shipped_scenario_does_what_it_says() -> None:
    document = simulate(find_setup("claims-jobs"))
    summary = document["summary"]
    # Two H100, then pairs of L4, each below a root: two pairs a node, so two nodes.
    nodes = {name: pool["maxNodes"] for name, pool in summary["nodePools"].items()}
    assert nodes == {"h100": 1, "l4": 2}
    # (2 + 4 x 2) GPUs for 10 minutes at 90 %.
    assert summary["busyGpuHours"] == pytest.approx(10 * 600 * 0.9 / 3600, rel=0.01)
    assert len(times(document, "Completed")) == 6


def test_without_the_package_the_error_names_the_extra(monkeypatch) -> None:
    def missing():
        raise UnavailableError(selecting.INSTALL)

    monkeypatch.setattr(selecting, "_environment", missing)
    selecting._program.cache_clear()
    with pytest.raises(UnavailableError, match="gpuscale"):
        find_setup("claims-jobs")
