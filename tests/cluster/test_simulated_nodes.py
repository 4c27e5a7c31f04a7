"""The real scheduler and controllers against nodes that are not there."""

import json
import time

import pytest

from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.objects.pods import Pod
from gpuscale.base.objects.taints import Taint
from gpuscale.hpa.cluster.scheduling.fit import node_state
from gpuscale.hpa.cluster.scheduling.placing import Placer
from gpuscale_testing import Lifecycle, SimulatedNode, simulated_nodes, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

AFTER_THE_FILTERS = " preemption: "
"""What the scheduler adds once no node fits: whether evicting others would help."""


def deployment(name: str, *, replicas: int, gpus: int = 1) -> str:
    spec = {"containers": [{"name": "model", "image": "none", "resources": gpu_limit(gpus)}]}
    labels = {"app": name}
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
    )


def gpu_limit(gpus: int) -> dict[str, dict[str, str]]:
    return {"limits": {"nvidia.com/gpu": str(gpus)}}


def pod(name: str, *, gpus: int, **spec) -> str:
    container = {"name": "model", "image": "none", "resources": gpu_limit(gpus)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container], **spec},
        }
    )


def delete(plane, kind: str, name: str, pods: str) -> None:
    plane.kubectl("delete", kind, name, "--wait=false")
    wait_until(lambda: not plane.get("pods", "-l", pods)["items"], f"the pods of {name} to be gone")


def test_gpu_pods_are_placed_by_the_real_scheduler_and_become_ready(plane) -> None:
    nodes = SimulatedNode("gpu-a", gpus=2), SimulatedNode("gpu-b", gpus=1)
    with simulated_nodes(plane, *nodes):
        plane.apply(deployment("three", replicas=3))
        plane.wait("deployment/three", "jsonpath={.status.readyReplicas}=3")
        pods = plane.get("pods", "-l", "app=three")["items"]
        placed = sorted(each["spec"]["nodeName"] for each in pods)
        delete(plane, "deployment", "three", "app=three")
    assert placed == ["gpu-a", "gpu-a", "gpu-b"]


def test_a_deployment_is_scaled_up_and_down(plane) -> None:
    with simulated_nodes(plane, SimulatedNode("gpu-a", gpus=4)):
        plane.apply(deployment("scaled", replicas=1))
        scale(plane, "scaled", 3)
        scale(plane, "scaled", 1)
        delete(plane, "deployment", "scaled", "app=scaled")


def scale(plane, name: str, replicas: int) -> None:
    plane.kubectl("scale", f"deployment/{name}", f"--replicas={replicas}")
    plane.wait(f"deployment/{name}", f"jsonpath={{.status.readyReplicas}}={replicas}")
    wait_until(lambda: len(places(plane, f"app={name}")) == replicas, f"exactly {replicas} pods")


def test_a_pod_takes_the_time_it_is_told_to_take(plane) -> None:
    slowly = Lifecycle(image_pull_ms=1_000, startup_ms=2_000, run_ms=3_000)
    with simulated_nodes(plane, SimulatedNode("slow", gpus=1), lifecycle=slowly):
        plane.apply(pod("job", gpus=1, restartPolicy="Never"))
        plane.wait("pod/job", "jsonpath={.status.phase}=Running")
        assert ready(plane, "job") == "False"
        plane.wait("pod/job", "condition=Ready")
        plane.wait("pod/job", "jsonpath={.status.phase}=Succeeded")
        state = plane.get("pod", "job")["status"]["containerStatuses"][0]["state"]
        plane.kubectl("delete", "pod", "job")
    assert state["terminated"]["reason"] == "Completed"


def test_a_pod_whose_image_is_pulled_is_pending_with_its_container_being_created(plane) -> None:
    waits = "jsonpath={.status.containerStatuses[0].state.waiting.reason}=ContainerCreating"
    pulling = Lifecycle(image_pull_ms=600_000)
    with simulated_nodes(plane, SimulatedNode("slow", gpus=1), lifecycle=pulling):
        plane.apply(pod("pulling", gpus=1))
        plane.wait("pod/pulling", waits)
        status = plane.get("pod", "pulling")["status"]
        plane.kubectl("delete", "pod", "pulling", "--force")
    assert status["phase"] == "Pending"
    assert ("Ready", "False") in [(each["type"], each["status"]) for each in status["conditions"]]


