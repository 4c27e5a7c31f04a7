"""What every benchmark shares: repeat, summarise, and keep the result with all that is needed to repeat it.

    values = harness.timed(work, runs=9)
    figures = [harness.figure("ingest", "samples/s", [n / s for s in values], at_least=500_000)]
    sys.exit(harness.write("series", figures))

A figure keeps the median and the spread of its runs; a budget it misses makes the benchmark exit with 1.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import gpuscale

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity."""

    name: str
    unit: str
    runs: int
    median: float
    low: float
    high: float
    at_most: float | None
    """The budget, where smaller is better."""
    at_least: float | None
    """The budget, where larger is better."""
    note: str

    def is_within_budget(self) -> bool:
        """Return whether the median keeps the budget; a figure without one does."""
        return (self.at_most is None or self.median <= self.at_most) and (
            self.at_least is None or self.median >= self.at_least
        )


def growth(held: Sequence[float]) -> float:
    """Return the most of a run's second half, of the most in its second quarter; the first fills caches."""
    half = len(held) // 2
    return max(held[half:]) / max(held[len(held) // 4 : half])


def timed(work: Callable[[], object], *, runs: int = 9, warm_up: int = 1) -> list[float]:
    """Return the seconds that each run of `work` took, after some that are not counted."""
    for _ in range(warm_up):
        work()
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return seconds


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that so large a share is not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figure(
    name: str,
    unit: str,
    values: Sequence[float],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    note: str = "",
) -> Figure:
    """Return the figure of one quantity, measured once per run."""
    return Figure(
        name,
        unit,
        len(values),
        statistics.median(values),
        min(values),
        max(values),
        at_most,
        at_least,
        note,
    )


def write(
    name: str,
    figures: Sequence[Figure],
    *,
    packages: Sequence[str] = (),
    programs: Mapping[str, Sequence[str]] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> int:
    """Write `results/<name>.json`, print the figures, and return an exit code: 1 where a budget is missed.

    Args:
        name: of the benchmark.
        figures: in the order they are printed.
        packages: distributions whose versions matter.
        programs: outside programs by name, each with the command that prints its version.
        settings: sizes, seeds and the like.
    """
    document = {
        "benchmark": name,
        "command": command(sys.argv),
        "commit": commit(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(packages, programs or {}),
        "settings": dict(settings or {}),
        "figures": [asdict(each) for each in figures],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    for each in figures:
        print(line(each))
    return 0 if all(each.is_within_budget() for each in figures) else 1


def line(each: Figure) -> str:
    """Return a figure as one line of text."""
    spread = f"{each.low:,.4g} to {each.high:,.4g}, {each.runs} runs"
    verdict = ""
    if each.at_most is not None:
        verdict = f"  at most {each.at_most:,g}: {'yes' if each.is_within_budget() else 'NO'}"
    elif each.at_least is not None:
        verdict = f"  at least {each.at_least:,g}: {'yes' if each.is_within_budget() else 'NO'}"
    return f"{each.name:<52} {each.median:>12,.4g} {each.unit:<10} ({spread}){verdict}"


def commit() -> str:
    """Return the commit that was measured, with `+changes` where the working tree differs from it."""
    try:
        head = _output(["git", "rev-parse", "HEAD"])
        changed = _output(["git", "status", "--porcelain", "--untracked-files=no"])
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}+changes" if changed else head


def machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3, 1),
        "system": platform.platform(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def versions(packages: Sequence[str], programs: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return versions by name; a program that is not there is `absent`."""
    found = {"python": platform.python_version()}
    found.update((package, _version(package)) for package in ("gpuscale", *packages))
    for name, command in programs.items():
        try:
            found[name] = _output(list(command)).splitlines()[0]
        except (OSError, subprocess.CalledProcessError, IndexError):
            found[name] = "absent"
    return found


def _version(package: str) -> str:
    """Return a distribution's version; our own also where it is only on the path, not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return gpuscale.__version__ if package == "gpuscale" else "absent"


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [row.partition(":")[2].strip() for row in text.splitlines() if "model name" in row]
    return names[0] if names else platform.processor()


def command(words: Sequence[str]) -> str:
    """Return a command as another machine may run it: a path of this one is its last part."""
    shown = [Path(each).name if each.startswith("/") else each for each in words]
    return " ".join([Path(sys.executable).name, *shown])


def _output(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    return (done.stdout or done.stderr).strip()
