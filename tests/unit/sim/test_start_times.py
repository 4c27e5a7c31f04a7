"""Start-up times drawn for each pod, images that a node has already, and what the hours of GPUs went into."""

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.simulation import simulate

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 8
  metrics:
  - {type: Pods, pods: {metric: {name: DCGM_FI_DEV_GPU_UTIL}, target: {type: AverageValue, averageValue: 50}}}
"""
RULES = """\
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}
  resources: {overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: starts}
spec:
  duration: 20m
  manifests: [{file: m.yaml}]
  rules: {file: r.yaml}
  nodePools: [{name: gpu, gpuModel: NVIDIA L4, gpus: 8, min: 1, max: 1, cpu: "64", memory: 512Gi}]
  workloads:
  - deployment: web
    imagePull: %s
    startup: %s
    imageCached: %s
    service: {gpuSecondsPerRequest: 0.1}
    load: {shape: steps, steps: [{at: 1m, rate: 30}]}
"""


POOL = "{name: gpu, gpuModel: NVIDIA L4, gpus: 8, min: 1, max: 1, "
GROWING = "{name: gpu, gpuModel: NVIDIA L4, gpus: 1, min: 1, max: 8, "


def setup_of(pull, startup, cached, pool=POOL):
    text = SCENARIO.replace(POOL, pool) % (pull, startup, cached)
    return load_setup(text, "s.yaml", {"m.yaml": DEPLOYMENT, "r.yaml": RULES}.__getitem__)


def run(pull, startup, cached, pool=POOL):
    return simulate(setup_of(pull, startup, cached, pool))


def started_after(document):
    """Return the seconds from a pod's place on a node to its container's start, of each pod."""
    placed, found = {}, []
    for event in document["events"]:
        if event["kind"] == "Scheduled" and event["t"] > 0:
            placed[event["object"]] = event["t"]
        if event["kind"] == "Started" and event["object"] in placed:
            found.append(event["t"] - placed[event["object"]])
    return found


def test_a_node_that_has_the_image_pulls_it_no_more():
    # The first pod is there from the start and has pulled it; all others come to the same node.
    found = started_after(run("40s", "10s", "2s"))
    assert found
    assert set(found) == {2.0}
    assert set(started_after(run("40s", "10s", "null"))) == {40.0}


def test_each_pod_draws_its_own_time_and_a_seed_draws_the_same():
    drawn = "{shape: uniform, low: 5s, high: 90s}"
    first, again = run(drawn, "1s", "null"), run(drawn, "1s", "null")
    found = started_after(first)
    assert len(set(found)) == len(found) > 3
    assert all(5 <= each <= 90 for each in found)
    assert first == again


def test_hours_are_busy_starting_or_idle():
    summary = run("40s", "20s", "null")["summary"]
    assert summary["nodeHours"] == pytest.approx(20 / 60, abs=1e-4)
    assert summary["gpuHours"] == pytest.approx(8 * 20 / 60, abs=1e-4)
    # Every pod but the first takes a minute: 40 s and 20 s.
    pods = summary["hpas"]["web"]["maxReplicas"] - 1
    assert pods > 0
    assert summary["startingGpuHours"] == pytest.approx(pods / 60, abs=1e-4)
    parts = sum(summary[f"{name}GpuHours"] for name in ("busy", "starting", "idle"))
    assert parts == pytest.approx(summary["gpuHours"], abs=1e-3)


def provisioned(times):
    """Return the seconds from the request for a node to its coming, of each node."""
    document = run("0s", "0s", "null", f"{GROWING}provisioningTime: {times}, ")
    asked, found = [], []
    for event in document["events"]:
        if event["kind"] == "TriggeredScaleUp":
            asked += [event["t"]] * int(event["to"] - event["from"])
        if event["kind"] == "NodeReady" and event["t"] > 0:
            found.append(event["t"])
    return asked, found, document


def test_nodes_draw_their_own_time():
    asked, came, _ = provisioned("{shape: quantiles, quantiles: {0: 40s, 50: 90s, 100: 200s}}")
    assert len(asked) == len(came) > 3
    assert len(set(came)) == len(came)
    for first, last in ((min(asked), came[0]), (max(asked), came[-1])):
        assert 40 <= last - first <= 200


def test_a_constant_time_of_nodes_is_a_distribution_too():
    plain, same = provisioned("90s"), provisioned("{shape: constant, value: 90s}")
    assert plain == same
    assert {round(came - asked) for asked, came in zip(plain[0], plain[1], strict=True)} == {90}


def test_the_fluid_takes_the_mean_of_the_nodes_times():
    times = "{shape: uniform, low: 60s, high: 100s}"
    setup = setup_of("0s", "0s", "null", f"{GROWING}provisioningTime: {times}, ")
    assert setup.pools[0].provisioning_ms == 80_000


@pytest.mark.parametrize(
    ("pull", "expected"),
    [
        ("soon", "imagePull: found 'soon'"),
        ("{shape: lognormal, median: 5s, p99: 1s}", "expected a p99 above the median"),
        ("{shape: measured, times: [1s], counts: [1, 2]}", "1 times and 2 counts"),
        ("{shape: quantiles, quantiles: {50: 20s, 95: 10s}}", "shorter time for a higher quantile"),
        ("{shape: quantiles, quantiles: {101: 20s}}", "101"),
        ("{shape: gamma}", "lognormal"),
    ],
)
def test_what_is_no_time_is_refused_with_its_line(pull, expected):
    with pytest.raises(ConfigError) as caught:
        run(pull, "1s", "null")
    assert expected in str(caught.value)
    assert "s.yaml:11" in str(caught.value)
