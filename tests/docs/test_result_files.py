"""The result files name no place of the machine that measured them."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_the_command_is_one_for_any_machine(path: Path) -> None:
    found = json.loads(path.read_text())
    words = str(found.get("command", "")).split()
    assert [each for each in words if each.startswith("/")] == []


def test_a_path_of_this_machine_is_written_as_its_last_part(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import harness

    words = ["benchmarks/bench_lint.py", "--traces", "/data/public/traces", "--runs", "2"]
    python = Path(sys.executable).name
    expected = f"{python} benchmarks/bench_lint.py --traces traces --runs 2"
    assert harness.command(words) == expected
