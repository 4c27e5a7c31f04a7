"""How far a replay is from a rehearsal on a real control plane, with the settings that really ran.

    python benchmarks/bench_replay.py [--save tests/data/replays] [--from FOLDER]

Each scenario runs under Kubernetes' own controllers at ten times the speed. What it did is written to a real
Prometheus, as kube-state-metrics and dcgm-exporter have it, and `gpuscale simulate --from-prometheus` makes a
replay of that, once from GPU use alone and once with the recorded requests. The quick scenarios are left out:
of their GPU-hours one sync is 4 %. Takes 15 minutes, and what `make cluster-tools` builds.
`--save` keeps what ran, for tests; `--from` replays what was kept instead.
"""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
from gpuscale_testing import ControlPlane, Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from rehearsal_replay import GPUSCALE, replayed

ROOT = Path(__file__).parents[1]

SPEED = 10
MOST_PERCENT = 5.0
"""The goal for GPU-hours."""
SHIPPED = ROOT / "src" / "gpuscale" / "lab" / "sim" / "scenarios"
DATA = ROOT / "tests" / "data" / "replays"


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario, and the files of a cluster's owner that a replay of it needs."""

    scenario: str
    manifests: Sequence[Path]
    rules: Path | None = None


ACK = SHIPPED / "ack-bert"
CASES = {
    "wave": Case(str(DATA / "wave.yaml"), [DATA / "chat.yaml"]),
    "stairs": Case(str(DATA / "stairs.yaml"), [DATA / "chat.yaml"]),
    "ack-bert": Case("ack-bert", [ACK / "deployment.yaml", ACK / "hpa.yaml"], ACK / "rules.yaml"),
}


def rehearsals() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what each scenario did under the real controllers."""
    with ControlPlane(Settings().sped_up(SPEED)) as plane:
        for name, case in CASES.items():
            sys.stderr.write(f"rehearsing {name}\n")
            command = [GPUSCALE, "rehearse", f"--kubeconfig={plane.admin}", case.scenario]
            done = subprocess.run(
                [*map(str, command), f"--speed={SPEED}", "--output=json"],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise SystemExit(done.stderr)
            yield name, json.loads(done.stdout)


def kept(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what was kept of earlier rehearsals."""
    for name in CASES:
        path = folder / f"{name}.json.gz"
        if path.exists():
            yield name, json.loads(gzip.decompress(path.read_bytes()))


def save(folder: Path, name: str, rehearsed: dict[str, Any]) -> None:
    """Keep a rehearsal, without the series that no replay asks for."""
    series = {
        key: values
        for key, values in rehearsed["series"].items()
        if not key.startswith(("gpu/", "queue/"))
    }
    text = json.dumps({**rehearsed, "series": series}, separators=(",", ":"))
    (folder / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def figures_of(name: str, rehearsed: dict[str, Any]) -> Iterator[harness.Figure]:
    """Yield the distances of a rehearsal's replays."""
    case = CASES[name]
    for knows_demand in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            found = replayed(
                case.scenario,
                rehearsed,
                [each.read_text() for each in case.manifests],
                Path(folder),
                rules=case.rules,
                knows_demand=knows_demand,
            )
        source = "recorded requests" if knows_demand else "GPU use alone"
        events = found["scaleEvents"]
        for what, key in (("pods", "podGpuHours"), ("nodes", "nodeGpuHours")):
            hours = found[key]
            yield harness.figure(
                f"{name}, from {source}: GPU-hours of {what}, distance",
                "%",
                [abs(hours["differencePercent"])],
                at_most=MOST_PERCENT,
                note=f"{hours['replayed']:g} for {hours['recorded']:g} ({hours['differencePercent']:+g} %)",
            )
        yield harness.figure(
            f"{name}, from {source}: time in which replicas differ",
            "%",
            [found["replicasDifferPercent"]],
            note=f"{events['replayed']} changes for {events['recorded']}; demand is a lower bound in"
            f" {found['lowerBoundPercent']:g} % of the time",
        )


def main() -> int:
    """Rehearse, replay, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--from", dest="source", type=Path)
    options = parser.parse_args()
    figures: list[harness.Figure] = []
    for name, rehearsed in kept(options.source) if options.source else rehearsals():
        if options.save:
            save(options.save, name, rehearsed)
        figures += figures_of(name, rehearsed)
    return harness.write("replay", figures, settings={"speed": SPEED})


if __name__ == "__main__":
    sys.exit(main())
