# mypy: disable-error-code="arg-type"
"""One reading for pods that work alike is what each of them reads alone; pods that differ don't share."""

from collections.abc import Iterator

import pytest

from gpuscale.agent.gpu.readings import GpuReading
from gpuscale.lab.sim.engine import EventStage
from gpuscale.lab.sim.load.shared_readings import SharedReadings
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.world import World

UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
SERIES = (UTILIZATION, "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE")
WINDOW_MS = 10_000
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: main, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]}}
---
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completions: 3
  parallelism: 2
  template:
    metadata: {labels: {app: train}}
    spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: alike}}
spec:
  duration: 10m
  manifests: [{{file: m}}]
  pipeline: {{collectInterval: 10s}}
  nodeAutoscaler: {{unneededTime: 1m, delayAfterAdd: 1m}}
  nodePools:
{pools}
  workloads:
{workloads}
"""
SERVICE = """\
  - {deployment: %s, load: {shape: sine, mean: %s, amplitude: %s, period: 3m},
     imagePull: 0s, startup: 7s, service: {gpuSecondsPerRequest: 0.1, memoryMib: 20000}}
"""


def world(manifests: str, pools: str, workloads: str) -> World:
    text = SCENARIO.format(pools=pools, workloads=workloads)
    return World(load_setup(text, "s", {"m": manifests}.__getitem__), 0)


def one_service(pools: str) -> World:
    """Return a world with 4 pods of a GPU each."""
    manifest = DEPLOYMENT.format(name="web", replicas=4, gpus=1)
    return world(manifest, pools, SERVICE % ("web", 20, 10))


def values_of(reading: GpuReading, series: str) -> Iterator[float]:
    if series in reading.values:
        yield float(reading.values[series])


def percent_of(reading: GpuReading) -> float | None:
    value = reading.values.get(UTILIZATION)
    return None if value is None else float(value)


class Readings:
    """Shared readings of a world, and how many GPUs are read for them."""

    def __init__(self, site: World) -> None:
        self.site = site
        self.read_gpus = 0
        self.shared = SharedReadings(
            site.cluster, self, site.containers.processes, WINDOW_MS, SERIES, values_of, percent_of
        )

    @property
    def readers(self):
        return self.site.gpus.readers

    def read_one(self, node: str, index: int, now_ms: int) -> GpuReading:
        self.read_gpus += 1
        return self.site.gpus.read_one(node, index, now_ms)

    def works_since_ms(self, pod, process):
        return self.site.gpus.works_since_ms(pod, process)

    def at(self, seconds: int) -> int:
        """Read all GPUs at a moment; return how many were read."""
        self.site.engine.run_until(1000 * seconds)
        self.site.advance_load(1000 * seconds)
        before = self.read_gpus
        self.shared.read(1000 * seconds)
        return self.read_gpus - before


def alone(
    site: World, now_ms: int
) -> tuple[dict[str, dict[str, list[float]]], dict[str, float | None]]:
    """Return the values of each pod, and what graphs show, from a reading of each GPU."""
    values: dict[str, dict[str, list[float]]] = {}
    shown: dict[str, float | None] = {}
    for node in site.cluster.nodes:
        for index, keys in enumerate(site.cluster.devices.holders(node)):
            for key in keys:
                reading = site.gpus.read_one(node, index, now_ms)
                for name in SERIES:
                    found = values.setdefault(key, {}).setdefault(name, [])
                    found += values_of(reading, name)
                shown[f"gpu/{node}/{index}"] = percent_of(reading)
    for key, of_pod in values.items():
        shown[f"pod/{key}"] = sum(of_pod[UTILIZATION]) / len(of_pod[UTILIZATION])
    return values, shown


L4 = "  - {name: a, gpuModel: L4, gpus: 8, min: 1, max: 1}"
SMALL_POOLS = """\
  - {name: a, gpuModel: L4, gpus: 2, min: 1, max: 4, provisioningTime: 20s}
  - {name: b, gpuModel: Tesla T4, gpus: 4, min: 1, max: 4, provisioningTime: 20s}"""


def test_each_pod_has_what_its_own_gpus_read() -> None:
    """Pods of two models, with one GPU and two, that start, work, end and move with their nodes."""
    manifests = "".join(
        DEPLOYMENT.format(name=name, replicas=replicas, gpus=gpus)
        for name, replicas, gpus in (("web", 3, 1), ("wide", 1, 2))
    )
    site = world(
        manifests + JOB,
        SMALL_POOLS,
        SERVICE % ("web", 20, 10)
        + SERVICE % ("wide", 8, 7)
        + "  - {job: train, run: {at: 63s, duration: 100s, utilization: 70, memoryMib: 5000}}\n",
    )
    readings = Readings(site)
    saved: list[int] = []
    seen: set[tuple[float, ...]] = set()

    def compare(now_ms: int) -> None:
        site.advance_load(now_ms)
        before = readings.read_gpus
        found = readings.shared.read(now_ms)
        values, shown = alone(site, now_ms)
        assert {key: each.values for key, each in readings.shared.by_pod.items()} == values
        assert readings.shared.utilization() == shown
        assert found == {name for each in values.values() for name in each}
        held = sum(len(each[UTILIZATION]) for each in values.values())
        saved.append(held - (readings.read_gpus - before))
        seen.update(tuple(each[UTILIZATION]) for each in values.values())

    site.engine.every(3000, EventStage.SCRAPE, compare, first_ms=1000)
    replicas = [("web", 6, 31), ("wide", 3, 45), ("web", 9, 52), ("web", 2, 200), ("wide", 1, 250)]
    for name, count, at_s in replicas:
        site.engine.run_until(1000 * at_s)
        site.set_replicas(f"default/{name}", count)
    site.engine.run_until(600_000)
    # 1 s, 4 s and so on to 598 s.
    assert len(saved) == 200
    assert min(saved) >= 0
    assert max(saved) > 5
    assert len(seen) > 20


def test_pods_that_worked_throughout_the_window_are_one_reading() -> None:
    readings = Readings(one_service(L4))
    assert readings.at(30) == 1
    assert len({id(each) for each in readings.shared.by_pod.values()}) == 1
    assert len(readings.shared.by_pod) == 4


def test_a_pod_that_began_within_the_window_is_read_by_itself_until_the_window_has_passed() -> None:
    readings = Readings(one_service(L4))
    assert readings.at(30) == 1
    readings.site.set_replicas("default/web", 6)
    assert readings.at(36) == 2  # two have started, and are not ready before 37 s
    assert readings.at(40) == 2  # they have worked for 3 s of the 10
    by_pod = readings.shared.by_pod.values()
    # A pod that has worked for 3 s of the 10 was busy for at most 3 tenths, the others for more.
    used = sorted({each.values[UTILIZATION][0] for each in by_pod})
    assert len(used) == 2
    assert 0 < used[0] <= 30 < used[1]
    assert readings.at(46) == 2
    assert readings.at(47) == 1  # ready at 37 s, so all of 37 s to 47 s


@pytest.mark.parametrize(
    ("second", "read"), [("Tesla T4", 2), ("L4", 1)], ids=["two models", "one model"]
)
def test_pods_on_other_models_are_read_by_themselves(second: str, read: int) -> None:
    pools = "\n".join(
        f"  - {{name: {name}, gpuModel: {model}, gpus: 2, min: 1, max: 1}}"
        for name, model in (("a", "L4"), ("b", second))
    )
    readings = Readings(one_service(pools))
    assert readings.at(30) == read
    used = {each.values["DCGM_FI_DEV_FB_USED"][0] for each in readings.shared.by_pod.values()}
    # 20 000 MiB are more than a T4 has, and less than an L4 has.
    assert len(used) == read


def test_pods_of_other_workloads_are_read_by_themselves() -> None:
    manifests = "".join(
        DEPLOYMENT.format(name=name, replicas=2, gpus=1) for name in ("web", "chat")
    )
    workloads = SERVICE % ("web", 4, 0) + SERVICE % ("chat", 12, 0)
    readings = Readings(world(manifests, L4, workloads))
    assert readings.at(30) == 2
    used = {key: each.values[UTILIZATION] for key, each in readings.shared.by_pod.items()}
    # 0.1 s for each of 4 or 12 requests a second, on two pods.
    expected = {"default/web": [20.0], "default/chat": [60.0]}
    assert {key.rsplit("-", 2)[0]: values for key, values in used.items()} == expected
    assert len(used) == 4


def test_a_pod_that_is_gone_has_no_reading() -> None:
    readings = Readings(one_service(L4))
    readings.at(30)
    readings.site.set_replicas("default/web", 1)
    readings.at(90)
    (left,) = readings.site.cluster.owned_by(*next(iter(readings.site.cluster.controlled)))
    assert list(readings.shared.by_pod) == [left.metadata.key]
    readings.site.set_replicas("default/web", 0)
    assert readings.at(150) == 0
    assert readings.shared.by_pod == {}
    assert readings.shared.utilization() == {}
