"""What the first `make run` costs a stranger: processor time from a clone to the page, disk, page, report.

Each run is a fresh clone with an empty home. `--beside REV` measures another commit in turns, to compare.
"""

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import harness

ROOT = Path(__file__).parents[1]
RUNS = 3
SCENARIO = "ack-bert"
PART = re.compile(r"(?:src=|href=|from |import )\"([^\":#]+\.(?:js|css|svg)[^\"]*)\"")
"""Scripts and styles that a page or a script names."""
PASSED_ON = ("PATH", "PIP_INDEX_URL", "PIP_CERT", "SSL_CERT_FILE")


@dataclass(frozen=True, slots=True)
class FirstRun:
    """One clone, from `make run` to its page."""

    cpu_s: float
    environment_mb: float
    page_kb: float
    report_kb: float


def first_run(revision: str) -> FirstRun:
    """Measure one."""
    with tempfile.TemporaryDirectory() as folder:
        tree, home = Path(folder) / "tree", Path(folder) / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", ROOT, tree], check=True)
        subprocess.run(["git", "checkout", "--quiet", revision], cwd=tree, check=True)
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment |= {"HOME": str(home), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
        before = spent_s()
        page_kb = page_of(tree, environment)
        cpu_s = spent_s() - before
        return FirstRun(
            cpu_s, size_mb(tree / ".venv"), page_kb, report_kb(tree, environment, Path(folder))
        )


def page_of(tree: Path, environment: dict[str, str]) -> float:
    """Return the size of the page as it comes over the wire; the program has ended afterwards."""
    make = subprocess.Popen(
        ["make", "run"],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with make:
        assert make.stdout is not None
        try:
            for line in make.stdout:
                if found := re.search(r"page +(http://\S+)", line):
                    return transferred_kb(found[1])
            raise SystemExit(f"make run ended with {make.wait()} before there was a page")
        finally:
            os.killpg(make.pid, signal.SIGINT)
            make.communicate(timeout=60)


def transferred_kb(url: str) -> float:
    """Return the size of a page with all that it loads, compressed as a browser asks for it."""
    sizes: dict[str, int] = {}
    waiting = [url]
    while waiting:
        each = waiting.pop()
        if each in sizes:
            continue
        sizes[each], text = fetched(each)
        waiting += [urllib.parse.urljoin(each, part) for part in PART.findall(text)]
    return sum(sizes.values()) / 1000


def fetched(url: str) -> tuple[int, str]:
    """Return the bytes of an answer, and its text where it is not compressed."""
    plain = urllib.request.urlopen(url).read().decode()
    asked = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    return len(urllib.request.urlopen(asked).read()), plain


def report_kb(tree: Path, environment: dict[str, str], folder: Path) -> float:
    """Return the size of the HTML report of a scenario."""
    report = folder / "report.html"
    command: list[str | Path] = [tree / ".venv" / "bin" / "gpuscale", "simulate", SCENARIO]
    flag = "--output-file"
    help_text = subprocess.run(
        [*command[:2], "--help"], env=environment, capture_output=True
    ).stdout
    if flag.encode() not in help_text:
        flag = "--html"  # of commits before there was the other
    subprocess.run([*command, flag, report], env=environment, check=True, stdout=subprocess.DEVNULL)
    return report.stat().st_size / 1000


def spent_s() -> float:
    """Return the processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def size_mb(folder: Path) -> float:
    """Return what a folder takes on disk."""
    done = subprocess.run(["du", "-sk", folder], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0]) / 1024


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--beside", metavar="REV", help="another commit, measured in turns")
    beside = parser.parse_args().beside
    if shutil.which("make") is None:
        raise SystemExit("found no make")
    revisions = ["HEAD", *([beside] if beside else [])]
    runs: dict[str, list[FirstRun]] = {revision: [] for revision in revisions}
    for _ in range(RUNS):
        for revision in revisions:
            runs[revision].append(first_run(revision))
    figures = []
    for revision, found in runs.items():
        name = "this commit" if revision == "HEAD" else f"alternative: {revision}"
        budget = (30.0, 100.0) if revision == "HEAD" else (None, None)
        figures += [
            harness.figure(
                f"{name}: clone to page", "CPU s", [each.cpu_s for each in found], at_most=budget[0]
            ),
            harness.figure(
                f"{name}: environment",
                "MiB",
                [each.environment_mb for each in found],
                at_most=budget[1],
            ),
            harness.figure(f"{name}: page on the wire", "kB", [each.page_kb for each in found]),
            harness.figure(
                f"{name}: report of {SCENARIO}", "kB", [each.report_kb for each in found]
            ),
        ]
    return harness.write(
        "first_run", figures, programs={"pip": [sys.executable, "-m", "pip", "--version"]}
    )


if __name__ == "__main__":
    sys.exit(main())
