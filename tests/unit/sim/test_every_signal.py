"""Every signal that can be installed: an HPA on it, by the installation's own rule, scales out under load."""

import json
from typing import Any

import pytest

from gpuscale.lab.sim.load.signal_series import Quantity, exposed_by, exposed_families
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale.ops.install.chart.signal_rules import has_rule, signal_rule
from gpuscale.signals import SIGNALS, Signal, filled_in
from rendered_parts import adapter_rules

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 2
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: chat}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat}
  minReplicas: 2
  maxReplicas: 8
  metrics: [%s]
"""
# A request takes 2 s, 8 of them at once: 2 pods do 8 a second. 2 keep 4 slots of 16 busy, 24 need six pods.
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: signal}
spec:
  duration: 8m
  manifests: [{file: m.yaml}]
  rules: {file: r.yaml}
  triggers: {file: t.yaml}
  pipeline: {style: %s}
  nodePools:
    - {name: gpu, gpuModel: NVIDIA L4, gpus: 8, min: 1, max: 1, cpu: "64", memory: 512Gi}
  workloads:
    - deployment: chat
      startup: 10s
      service: {gpuSecondsPerRequest: 0.2, otherSecondsPerRequest: 1.8, concurrency: 8, memoryMib: 4096}
      metrics: {%s, kvCacheRequests: 8, firstToken: 200ms, tokensPerRequest: 100}
      load: {shape: steps, steps: [{at: 0s, rate: 2}, {at: 3m, rate: 24}]}
"""
FRONTS = {"epp", "istio", "envoy", "nginx", "traefik", "rabbitmq", "kafka", "sqs"}
# What a model holds: a request changes nothing of it.
LEVELS = {"gpu-memory": 5000, "ack-memory-ratio": 0.5}
NOT_SIMULATED = {"epp-saturation", "gpu-share"}


def target(name: str, signal: Signal) -> float:
    """Return a target that 2 requests a second stay below, and 24 do not."""
    if name in LEVELS:
        return LEVELS[name]
    if signal.unit == "%":
        return 40  # 20 % and 80 %
    if name == "graphics-engine":
        return 0.4
    if signal.unit == "tokens/s":
        return 200
    usual = {"ratio": 0.5, "saturation": 0.5, "s": 0.9, "requests/s": 2, "requests": 4}
    return usual.get(signal.unit, 4)


def metric(name: str, signal: Signal) -> str:
    """Return the HPA's metric, as an installation has it."""
    wanted = f"{{type: AverageValue, averageValue: {target(name, signal):g}}}"
    if signal.kind == "pods":
        return f"{{type: Pods, pods: {{metric: {{name: {signal.metric}}}, target: {wanted}}}}}"
    if signal.kind == "external":
        return f"{{type: External, external: {{metric: {{name: chat-{name}}}, target: {wanted}}}}}"
    assert signal.described is not None
    of = f"apiVersion: {signal.described.api_version}, kind: {signal.described.kind}, name: chat"
    if not signal.is_total:
        wanted = f"{{type: Value, value: {target(name, signal):g}}}"
    named = f"describedObject: {{{of}}}, metric: {{name: {signal.metric}}}, target: {wanted}"
    return f"{{type: Object, object: {{{named}}}}}"


def run(name: str) -> dict[str, Any]:
    signal = SIGNALS[name]
    family = signal.family.name
    kind = "front" if family in FRONTS else "server"
    rules = adapter_rules(prometheus={"honorLabels": False})
    if has_rule(signal):
        rules = [signal_rule(signal)]
    triggers = []
    if signal.kind == "external":
        query = filled_in(signal.query, "chat", "default")
        triggers = [
            {"namespace": "default", "metricName": f"chat-{name}", "query": query, "target": "1"}
        ]
    files = {
        "m.yaml": DEPLOYMENT % metric(name, signal),
        "r.yaml": json.dumps({"rules": rules}),
        "t.yaml": json.dumps({"triggers": triggers}),
    }
    served = "server: vllm" if signal.is_of_gpus else f"{kind}: {family}"
    style = "ack" if signal.is_alibabas else "dcgm"
    return simulate(load_setup(SCENARIO % (style, served), "s.yaml", files.__getitem__))


def failures(document: dict[str, Any]) -> set[str]:
    """Return why the HPA had no value."""
    return {each["reason"] for each in document["events"] if each["kind"].startswith("Failed")}


@pytest.mark.parametrize("name", sorted(SIGNALS.keys() - NOT_SIMULATED - LEVELS.keys()))
def test_an_hpa_on_it_scales_out_under_load_and_not_before(name: str) -> None:
    document = run(name)
    out = [each for each in document["events"] if each["kind"] == "SuccessfulRescale"]
    assert out, failures(document)
    assert out[0]["t"] >= 180
    assert out[0]["to"] > 2


@pytest.mark.parametrize("name", sorted(LEVELS))
def test_what_is_held_stays_where_it_is_under_load(name: str) -> None:
    document = run(name)
    assert document["series"]["hpa/chat/value"][-1] > 0
    assert not [each for each in document["events"] if each["kind"] == "SuccessfulRescale"]


@pytest.mark.parametrize("name", sorted(NOT_SIMULATED))
def test_an_hpa_on_what_is_not_simulated_says_so(name: str) -> None:
    document = run(name)
    missing = [each for each in failures(document) if "could not find the metric" in each]
    assert any(f"unable to get metric {SIGNALS[name].metric}" in each for each in missing)
    assert document["series"]["hpa/chat/value"][-1] is None


# 40 requests wait, 12 are served by 2 pods, after 100 were answered that waited 3 s each: by hand.
def test_the_values_are_those_of_the_service_in_the_units_of_the_series() -> None:
    counted = {"answered": [100.0], "waitedSeconds": [300.0], "answeredSeconds": [500.0]}
    gauges: dict[Quantity, float] = {"queue": 40, "inFlight": 12, "unanswered": 52, "pods": 2}

    def shown(family: str, *, by_pods: bool = False) -> dict[str, float]:
        series = exposed_by(family, "chat", "ml", by_pods=by_pods)
        families = exposed_families(series, gauges, counted)
        return {each.name: each.samples[0].value for each in families}

    assert shown("epp") == {
        "llm_d_epp_average_queue_size": 20,
        "llm_d_epp_average_running_requests": 6,
        "llm_d_epp_ready_endpoints": 2,
        "llm_d_epp_flow_control_queue_size": 40,
    }
    assert shown("envoy")["envoy_cluster_upstream_rq_active"] == 12
    assert shown("envoy")["envoy_cluster_upstream_rq_pending_active"] == 40
    assert shown("istio")["istio_request_duration_milliseconds_sum"] == 500_000
    assert shown("traefik")["traefik_service_request_duration_seconds_sum"] == 500
    assert shown("rabbitmq")["rabbitmq_queue_messages"] == 52
    triton = shown("triton", by_pods=True)
    assert triton["nv_inference_queue_duration_us"] == 300_000_000
    assert triton["nv_inference_request_success"] == 100
