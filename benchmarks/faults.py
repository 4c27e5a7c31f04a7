"""Let parts of the loop crash, each and two at once, and write the outcome: `python benchmarks/faults.py`.

Runs tests/cluster/test_faults.py, keeps its results in results/faults.json and brings the table in
docs/faults.md up to date. Takes two to three minutes, and the programs that `make cluster-tools` builds.
"""

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import harness

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "faults.md"
RESULT = harness.RESULTS / "faults.json"
BEGIN, END = "<!-- written by benchmarks/faults.py -->\n", "<!-- end -->\n"
COLUMNS = (
    "crash of",
    "`ScalingActive` is False with",
    "APIServices `Available` all along",
    "replicas before, during, after",
    "away",
    "all well",
)


def main() -> int:
    """Return the tests' exit code."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        tests = ["-m", "pytest", "-n0", "-m", "cluster", "tests/cluster/test_faults.py"]
        environment = {**os.environ, "GPUSCALE_FAULT_RESULTS": str(path)}
        code = subprocess.run([sys.executable, *tests], cwd=ROOT, env=environment).returncode
        if code:
            return code
        results = json.loads(path.read_text())
    programs = {
        "prometheus": ("prometheus", "--version"),
        "kubectl": ("kubectl", "version", "--client"),
    }
    document = {
        "benchmark": "faults",
        "command": "python benchmarks/faults.py",
        "commit": harness.commit(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": harness.machine(),
        "versions": harness.versions((), programs),
        **results,
    }
    RESULT.write_text(json.dumps(document, indent=2) + "\n")
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + table(document) + END + rest.split(END)[1])
    return 0


def table(document: dict[str, Any]) -> str:
    """Return the table of the page."""
    rows = (
        f"| {each['part']} | {reasons(each)} | {stays(each)} | {replicas(each)} | {each['down_s']:.1f} s | "
        f"after {each['back_s']:.1f} s |\n"
        for each in document["faults"]
    )
    head = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}\n"
    start = (
        "\nAt the first start, the APIServices were available "
        f"{document['available_s']:.1f} s after the metrics API's process began.\n"
    )
    return head + "".join(rows) + start


def reasons(fault: dict[str, Any]) -> str:
    """Return the reasons that HPAs gave for not scaling, and how long there was nobody to ask."""
    found = [f"`{reason}`" for reason in sorted({reason for _, reason, _ in fault["saw"]})]
    if away_s := fault["unreachable_s"]:
        found.append(f"the API server gave no answer for {away_s:.1f} s")
    return ", ".join(found) or "never"


def stays(fault: dict[str, Any]) -> str:
    """Return whether the APIServices stayed available."""
    return "yes" if fault["stayed_available"] else "no"


def replicas(fault: dict[str, Any]) -> str:
    """Return the counts of all Deployments."""
    return ", ".join(
        f"{before} → {'/'.join(map(str, during))} → {after}"
        for before, during, after in fault["replicas"].values()
    )


if __name__ == "__main__":
    sys.exit(main())
