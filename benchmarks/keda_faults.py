"""Let parts of a loop with KEDA crash at random, and write the outcome: `python benchmarks/keda_faults.py`.

Runs tests/cluster/test_keda_faults.py with 200 crashes and keeps its results in results/keda_faults.json.
Takes a quarter of an hour, and what `make cluster-tools keda-tools` builds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import harness

ROOT = Path(__file__).parents[1]
RESULT = harness.RESULTS / "keda_faults.json"
TEST = "tests/cluster/test_keda_faults.py"
CRASHES = 200


def main() -> int:
    """Return the tests' exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--crashes", type=int, default=CRASHES)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        tests = ["-m", "pytest", "-n0", "-m", "cluster", "-p", "no:cacheprovider", TEST]
        environment = {
            **os.environ,
            "GPUSCALE_KEDA_KILLS": str(arguments.crashes),
            "GPUSCALE_KEDA_SEED": str(arguments.seed),
            "GPUSCALE_KEDA_RESULTS": str(path),
        }
        code = subprocess.run([sys.executable, *tests], cwd=ROOT, env=environment).returncode
        if not path.exists():
            return code or 1
        results = json.loads(path.read_text())
    document = {
        "benchmark": "keda_faults",
        "command": " ".join(["python", "benchmarks/keda_faults.py", *sys.argv[1:]]),
        "commit": harness.commit(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": harness.machine(),
        "versions": harness.versions(("grpcio",), {"prometheus": ("prometheus", "--version")}),
        **results,
    }
    RESULT.write_text(json.dumps(document, indent=2) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
