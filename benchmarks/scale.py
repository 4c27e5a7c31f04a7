"""What hundreds of HPAs cost on a real control plane.

    python benchmarks/scale.py [--pods 250 500 1000 2000]

Runs tests/cluster/test_scale.py at each size, with a quarter as many nodes and a tenth as many HPAs, each of
which has its turn every 5 seconds, and writes what it measured to results/scale.json. CPU and memory of a
program include its children. Times of requests are from the API server's audit log: from the controller's
request to the end of the answer. Takes about three minutes a size, and the programs that `make cluster-tools`
builds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import harness

ROOT = Path(__file__).parents[1]
SOURCES = ("prometheus", "streams")
SEPARATE = ("metrics-api", "kube-apiserver", "kube-controller-manager", "prometheus")


def main() -> int:
    """Return 1 where a test failed; then nothing is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, nargs="+", default=[250, 500, 1000, 2000])
    options = parser.parse_args()
    found: list[harness.Figure] = []
    for pods in options.pods:
        results = measured(pods)
        if results is None:
            return 1
        found += figures(results)
    programs = {
        "prometheus": ("prometheus", "--version"),
        "kubectl": ("kubectl", "version", "--client"),
    }
    return harness.write("scale", found, programs=programs, settings=vars(options))


def measured(pods: int) -> dict[str, Any] | None:
    """Return what the test measured with so many pods; None if it failed or was skipped."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        tests = ["-m", "pytest", "-n0", "-m", "scale", "tests/cluster/test_scale.py"]
        environment = {
            **os.environ,
            "GPUSCALE_SCALE_PODS": str(pods),
            "GPUSCALE_SCALE_RESULTS": str(path),
        }
        done = subprocess.run([sys.executable, *tests], cwd=ROOT, env=environment)
        if done.returncode or not path.exists():
            return None
        results: dict[str, Any] = json.loads(path.read_text())
    return results


def figures(results: Mapping[str, Any]) -> Iterator[harness.Figure]:
    """Yield the figures of one size."""
    for source in SOURCES:
        one = results[source]
        at = f"{source}: {results['pods']} pods"
        for load, seconds in one["seconds_until"].items():
            yield harness.figure(f"{at}: all HPAs show {load}", "s", [seconds])
        for program in SEPARATE:
            if program in one["cores"]:
                yield harness.figure(f"{at}: CPU of {program}", "cores", [one["cores"][program]])
                memory = [one["peak_mib"][program]]
                yield harness.figure(f"{at}: most memory of {program}", "MiB", memory)
        note = f"{one['requests']} requests, {one['requests_per_s']:.1f} a second, all answered with 200"
        for share in ("p50", "p99"):
            took = [one[f"request_{share}_ms"]]
            yield harness.figure(f"{at}: request, {share}", "ms", took, note=note)


if __name__ == "__main__":
    sys.exit(main())
