# mypy: disable-error-code="arg-type"
"""The first seconds of `make run`: what it says of a Python that won't do, and of what it downloads."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXPECTED = "expected Python 3.11 or newer: install it, or set PYTHON=/path/to/python3.11\n"


def make(tmp_path, python):
    return subprocess.run(
        ["make", "--silent", f"VENV={tmp_path}/venv", f"PYTHON={python}", f"{tmp_path}/venv/.run"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )


def program(folder, text):
    path = folder / "python of mine"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("python", ["/bad", "/tmp", "/bin/ls", ""])
def test_what_is_no_python_is_named(tmp_path: Path, python: str) -> None:
    made = make(tmp_path, python)
    assert made.returncode == 2
    assert made.stderr.startswith(f"found no Python in '{python}', {EXPECTED}")
    assert not (tmp_path / "venv").exists()


def test_an_old_python_is_named_with_its_version(tmp_path: Path) -> None:
    python = program(tmp_path, "echo Python 3.10.13; exit 1")
    made = make(tmp_path, python)
    assert made.returncode == 2
    assert made.stderr.startswith(f"found Python 3.10.13 in '{python}', {EXPECTED}")


def test_a_python_that_can_make_no_environment_says_what_to_install(tmp_path: Path) -> None:
    # As Debian's python3 is without python3-venv.
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['ensurepip'] = None\n")
    python = program(tmp_path, f'PYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"')
    made = make(tmp_path, python)
    assert made.returncode == 2
    assert "can't make virtual environments: it has no module ensurepip.\n" in made.stderr
    assert "apt install python3-venv" in made.stderr
    assert not (tmp_path / "venv").exists()


PIP = """\
Obtaining file:///home/me/gpuscale
  Installing build dependencies: started
Collecting aiohttp>=3.11 (from gpuscale==0.1.0)
  Downloading aiohttp-3.14.5-cp311-cp311-manylinux_2_17_x86_64.whl.metadata (8.1 kB)
  Downloading aiohttp-3.14.5-cp311-cp311-manylinux_2_17_x86_64.whl (1.9 MB)
Collecting bcrypt>=4.2 (from gpuscale==0.1.0)
  Using cached bcrypt-5.0.0-cp39-abi3-manylinux_2_34_x86_64.whl (278 kB)
WARNING: Retrying (Retry(total=4)) after connection broken by 'ReadTimeoutError'
Installing collected packages: bcrypt, aiohttp
Successfully installed aiohttp-3.14.5 bcrypt-5.0.0
"""


def test_each_file_is_shown_with_its_size_and_all_are_added_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = importlib.util.spec_from_file_location("environment", ROOT / "tools/environment.py")
    environment = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(environment)
    environment._follow(PIP.splitlines(keepends=True))
    # 1.9 MB and 278 kB; the 8 kB of metadata are no package.
    assert capsys.readouterr().out == (
        "  downloading aiohttp 3.14.5 (1.9 MB)\n"
        "  using cached bcrypt 5.0.0 (278 kB)\n"
        "WARNING: Retrying (Retry(total=4)) after connection broken by 'ReadTimeoutError'\n"
        "  unpacking\n"
        "fetched 2 packages, 2.2 MB\n"
    )
