"""From a bare cluster to an HPA with a GPU signal, and off again: seconds of each step.

Runs tests/cluster/test_from_bare_cluster_to_nothing.py, with HPAs looked at every 15 s as Kubernetes does by
default, and the values of `gpuscale init` otherwise: a user's own commands on a real control plane, the
installation's programs as processes with what their pods say. The pulse's hops count from its first request.

Takes ten minutes, and the programs that `make cluster-tools` builds.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import harness

ROOT = Path(__file__).parents[1]
TEST = "tests/cluster/test_from_bare_cluster_to_nothing.py"
RUNS = 3
FIRST_VALUE_S = 60.0
STEPS = {
    "install": "install: the command",
    "first value": "install: begin to the first HPA value",
    "scaled up": "load: begin to another pod",
    "doctor": "doctor: the command",
    "upgrade": "install of other values: the command",
    "uninstall": "uninstall: the command",
}
HOPS = ("gpu", "value", "hpa", "ready")


def main() -> int:
    """Measure, and return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "times.jsonl"
        tests = ["-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", "-m", "cluster", TEST]
        environment = {**os.environ, "GPUSCALE_INSTALL_RESULTS": str(results)}
        for _ in range(RUNS):
            done = subprocess.run([sys.executable, *tests], cwd=ROOT, env=environment)
            if done.returncode or not results.exists():
                return done.returncode or 1
        measured = [json.loads(line) for line in results.read_text().splitlines()]
    return harness.write(
        "install",
        [each for source in ("streams", "prometheus") for each in figures(source, measured)],
        packages=["aiohttp", "lightkube"],
        programs={"prometheus": ["prometheus", "--version"]},
        settings={"hpa_sync_period_s": 15, "scrape_interval_s": 15, "gpu_nodes": 2},
    )


def figures(source: str, measured: list[dict[str, Any]]) -> list[harness.Figure]:
    """Return the figures of one source of values."""
    runs = [each for each in measured if each["source"] == source]
    steps = [
        harness.figure(
            f"{source}: {text}",
            "s",
            [each[step] for each in runs],
            at_most=FIRST_VALUE_S if step == "first value" else None,
        )
        for step, text in STEPS.items()
    ]
    hops = [
        harness.figure(f"{source}: pulse, {hop}", "s", [each["hops"][hop] for each in runs])
        for hop in HOPS
    ]
    return [*steps, *hops]


if __name__ == "__main__":
    sys.exit(main())
