"""HPAs on what the pods themselves serve: queue, in-flight and rate, by every kind of metric."""

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.base.loads import StepsLoad
from gpuscale.lab.sim.load.costs import ServiceModel
from gpuscale.lab.sim.load.pod_metrics import Figure, PodTargets, ServedMetrics
from gpuscale.lab.sim.load.service import SimulatedService
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale.lab.sim.world import World
from gpuscale.series.promql.parse import parse_query
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Vector
from gpuscale.server.sources.embedded import EmbeddedSource

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
apiVersion: v1
kind: Service
metadata: {name: chat-svc}
spec: {selector: {app: chat}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: chat}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat}
  minReplicas: 2
  maxReplicas: 24
  metrics: [%s]
"""
RULES = """\
rules:
- seriesQuery: queue_length{pod!=""}
  resources:
    overrides: {namespace: {resource: namespace}, pod: {resource: pod}, service: {resource: service}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: vllm:num_requests_running{pod!=""}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {as: running}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: queue_length{pod!=""}
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: queue}
spec:
  duration: 10m
  manifests: [{file: m.yaml}]
  rules: {file: r.yaml}
  nodePools:
    - {name: gpu, gpuModel: NVIDIA L4, gpus: 8, min: 1, max: 4, cpu: "64", memory: 512Gi}
  workloads:
    - deployment: chat
      startup: 60s
      service: {gpuSecondsPerRequest: 0.1}
      metrics: %s
      load: {shape: steps, steps: [{at: 0s, rate: 10}, {at: 5m, rate: 120}, {at: 9m, rate: 38}]}
"""
EXTERNAL = (
    "{type: External, external: "
    "{metric: {name: queue_length}, target: {type: AverageValue, averageValue: 10}}}"
)
OBJECT = (
    "{type: Object, object: {describedObject: {apiVersion: v1, kind: Service, name: chat-svc},"
    " metric: {name: queue_length}, target: {type: AverageValue, averageValue: 10}}}"
)
PODS = "{type: Pods, pods: {metric: {name: running}, target: {type: AverageValue, averageValue: 500m}}}"
QUEUE = "{names: {queue: queue_length}}"


def run(metric, served):
    files = {"m.yaml": DEPLOYMENT % metric, "r.yaml": RULES}
    return simulate(load_setup(SCENARIO % served, "s.yaml", files.__getitem__))


@pytest.mark.parametrize(
    ("metric", "served"),
    [(EXTERNAL, QUEUE), (OBJECT, QUEUE), (PODS, "{server: vllm}")],
    ids=["External", "Object", "Pods"],
)
def test_an_hpa_scales_on_what_the_pods_serve(metric, served):
    document = run(metric, served)
    events = [each for each in document["events"] if each["kind"] == "SuccessfulRescale"]
    # Two pods do 20 requests a second: 10 leave them half idle, 120 from 300 s on need 12.
    assert events[0]["t"] >= 300
    assert document["summary"]["hpas"]["chat"]["maxReplicas"] >= 12
    assert not [
        each
        for each in document["events"]
        if each["kind"].startswith("FailedGet") and each["t"] > 60
    ]


def test_without_metrics_the_hpa_is_told_that_there_is_none():
    document = run(EXTERNAL, "")
    reasons = {e["reason"] for e in document["events"] if e["kind"] == "FailedGetExternalMetric"}
    assert any("queue_length" in reason for reason in reasons)


def scraped(seconds, rate, pods, metrics):
    """Return a store in which a Deployment's pods were scraped every 15 s, and the last time."""
    files = {"m.yaml": DEPLOYMENT % EXTERNAL, "r.yaml": RULES}
    world = World(load_setup(SCENARIO % QUEUE, "s.yaml", files.__getitem__), 0)
    world.engine.run_until(1000)
    ready = world.serving_pods("default/chat")
    assert len(ready) == pods
    store, service = (
        SeriesStore(),
        SimulatedService(ServiceModel(0.1, 0.0, 8, 1e9), StepsLoad(((0.0, rate),)), 0),
    )
    targets = PodTargets(store, "chat", metrics)
    for second in range(1, seconds + 1):
        service.advance(second * 1000, pods)
        if second % 15 == 0:
            targets.scrape(service, ready, "chat-svc", second * 1000)
    return EmbeddedSource(store), seconds * 1000


def values(source, query, now_ms):
    parse_query(query)
    answer = source.query_now(query, now_ms)
    assert isinstance(answer, Vector)
    return [sample.value for sample in answer.samples]


def test_the_parts_of_the_pods_add_up_to_the_service():
    names: dict[Figure, str] = {
        "queue": "q",
        "inFlight": "busy",
        "requests": "r_total",
        "latency": "lat",
        "kvCache": "kv",
    }
    source, now_ms = scraped(300, 30.0, 2, ServedMetrics(names, 15_000, kv_cache_requests=4.0))
    # 30/s come and 20/s are served: after 300 s 3000 wait, and each pod works on one.
    assert values(source, "sum(q)", now_ms) == [pytest.approx(3000)]
    assert values(source, "q", now_ms) == [pytest.approx(1500)] * 2
    assert values(source, "busy", now_ms) == [pytest.approx(1.0)] * 2
    assert values(source, "kv", now_ms) == [pytest.approx(0.25)] * 2
    assert values(source, "sum(rate(r_total[2m]))", now_ms) == [pytest.approx(30.0)]
    # Of those answered at t, all have waited t / 3: about 80 to 100 s in the last minute.
    assert values(source, "sum(rate(lat_count[1m]))", now_ms) == [pytest.approx(20.0, rel=0.01)]
    mean = "sum(rate(lat_sum[1m])) / sum(rate(lat_count[1m]))"
    assert values(source, mean, now_ms) == [pytest.approx(90, rel=0.05)]
    assert values(source, 'sum(rate(lat_bucket{le="60.0"}[1m]))', now_ms) == [
        pytest.approx(0.0, abs=1e-6)
    ]


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ("{}", "neither server nor names nor front"),
        ("{server: vllm, of: orders}", "found of without front"),
        ("{front: redis}", "rabbitmq"),
        ("{names: {queue: a, inFlight: a}}", "a name twice"),
        ("{names: {queue: 'a b'}}", "the name of a metric"),
        ("{names: {kvCache: kv}}", "names.kvCache without kvCacheRequests"),
        ("{server: none}", "vllm"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(served, expected):
    with pytest.raises(ConfigError) as caught:
        run(EXTERNAL, served)
    assert expected in str(caught.value)
    assert "s.yaml:14" in str(caught.value)
