"""ScaledObjects under KEDA itself, against the same scenarios in virtual time."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpuscale.lab.rehearse.comparison import REPLICAS, changes
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale_testing import ControlPlane, Settings, missing
from gpuscale_testing.keda import Keda
from gpuscale_testing.programs.toolset import KEDA

sys.path.insert(0, str(Path(__file__).parent))
from rehearsing import SCENARIOS, command, rehearse

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(400)]

SYNC_PERIOD_S = 5.0
"""Of the HPA controller; the scenarios' polls are 4 s apart."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory):
    settings = Settings(hpa_sync_period_s=SYNC_PERIOD_S, hpa_downscale_stabilization_s=12.0)
    with ControlPlane(settings, tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture(scope="module")
def keda(plane, tmp_path_factory):
    if reason := missing(KEDA):
        pytest.skip(reason)
    with Keda(plane, tmp_path_factory.mktemp("keda")) as running:
        yield running


@pytest.mark.parametrize(
    ("scenario", "steps"),
    [
        # 85 requests wait at the HPA's first look: ceil(85 / 20), of at most 4.
        # Then 120 % of GPUs are two pods at 60; without load one, and none after the cooldown.
        ("keda", [(0, 1), (1, 4), (4, 2), (2, 1), (1, 0)]),
        # Four failures bring the fallback's 3 replicas; the queue is empty once the query works again.
        ("keda-fallback", [(0, 1), (1, 4), (4, 3), (3, 1), (1, 0)]),
    ],
)
def test_virtual_time_and_keda_change_replicas_alike(plane, keda, scenario: str, steps) -> None:
    virtual = changes(simulate(find_setup(str(SCENARIOS / f"{scenario}.yaml"))), REPLICAS)
    document = rehearse(plane, scenario, until="Deactivated apps/v1.Deployment")
    real = changes(document, REPLICAS)
    assert [each.what for each in real] == [each.what for each in virtual]
    assert [(each.before, each.after) for each in real] == steps
    # KEDA takes the first step and the last; those between are the HPA's that it made.
    kinds = [each.object.partition("/")[0] for each in real]
    assert (kinds[0], kinds[-1]) == ("ScaledObject", "ScaledObject")
    assert set(kinds[1:-1]) == {"HorizontalPodAutoscaler"}
    apart = [r.seconds - v.seconds for r, v in zip(real, virtual, strict=True)]
    # A value that comes just too late for one look is seen by the next.
    assert max(map(abs, apart)) < SYNC_PERIOD_S + 2.5, apart
    assert not plane.get("scaledobjects", "-A")["items"]
    assert not plane.get("hpa", "-A")["items"]


def test_a_cluster_without_keda_is_refused_before_anything_is_made(tmp_path) -> None:
    with ControlPlane(Settings(), tmp_path) as bare:
        arguments = command(bare, SCENARIOS / "keda.yaml")
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 2, done.stderr
        assert "found no KEDA on the cluster" in done.stderr
        assert "gpuscale-rehearsal" not in bare.kubectl("get", "namespaces", "--output=name")


def test_without_kedas_operator_a_rehearsal_still_leaves_nothing(plane, keda) -> None:
    with subprocess.Popen(
        command(plane, "--output=json", SCENARIOS / "keda.yaml"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            for _ in range(600):
                if plane.get("hpa", "-A")["items"]:
                    break
                threading.Event().wait(0.2)
            keda.kill("keda-operator")
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0
        finally:
            process.kill()
            keda.restart("keda-operator")
    assert not plane.get("scaledobjects", "-A")["items"]
    assert "gpuscale-rehearsal" not in plane.kubectl("get", "namespaces", "--output=name")
