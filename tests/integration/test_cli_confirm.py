"""Commands that write show which cluster they are about to change, and ask."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

VALUES = json.dumps(
    {
        "apiVersion": "gpuscale.dev/v1alpha1",
        "kind": "Values",
        "spec": {
            "provider": "eks",
            "image": {"repository": "registry.example/gpuscale", "tag": "1"},
        },
    }
)


@pytest.fixture
def commands(tmp_path: Path):
    """Return the commands that write, on a cluster that does not answer."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "prod",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    (tmp_path / "values.yaml").write_text(VALUES)
    where = f"--kubeconfig={tmp_path}/kubeconfig"
    return {
        "install": ["install", f"{tmp_path}/values.yaml", where, "--timeout=1s"],
        "uninstall": ["uninstall", where, "--timeout=1s"],
    }


def run(arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "gpuscale.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


@pytest.mark.parametrize("name", ["install", "uninstall"])
def test_without_a_terminal_it_wants_a_yes(commands, name: str) -> None:
    done = run(commands[name], stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"gpuscale: found no terminal to ask at before it may {name} gpuscale; add --yes"
    )


@pytest.mark.parametrize("answer", ["n", "", "no"])
def test_no_is_the_answer_unless_yes_is_said(commands, answer: str) -> None:
    """`install` looks at the cluster before it asks, so that is tested on one."""
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = run(commands["uninstall"], stdin=theirs)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "gpuscale: cluster http://127.0.0.1:9, context prod"
    assert lines[1].startswith("Uninstall gpuscale? [y/N]:")
    assert done.stderr.endswith("gpuscale: nothing was changed\n")
