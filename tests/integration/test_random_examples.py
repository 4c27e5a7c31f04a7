"""tools/random_examples.py on small suites: it finds more than fixed examples do, and names the seed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
from pathlib import Path
from hypothesis import given, strategies as st

@given(st.integers(0, 1 << 60))
def test_it(number):
    with Path("seen").open("a") as file:
        file.write(f"{number} ")
    assert number <= LIMIT

def test_without_examples():
    raise AssertionError
"""


def round_of(folder: Path, limit: str, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_bytes((ROOT / "tests" / "conftest.py").read_bytes())
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "test_it.py").write_text(TESTS.replace("LIMIT", limit))
    (folder / "seen").unlink(missing_ok=True)
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "random_examples.py", "0", "-n", "0", *more],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_round_has_other_examples_unless_it_has_the_seed(tmp_path: Path) -> None:
    seen = []
    for seed in ("1", "1", "2"):
        done = round_of(tmp_path, "1 << 60", "--hypothesis-seed", seed)
        assert done.returncode == 0, done.stdout
        assert done.stdout.splitlines()[-1] == "1 rounds, nothing found"
        seen.append((tmp_path / "seen").read_text())
    assert seen[0] == seen[1] != seen[2]


def test_what_is_found_is_printed_with_the_seed(tmp_path: Path) -> None:
    done = round_of(tmp_path, "1000")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "number=1001" in done.stdout
    seed = done.stdout.splitlines()[0].removeprefix("round 1: ")
    assert f"random_examples.py 0 {seed} -n 0" in done.stdout.splitlines()[-1]
