"""GPU models in scenarios: known ones by any of their names, and described ones."""

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.world import World

MANIFESTS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: "web:1", resources: {limits: {RESOURCE: 1}}}
"""
SCENARIO = """
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: s}
spec:
  duration: 20m
  manifests: [{file: web.yaml}]
  MODELS
  nodePools:
  - {name: a, gpuModel: MODEL, gpus: 1, min: 1, max: 1}
"""


def setup(model, described="", resource="nvidia.com/gpu"):
    text = SCENARIO.replace("MODELS", described).replace("MODEL", model)
    files = {"web.yaml": MANIFESTS.replace("RESOURCE", resource)}
    return load_setup(text, "s.yaml", files.__getitem__)


def reading(model, described="", resource="nvidia.com/gpu"):
    world = World(setup(model, described, resource), 0)
    world.engine.run_until(10_000)
    assert world.ready_pods("default/web") == 1
    (node,) = world.gpus.readers
    return world.gpus.read(node, 10_000)[0]


@pytest.mark.parametrize("name", ["l40s", "NVIDIA L40S", "L40S"])
def test_a_known_model_goes_by_what_people_call_it(name: str) -> None:
    assert reading(name).gpu.model == "NVIDIA L40S"


def test_pods_of_amd_gpus_ask_for_amds_resource() -> None:
    assert reading("MI300X", resource="amd.com/gpu").gpu.model == "AMD Instinct MI300X"


def test_a_described_model_needs_a_name_and_memory_only() -> None:
    found = reading("Mystery X1", "gpuModels: [{name: Mystery X1, memoryGib: 40}]")
    values = found.values
    assert found.gpu.model == "Mystery X1"
    # 40 x 1024 MiB; 300 W is the limit unless given, a tenth of it the draw at idle, with 0.5 % of noise.
    assert values["DCGM_FI_DEV_FB_TOTAL"] == 40 * 1024
    assert values["DCGM_FI_DEV_POWER_MGMT_LIMIT"] == 300
    assert values["DCGM_FI_DEV_POWER_USAGE"] == pytest.approx(30, rel=0.005)


def test_a_described_model_goes_before_a_known_one() -> None:
    facts = "memoryGib: 24, powerWatts: 60, idleWatts: 20, smClockMhz: 1000"
    described = f"gpuModels: [{{name: NVIDIA L4, {facts}}}]"
    values = reading("l4", described).values
    assert values["DCGM_FI_DEV_POWER_MGMT_LIMIT"] == 60
    assert values["DCGM_FI_DEV_POWER_USAGE"] == pytest.approx(20, rel=0.005)
    assert values["DCGM_FI_DEV_MAX_SM_CLOCK"] == 1000


def test_a_described_model_can_be_of_amd() -> None:
    described = "gpuModels: [{name: MI999, vendor: AMD, memoryGib: 512}]"
    values = reading("mi999", described, "amd.com/gpu").values
    assert values["DCGM_FI_DEV_FB_TOTAL"] == 512 * 1024
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" not in values


@pytest.mark.parametrize(
    ("model", "described", "message"),
    [
        (
            "A10GG",
            "",
            "s.yaml:10: spec.nodePools[0].gpuModel: found 'A10GG', expected a GPU model; "
            "did you mean NVIDIA A10G?",
        ),
        (
            "Mystery X2",
            "gpuModels: [{name: Mystery X1, memoryGib: 40}]",
            "s.yaml:10: spec.nodePools[0].gpuModel: found 'Mystery X2', expected a GPU model; "
            "did you mean Mystery X1?",
        ),
        (
            "H100 M",
            "gpuModels: [{name: H100 MA, memoryGib: 40}, {name: H100 MB, memoryGib: 40}]",
            "s.yaml:10: spec.nodePools[0].gpuModel: found 'H100 M', expected one of H100 MA, H100 MB; "
            "others can be described in spec.gpuModels",
        ),
        (
            "X1",
            "gpuModels: [{name: X1, memoryGib: 40}, {name: x-1, memoryGib: 80}]",
            "s.yaml:8: spec.gpuModels[1].name: found 'x-1', expected each model's name once",
        ),
        (
            "X1",
            "gpuModels: [{name: X1, memoryGib: 40, powerWatts: 100, idleWatts: 100}]",
            "s.yaml:8: spec.gpuModels[0]: found idleWatts 100 with powerWatts 100, "
            "expected less at idle than at the limit",
        ),
    ],
)
def test_a_wrong_model_is_named_with_what_helps(model: str, described: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        setup(model, described)
    assert str(caught.value) == message
