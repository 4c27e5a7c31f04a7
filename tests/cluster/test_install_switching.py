"""A workload from the HPA to KEDA and back, and taken from KEDA: the count of its pods stays as it is."""

import sys
from pathlib import Path

import pytest

from gpuscale_testing import SimulatedNode, simulated_nodes, wait_until

sys.path.insert(0, str(Path(__file__).parent))
from all_objects import settled, wait_until_as_before
from keda_objects import ReplicaWatch, apply, deployment
from test_install_command import Command, values  # type: ignore[import-not-found]

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
]

PODS = 3
WAKE = {"query": "sum(queue)"}


@pytest.fixture(scope="module")
def nodes(plane):
    with simulated_nodes(plane, SimulatedNode("gpu-switched", gpus=8)):
        yield


@pytest.fixture
def command(plane, keda, nodes, tmp_path: Path):
    """The command beside KEDA and a Deployment that somebody else has made, with pods."""
    apply(plane, deployment("web", PODS))
    running = Command(plane, tmp_path)
    try:
        yield running
    finally:
        running.run("uninstall")
        plane.kubectl("delete", "deployment/web")


BY_PROMETHEUS = {
    "keda": {"trigger": "prometheus"},
    "prometheus": {"kind": "plain", "url": "http://127.0.0.1:1"},
}
"""With which KEDA makes its HPA without asking anybody; the simulated pods of the scaler answer nothing."""


def asked(autoscaler, fewest=1, **spec):
    """Values with one scale and little beside it."""
    scale = {
        "workload": {"name": "web"},
        "target": 60,
        "minReplicas": fewest,
        "maxReplicas": 8,
        "autoscaler": autoscaler,
        **({"wake": WAKE} if fewest == 0 else {}),
    }
    off = {"enabled": False}
    more = {"alerts": off, "dashboards": off, "networkPolicies": False}
    api = {"metricsApi": off, "agent": off}
    return values(scale=[scale], **api, **more, **spec)


def names(plane, kind):
    return plane.kubectl("get", kind, "-o", "name").split()


def ready(plane):
    """Wait until KEDA has made its HPA."""
    wait_until(lambda: "keda-hpa-web-gpu" in str(names(plane, "hpa")), "KEDA's HPA", 60)


def original_count(plane):
    return plane.get("scaledobject", "web-gpu").get("status", {}).get("originalReplicaCount")


class TestSwitching:
    def test_from_the_hpa_to_keda_and_back(self, plane, command) -> None:
        with ReplicaWatch(plane) as watch:
            watch.await_count("web", PODS)
            command.install(asked("hpa"))
            assert names(plane, "hpa") == ["horizontalpodautoscaler.autoscaling/web-gpu"]
            dry = command.install(asked("keda", **BY_PROMETHEUS), "--dry-run", "server")
            assert "ScaledObject default/web-gpu created" in dry
            lines = command.install(asked("keda", **BY_PROMETHEUS))
            assert "HorizontalPodAutoscaler default/web-gpu removed" in lines
            assert "ScaledObject default/web-gpu created" in lines
            ready(plane)
            lines = command.install(asked("hpa"))
            assert "ScaledObject default/web-gpu removed" in lines
            assert names(plane, "hpa") == ["horizontalpodautoscaler.autoscaling/web-gpu"]
            assert watch.counts("web") == [PODS]

    def test_a_switch_that_fails_brings_the_hpa_back(self, plane, command) -> None:
        apply(plane, deployment("other", 0))
        taken = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "theirs"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "maxReplicas": 8,
            },
        }
        command.install(asked("hpa"))
        apply(plane, taken)
        try:
            lines = command.install(asked("keda"), code=1)
            said = "\n".join(lines)
            assert "is already managed by the hpa 'theirs'" in said
            assert "taken back: HorizontalPodAutoscaler default/web-gpu as it was" in said
            assert "horizontalpodautoscaler.autoscaling/web-gpu" in names(plane, "hpa")
            assert names(plane, "scaledobject") == []
        finally:
            plane.kubectl("delete", "hpa/theirs", "deployment/other")


class TestTakenAway:
    def test_nothing_is_left_and_the_pods_stay(self, plane, command) -> None:
        """KEDA itself would set the count from before the ScaledObject."""
        before = settled(plane)
        with ReplicaWatch(plane) as watch:
            watch.await_count("web", PODS)
            command.install(asked("keda", fewest=0))
            wait_until(lambda: original_count(plane) == PODS, "KEDA to note the count", 60)
            plane.kubectl("scale", "deployment/web", f"--replicas={PODS + 2}")
            watch.await_count("web", PODS + 2)
            lines = command.run("uninstall")
            removed = [line for line in lines if line.endswith(" removed")]
            scaled = removed.index("ScaledObject default/web-gpu removed")
            assert scaled < removed.index("Deployment gpuscale/gpuscale-scaler removed")
            assert lines[-1] == "nothing of installation gpuscale is left"
            assert watch.counts("web") == [PODS, PODS + 2]
            plane.kubectl("scale", "deployment/web", f"--replicas={PODS}")
        wait_until_as_before(plane, before)
