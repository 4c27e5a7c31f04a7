# mypy: disable-error-code="index"
"""Which scenarios run by formula, and that those come to what text, store and PromQL come to.

Scenarios that are drawn are in `tests/property/test_formula_scenarios.py`.
"""

from typing import Any

import pytest

from gpuscale.lab.scenarios import find_setup, shipped_names
from gpuscale.lab.sim.formula.reasons import why_not
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import simulate

FIELD = "DCGM_FI_DEV_GPU_UTIL"
DEPLOYMENT = """\
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
apiVersion: v1
kind: Service
metadata: {{name: s{i}}}
spec: {{selector: {{app: s{i}}}, ports: [{{port: 80}}]}}
---
"""
HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: s{i}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: s{i}}}
  minReplicas: {low}
  maxReplicas: {high}
  metrics: [{metric}]
"""
RULE = """\
rules:
  - seriesQuery: 'DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}'
    resources: {overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}}}
    name: {as: use}
    metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
RULES = """\
rules:
  - seriesQuery: DCGM_FI_DEV_GPU_UTIL{job!="elsewhere"}
    resources: {overrides: {namespace: {resource: namespace}, service: {resource: service}}}
    name: {as: use_of_agents}
    metricsQuery: max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
  - seriesQuery: DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}
    resources: {overrides: {exported_namespace: {resource: namespace}}}
    name: {as: use_of_pods}
    metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>})
"""
TARGET = "target: {type: Value, value: 30}"
PODS = "{type: Pods, pods: {metric: {name: use}, target: {type: AverageValue, averageValue: 50}}}"
OBJECT = (
    "{type: Object, object: {metric: {name: use_of_agents}, "
    f"describedObject: {{apiVersion: v1, kind: Service, name: dcgm-exporter}}, {TARGET}}}}}"
)
EXTERNAL = f"{{type: External, external: {{metric: {{name: use_of_pods}}, {TARGET}}}}}"


def check(setup: Setup) -> dict[str, Any]:
    """Hold a run by formula to one through the pipeline, and return it."""
    run, other = simulate(setup), simulate(setup, through_pipeline=True)
    assert run.pop("fidelity") == {"asked": "exact", "used": "formula", "because": []}
    assert other.pop("fidelity") == {"asked": "exact", "used": "pipeline", "because": []}
    assert run == other
    return run


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_scenario_is_the_same_by_formula(name: str) -> None:
    check(find_setup(name))


FOUND = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: found}}
spec:
  duration: 8m
  seed: {seed}
  manifests: [{{file: m}}]
  rules: {{file: r}}
  pipeline: {{agentService: dcgm-exporter, agentNamespace: default, scrapeInterval: 1m, relistInterval: 1m}}
  nodePools: [{{name: gpu, gpuModel: Tesla T4, gpus: 2, min: 1, max: 1}}]
  workloads:
    - {{job: train, run: {{at: 70s, duration: 100s, utilization: 70, memoryMib: 5000}}}}
"""
JOB = """\
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    metadata: {labels: {app: train}}
    spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: GPUS}}}]}
"""


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("metric", [OBJECT, EXTERNAL])
def test_a_series_is_found_while_gpus_have_it(metric: str, seed: int, gpus: int) -> None:
    """A Job has one GPU, or all of them, for a while; before and after it all are idle."""
    deployment = DEPLOYMENT.format(i=0, low=1, gpus=0).replace("nvidia.com/gpu: 0", 'cpu: "1"')
    hpa = HPA.format(i=0, low=1, high=9, metric=metric)
    files = {"m": deployment + hpa + JOB.replace("GPUS", str(gpus)), "r": RULES}
    run = check(load_setup(FOUND.format(seed=seed), "s", files.__getitem__))
    assert run["summary"]["hpas"]["s0"]["maxReplicas"] > 1


SMALL = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: small}
spec:
  duration: 2m
  manifests: [{file: m}]
  nodePools: [{name: gpu, gpuModel: Tesla T4, gpus: 4, min: 1, max: 2}]
"""
NO_FORMULA = "asks for more of GPUs than one aggregation of one known field"


def with_rule(expr: str, more: str = "", name: str = "recorded", replicas: int = 1) -> Setup:
    """Return a small setup with one Prometheus rule."""
    text = SMALL + "  recordingRules: {file: p}\n"
    rule = f"groups:\n- name: g\n{more}  rules:\n  - record: {name}\n    expr: '{expr}'\n"
    files = {"m": DEPLOYMENT.format(i=0, low=replicas, gpus=1), "p": rule}
    return load_setup(text, "s", files.__getitem__)


@pytest.mark.parametrize(
    "expr",
    [
        f"avg({FIELD})",
        f'sum by (exported_pod) ({FIELD}{{exported_namespace=~"a|b", job="nvidia-dcgm-exporter"}})',
        f"sum({FIELD}) / on () count({FIELD}) > 5",
        f'max(avg by (service) ({FIELD})) + sum(rate(gpuscale_simulated_requests_total{{a="b"}}[5m]))',
        "sum(a_series_of_nothing_here)",
    ],
)
def test_a_query_that_aggregates_a_field_has_a_formula(expr: str) -> None:
    assert why_not(with_rule(expr)) == ()


