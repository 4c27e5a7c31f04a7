"""`gpuscale rehearse --karpenter`: the cluster's own Karpenter makes the nodes of a scenario."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpuscale_testing import ControlPlane
from gpuscale_testing.karpenter import Karpenter, scenario_types

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
SCENARIO = "eks-vision-karpenter-quick"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(folder=tmp_path_factory.mktemp("plane")) as running:
        yield running


def rehearse(plane: ControlPlane, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gpuscale.cli.main", "rehearse", "--output=json"]
    command += [f"--kubeconfig={plane.admin}", *more, SCENARIO]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_without_the_provider_of_free_nodes_nothing_is_made(plane: ControlPlane) -> None:
    with rehearse(plane, "--karpenter") as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "found no karpenter.sh/v1 on the cluster, expected Karpenter with its KWOK" in said
    assert plane.get("namespaces", "-l", "gpuscale.dev/rehearsal")["items"] == []


def test_karpenter_buys_for_the_pods_that_the_hpa_asks_for_and_takes_back(
    plane: ControlPlane, tmp_path: Path
) -> None:
    lines: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(Karpenter(plane, tmp_path, scenario_types(SCENARIO)))
        process = stack.enter_context(rehearse(plane, "--karpenter"))

        def read() -> None:
            for line in iter(process.stderr.readline, ""):
                lines.append(line)
                if " ScaleDown " in line:
                    process.send_signal(signal.SIGINT)
                    return

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        out = process.stdout.read()
        assert process.wait(120) == 0, "".join(lines)
        reader.join(30)
        document = json.loads(out)
        made = [e["reason"] for e in document["events"] if e["kind"] == "TriggeredScaleUp"]
        # Two pods at the start share a node of four; the fifth to eighth take another.
        assert len(made) == 2, made
        assert all("of g4dn.12xlarge was made" in each for each in made)
        sizes = [e["to"] for e in document["events"] if e["kind"] == "SuccessfulRescale"]
        assert (sizes[0], max(sizes), sizes[-1]) == (4, 8, 2)
        assert document["summary"]["nodePools"]["gpu"] == {"maxNodes": 2, "finalNodes": 1}
        assert document["summary"]["cost"] > 0
        kinds = ("nodepools.karpenter.sh", "kwoknodeclasses", "nodeclaims.karpenter.sh", "nodes")
        for kind in kinds:
            assert plane.get(kind)["items"] == [], kind
