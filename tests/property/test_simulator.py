"""Conservation laws of the simulated cluster, whatever the scenario."""

from hypothesis import given
from hypothesis import strategies as st

from examples import at_most
from gpuscale.base.objects.pods import PodPhase
from gpuscale.hpa.cluster.scheduling.resources import gpu_count
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.document.jobs import job_progress
from gpuscale.lab.sim.pipeline import VirtualPipeline
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.world import World
from gpuscale.signals import DEFAULT_COUNTERS

MANIFESTS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: c, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: train}}
spec:
  template:
    spec: {{containers: [{{name: c, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: web}}
spec:
  scaleTargetRef: {{kind: Deployment, name: web, apiVersion: apps/v1}}
  minReplicas: 1
  maxReplicas: 8
  metrics: [{{type: Pods, pods: {{metric: {{name: DCGM_CUSTOM_PROCESS_SM_UTIL}},
    target: {{type: AverageValue, averageValue: 40}}}}}}]
"""
RULES = """\
rules:
- seriesQuery: DCGM_CUSTOM_PROCESS_SM_UTIL
  resources: {overrides: {NamespaceName: {resource: namespace}, PodName: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


def scenario(replicas, gpus, node_gpus, largest, copies, rates, provisioning_s):
    steps = ", ".join(f"{{at: {i * 120}, rate: {rate}}}" for i, rate in enumerate(rates))
    return f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: any}}
spec:
  duration: 20m
  manifests: [{{file: manifests}}]
  rules: {{file: rules}}
  pipeline: {{style: ack}}
  nodeAutoscaler: {{unneededTime: 2m, delayAfterAdd: 2m}}
  nodePools:
  - {{name: a, gpuModel: Tesla T4, gpus: {node_gpus}, min: 1, max: {largest},
     provisioningTime: {provisioning_s}}}
  workloads:
  - deployment: web
    service: {{gpuSecondsPerRequest: 0.1, queueLimit: 500}}
    load: {{shape: steps, steps: [{steps}]}}
  - job: train
    run: {{copies: {copies}, at: 30s, duration: 90s}}
"""


@at_most(25)
@given(
    replicas=st.integers(0, 4),
    gpus=st.integers(1, 3),
    node_gpus=st.integers(1, 4),
    largest=st.integers(1, 5),
    copies=st.integers(1, 6),
    rates=st.lists(st.floats(0, 60, allow_nan=False), min_size=1, max_size=5),
    provisioning_s=st.integers(0, 240),
)
def test_pods_gpus_nodes_and_requests_are_conserved(
    replicas, gpus, node_gpus, largest, copies, rates, provisioning_s
) -> None:
    files = {"manifests": MANIFESTS.format(replicas=replicas, gpus=gpus), "rules": RULES}
    text = scenario(replicas, gpus, node_gpus, largest, copies, rates, provisioning_s)
    world = World(load_setup(text, "s.yaml", files.__getitem__), 0)
    VirtualPipeline(world, HpaController(world))
    for minute in range(1, 21):
        world.engine.run_until(minute * 60_000)
        check_gpus(world)
        check_pools(world, largest)
        check_requests(world)
        check_jobs(world, copies)
        assert len(world.cluster.completed_jobs) <= len(world.cluster.jobs) <= copies


def check_gpus(world) -> None:
    """Every GPU has at most one holder, and every bound, unfinished pod exactly the GPUs it asked for."""
    gpus = [keys for name in world.cluster.nodes for keys in world.cluster.devices.holders(name)]
    assert all(len(keys) <= 1 for keys in gpus)
    held = [key for keys in gpus for key in keys]
    for key, pod in world.cluster.pods.items():
        finished = pod.status.phase in {PodPhase.SUCCEEDED, PodPhase.FAILED}
        wanted = gpu_count(pod.spec) if pod.spec.node_name and not finished else 0
        assert held.count(key) == wanted
        assert (key in world.containers.processes) <= (pod.status.phase is PodPhase.RUNNING)
    assert set(held) <= set(world.cluster.pods)


def check_pools(world, largest) -> None:
    ready, total = world.cloud.sizes("a")
    assert 1 <= ready <= total <= largest
    assert ready == len(world.cluster.nodes) == len(world.gpus.readers)


def check_requests(world) -> None:
    for service in world.services.values():
        kept = service.served + service.waiting + service.rejected
        assert abs(kept - service.arrived) < 1e-6 * max(1.0, service.arrived)
        assert 0 <= service.waiting <= 500


def check_jobs(world, copies) -> None:
    jobs = job_progress(world)["train"]
    assert jobs.submitted == jobs.pending + jobs.running + jobs.succeeded <= jobs.planned == copies
    assert min(jobs.pending, jobs.running, jobs.succeeded) >= 0
    assert jobs.succeeded >= len(world.cluster.completed_jobs)


def test_the_default_counters_are_what_a_scenario_without_a_csv_gets() -> None:
    files = {"manifests": MANIFESTS.format(replicas=1, gpus=1), "rules": RULES}
    setup = load_setup(scenario(1, 1, 1, 1, 1, [1.0], 1), "s.yaml", files.__getitem__)
    assert setup.counters == DEFAULT_COUNTERS
