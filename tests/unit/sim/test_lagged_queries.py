"""Rules, triggers and what pods serve find the same in a lagged run as in an exact one.

Each generated scenario has other phases, intervals, pods and nodes; some scrapes and rules come so rarely
that PromQL no longer looks back at what they brought.
"""

import random
from typing import Any

import pytest

from gpuscale.lab.sim.formula.reasons import why_not
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulate import simulate

FIELD = "DCGM_FI_DEV_GPU_UTIL"
OWNER = {"dcgm": ("exported_namespace", "exported_pod"), "ack": ("NamespaceName", "PodName")}
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
SCALED = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{name: s{i}}}
spec:
  scaleTargetRef: {{name: s{i}}}
  minReplicaCount: 0
  maxReplicaCount: {high}
  pollingInterval: 10
  cooldownPeriod: 60
  triggers:
    - type: prometheus
      metadata:
        serverAddress: http://prometheus
        query: '{query}'
        threshold: "{target}"
        activationThreshold: "1"
    - type: prometheus
      metadata:
        serverAddress: http://prometheus
        query: sum(gpuscale_simulated_requests_waiting{{deployment="s{i}"}})
        threshold: "20"
"""
RECORDED = """\
groups:
  - name: gpus
    interval: {interval}s
    rules:
      - {{record: use:fleet, expr: 'avg by (namespace, service) ({series})'}}
      - {{record: use:pod, expr: 'max by ({namespace}, {pod}) ({series})'}}
      - {{record: use:all, expr: 'sum({series}) / count({series})'}}
      - {{record: use:smooth, expr: 'avg_over_time(use:all[2m])'}}
      - {{record: queue:workload, expr: 'sum by (namespace, service) (queue)'}}
      - {{record: slow:p90, expr: 'histogram_quantile(0.9, sum by (le) (rate(latency_bucket[2m])))'}}
      - {{alert: Busy, expr: 'max(use:pod) > 60', for: 1m}}
"""
RULES = """\
rules:
  - seriesQuery: use:fleet
    resources: {{overrides: {{namespace: {{resource: namespace}}, service: {{resource: service}}}}}}
    metricsQuery: avg(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
  - seriesQuery: '{series}{{job!="elsewhere"}}'
    resources: {{overrides: {{namespace: {{resource: namespace}}, service: {{resource: service}}}}}}
    name: {{as: use_of_agents}}
    metricsQuery: max(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
  - seriesQuery: use:pod
    resources: {{overrides: {{{namespace}: {{resource: namespace}}, {pod}: {{resource: pod}}}}}}
    metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
  - seriesQuery: queue
    resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
    metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
  - seriesQuery: requests_total
    resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
    name: {{as: rate}}
    metricsQuery: sum(rate(<<.Series>>{{<<.LabelMatchers>>}}[2m])) by (<<.GroupBy>>)
  - seriesQuery: queue:workload
    resources: {{overrides: {{namespace: {{resource: namespace}}, service: {{resource: service}}}}}}
    metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
externalRules:
  - seriesQuery: '{series}{{{pod}!=""}}'
    resources: {{overrides: {{{namespace}: {{resource: namespace}}}}}}
    name: {{as: use_of_pods}}
    metricsQuery: avg(<<.Series>>{{<<.LabelMatchers>>}})
  - seriesQuery: use:smooth
    resources: {{namespaced: false}}
    metricsQuery: <<.Series>>
  - seriesQuery: slow:p90
    resources: {{namespaced: false}}
    metricsQuery: sum(<<.Series>>)
  - seriesQuery: inflight
    resources: {{overrides: {{namespace: {{resource: namespace}}}}}}
    metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}})
