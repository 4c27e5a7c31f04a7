# mypy: disable-error-code="index"
"""HPAs on requests that pods serve or have waiting, as a fluid: near an exact run, or refused."""

import pytest

from gpuscale.base.errors import UsageError
from gpuscale.lab.sim.fluid.run import simulate_fluid
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import simulate

WORKLOAD = """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: 2
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: NAME-svc}
spec: {selector: {app: NAME}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: NAME}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: NAME}
  minReplicas: 2
  maxReplicas: 24
  metrics: [METRIC]
"""
RULES = """\
rules:
- seriesQuery: vllm:num_requests_running{pod!=""}
  resources:
    overrides: {namespace: {resource: namespace}, pod: {resource: pod}, service: {resource: service}}
  name: {as: running}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: vllm:num_requests_waiting{pod!=""}
  resources: {overrides: {namespace: {resource: namespace}}}
  name: {as: waiting}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: gpuscale_simulated_requests_running{deployment!=""}
  resources: {overrides: {namespace: {resource: namespace}}}
  name: {as: in_flight}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: vllm:num_requests_running{pod!=""}
  resources: {overrides: {namespace: {resource: namespace}}}
  name: {as: per_minute}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)
"""
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: served}
spec:
  duration: 20m
  manifests: [{file: m.yaml}]
  rules: {file: r.yaml}
  nodePools: [{name: gpu, gpuModel: NVIDIA L4, gpus: 8, min: 6, max: 6, cpu: "64", memory: 512Gi}]
  workloads:
"""
LOAD = """\
    - deployment: NAME
      startup: 60s
      service: {gpuSecondsPerRequest: 0.1, queueLimit: 50000}
      metrics: {server: vllm}
      load: {shape: steps, steps: [{at: 0s, rate: 10}, {at: 5m, rate: 120}, {at: 9m, rate: 38}]}
"""
PODS = "{type: Pods, pods: {metric: {name: running}, target: {type: AverageValue, averageValue: 500m}}}"
OBJECT = (
    "{type: Object, object: {describedObject: {apiVersion: v1, kind: Service, name: chat-svc},"
    " metric: {name: running}, target: {type: Value, value: 500m}}}"
)


def external(name: str, target: str, selector: str = "") -> str:
    return (
        f"{{type: External, external: {{metric: {{name: {name}{selector}}},"
        f" target: {{type: AverageValue, averageValue: {target}}}}}}}"
    )


def setup_of(metric: str, *names: str) -> Setup:
    workloads = [WORKLOAD.replace("NAME", name).replace("METRIC", metric) for name in names]
    files = {"m.yaml": "".join(workloads), "r.yaml": RULES}
    loads = "".join(LOAD.replace("NAME", name) for name in names)
    return load_setup(SCENARIO + loads, "served.yaml", files.__getitem__)


@pytest.mark.parametrize(
    "metric",
    [PODS, OBJECT, external("waiting", "10"), external("in_flight", "600m")],
    ids=["Pods", "Object", "External, waiting", "External, in flight"],
)
def test_it_is_near_an_exact_run(metric: str) -> None:
    setup = setup_of(metric, "chat")
    fluid, exact = simulate_fluid(setup), simulate(setup)
    for name in ("maxReplicas", "finalReplicas"):
        assert fluid["summary"]["hpas"]["chat"][name] == exact["summary"]["hpas"]["chat"][name]
    # Pods come and go within a step or two of each other: 15 s for each of the 24 at most.
    hours = [sum(each["series"]["replicas/chat/ready"]) * 15 / 3600 for each in (fluid, exact)]
    assert hours[0] == pytest.approx(hours[1], abs=2 * 24 * 15 / 3600)


def test_a_selector_tells_two_workloads_apart() -> None:
    chosen = external("in_flight", "600m", ", selector: {matchLabels: {deployment: chat}}")
    with pytest.raises(UsageError, match="HorizontalPodAutoscaler code: found metrics in_flight"):
        simulate_fluid(setup_of(chosen, "chat", "code"))
    with pytest.raises(UsageError, match="HorizontalPodAutoscaler chat: found metrics in_flight"):
        simulate_fluid(setup_of(external("in_flight", "600m"), "chat", "code"))
    assert simulate_fluid(setup_of(PODS, "chat", "code"))["summary"]["hpas"].keys() == {
        "chat",
        "code",
    }


def test_a_rule_that_is_no_plain_aggregation_is_refused() -> None:
    with pytest.raises(
        UsageError, match="found metrics per_minute, expected one metric whose rule"
    ):
        simulate_fluid(setup_of(external("per_minute", "10"), "chat"))
