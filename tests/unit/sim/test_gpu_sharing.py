"""Pods that share GPUs: by time-slicing, MPS and MIG."""

from textwrap import indent

import pytest

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.simulation import START_MS, simulate
from gpuscale.lab.sim.world import World

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: chat}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: chat}}}}
  template:
    metadata: {{labels: {{app: chat}}}}
    spec: {{containers: [{{name: c, resources: {{limits: {{{resource}: {count}}}}}}}]}}
"""


def setup(pool, replicas=4, resource="nvidia.com/gpu", count=1, model="A100-SXM4-80GB"):
    manifest = DEPLOYMENT.format(replicas=replicas, resource=resource, count=count)
    text = f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: shared}}
spec:
  duration: 5m
  manifests:
    - inline: |
{indent(manifest, " " * 8)}
  nodePools:
    - {{name: gpu, gpuModel: {model}, min: 1, max: 4, provisioningTime: 60s, {pool}}}
  workloads:
    - deployment: chat
      service: {{gpuSecondsPerRequest: 0.1}}
      load: {{shape: constant, rate: 8}}
"""
    return load_setup(text, "shared.yaml", lambda _path: "")


def run(found):
    world = World(found, START_MS)
    world.engine.run_until(START_MS + found.duration_ms)
    return world


def holders(world):
    return {name: world.cluster.devices.holders(name) for name in world.cluster.nodes}


# Azure/AKS #3427: four replicas of one GPU and four pods got four nodes.
@pytest.mark.parametrize(
    ("pool", "resource"),
    [
        ("gpus: 1, sharing: {strategy: time-slicing, replicas: 4}", "nvidia.com/gpu"),
        ("gpus: 1, sharing: {strategy: mps, replicas: 4, renamed: true}", "nvidia.com/gpu.shared"),
        ("gpus: 1, mig: {1g.10gb: 4}", "nvidia.com/mig-1g.10gb"),
    ],
)
def test_four_pods_on_one_gpu_are_one_node(pool, resource) -> None:
    world = run(setup(pool, resource=resource))
    ((gpu,),) = holders(world).values()
    assert len(gpu) == 4
    assert world.cluster.index.pending == 0


def test_a_fifth_pod_gets_a_second_node() -> None:
    world = run(setup("gpus: 1, sharing: {strategy: time-slicing, replicas: 4}", replicas=5))
    assert [len(gpu) for gpus in holders(world).values() for gpu in gpus] == [4, 1]


def test_the_gpu_with_the_fewest_pods_is_handed_out_first() -> None:
    world = run(setup("gpus: 2, sharing: {strategy: time-slicing, replicas: 4}", replicas=5))
    assert [len(gpu) for gpus in holders(world).values() for gpu in gpus] == [3, 2]


def test_a_shared_gpu_is_as_busy_as_its_pods_together_and_belongs_to_all_of_them() -> None:
    # 8 requests a second of 0.1 s on four pods: each is busy for 0.2 s in a second, their GPU for 0.8 s.
    world = run(setup("gpus: 1, sharing: {strategy: time-slicing, replicas: 4}"))
    (node,) = world.cluster.nodes
    now_ms = world.engine.now_ms
    world.advance_load(now_ms)
    (reading,) = world.gpus.read(node, now_ms)
    assert reading.values["DCGM_FI_DEV_GPU_UTIL"] == pytest.approx(80, abs=2)
    ((_, containers),) = world.gpus.attribution(node).by_gpu.items()
    assert sorted(each.pod for each in containers) == sorted(
        pod.metadata.name for pod in world.serving_pods("default/chat")
    )


def test_a_gpu_that_is_free_again_goes_to_the_next_pod() -> None:
    found = setup("gpus: 1, sharing: {strategy: time-slicing, replicas: 2}", replicas=2)
    world = run(found)
    world.set_replicas("default/chat", 1)
    world.engine.run_until(world.engine.now_ms + 60_000)
    ((gpu,),) = holders(world).values()
    assert len(gpu) == 1


def test_the_document_says_why_no_formula_is_used() -> None:
    found = simulate(setup("gpus: 1, sharing: {strategy: time-slicing, replicas: 4}"))
    assert found["fidelity"] == {
        "asked": "exact",
        "used": "pipeline",
        "because": ["pods share the GPUs of node pool gpu"],
    }
    with pytest.raises(UsageError, match="node pool gpu: found sharing or mig"):
        simulate(
            setup("gpus: 1, mig: {7g.80gb: 1}", resource="nvidia.com/mig-7g.80gb"), fidelity="fluid"
        )


@pytest.mark.parametrize(
    ("pool", "model", "fault"),
    [
        ("gpus: 1, mig: {3g.40gb: 3}", "A100-SXM4-80GB", "at most 7 slices in all"),
        ("gpus: 1, mig: {1g.5gb: 1}", "Tesla T4", "a GPU model with MIG"),
        ("gpus: 1, mig: {half: 1}", "A100-SXM4-80GB", "mig"),
        (
            "gpus: 1, mig: {1g.10gb: 1}, sharing: {strategy: mps, replicas: 2}",
            "A100-SXM4-80GB",
            "sharing beside mig",
        ),
        ("gpus: 1, sharing: {strategy: mps, replicas: 1}", "A100-SXM4-80GB", "replicas"),
    ],
)
def test_what_can_not_be_is_refused(pool, model, fault) -> None:
    with pytest.raises(ConfigError) as caught:
        setup(pool, model=model)
    assert fault in str(caught.value)
