"""What a diagnosis does grows with the cluster, and not with its square."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from clusters import cluster, findings_of
from growing_clusters import GROWING

from gpuscale.ops.doctor.diagnosis import diagnose
from growing import SIZES, steps_per_pair


@pytest.mark.parametrize(("check", "changed"), GROWING)
def test_work_grows_with_the_number_of_things(check, changed) -> None:
    assert check in findings_of(cluster(**changed(SIZES[0])))

    def prepare(size):
        snapshot = cluster(**changed(size))
        return lambda: diagnose(snapshot)

    assert steps_per_pair(prepare) < 1
