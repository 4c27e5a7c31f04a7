"""tools/suite.py on small suites of its own: what passes by itself passes, and what fails again fails."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "suite.py"
TESTS = """
from pathlib import Path
import pytest

def times(name):
    file = Path(name)
    count = int(file.read_text()) + 1 if file.exists() else 1
    file.write_text(str(count))
    return count

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("who", ["a@b"])
def test_passes_by_itself(who):
    assert times("first") == 2

@pytest.mark.xdist_group("one")
def test_good():
    times("good")
"""
ALWAYS_FAILS = """
def test_fails():
    assert times("always") == 0
"""


def suite(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = none\n")
    return subprocess.run(
        [sys.executable, TOOL, "-n", "2", "--dist", "loadgroup", "-m", "not none", *more],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_what_passes_by_itself_passes_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    done = suite(tmp_path)
    assert done.returncode == 0, done.stdout
    named = "failed beside others, and passed by itself: test_it.py::test_passes_by_itself[a@b]"
    assert done.stdout.splitlines()[-1] == named
    assert (tmp_path / "good").read_text() == "1"


def test_a_report_is_that_of_all_tests(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    suite(tmp_path, "--junitxml=all.xml")
    assert (tmp_path / "all.xml").read_text().count("<testcase ") == 2


def test_what_fails_again_fails(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS + ALWAYS_FAILS)
    done = suite(tmp_path)
    assert done.returncode == 1, done.stdout
    assert (tmp_path / "always").read_text() == "2"
    assert done.stdout.splitlines()[-1].endswith("test_it.py::test_passes_by_itself[a@b]")


def test_failures_in_many_modules_are_no_bad_luck(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"test_{number}.py").write_text(TESTS.replace("first", f"first{number}"))
    done = suite(tmp_path)
    assert done.returncode == 1, done.stdout
    assert [(tmp_path / f"first{number}").read_text() for number in range(5)] == ["1"] * 5


@pytest.mark.parametrize("text", ["import nothing_of_this_name\n", "def broken(:\n"])
def test_what_can_not_be_collected_fails(tmp_path: Path, text: str) -> None:
    (tmp_path / "test_it.py").write_text(text)
    assert suite(tmp_path).returncode not in (0, 5)


def test_a_suite_that_passes_runs_once(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "first").write_text("1")
    done = suite(tmp_path)
    assert (done.returncode, (tmp_path / "good").read_text()) == (0, "1"), done.stdout
