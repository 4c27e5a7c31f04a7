"""Checks that an installed distribution adds to `gpuscale lint` and `gpuscale doctor`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale.base.errors import BugError
from gpuscale.base.findings import Checks, Severity
from gpuscale.ops.doctor.judges import ClusterJudge

HERE = Path(__file__).parent
HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: default}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 200
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}
"""
DOCTOR = """\
from gpuscale.base.findings import with_plugins
from gpuscale.ops.doctor.checks import JUDGES
from gpuscale.ops.doctor.diagnosis import diagnose
from gpuscale.ops.doctor.judges import ClusterJudge
from gpuscale.ops.doctor.snapshot import Look, Snapshot
from gpuscale.ops.findings_text import chain_lines

node = {"metadata": {"name": "cpu-1"}}
snapshot = Snapshot(now_ms=0, looks={"nodes": Look((node,))})
print(*chain_lines(diagnose(snapshot, with_plugins(JUDGES, ClusterJudge))), sep="\\n")
"""


def run(folder, entry_points, *arguments):
    info = folder / "hot-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hot\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gpuscale.checks]\n{entry_points}\n")
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{HERE}"}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
    )


def lint(folder, entry_points):
    (folder / "hpa.yaml").write_text(HPA)
    return run(folder, entry_points, "-m", "gpuscale.cli.main", "lint", "-o", "json", "hpa.yaml")


BOTH = "racks = hot_checks:RACKS\nlimits = hot_checks:LIMITS"


def test_a_plug_in_adds_a_check_of_files(tmp_path: Path) -> None:
    done = lint(tmp_path, BOTH)
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["id"], finding["line"], finding["fix"]) == (
        "too-many-replicas",
        6,
        "Ask the platform team.",
    )
    assert done.returncode == 0  # a note


def test_a_plug_in_adds_a_check_of_a_cluster(tmp_path: Path) -> None:
    done = run(tmp_path, BOTH, "-c", DOCTOR)
    assert done.stdout.splitlines()[1:5] == [
        "nodes: 1 warning",
        "  warning [node-without-rack] node/cpu-1",
        "    It has no rack.",
        "    -> Label the node.",
    ], done.stderr


def test_what_is_no_judge_is_refused(tmp_path: Path) -> None:
    done = lint(tmp_path, "racks = hot_checks:judge_nodes")
    assert done.returncode == 2
    assert "plug-in hot 1.0" in done.stderr
    assert "expected a gpuscale.base.findings.Judge" in done.stderr


def test_a_check_with_the_id_of_another_is_refused(tmp_path: Path) -> None:
    source = (HERE / "hot_checks.py").read_text().replace("too-many-replicas", "two-hpas")
    (tmp_path / "twice.py").write_text(source)
    done = lint(tmp_path, "limits = twice:LIMITS")
    assert (done.returncode, done.stderr) == (
        2,
        "gpuscale: gpuscale.checks: two checks have the id 'two-hpas'\n",
    )


def test_an_unknown_hop_is_refused() -> None:
    checks = Checks("nods")
    checks.add("x", Severity.NOTE, "X.", "Y.")
    with pytest.raises(BugError, match="hop 'nods': expected one of access, nodes"):
        ClusterJudge("x", checks, lambda _: ())
