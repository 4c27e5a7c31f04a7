"""Rehearsals that run ten times faster than real time, against virtual time."""

import json
import subprocess
import sys

import pytest

from gpuscale.lab.rehearse.comparison import NODES, REPLICAS, changes
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale_testing import ControlPlane, Settings

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

SPEED = 10
SYNC_PERIOD_S = 15.0
"""Kubernetes' default, in scenario time."""
BUSY_S = 5.0
"""What a control plane on a very busy machine may take for what takes tenths of a second; in real time."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory):
    settings = Settings().sped_up(SPEED)
    with ControlPlane(settings, tmp_path_factory.mktemp("plane")) as running:
        yield running


def rehearse(plane, *arguments):
    command = [sys.executable, "-m", "gpuscale.cli.main", "rehearse", f"--kubeconfig={plane.admin}"]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=280
    )


@pytest.mark.parametrize("name", ["ack-bert-quick", "eks-vision-quick", "aks-mnist-jobs-quick"])
def test_a_sped_up_rehearsal_has_the_changes_of_the_simulation(plane, name: str) -> None:
    done = rehearse(plane, name, f"--speed={SPEED}", "--output=json")
    assert done.returncode == 0, done.stderr
    real, virtual = json.loads(done.stdout), simulate(find_setup(name))
    # The cluster's defaults are 15 s and 5 min.
    assert "--horizontal-pod-autoscaler-sync-period=1.5s" in done.stderr or (
        not find_setup(name).hpas
    )
    for kinds in (REPLICAS, NODES):
        assert [each.what for each in changes(real, kinds)] == [
            each.what for each in changes(virtual, kinds)
        ]
    pairs = zip(changes(real, REPLICAS), changes(virtual, REPLICAS), strict=True)
    for rehearsed, simulated in pairs:
        late_s = rehearsed.seconds - simulated.seconds
        assert -SYNC_PERIOD_S <= late_s <= SYNC_PERIOD_S + SPEED * BUSY_S


def test_a_controller_that_does_not_keep_up_is_refused_and_nothing_is_left(plane) -> None:
    done = rehearse(plane, "ack-bert-quick", "--speed=2")  # 7.5 s, where it looks every 1.5 s
    assert done.returncode == 2, done.stderr
    assert "expected one every 7.5 s" in done.stderr
    assert "--horizontal-pod-autoscaler-sync-period=7.5s" in done.stderr
    assert "gpuscale-rehearsal" not in plane.kubectl("get", "namespaces", "--output=name")
    assert rehearse(plane, "--clean").stdout == "nothing to remove\n"


def test_a_speed_that_the_scenario_refuses_makes_nothing(plane) -> None:
    done = rehearse(plane, "ack-bert-quick", "--speed=7")
    assert (done.returncode, done.stdout) == (2, "")
    assert "scaleDown.stabilizationWindowSeconds: found 40 s" in done.stderr
