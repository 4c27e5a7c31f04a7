"""GPUs and nodes that fail in a simulated cluster, and what becomes of the pods on them."""

import pytest

from gpuscale.base.objects.pods import Pod, PodPhase
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.world import World

SERVICE = "default/bert-intent-detection"


def running(scenario: str, minutes: int) -> World:
    world = World(find_setup(scenario), 0)
    world.engine.run_until(minutes * 60_000)
    return world


def holders(world: World) -> dict[str, list[tuple[str, ...]]]:
    return {node: world.cluster.devices.holders(node) for node in world.cluster.nodes}


def service_pods(world: World) -> list[Pod]:
    return [pod for key, pod in world.cluster.pods.items() if key.startswith(SERVICE)]


def events_of(world: World) -> list[str]:
    return [event.kind for event in world.cluster.events.since(0)]


def test_a_jobs_pod_on_a_lost_gpu_is_made_again_elsewhere_and_all_jobs_complete() -> None:
    world = running("aks-mnist-jobs", 5)
    node, ((lost,), *_) = next((n, held) for n, held in holders(world).items() if held[0])
    world.lose_gpu(node, 0)
    world.engine.run_until(8 * 60_000)
    assert lost not in world.cluster.pods
    assert holders(world)[node] == [()]  # nothing is placed there while it is lost
    world.mend_gpu(node, 0)
    world.engine.run_until(120 * 60_000)
    assert len(world.cluster.completed_jobs) == len(world.setup.jobs)


def test_a_service_is_ready_again_when_its_gpu_is_back_and_not_before() -> None:
    world = running("ack-bert", 1)
    (node,) = world.cluster.nodes
    assert world.ready_pods(SERVICE) == 1
    world.lose_gpu(node, 0)
    world.engine.run_until(3 * 60_000)
    assert world.ready_pods(SERVICE) == 0
    (pod,) = service_pods(world)
    assert (pod.status.phase, pod.status.ready) == (PodPhase.RUNNING, False)
    assert world.gpus.read(node, 180_000)[0].is_lost
    world.mend_gpu(node, 0)
    assert world.ready_pods(SERVICE) == 1
    assert world.gpus.read(node, 180_000)[0].values
    assert events_of(world).count("Unhealthy") == 1


def test_a_pod_that_starts_on_a_gpu_that_gets_lost_waits_for_it() -> None:
    world = running("ack-bert", 1)
    (node,) = world.cluster.nodes
    world.lose_node(node)
    world.engine.run_until(60_000)
    starting = None
    for seconds in range(61, 600):  # until another node is there and the pod's container runs
        world.engine.run_until(seconds * 1000)
        pods = service_pods(world)
        starting = next((pod for pod in pods if pod.status.phase is PodPhase.RUNNING), None)
        if starting is not None:
            break
    assert starting is not None
    assert starting.status.ready is False
    world.lose_gpu(starting.spec.node_name, 0)
    world.engine.run_until(1_200_000)
    assert world.ready_pods(SERVICE) == 0
    world.mend_gpu(starting.spec.node_name, 0)
    assert world.ready_pods(SERVICE) == 1


@pytest.mark.parametrize("scenario", ["ack-bert", "aks-mnist-jobs", "lws-llm"])
def test_after_a_lost_node_the_pods_run_again(scenario: str) -> None:
    world = running(scenario, 5)
    node = next(iter(world.cluster.nodes))
    pods = {pod.metadata.key for pod in world.cluster.pods_on(node)}
    world.lose_node(node)
    assert not pods & world.cluster.pods.keys()
    assert not pods & world.containers.processes.keys()
    assert events_of(world)[-1] == "DeletingNode"
    world.engine.run_until(25 * 60_000)
    assert world.pending_pods() == 0 or scenario == "aks-mnist-jobs"
    for key in world.services:
        assert world.ready_pods(key) == world.cluster.deployments[key].replicas
