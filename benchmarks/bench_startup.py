"""How long a user waits: for help, for the package, and for the first page of the live loop.

The alternative beside the import is the same with every library that a command may need.
"""

import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import harness

GPUSCALE = str(Path(sys.executable).parent / "gpuscale")
RUNS = 9
LIVE_RUNS = 3
SCALE_OUT = "New size: 2"


def python(code: str) -> None:
    """Run a line of Python in a process of its own."""
    subprocess.run([sys.executable, "-c", code], check=True)


def live() -> tuple[float, float]:
    """Return the seconds from the command to the first page, and to the first scale-out told."""
    started = time.perf_counter()
    command = [GPUSCALE, "up", "--port", "0", "--for", "60s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        page = scaled = None
        for line in process.stdout:
            match = re.search(r"page +(http://\S+)", line)
            if match:
                with urllib.request.urlopen(match[1]) as response:
                    response.read()
                page = time.perf_counter() - started
            if SCALE_OUT in line:
                scaled = time.perf_counter() - started
                process.terminate()
    assert page is not None
    assert scaled is not None
    return page, scaled


def main() -> int:
    """Measure, and return the exit code."""
    everything = "import gpuscale.cli.registry, gpuscale.lab.local.loop, gpuscale.lab.views.report"
    runs = [live() for _ in range(LIVE_RUNS)]
    figures = [
        harness.figure(
            "import gpuscale",
            "s",
            harness.timed(lambda: python("import gpuscale"), runs=RUNS),
            at_most=0.3,
        ),
        harness.figure(
            "gpuscale --help",
            "s",
            harness.timed(
                lambda: subprocess.run([GPUSCALE, "--help"], check=True, stdout=subprocess.DEVNULL),
                runs=RUNS,
            ),
            at_most=0.3,
        ),
        harness.figure(
            "import with every library",
            "s",
            harness.timed(lambda: python(everything), runs=RUNS),
            note="the alternative: nothing is left until it is used",
        ),
        harness.figure("up: command to first page", "s", [page for page, _ in runs], at_most=3.0),
        harness.figure(
            "up: command to first scale-out", "s", [out for _, out in runs], at_most=60.0
        ),
    ]
    return harness.write("startup", figures, packages=["typer", "aiohttp", "pydantic"])


if __name__ == "__main__":
    sys.exit(main())
