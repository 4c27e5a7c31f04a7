"""The examples run in a plain installation, print what they say, and pass type checkers as users run them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import pages

pytestmark = pytest.mark.timeout(900)  # of the installation, most of it
EXAMPLES = sorted((pages.ROOT / "examples").glob("*.py"))
TOOLS = Path(sys.executable).parent


@pytest.fixture
def project(tmp_path: Path):
    """Return a folder with the examples alone, as in a user's project: none of our settings apply."""
    for example in EXAMPLES:
        shutil.copy(example, tmp_path)
    return tmp_path


def run(command, folder):
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def promised(example):
    """Return the lines that the docstring says are printed."""
    (block,) = re.findall(r"^Prints:\n\n((?:    .*\n)+)", example.read_text(), re.MULTILINE)
    return [line.removeprefix("    ") for line in block.splitlines()]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_prints_what_it_says(example, project, plain_venv) -> None:
    done = run([plain_venv / "bin" / "python", example.name], project)
    assert done.returncode == 0, done.stderr
    assert pages.matches(promised(example), done.stdout.splitlines()), done.stdout


def test_what_needs_more_packages_says_which(project, plain_venv) -> None:
    python = plain_venv / "bin" / "python"
    done = run([python, "-c", "import gpuscale; gpuscale.tune('ack-bert')"], project)
    assert done.stderr.splitlines()[-1].endswith(
        "found no Python package numpy; install it with: pip install 'gpuscale[plan]'"
    )


def test_mypy_has_nothing_to_say(project, plain_venv) -> None:
    python = plain_venv / "bin" / "python"
    names = [example.name for example in EXAMPLES]
    done = run([TOOLS / "mypy", "--strict", "--python-executable", python, *names], project)
    assert done.returncode == 0, done.stdout


def test_pyright_has_nothing_to_say(project, plain_venv) -> None:
    settings = {"typeCheckingMode": "strict", "include": ["*.py"]}
    (project / "pyrightconfig.json").write_text(json.dumps(settings))
    python = plain_venv / "bin" / "python"
    done = run([TOOLS / "basedpyright", "--pythonpath", python], project)
    assert done.returncode == 0, done.stdout
