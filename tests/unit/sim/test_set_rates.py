"""`--set spec.workloads[0].load.rate=N`: the highest rate of any shape."""

import json
from typing import Any

import pytest

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.lab.sim.scenario.model import parse_scenario

SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: small}
spec:
  duration: 1h
  manifests: [{file: web.yaml}]
  nodePools: [{name: gpu, gpuModel: NVIDIA L4, gpus: 4, min: 1, max: 2}]
  workloads:
    - deployment: web
      service: {gpuSecondsPerRequest: 0.5}
      load: LOAD
"""
SET = "spec.workloads[0].load.rate"


def load_of(load: dict[str, Any], *settings: str) -> dict[str, Any]:
    scenario, _ = parse_scenario(SCENARIO.replace("LOAD", json.dumps(load)), "s.yaml", settings)
    (workload,) = scenario.spec.workloads
    return workload.load.model_dump(by_alias=True)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({"shape": "constant", "rate": 3}, {"rate": 12}),
        # Twice as much as the highest of the shape, so each rate is doubled.
        (
            {
                "shape": "steps",
                "steps": [
                    {"at": "0s", "rate": 2},
                    {"at": "1m", "rate": 6},
                    {"at": "2m", "rate": 0},
                ],
            },
            {
                "steps": (
                    {"at": "0s", "rate": 4},
                    {"at": "1m", "rate": 12},
                    {"at": "2m", "rate": 0},
                )
            },
        ),
        (
            {"shape": "ramp", "fromRate": 6, "toRate": 1, "end": "1h"},
            {"fromRate": 12, "toRate": 2},
        ),
        # A wave is highest at its mean and its amplitude together.
        ({"shape": "sine", "mean": 4, "amplitude": 2}, {"mean": 8, "amplitude": 4}),
        (
            {"shape": "spikes", "base": 1, "peak": 6, "every": "10m", "length": "1m"},
            {"base": 2, "peak": 12},
        ),
    ],
)
def test_the_rate_of_any_shape_is_its_highest(load, expected):
    found = load_of(load, f"{SET}=12")
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("load", "rate", "said"),
    [
        (
            {"shape": "trace", "file": "x.csv", "timeColumn": "t"},
            "5",
            "found a load of shape trace without a highest rate",
        ),
        ({"shape": "steps", "steps": [{"at": "0s", "rate": 0}]}, "5", "without a highest rate"),
        ({"shape": "sine", "mean": 4, "amplitude": 2}, "many", "found 'many', expected requests"),
        ({"shape": "sine", "mean": 4, "amplitude": 2}, "-1", "found -1, expected requests"),
    ],
)
def test_a_rate_that_can_not_be_set_is_refused_by_its_path(load, rate, said):
    with pytest.raises(UsageError) as caught:
        load_of(load, f"{SET}={rate}")
    assert str(caught.value).startswith(f"--set {SET}: ")
    assert said in str(caught.value)


def test_a_rate_that_the_file_itself_has_beside_steps_stays_wrong():
    with pytest.raises(ConfigError, match="no such field"):
        load_of({"shape": "steps", "rate": 3, "steps": [{"at": "0s", "rate": 2}]})
