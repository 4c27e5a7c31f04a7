# mypy: disable-error-code="arg-type, list-item"
"""What publishes: one version everywhere, workflows that GitHub can read, `make image` with what is there."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from gpuscale import __version__
from locks import LOCKS, Lock, fits
from locks import ROOT as LOCKED
from release import board_to_share, differences, digest, is_fine, licences_of, packed, write_entries

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


# Locks


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_gives_what_its_project_asks_for_and_every_file_by_its_hash(lock: Lock) -> None:
    assert fits(lock) == []
    text = lock.path.read_text().replace("\\\n", " ")
    assert [line for line in text.splitlines() if line and "--hash=sha256:" not in line] == []
    assert sum(map(len, lock.pins().values())) == len(text.splitlines())


def test_what_a_lock_does_not_give_is_named(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\ndependencies = ["h11>=0.17", "msgspec>=0.19", "none-such"]\n')
    lock = Lock("agent", (os.path.relpath(project, LOCKED),))
    assert fits(lock) == [
        f"locks/agent.txt: found h11 {lock.pins()['h11'][0]}, expected h11>=0.17; run make locks",
        "locks/agent.txt: found none-such nowhere, expected none-such; run make locks",
    ]


# What a release is made of; `make release-dry-run` makes all of it


def test_files_that_differ_are_named(tmp_path: Path) -> None:
    for name, files in {"a": {"x": "1", "y": "1"}, "b": {"x": "1", "y": "2", "z": "1"}}.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    assert differences(tmp_path / "a", tmp_path / "b") == ["y", "z"]


@pytest.mark.parametrize(
    ("licence", "fine"),
    [
        ("MIT", True),
        ("MIT OR Apache-2.0", True),
        ("(MIT AND Zlib) OR BSD-3-Clause", True),
        ("License :: OSI Approved :: BSD License", True),
        ("MIT AND AGPL-3.0-only", False),
        ("AGPL-3.0-only", False),
        ("none named", False),
    ],
)
def test_a_licence_is_one_that_somebody_has_looked_at(licence: str, fine: bool) -> None:
    assert is_fine(licence) is fine


def test_licences_are_read_from_a_bill_of_materials() -> None:
    """Its forms as CycloneDX 1.6 has them: an expression, an SPDX id, a name, none."""
    given = {
        "a": [{"license": {"name": "License :: Other"}}, {"expression": "MIT OR Apache-2.0"}],
        "b": [{"license": {"id": "ISC"}}],
        "c": [{"license": {"name": "Own words"}}],
        "d": [],
    }
    components = [{"name": n, "version": "1", "licenses": found} for n, found in given.items()]
    assert licences_of({"components": components}) == {
        "a 1": "MIT OR Apache-2.0",
        "b 1": "ISC",
        "c 1": "Own words",
        "d 1": "none named",
    }


def test_an_archive_is_the_same_each_time_and_keeps_links_and_rights(tmp_path: Path) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "run").write_text("#!/bin/sh\necho here\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("run")
    first = packed(tmp_path, 1_700_000_000)
    os.utime(folder / "run", (1, 1))
    assert packed(tmp_path, 1_700_000_000) == first
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        archive.extractall(tmp_path / "out", filter="data")
    run = subprocess.run([tmp_path / "out" / "program" / "link"], capture_output=True, text=True)
    assert run.stdout == "here\n"


def test_the_entries_name_each_machine_s_archive_with_its_digest(tmp_path: Path) -> None:
    """Krew's fields are those of its v1alpha2; kubectl finds the plugin by its file name."""
    machines = [("linux", "amd64"), ("linux", "arm64"), ("darwin", "arm64")]
    names = {each: f"kubectl-gpuscale-{__version__}-{'-'.join(each)}.tar.gz" for each in machines}
    for name in names.values():
        (tmp_path / name).write_text(name)
    write_entries(tmp_path, __version__)
    plugin = yaml.safe_load((tmp_path / "gpuscale.yaml").read_text())
    assert (plugin["kind"], plugin["metadata"]["name"]) == ("Plugin", "gpuscale")
    assert len(plugin["spec"]["shortDescription"]) <= 50
    found = {}
    for each in plugin["spec"]["platforms"]:
        labels = each["selector"]["matchLabels"]
        found[labels["os"], labels["arch"]] = each["uri"].rpartition("/")[2], each["sha256"]
        assert each["bin"] == "kubectl-gpuscale"
    assert found == {each: (name, digest(tmp_path / name)) for each, name in names.items()}
    formula = (tmp_path / "gpuscale.rb").read_text()
    for name in names.values():
        assert f'/{name}"' in formula
        assert f'sha256 "{digest(tmp_path / name)}"' in formula
    assert formula.count(" do\n") + 1 + formula.count("def ") == formula.count("end\n")


def test_a_shared_dashboard_asks_for_what_an_installation_fills_in() -> None:
    for path in sorted((ROOT / "charts" / "gpuscale" / "files" / "dashboards").glob("*.json")):
        board = board_to_share(path.read_text())
        names = {each["name"] for each in board["__inputs"]}
        text = json.dumps({key: value for key, value in board.items() if key != "__inputs"})
        assert set(re.findall(r"\$\{(VAR_\w+)\}", text)) == names
        words = r"(?<!VAR_)\b(AGENT_JOB|API_JOB|GPU_HOUR_PRICE|(?:NAMESPACE|POD|CONTAINER)_LABEL)\b"
        assert re.search(words, text) is None


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
