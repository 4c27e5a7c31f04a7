# mypy: disable-error-code="index"
"""How a rule puts a pod's GPUs together, as a fluid takes it: as exact runs have it, or refused."""

import pytest

from gpuscale.base.errors import UsageError
from gpuscale.lab.sim.fluid.run import simulate_fluid
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import simulate

MANIFESTS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: GPUS}}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {kind: Deployment, name: web, apiVersion: apps/v1}
  maxReplicas: 12
  metrics: [{type: Pods, pods: {metric: {name: busy}, target: {type: AverageValue, averageValue: 50}}}]
"""
RULES = """\
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}
  resources: {overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}}}
  name: {as: busy}
  metricsQuery: QUERY
"""
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: several}
spec:
  duration: 15m
  manifests: [{file: web.yaml}]
  rules: {file: rules.yaml}
  nodePools: [{name: gpu, gpuModel: NVIDIA L4, gpus: 4, min: 12, max: 12, cpu: "64", memory: 512Gi}]
  workloads:
    - deployment: web
      startup: 20s
      service: {gpuSecondsPerRequest: 0.5, concurrency: 32, queueLimit: 10000}
      load: {shape: constant, rate: RATE}
"""
ONE = "(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


def setup_of(query: str, *, gpus: int = 1, rate: float = 1, rules: str = RULES) -> Setup:
    files = {
        "web.yaml": MANIFESTS.replace("GPUS", str(gpus)),
        "rules.yaml": rules.replace("QUERY", query),
    }
    return load_setup(SCENARIO.replace("RATE", str(rate)), "several.yaml", files.__getitem__)


@pytest.mark.parametrize(
    ("operator", "gpus", "rate", "replicas"),
    [
        # At 3 requests a second 1.5 GPUs are busy, of which pods show 150 % in all: over 50 % three pods.
        ("sum", 1, 3, 3),
        ("avg", 1, 3, 3),
        # At 5.6 requests a second 2.8 GPUs: as a sum 280 % over 50 % are six pods, of however many GPUs.
        ("sum", 2, 5.6, 6),
        ("sum", 4, 5.6, 6),
        # As a mean or one GPU, pods of two show 140 % in all: three pods; pods of four 70 %: two.
        ("avg", 2, 5.6, 3),
        ("max", 2, 5.6, 3),
        ("min", 2, 5.6, 3),
        ("avg", 4, 5.6, 2),
        ("max", 4, 5.6, 2),
    ],
)
def test_a_pods_gpus_are_put_together_as_its_rule_does(
    operator: str, gpus: int, rate: float, replicas: int
) -> None:
    setup = setup_of(operator + ONE, gpus=gpus, rate=rate)
    fluid, exact = simulate_fluid(setup)["summary"], simulate(setup)["summary"]
    assert fluid["hpas"]["web"]["finalReplicas"] == replicas
    assert exact["hpas"]["web"]["finalReplicas"] == replicas


def test_a_gpu_reads_whole_per_cents() -> None:
    # Two pods at 55.3 % read 55: 1.1 times the target is within the tolerance of 0.1, and 1.106 would not be.
    setup = setup_of("avg" + ONE, rate=2.212)
    for document in (simulate_fluid(setup), simulate(setup)):
        assert document["summary"]["hpas"]["web"]["finalReplicas"] == 2


@pytest.mark.parametrize(
    ("query", "rules"),
    [
        ("avg(avg_over_time(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)", RULES),
        ("sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) / 100", RULES),
        ("count" + ONE, RULES),
        # Nothing is called so, or it is of the exporter's own pod.
        ("sum" + ONE, RULES.replace("as: busy", "as: gpu_util")),
        ("sum" + ONE, RULES.replace("exported_", "")),
    ],
)
def test_another_form_and_a_metric_that_is_not_served_are_refused(query: str, rules: str) -> None:
    with pytest.raises(UsageError, match="found metrics busy, expected one metric whose rule is"):
        simulate_fluid(setup_of(query, rules=rules))
