"""Rehearsals that ran on a real control plane, replayed with the settings that really ran.

`tests/data/replays` has what `benchmarks/bench_replay.py --save` recorded of Kubernetes 1.36: its scheduler,
its controllers, its HPA. The replay sees only what a Prometheus of that cluster would have.
"""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from rehearsal_replay import replayed

REPLAYS = Path(__file__).parent.parent / "data" / "replays"
MOST_PERCENT = 5.0
"""Of GPU-hours, for pods and for nodes."""

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus"),
]


@pytest.mark.parametrize("knows_demand", [False, True], ids=["estimated", "requests"])
@pytest.mark.parametrize("name", ["wave", "stairs"])
def test_a_replay_needs_the_gpu_hours_that_the_real_controllers_needed(
    tmp_path, name, knows_demand
) -> None:
    rehearsed = json.loads(gzip.decompress((REPLAYS / f"{name}.json.gz").read_bytes()))
    manifests = [(REPLAYS / "chat.yaml").read_text()]
    scenario = str(REPLAYS / f"{name}.yaml")
    found = replayed(scenario, rehearsed, manifests, tmp_path, knows_demand=knows_demand)
    # 160 rows of 15 s; the first and last moments may have no neighbour to be compared with.
    assert found["hours"] == pytest.approx(40 / 60, abs=0.01)
    steps = rehearsed["series"]["hpa/chat/current"]
    assert found["podGpuHours"]["recorded"] == pytest.approx(sum(steps) * 15 / 3600, rel=0.02)
    assert abs(found["podGpuHours"]["differencePercent"]) <= MOST_PERCENT
    assert abs(found["nodeGpuHours"]["differencePercent"]) <= MOST_PERCENT
    assert found["assumed"] == []
    assert found["metricSeen"] is True
