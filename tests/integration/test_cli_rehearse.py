"""`gpuscale rehearse` before it goes anywhere near a cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "gpuscale.cli.main", "rehearse"]


def kubeconfig(folder, server):
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "ctx", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "ctx",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def run(*arguments, **environment):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env={**os.environ, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_kubeconfig_that_was_not_named_is_not_used(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "https://127.0.0.1:1")
    done = run("ack-bert", KUBECONFIG=str(path))
    assert done.returncode == 2
    assert "leads to https://127.0.0.1:1; name the context with --context" in done.stderr


@pytest.mark.parametrize("arguments", [("ack-bert",), ("--clean",)], ids=["run", "clean"])
def test_a_cluster_elsewhere_is_refused_until_it_is_named(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    path = kubeconfig(tmp_path, "https://192.0.2.1:6443")
    done = run("--kubeconfig", path, *arguments)
    assert done.returncode == 2
    assert "leads to https://192.0.2.1:6443, which is not this machine" in done.stderr


def test_a_cluster_elsewhere_needs_an_address_of_this_machine(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "https://192.0.2.1:6443")
    done = run("--kubeconfig", path, "--context", "ctx", "ack-bert")
    assert done.returncode == 2
    assert "--advertise-address" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "name a file or one of: ack-bert"),
        (("nothing",), "found no scenario 'nothing'"),
        (
            ("ack-bert", "--output=xml"),
            "--output / -o: found 'xml', expected one of: text, json, yaml",
        ),
        (("ack-bert", "--namespace=A"), "--namespace: found 'A'"),
        (("ack-bert", "--for=long"), "found 'long', expected a duration"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_reported(
    tmp_path: Path, arguments, expected: str
) -> None:
    path = kubeconfig(tmp_path, "https://127.0.0.1:1")
    done = run("--kubeconfig", path, *arguments)
    assert (done.returncode, expected in done.stderr) == (2, True), done.stderr


def test_an_api_server_that_is_away_is_an_error_and_nothing_more(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "https://127.0.0.1:1")
    done = run("--kubeconfig", path, "ack-bert")
    assert done.returncode == 1
    assert "can't be reached" in done.stderr


def test_the_help_has_an_example() -> None:
    assert "gpuscale rehearse ack-bert --kubeconfig cluster.yaml" in run("--help").stdout
