# mypy: disable-error-code="attr-defined,index,return-value"
"""Formulas for the hops of the pipeline give what the hops give: the same decisions at the same times."""

import random

import pytest

from gpuscale.lab.scenarios import find_setup, shipped_names
from gpuscale.lab.sim.formula.reasons import why_not
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.simulate import simulate

LABELS = {"dcgm": ("exported_namespace", "exported_pod"), "ack": ("NamespaceName", "PodName")}
SERIES = {
    "dcgm": ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"),
    "ack": ("DCGM_CUSTOM_PROCESS_SM_UTIL", "DCGM_CUSTOM_PROCESS_MEM_USED"),
}
WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: s{i}}}
spec:
  replicas: {low}
  selector: {{matchLabels: {{app: s{i}}}}}
  template:
    metadata: {{labels: {{app: s{i}}}}}
    spec: {{containers: [{{name: main, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: s{i}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: s{i}}}
  minReplicas: {low}
  maxReplicas: {high}
  metrics: [{{type: Pods, pods: {{metric: {{name: {metric}}},
    target: {{type: AverageValue, averageValue: {target}}}}}}}]
"""
RULE = """\
- seriesQuery: '{series}{{{pod}!=""}}'
  resources: {{overrides: {{{namespace}: {{resource: namespace}}, {pod}: {{resource: pod}}}}}}
  name: {{as: {name}}}
  metricsQuery: {operator}(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
"""


def generated(seed):
    """Return a setup of some services with other targets, loads, intervals, pods and nodes for each seed."""
    draw = random.Random(seed)
    style, node_gpus = draw.choice(["dcgm", "dcgm", "ack"]), draw.choice([1, 2, 8])
    namespace, pod = LABELS[style]
    operator = draw.choice(["avg", "sum", "min", "max"])
    rules = "rules:\n" + "".join(
        RULE.format(series=series, namespace=namespace, pod=pod, name=name, operator=operator)
        for series, name in zip(SERIES[style], ("use", "memory"), strict=True)
    )
    manifests, workloads = [], []
    for i in range(draw.randint(1, 4)):
        metric, target = draw.choice([("use", 20), ("use", 50), ("use", 70), ("memory", 3000)])
        gpus = draw.choice([1, min(2, node_gpus)])
        low, high = draw.randint(1, 3), draw.randint(4, 12)
        manifests.append(
            WORKLOAD.format(i=i, low=low, high=high, gpus=gpus, metric=metric, target=target)
        )
        rate = draw.uniform(2, 40)
        load = draw.choice(
            [
                f"{{shape: sine, mean: {rate}, amplitude: {rate * 0.9}, period: 20m}}",
                f"{{shape: spikes, base: {rate / 4}, peak: {rate * 1.5}, every: 9m, length: 100s}}",
                f"{{shape: steps, steps: [{{at: 47s, rate: {rate}}}, {{at: 11m, rate: 0}}]}}",
            ]
        )
        workloads.append(
            f"  - {{deployment: s{i}, load: {load},\n"
            f"     imagePull: {draw.choice([0, 20, 61])}s, startup: {draw.choice([1, 45])}s,\n"
            f"     service: {{gpuSecondsPerRequest: {draw.choice([0.05, 0.3])}, memoryMib: 4096}}}}\n"
        )
    text = f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: generated}}
spec:
  duration: 25m
  seed: {seed}
  manifests: [{{file: m}}]
  rules: {{file: r}}
  pipeline:
    style: {style}
    collectInterval: {draw.choice(["500ms", "1s", "10s"])}
    scrapeInterval: {draw.choice([5, 15, 60, 400])}s
    relistInterval: {draw.choice([30, 60, 600])}s
    hpaSyncPeriod: {draw.choice([5, 15, 20])}s
    downscaleStabilization: {draw.choice([0, 60, 300])}s
  nodeAutoscaler: {{unneededTime: 3m, delayAfterAdd: 3m}}
  nodePools:
  - {{name: a, gpuModel: L4, gpus: {node_gpus}, min: 1, max: 9, provisioningTime: {draw.choice([30, 100])}s}}
  workloads:
{"".join(workloads)}"""
    return load_setup(text, "s.yaml", {"m": "---\n".join(manifests), "r": rules}.__getitem__)


def check(setup) -> dict:
    exact, lagged = simulate(setup), simulate(setup, fidelity="lagged")
    for name in ("events", "summary"):
        assert lagged[name] == exact[name]
    for name, values in exact["series"].items():
        if not name.startswith("gpu/"):
            assert lagged["series"][name] == values, name
    idle = {0.0, None}
    for name in exact["series"].keys() - lagged["series"].keys():
        assert set(exact["series"][name]) <= idle, name
    return lagged["fidelity"]


@pytest.mark.parametrize("seed", range(8))
def test_a_generated_scenario_is_the_same_by_formula(seed) -> None:
    assert check(generated(seed)) == {"asked": "lagged", "used": "lagged", "because": []}


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_scenario_is_the_same_by_formula(name) -> None:
    assert check(find_setup(name)) == {"asked": "lagged", "used": "lagged", "because": []}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("avg(", "quantile(0.9, ", "is not one aggregation of one known field"),
        ("avg(<<.Series>>", "avg(2 * <<.Series>>", "is not one aggregation of one known field"),
        ('exported_pod!=""', 'gpu="0"', "is not one aggregation of one known field"),
        ("DCGM_FI_DEV_GPU_UTIL{", "DCGM_FI_DEV_GPU_TEMP{", "is not one aggregation of one known"),
        ("DCGM_FI_DEV_GPU_UTIL{", '{__name__=~"DCGM_.*",', "leaves open which series it reads"),
    ],
)
def test_what_has_no_formula_is_named_and_simulated_exactly(old, new, reason) -> None:
    rule = RULE.format(
        series=SERIES["dcgm"][0],
        namespace=LABELS["dcgm"][0],
        pod=LABELS["dcgm"][1],
        name="use",
        operator="avg",
    )
    hpa = WORKLOAD.format(i=0, low=1, high=3, gpus=1, metric="use", target=50)
    text = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: small}
spec:
  duration: 2m
  manifests: [{file: m}]
  rules: {file: r}
  nodePools: [{name: gpu, gpuModel: Tesla T4, gpus: 4, min: 1, max: 2}]
"""
    known = {"m": hpa, "r": f"rules:\n{rule}"}
    assert why_not(load_setup(text, "s", known.__getitem__)) == ()
    other = {"m": hpa, "r": f"rules:\n{rule.replace(old, new)}"}
    setup = load_setup(text, "s", other.__getitem__)
    (why,) = why_not(setup)
    assert why.startswith("HorizontalPodAutoscaler s0, metric use: the rule at r:")
    assert reason in why
    assert simulate(setup, fidelity="lagged")["fidelity"] == {
        "asked": "lagged",
        "used": "exact",
        "because": [why],
    }
