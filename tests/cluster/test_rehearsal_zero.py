"""The plain HPA at zero on a control plane whose gate HPAScaleToZero is on, against virtual time."""

import sys
from pathlib import Path

import pytest

from gpuscale.lab.rehearse.comparison import REPLICAS, changes
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale_testing import ControlPlane, Settings

sys.path.insert(0, str(Path(__file__).parent))
from rehearsing import SCENARIOS, rehearse

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(400)]

SYNC_PERIOD_S = 5.0


def test_virtual_time_and_the_real_controller_go_to_zero_and_back_alike(tmp_path) -> None:
    settings = Settings(
        hpa_sync_period_s=SYNC_PERIOD_S,
        hpa_downscale_stabilization_s=12.0,
        feature_gates={"HPAScaleToZero": True},
    )
    virtual = changes(simulate(find_setup(str(SCENARIOS / "zero-hpa.yaml"))), REPLICAS)
    with ControlPlane(settings, tmp_path) as plane:
        document = rehearse(plane, "zero-hpa", until="New size: 0;", times=2)
    real = changes(document, REPLICAS)
    # At least 75 requests wait when the HPA looks: ceil(75 / 20) is 4; 120 % of GPUs are two pods at 60.
    assert [(each.before, each.after) for each in real] == [(1, 0), (0, 4), (4, 2), (2, 0)]
    assert [each.what for each in real] == [each.what for each in virtual]
    apart = [r.seconds - v.seconds for r, v in zip(real, virtual, strict=True)]
    # A value that comes just too late for one look is seen by the next.
    assert max(map(abs, apart)) < SYNC_PERIOD_S + 2.5, apart