"""


def metric(kind: str, name: str, target: int, i: int) -> str:
    """Return a metric of an HPA."""
    value = f"target: {{type: AverageValue, averageValue: {target}}}"
    if kind == "External":
        chosen = f", selector: {{matchLabels: {{job: s{i}}}}}" if name == "inflight" else ""
        return f"{{type: External, external: {{metric: {{name: {name}{chosen}}}, {value}}}}}"
    if kind == "Pods":
        return f"{{type: Pods, pods: {{metric: {{name: {name}}}, {value}}}}}"
    service, value = "dcgm-exporter", f"target: {{type: Value, value: {target}}}"
    if name == "queue:workload":
        service = f"s{i}"
    described = f"describedObject: {{apiVersion: v1, kind: Service, name: {service}}}"
    return f"{{type: Object, object: {{metric: {{name: {name}}}, {described}, {value}}}}}"


METRICS = (
    ("Object", "use:fleet", 40),
    ("Object", "use_of_agents", 60),
    ("Object", "queue:workload", 20),
    ("Pods", "use:pod", 50),
    ("Pods", "queue", 3),
    ("Pods", "rate", 4),
    ("External", "use_of_pods", 20),
    ("External", "use:smooth", 25),
    ("External", "inflight", 1),
    ("External", "slow:p90", 1),
)


def queries(series: str, pod: str, i: int) -> tuple[tuple[str, int], ...]:
    """Return what KEDA asks for, with a threshold for each."""
    of_pods = f'{series}{{{pod}=~"s{i}-.*"}}'
    return (
        (f"sum({of_pods})", 60),
        (f"sum({of_pods}) / count({of_pods}) * 2", 70),
        (f'max({series}{{{pod}!="", job="dcgm-exporter"}}) or vector(0)', 40),
        (f'sum(rate(gpuscale_simulated_requests_total{{deployment="s{i}"}}[1m]))', 6),
    )


def generated(seed: int) -> Setup:
    """Return a setup of other services, intervals, pods and nodes for each seed."""
    draw = random.Random(seed)
    style = draw.choice(["dcgm", "dcgm", "ack"])
    namespace, pod = OWNER[style]
    series = FIELD
    if style == "ack" and draw.random() < 0.5:
        series = "DCGM_CUSTOM_PROCESS_SM_UTIL"
    node_gpus, least_nodes = draw.choice([1, 2, 4]), draw.choice([0, 1, 2])
    manifests, workloads = [], []
    kinds = draw.sample(METRICS, 3)
    for i in range(4):
        low, high = draw.randint(1, 2), draw.randint(4, 9)
        gpus = draw.choice([1, min(2, node_gpus)])
        manifests.append(DEPLOYMENT.format(i=i, low=low, gpus=gpus))
        if i == 3:
            query, target = draw.choice(queries(series, pod, i))
            manifests[-1] += SCALED.format(i=i, high=high, query=query, target=target)
        else:
            kind, name, target = kinds[i]
            asked = metric(kind, name, target, i)
            manifests[-1] += HPA.format(i=i, low=low, high=high, metric=asked)
        rate = draw.uniform(2, 30)
        load = draw.choice(
            [
                f"{{shape: sine, mean: {rate}, amplitude: {rate * 0.9}, period: 11m}}",
                f"{{shape: spikes, base: {rate / 4}, peak: {rate * 1.5}, every: 6m, length: 100s}}",
                f"{{shape: steps, steps: [{{at: 47s, rate: {rate}}}, {{at: 8m, rate: 0}}]}}",
            ]
        )
        workloads.append(
            f"  - {{deployment: s{i}, load: {load},\n"
            f"     imagePull: {draw.choice([0, 20])}s, startup: {draw.choice([1, 45])}s,\n"
            f"     metrics: {{names: {{queue: queue, inFlight: inflight, requests: requests_total,\n"
            f"       latency: latency}}, interval: {draw.choice([5, 15, 45, 330])}s}},\n"
            f"     service: {{gpuSecondsPerRequest: {draw.choice([0.05, 0.2])}, memoryMib: 4096}}}}\n"
        )
    rarely = draw.random() < 0.25
    text = f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: generated}}
spec:
  duration: 16m
  seed: {seed}
  manifests: [{{file: m}}]
  rules: {{file: r}}
  recordingRules: {{file: p}}
  pipeline:
    style: {style}
    agentService: dcgm-exporter
    agentNamespace: default
    collectInterval: {draw.choice(["500ms", "1s", "10s"])}
    scrapeInterval: {400 if rarely else draw.choice([5, 15, 60])}s
    ruleInterval: {draw.choice([5, 7, 30, 310])}s
    relistInterval: {draw.choice([30, 60, 600])}s
    hpaSyncPeriod: {draw.choice([5, 15, 20])}s
    downscaleStabilization: {draw.choice([0, 60])}s
  nodeAutoscaler: {{unneededTime: 2m, delayAfterAdd: 2m}}
  nodePools:
  - {{name: a, gpuModel: L4, gpus: {node_gpus}, min: {least_nodes}, max: 9, provisioningTime: 40s}}
  - {{name: b, gpuModel: Tesla T4, gpus: {node_gpus}, min: {least_nodes}, max: 9, provisioningTime: 40s}}
  workloads:
{"".join(workloads)}"""
    files = {
        "m": "---\n".join(manifests),
        "r": RULES.format(series=series, namespace=namespace, pod=pod),
        "p": RECORDED.format(
            series=series, namespace=namespace, pod=pod, interval=draw.choice([5, 20, 60])
        ),
    }
    return load_setup(text, "s.yaml", files.__getitem__)


