# mypy: disable-error-code="arg-type, list-item"
"""What publishes: one version everywhere, workflows that GitHub can read, `make image` with what is there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpuscale import __version__

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
PINNED = re.compile(r"[\w.-]+/[\w.-]+(/[\w.-]+)*@v\d+\.\d+\.\d+")
OWN = "./.github/workflows/ci.yaml"


def test_package_chart_and_tag_have_one_version() -> None:
    command = [sys.executable, ROOT / "tools" / "release_version.py"]

    def run(*tags):
        done = subprocess.run([*command, *tags], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    assert run() == run(f"v{__version__}") == (0, f"{__version__}\n", "")
    for tag in (__version__, "v99.0.0"):
        wanted = f"tag: found {tag}, expected v{__version__}\n"
        assert run(tag) == (1, "", wanted)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_pins_its_actions_and_has_no_right_it_does_not_name(path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert "permissions" in workflow
    assert workflow["permissions"] in ({}, {"contents": "read"})
    assert "concurrency" in workflow
    jobs = workflow["jobs"].values()
    steps = [step for job in jobs for step in job.get("steps", ())]
    used = [each["uses"] for each in (*jobs, *steps) if "uses" in each]
    assert used
    assert [each for each in used if each != OWN and not PINNED.fullmatch(each)] == []
    # What a user of the repository may name, such as a branch, is data to a script and never a part of it.
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []
    for step in steps:
        if "run" in step:
            script = step["run"]
            done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
            assert (done.returncode, done.stderr) == (0, "")


def test_only_a_tag_publishes() -> None:
    (path,) = [path for path in WORKFLOWS if path.name == "release.yaml"]
    jobs = yaml.safe_load(path.read_text())["jobs"]
    publishing = {
        name
        for name, job in jobs.items()
        if "environment" in job or "write" in job["permissions"].values()
    }
    assert publishing == {"registry", "pypi", "release"}
    assert {jobs[name]["if"] for name in publishing} == {"github.ref_type == 'tag'"}


# make image


@pytest.fixture
def make(tmp_path: Path):
    """Run `make image` where these programs are installed; each notes how it was called."""

    def run(*arguments, programs=()):
        folder = tmp_path / "bin"
        folder.mkdir()
        for name in ("sed", "sh"):
            (folder / name).symlink_to(shutil.which(name))
        for name in programs:
            program = folder / name
            program.write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/calls\n')
            program.chmod(0o755)
        command = [shutil.which("make"), "--no-print-directory", "image", *arguments]
        environment = {"PATH": str(folder), "HOME": os.environ.get("HOME", "/")}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        calls = tmp_path / "calls"
        called = calls.read_text().splitlines() if calls.exists() else []
        return done.returncode, done.stdout.splitlines(), called

    return run


def test_an_image_is_built_by_whichever_program_is_there(make) -> None:
    code, said, called = make(programs=("docker", "podman"))
    assert (code, called) == (0, [f"docker build --tag gpuscale:{__version__} ."])
    assert said[-1] == f"next: gpuscale init --image gpuscale:{__version__} --image-present"
    assert f"kind load docker-image gpuscale:{__version__}" in said[-2]


def test_podman_and_buildah_name_what_is_in_no_registry_after_this_machine(make) -> None:
    code, said, called = make("IMAGE=gpuscale:7", programs=("podman", "buildah"))
    assert (code, called) == (0, ["podman build --tag gpuscale:7 ."])
    assert said[-1] == "next: gpuscale init --image localhost/gpuscale:7 --image-present"


def test_an_image_for_a_registry_is_pushed_if_that_is_asked_for(make) -> None:
    image = "registry.example:5000/team/gpuscale:7"
    flags = (f"IMAGE={image}", "PUSH=1", "PLATFORM=linux/arm64")
    code, said, called = make(*flags, programs=("docker", "podman"))
    assert (code, called) == (
        0,
        [f"docker build --platform linux/arm64 --tag {image} .", f"docker push {image}"],
    )
    assert said[-1] == f"next: gpuscale init --image {image}"


@pytest.mark.parametrize("image", ["gpuscale:7", "localhost/gpuscale:7"])
def test_what_names_no_registry_is_not_pushed(make, image: str) -> None:
    code, said, called = make(f"IMAGE={image}", "PUSH=1", programs=("docker",))
    assert (code, called) == (2, [])
    assert said[0].startswith(f"{image} names no registry to push to: make image IMAGE=REGISTRY/")


def test_without_a_program_that_builds_images_that_is_said(make) -> None:
    code, said, _ = make()
    assert (code, said[0]) == (
        2,
        "building an image takes docker, podman or buildah; none of them is installed",
    )