def ready(plane, name: str) -> str:
    conditions = plane.get("pod", name)["status"]["conditions"]
    return next(each["status"] for each in conditions if each["type"] == "Ready")


def test_a_pod_that_waits_goes_to_a_node_that_comes_later(plane) -> None:
    with simulated_nodes(plane, SimulatedNode("small", gpus=1)) as kubelet:
        plane.apply(pod("large", gpus=8))
        message = failed_scheduling(plane, "large")
        kubelet.add(SimulatedNode("big", gpus=8))
        plane.wait("pod/large", "condition=Ready")
        placed = plane.get("pod", "large")["spec"]["nodeName"]
        plane.kubectl("delete", "pod", "large")
    assert "Insufficient nvidia.com/gpu" in message
    assert placed == "big"


def test_a_node_that_is_taken_away_is_gone_and_its_pods_are_made_anew(plane) -> None:
    with simulated_nodes(plane, SimulatedNode("spot", gpus=1)) as kubelet:
        plane.apply(deployment("moved", replicas=1))
        plane.wait("deployment/moved", "condition=Available")
        kubelet.add(SimulatedNode("kept", gpus=1))
        kubelet.remove("spot")
        names = [each["metadata"]["name"] for each in plane.get("nodes")["items"]]
        plane.kubectl("delete", "pods", "-l", "app=moved", "--force")
        wait_until(lambda: "kept" in places(plane, "app=moved"), "a pod on the node that is left")
        delete(plane, "deployment", "moved", "app=moved")
    assert names == ["kept"]


def places(plane, selector: str) -> list[str | None]:
    pods = plane.get("pods", "-l", selector)["items"]
    return [each["spec"].get("nodeName") for each in pods]


GPU_TAINT = (Taint("nvidia.com/gpu", "present"),)


@pytest.mark.parametrize(
    ("nodes", "spec"),
    [
        pytest.param([], {}, id="no nodes"),
        pytest.param(
            [SimulatedNode("a", gpus=1), SimulatedNode("b", gpus=2)], {}, id="too few GPUs"
        ),
        pytest.param(
            [SimulatedNode("a"), SimulatedNode("b")],
            {"nodeSelector": {"accelerator": "h200"}},
            id="no node with the label",
        ),
        pytest.param(
            [SimulatedNode("a", gpus=1, pods=0), SimulatedNode("b", gpus=0)],
            {},
            id="several shortages",
        ),
        pytest.param(
            [SimulatedNode("a", taints=GPU_TAINT), SimulatedNode("b", gpus=1)],
            {},
            id="a taint",
        ),
        pytest.param(
            [
                SimulatedNode("a", taints=GPU_TAINT, labels={"accelerator": "h200"}),
                SimulatedNode("b", gpus=1, labels={"accelerator": "h200"}),
                SimulatedNode("c"),
            ],
            {"nodeSelector": {"accelerator": "h200"}},
            id="a reason per node",
        ),
    ],
)
def test_our_scheduling_message_is_the_real_schedulers(plane, nodes, spec) -> None:
    manifest = pod("unplaced", gpus=4, **spec)
    with simulated_nodes(plane, *nodes):
        states = [node_state(node, ()) for node in real_nodes(plane)]
        (unplaced,) = load_manifests(manifest, "pod.json")
        assert isinstance(unplaced, Pod)
        ours = Placer(states).place(unplaced).message
        assert attempted(plane, manifest, ours) == ours


def attempted(plane, manifest: str, expected: str) -> str:
    """Return what the scheduler says of a pod; it sees new nodes a little late, so it may try again."""
    said = ""
    for _ in range(5):
        plane.apply(manifest)
        said = failed_scheduling(plane, "unplaced").split(AFTER_THE_FILTERS)[0]
        plane.kubectl("delete", "pod", "unplaced")
        if said == expected:
            break
        time.sleep(0.3)
    return said


def failed_scheduling(plane, name: str) -> str:
    uid = plane.get("pod", name)["metadata"]["uid"]
    selector = f"--field-selector=reason=FailedScheduling,involvedObject.uid={uid}"
    found = wait_until(lambda: plane.get("events", selector)["items"], f"an event on {name}")
    return found[0]["message"]


def real_nodes(plane):
    manifests = (json.dumps(each) for each in plane.get("nodes")["items"])
    return load_manifests("\n---\n".join(manifests), "nodes.json")