def check(setup: Setup) -> dict[str, Any]:
    """Hold a lagged run to an exact one in all but the series of single GPUs; return it."""
    exact: dict[str, Any] = simulate(setup)
    lagged: dict[str, Any] = simulate(setup, fidelity="lagged")
    assert lagged["fidelity"] == {"asked": "lagged", "used": "lagged", "because": []}
    for name in exact.keys() - {"series"}:
        assert lagged[name] == exact[name]
    for name, values in exact["series"].items():
        if not name.startswith("gpu/"):
            assert lagged["series"][name] == values, name
    return lagged


@pytest.mark.parametrize("seed", range(10))
def test_a_generated_scenario_finds_the_same(seed: int) -> None:
    check(generated(seed))


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
@pytest.mark.parametrize(
    ("kind", "name", "target"), [("Object", "use_of_agents", 30), ("External", "use_of_pods", 30)]
)
def test_a_series_is_found_while_gpus_have_it(
    kind: str, name: str, target: int, seed: int, gpus: int
) -> None:
    """A Job has one GPU, or all of them, for a while; before and after it all are idle."""
    deployment = DEPLOYMENT.format(i=0, low=1, gpus=0).replace("nvidia.com/gpu: 0", 'cpu: "1"')
    hpa = HPA.format(i=0, low=1, high=9, metric=metric(kind, name, target, 0))
    namespace, pod = OWNER["dcgm"]
    files = {
        "m": deployment + hpa + JOB.replace("GPUS", str(gpus)),
        "r": RULES.format(series=FIELD, namespace=namespace, pod=pod),
    }
    run = check(load_setup(FOUND.format(seed=seed), "s", files.__getitem__))
    assert run["summary"]["hpas"]["s0"]["maxReplicas"] > 1


NO_FORMULA = "asks for more of GPUs than one aggregation of one known field"


def with_rule(expr: str, more: str = "", name: str = "recorded") -> Setup:
    """Return a small setup with one Prometheus rule."""
    text = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: small}
spec:
  duration: 2m
  manifests: [{file: m}]
  recordingRules: {file: p}
  nodePools: [{name: gpu, gpuModel: Tesla T4, gpus: 4, min: 1, max: 2}]
"""
    rule = f"groups:\n- name: g\n{more}  rules:\n  - record: {name}\n    expr: '{expr}'\n"
    files = {"m": DEPLOYMENT.format(i=0, low=1, gpus=1), "p": rule}
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