@pytest.mark.parametrize(
    "expr",
    [
        FIELD,
        f"avg({FIELD} * 2)",
        f"avg({FIELD} offset 1m)",
        f"avg by (Hostname) ({FIELD})",
        f"avg without (gpu) ({FIELD})",
        f'avg({FIELD}{{gpu="0"}})',
        f"quantile(0.9, {FIELD})",
        f"sum(avg_over_time({FIELD}[1m]))",
        f"max_over_time(sum({FIELD})[5m:15s])",
        f"timestamp(sum({FIELD}))",
        f"topk(1, avg by (exported_pod) ({FIELD}))",
        "avg(DCGM_FI_DEV_GPU_TEMP)",
        'sum({job="nvidia-dcgm-exporter"})',
        "sum(up)",
    ],
)
def test_a_query_that_has_no_formula_is_named(expr: str) -> None:
    assert why_not(with_rule(expr)) == (f"the Prometheus rule recorded (group g) {NO_FORMULA}",)


def test_what_gpus_read_some_time_ago_has_no_formula() -> None:
    setup = with_rule(f"avg({FIELD})", "  query_offset: 10s\n")
    about = "the Prometheus rule recorded (group g)"
    assert why_not(setup) == (f"{about} asks for what GPUs read some time ago",)
    assert why_not(with_rule("sum(a_series_of_nothing_here)", "  query_offset: 10s\n")) == ()


def test_a_recorded_series_with_the_name_of_a_field_has_no_formula() -> None:
    reason = f"{FIELD} is a series of the node agents, and others have the same name"
    assert why_not(with_rule("vector(1)", name=FIELD)) == (reason,)


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
def test_a_rule_without_a_formula_goes_through_the_pipeline(
    old: str, new: str, reason: str
) -> None:
    hpa = DEPLOYMENT.format(i=0, low=1, gpus=1) + HPA.format(i=0, low=1, high=3, metric=PODS)
    text = SMALL + "  rules: {file: r}\n"
    known = {"m": hpa, "r": RULE}
    assert why_not(load_setup(text, "s", known.__getitem__)) == ()
    other = {"m": hpa, "r": RULE.replace(old, new)}
    setup = load_setup(text, "s", other.__getitem__)
    (why,) = why_not(setup)
    assert why.startswith("HorizontalPodAutoscaler s0, metric use: the rule at r:2")
    assert reason in why
    because = {"because": [why]}
    assert simulate(setup)["fidelity"] == {"asked": "exact", "used": "pipeline", **because}
    # Scripts that asked for formulas read these words.
    assert simulate(setup, fidelity="lagged")["fidelity"] == {
        "asked": "lagged",
        "used": "exact",
        **because,
    }


def test_a_query_that_fails_has_the_error_of_the_pipeline() -> None:
    setup = with_rule(f"vector(1) + on () sum by (exported_pod) ({FIELD})", replicas=4)
    assert why_not(setup) == ()
    run, other = simulate(setup), simulate(setup, through_pipeline=True)
    assert run["summary"]["failedRules"]["g/recorded"]["failures"]
    assert run.pop("fidelity")["used"] == other.pop("fidelity")["used"] == "pipeline"
    assert run == other


def test_formulas_that_were_asked_for_are_named_as_they_were() -> None:
    run = simulate(find_setup("ack-bert-quick"), fidelity="lagged")
    assert run["fidelity"] == {"asked": "lagged", "used": "lagged", "because": []}


KEDA = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: s0}
spec:
  scaleTargetRef: {name: s0}
  triggers:
    - type: prometheus
      metadata: {serverAddress: "http://prometheus", query: sum(DCGM_FI_DEV_GPU_UTIL), threshold: "60"}
"""


@pytest.mark.parametrize(("interval", "looks_back"), [("15s", False), ("1500ms", True)])
def test_keda_asks_for_a_whole_second_that_may_be_before_the_latest_scrape(
    interval: str, looks_back: bool
) -> None:
    text = f"{SMALL}  pipeline: {{scrapeInterval: {interval}}}\n"
    files = {"m": DEPLOYMENT.format(i=0, low=1, gpus=1) + KEDA}
    reasons = why_not(load_setup(text, "s", files.__getitem__))
    assert reasons == ("ScaledObject s0 asks for what GPUs read some time ago",) * looks_back


def test_some_of_equal_rows_that_were_recorded_from_gpus_have_no_formula() -> None:
    more = f"  rules:\n  - {{record: use, expr: sum by (exported_pod) ({FIELD})}}\n- name: h\n"
    assert why_not(with_rule("topk(1, use)", more)) == (
        f"the Prometheus rule recorded (group h) {NO_FORMULA}",
    )
    assert why_not(with_rule("topk(1, gpuscale_simulated_requests_waiting)")) == ()
