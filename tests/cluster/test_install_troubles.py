# mypy: disable-error-code="dict-item"
"""What `gpuscale install` says of an installation that can't work, before it begins and while it waits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale.kube.simulated.kubelet import SimulatedKubelet
from gpuscale_testing import SimulatedNode, simulated_nodes

sys.path.insert(0, str(Path(__file__).parent))
from all_objects import everything, settled, wait_until_as_before

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(240),
]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
QUIET = {"alerts": {"enabled": False}, "dashboards": {"enabled": False}, "networkPolicies": False}
STREAMS = {**QUIET, "metricsApi": {"source": "streams", "replicas": 1}}
AGENT_ONLY = {
    **QUIET,
    "metricsApi": {"enabled": False},
    "prometheus": {"kind": "plain", "url": "http://p"},
}
PULLING = 'Back-off pulling image "registry.example/gpuscale:1": ErrImagePull: not found'
LAST_WORDS = "gpuscale: found no rule file"
STATES = {
    "node-agent": {"state": {"waiting": {"reason": "ImagePullBackOff", "message": PULLING}}},
    "metrics-api": {
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
        "lastState": {
            "terminated": {"exitCode": 2, "reason": "Error", "message": f"one\n{LAST_WORDS}\n"}
        },
    },
}
"""Of each part's container, as a kubelet reports them."""
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  replicas: 0
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: model, image: none}}]}}
"""


class StuckKubelet(SimulatedKubelet):
    """Kubelets whose containers of the installation never run."""

    async def _lead(self, pod, host) -> None:
        part = pod["metadata"].get("labels", {}).get("app.kubernetes.io/component")
        (container,) = pod["spec"]["containers"]
        common = {"name": container["name"], "image": container["image"], "imageID": ""}
        status = {**common, "ready": False, "restartCount": 3, **STATES[part]}
        await self._write(pod, {"status": {"phase": "Pending", "containerStatuses": [status]}})


@pytest.fixture
def install(plane, tmp_path: Path):
    """Run the command on these values; what an installation left behind is removed at the end."""

    def run(spec, *arguments, code):
        scale = {"workload": {"name": "vision-api"}, "target": 60, "maxReplicas": 4}
        image = {"repository": "registry.example/gpuscale"}
        spec = {"image": image, "scale": [scale], **spec}
        path = tmp_path / "values.yaml"
        path.write_text(json.dumps({"spec": spec}))
        return command(plane, "install", path, *arguments, code=code)

    yield run
    command(plane, "uninstall", code=0)


def command(plane, *words, code):
    command = [GPUSCALE, *words, f"--kubeconfig={plane.admin}", "--yes"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


def warnings(install, **spec):
    _, err = install({**AGENT_ONLY, **spec}, "--dry-run=server", code=0)
    return [line for line in err if "warning" in line]


def test_an_image_that_no_node_could_pull_is_refused_before_the_first_object(
    plane, install
) -> None:
    before = settled(plane)
    for repository in ("gpuscale", "localhost/gpuscale"):
        spec = {**STREAMS, "image": {"repository": repository, "tag": "1"}}
        for flags in ((), ("--dry-run=server",)):
            out, err = install(spec, *flags, code=2)
            assert out == []
            (line,) = [line for line in err if "names no registry" in line]
            assert line.startswith(f"gpuscale: image {repository}:1 names no registry")
            assert "make image" in line
    assert everything(plane) == before


def test_an_image_that_nodes_have_needs_no_registry(plane, install) -> None:
    spec = {**AGENT_ONLY, "image": {"tag": "1"}}
    with simulated_nodes(plane, SimulatedNode("node", gpus=1)):
        install(spec, "--dry-run=server", code=2)
        # Names as containerd reports them after `kind load docker-image gpuscale:1`.
        images = [{"names": ["docker.io/library/gpuscale:1"], "sizeBytes": 200_000_000}]
        patch = json.dumps({"status": {"images": images}})
        plane.kubectl("patch", "node", "node", "--subresource=status", "--type=merge", "-p", patch)
        install(spec, "--dry-run=server", code=0)
    never = {**spec, "image": {"tag": "1", "pullPolicy": "Never"}}
    install(never, "--dry-run=server", code=0)


def test_what_is_not_there_to_be_scaled_is_named_with_what_may_be_meant(plane, install) -> None:
    plane.kubectl("create", "namespace", "ml")
    for name, namespace in (("vision-apis", "default"), ("vision-api", "ml"), ("llm", "default")):
        plane.apply(WORKLOAD.format(name=name, namespace=namespace))
    assert warnings(install) == [
        "gpuscale: warning: there is no Deployment default/vision-api: its autoscaler has nothing to "
        "scale until there is one; did you mean deployment/ml/vision-api or "
        "deployment/default/vision-apis?"
    ]
    plane.apply(WORKLOAD.format(name="vision-api", namespace="default"))
    assert warnings(install) == []
    plane.kubectl("delete", "deployment/vision-api", "deployment/vision-apis", "deployment/llm")
    plane.kubectl("delete", "namespace", "ml")


def test_a_sample_of_the_installation_is_there_soon_enough(plane, install) -> None:
    scale = {"workload": {"name": "bert-intent-detection"}, "target": 60, "maxReplicas": 4}
    assert warnings(install, scale=[scale], samples={"bert": True}) == []


def test_the_schedulers_words_are_quoted_once_and_end_the_wait(plane, install) -> None:
    before = settled(plane)
    _, err = install(STREAMS, "--timeout=6s", code=1)
    # kubernetes pkg/scheduler/schedule_one.go: ErrNoNodesAvailable
    said = "no nodes available to schedule pods"
    first, last = [line for line in err if said in line]
    assert first.startswith("gpuscale: Deployment gpuscale/gpuscale-metrics-api: pod ")
    assert first.endswith(f"can't be scheduled: {said}")
    assert last.startswith(
        "gpuscale: waited 6 s for Deployment gpuscale/gpuscale-metrics-api: 0 of 1"
    )
    waits = [line for line in err if line.startswith("gpuscale: waiting for ")]
    assert any("0 of 1 pods are up (2 of at most 6 s)" in line for line in waits)
    assert "gpuscale: taken back: Namespace gpuscale removed" in err
    wait_until_as_before(plane, before)


def test_the_kubelets_words_are_quoted(plane, install) -> None:
    labels = {"nvidia.com/gpu.present": "true"}
    with simulated_nodes(plane, SimulatedNode("gpu", gpus=1, labels=labels), kubelet=StuckKubelet):
        _, err = install(STREAMS, "--timeout=6s", code=1)
        crash = f"it ended with exit code 2 (Error): {LAST_WORDS}"
        first, last = [line for line in err if crash in line]
        assert first.startswith("gpuscale: Deployment gpuscale/gpuscale-metrics-api: pod ")
        assert last.startswith("gpuscale: waited 6 s for ")
        _, err = install(AGENT_ONLY, "--timeout=6s", code=0)
        wanted = f"can't get its image registry.example/gpuscale:0.1.0: ImagePullBackOff: {PULLING}"
        first, last = [line for line in err if wanted in line]
        assert first.startswith("gpuscale: DaemonSet gpuscale/gpuscale-node-agent: pod ")
        assert last.startswith("gpuscale: warning: waited 6 s for ")
        # While there is a kubelet to end the pods; without one they stay for 40 s.
        command(plane, "uninstall", code=0)


def test_a_quota_that_is_exceeded_is_quoted(plane, install) -> None:
    plane.kubectl("create", "namespace", "gpuscale")
    plane.kubectl("create", "quota", "none", "--hard=pods=0", "--namespace=gpuscale")
    labels = {"nvidia.com/gpu.present": "true"}
    said = "exceeded quota: none"
    with simulated_nodes(plane, SimulatedNode("gpu", gpus=1, labels=labels)):
        _, err = install(STREAMS, "--timeout=6s", code=1)
        assert any("gpuscale-metrics-api: pods can't be created: " in line for line in err)
        assert len([line for line in err if said in line]) >= 2
        _, err = install(AGENT_ONLY, "--timeout=6s", code=1)
        assert any("gpuscale-node-agent: pods can't be created: " in line for line in err)
        assert any(said in line for line in err if "node-agent" in line)
    plane.kubectl("delete", "namespace", "gpuscale")


def test_a_namespace_that_forbids_the_node_agent_fails_until_it_is_labelled(plane, install) -> None:
    """At once, and twice the same; the command that is printed ends it."""
    level = "pod-security.kubernetes.io/enforce"
    plane.kubectl("create", "namespace", "gpuscale")
    plane.kubectl("label", "namespace", "gpuscale", f"{level}=restricted")
    with simulated_nodes(
        plane, SimulatedNode("gpu", gpus=1, labels={"nvidia.com/gpu.present": "true"})
    ):
        for _ in range(2):
            _, err = install(AGENT_ONLY, "--timeout=100s", code=1)
            line = next(each for each in err if "kubectl label" in each)
            assert 'violates PodSecurity "restricted:latest"' in line
        printed = line.partition("kubectl ")[2].partition(", or ")[0]
        plane.kubectl(*printed.split())
        install(AGENT_ONLY, "--timeout=100s", code=0)
        command(plane, "uninstall", code=0)
    plane.kubectl("delete", "namespace", "gpuscale")
