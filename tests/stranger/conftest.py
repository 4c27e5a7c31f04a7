"""A plain installation of the project, as a stranger has it: made once for all workers of a test run."""

import fcntl
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "src")
PARTS_FROM = ("packages/gpuscale-agent", "packages/gpuscale-server", "src", "tools")
PASSED_ON = ("PIP_", "SSL_CERT_", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
PIP_SETTINGS = Path.home() / ".config" / "pip" / "pip.conf"
"""Where this machine's package index may be named; pip alone gets it."""


@pytest.fixture(scope="session")
def plain_venv(tmp_path_factory: pytest.TempPathFactory):
    """Return the folder of a virtual environment with the project from `pip install .`, no extras."""
    return _made_once(tmp_path_factory, "plain", _install)


@pytest.fixture(scope="session")
def agent_venv(tmp_path_factory: pytest.TempPathFactory):
    """Return the folder of a virtual environment with the node agent's own wheel."""
    install = partial(_install, built_from=PARTS_FROM, source="./packages/gpuscale-agent")
    return _made_once(tmp_path_factory, "agent", install)


@pytest.fixture(scope="session")
def server_venv(tmp_path_factory: pytest.TempPathFactory):
    """Return the folder of a virtual environment with the servers' own wheel."""
    install = partial(_install, built_from=PARTS_FROM, source="./packages/gpuscale-server")
    return _made_once(tmp_path_factory, "server", install)


@pytest.fixture(scope="session")
def sample_venv(tmp_path_factory: pytest.TempPathFactory):
    """Return the folder of a virtual environment with what the sample services need without a GPU."""
    return _made_once(tmp_path_factory, "samples", _install_requirements)


def _made_once(tmp_path_factory, name, install):
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    venv = folder / name / ".venv"
    venv.parent.mkdir(exist_ok=True)
    with (venv.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (venv.parent / "done").exists():
            install(venv)
            (venv.parent / "done").touch()
    return venv


def _install_requirements(venv) -> None:
    files = sorted((ROOT / "examples" / "services").glob("*/requirements.txt"))
    wanted = [argument for file in files for argument in ("-r", str(file))]
    environment = environment_of(venv)
    _run([sys.executable, "-m", "venv", str(venv)], ROOT, environment)
    _run([str(venv / "bin" / "pip"), "install", "--quiet", *wanted], ROOT, environment)


@pytest.fixture(scope="session")
def shell_of():
    """Return the function that makes the environment of a stranger's shell, for what is in a virtual one."""
    return environment_of


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory):
    """Return a folder with what `pip install .` builds from, and what other tools find in the repository."""
    folder = tmp_path_factory.mktemp("published")
    _copy((*BUILT_FROM, ".pre-commit-hooks.yaml", "action.yml"), folder)
    return folder


def _install(venv, built_from=BUILT_FROM, source=".") -> None:
    checkout = venv.parent / "checkout"
    _copy(built_from, checkout)
    environment = environment_of(venv)
    _run([sys.executable, "-m", "venv", str(venv)], checkout, environment)
    _run([str(venv / "bin" / "pip"), "install", "--quiet", source], checkout, environment)


def _copy(names, folder) -> None:
    for name in names:
        original, target = ROOT / name, folder / name
        if original.is_dir():
            shutil.copytree(
                original, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
            )
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(original, target)


def environment_of(venv):
    """What a stranger's shell has, and where this machine's packages come from."""
    home = venv.parent / "home"
    home.mkdir(exist_ok=True)
    passed = {name: text for name, text in os.environ.items() if name.upper().startswith(PASSED_ON)}
    settings = {"PIP_CONFIG_FILE": str(PIP_SETTINGS)} if PIP_SETTINGS.exists() else {}
    return {
        **settings,
        "PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip"),
        **passed,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
    }


def _run(command, folder, environment) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
