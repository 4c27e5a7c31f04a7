"""HPAs that change while a scenario runs."""

import pytest

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.lab.sim.fluid.run import simulate_fluid
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.simulation import simulate

MANIFESTS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {kind: Deployment, name: web, apiVersion: apps/v1}
  minReplicas: 1
  maxReplicas: 8
  metrics:
  - {type: Pods, pods: {metric: {name: DCGM_FI_DEV_GPU_UTIL}, target: {type: AverageValue, averageValue: 60}}}
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 90}}}
"""
RULES = """\
rules:
- seriesQuery: 'DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}'
  resources: {overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: small}
spec:
  duration: 40m
  manifests: [{file: m}]
  rules: {file: r}
  pipeline: {downscaleStabilization: 0s}
  nodePools: [{name: gpu, gpuModel: Tesla T4, gpus: 8, min: 1, max: 1}]
  workloads:
  - deployment: web
    service: {gpuSecondsPerRequest: 0.1}
    load: {shape: constant, rate: 22}
"""


def setup(changes, manifests=MANIFESTS):
    files = {"m": manifests, "r": RULES}
    return load_setup(f"{SCENARIO}  hpaChanges: {changes}\n", "s.yaml", files.__getitem__)


def count_at(run, minute):
    series = run["series"]
    return next(
        value
        for t, value in zip(series["t"], series["hpa/web/current"], strict=True)
        if t >= minute * 60
    )


@pytest.mark.parametrize("through_pipeline", [False, True])
def test_each_setting_holds_from_its_time_on(through_pipeline) -> None:
    """2.2 GPUs of work are ceil(2.2 / 0.6) = 4 pods at 60 % and ceil(2.2 / 0.3) = 8 at 30 %.

    Back at 100 % three pods are within 10 % of nothing to do: ceil(2.2) = 3; then the limits decide.
    """
    changes = (
        "[{at: 10m, hpa: web, targets: {DCGM_FI_DEV_GPU_UTIL: 30}},"
        " {at: 20m, hpa: default/web, targets: {DCGM_FI_DEV_GPU_UTIL: 100}},"
        " {at: 30m, hpa: web, minReplicas: 6, maxReplicas: 6}]"
    )
    gpus_alone = "\n".join(line for line in MANIFESTS.splitlines() if "cpu" not in line)
    run = simulate(setup(changes, gpus_alone), through_pipeline=through_pipeline)
    assert run["fidelity"]["used"] == ("pipeline" if through_pipeline else "formula")
    assert [count_at(run, minute) for minute in (9, 19, 29, 39)] == [4, 8, 3, 6]


def test_changes_are_taken_in_the_order_of_their_times() -> None:
    changes = "[{at: 10m, hpa: web, maxReplicas: 4}, {at: 5m, hpa: web, minReplicas: 2}]"
    first, second = setup(changes).hpa_changes
    assert (first.at_ms, first.hpa.min_replicas, first.hpa.max_replicas) == (300_000, 2, 8)
    assert (second.at_ms, second.hpa.min_replicas, second.hpa.max_replicas) == (600_000, 2, 4)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("hpa: api, minReplicas: 2", r"hpaChanges\[0\].hpa: found 'api', expected a Horizontal"),
        ("hpa: web", "found no change, expected minReplicas, maxReplicas or targets"),
        ("hpa: web, minReplicas: 9", "found minReplicas 9 above maxReplicas 8"),
        ("hpa: web, minReplicas: 0", "found minReplicas 0 in HorizontalPodAutoscaler web"),
        ("hpa: web, targets: {m: 5}", "found 'm', expected the name of exactly one metric"),
        ("hpa: web, targets: {cpu: 5.5}", "expected whole percent"),
        ("hpa: web, targets: {cpu: 0}", "expected a quantity above 0"),
        ("hpa: web, targets: {cpu: lots}", "expected a quantity above 0"),
    ],
)
def test_what_can_not_be_is_named(change: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        setup(f"[{{at: 5m, {change}}}]")


def test_a_utilisation_stays_one() -> None:
    (change,) = setup("[{at: 5m, hpa: web, targets: {cpu: 70}}]").hpa_changes
    assert change.hpa.metrics[1].target.average_utilization == 70
    assert change.hpa.metrics[0].target.average_value.nano == 60_000_000_000


def test_a_fluid_run_refuses_them() -> None:
    with pytest.raises(UsageError, match="found hpaChanges, expected HPAs that stay as they are"):
        simulate_fluid(setup("[{at: 5m, hpa: web, minReplicas: 2}]"))
