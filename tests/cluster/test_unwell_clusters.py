# mypy: disable-error-code="misc"
"""Clusters that are down, half up, or let nobody in: what the commands say, to the letter, and how soon."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

GPUSCALE = Path(sys.executable).with_name("gpuscale")
VALUES = """apiVersion: gpuscale.dev/v1alpha1
kind: Values
spec:
  provider: generic
  image: {repository: registry.example/gpuscale, tag: "1"}
"""
LIMIT_S = 100
"""Far below what a command would take that waits for each of its questions."""


@pytest.fixture
def said(plane, tmp_path: Path):
    """Return what each command says with a kubeconfig: exit code, and its last line."""
    (tmp_path / "values.yaml").write_text(VALUES)
    commands = {
        "doctor": ["doctor"],
        "decide": ["decide", "hpa"],
        "install": ["install", tmp_path / "values.yaml", "--yes"],
        "uninstall": ["uninstall", "--yes"],
        "rehearse": ["rehearse", "ack-bert", "--for=1s"],
    }

    def said(kubeconfig):
        answers = {}
        for name, words in commands.items():
            done = subprocess.run(
                [GPUSCALE, *words, f"--kubeconfig={kubeconfig}"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_S,
            )
            server = f"the API server at {plane.url}"
            line = done.stderr.splitlines()[-1].replace(server, "SERVER")
            answers[name] = (done.returncode, line.removeprefix("gpuscale: "))
        return answers

    return said


def as_user(plane, folder, user, **cluster):
    """Return a kubeconfig of the administrator's with another user."""
    config = yaml.safe_load(plane.admin.read_text())
    if user is not None:
        config["users"][0]["user"] = user
    config["clusters"][0]["cluster"] |= cluster
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def all_say(line, *, asked=2, done=1):
    """Return the answers when every command says the same; doctor's and decide's question was not asked."""
    questions = dict.fromkeys(("doctor", "decide"), (asked, line))
    return questions | dict.fromkeys(("install", "uninstall", "rehearse"), (done, line))


def test_an_expired_login(plane, said, tmp_path: Path) -> None:
    line = (
        "SERVER does not accept the credentials of context admin (401: Unauthorized); "
        "they may have expired: log in again, as for kubectl"
    )
    assert said(as_user(plane, tmp_path, {"token": "expired"})) == all_say(line)


def test_no_login_at_all(plane, said, tmp_path: Path) -> None:
    end = "; no credentials were sent, since the kubeconfig's context has none"
    answers = said(as_user(plane, tmp_path, {}))
    assert all(line.endswith(end) for _, line in answers.values())
    assert [code for code, _ in answers.values()] == [2, 2, 1, 1, 1]


def test_a_login_program_that_fails(plane, said, tmp_path: Path) -> None:
    program = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", "echo 'the session has ended' >&2; exit 1"],
        "interactiveMode": "Never",
    }
    line = (
        "the kubeconfig's program sh ended with exit code 1: the session has ended; "
        "log in again, as for kubectl"
    )
    assert said(as_user(plane, tmp_path, {"exec": program})) == all_say(line, done=2)


def test_a_login_program_that_works(plane, said, tmp_path: Path) -> None:
    """The same way in as a cloud's: a token of the API server's own, from a program."""
    token = plane.kubectl("create", "token", "default", "-n", "default")
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token.strip()},
    }
    program = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "echo",
        "args": [json.dumps(answer)],
        "interactiveMode": "IfAvailable",
    }
    _, line = said(as_user(plane, tmp_path, {"exec": program}))["doctor"]
    assert 'User "system:serviceaccount:default:default" cannot list resource "nodes"' in line


def test_a_user_who_may_nothing(plane, said) -> None:
    forbidden = 'is forbidden: User "nobody" cannot {} at the cluster scope'
    answers = said(plane.kubeconfig("nobody"))
    assert [code for code, _ in answers.values()] == [2, 2, 2, 1, 1]
    assert answers["doctor"][1] == (
        "SERVER answered /api/v1/nodes with 403: nodes "
        + forbidden.format('list resource "nodes" in API group ""')
        + "; nor may it see anything else: give it the role in docs/doctor.md"
    )
    assert answers.pop("install")[1].startswith("The least role: gpuscale render ")
    assert all('User "nobody" cannot' in line for _, line in answers.values())


def test_another_clusters_certificate(plane, said, tmp_path: Path) -> None:
    """The public CAs of this machine did not sign it."""
    config = yaml.safe_load(plane.admin.read_text())
    cluster = config["clusters"][0]["cluster"]
    for key in ("certificate-authority", "certificate-authority-data"):
        cluster.pop(key, None)
    path = tmp_path / "no-ca"
    path.write_text(json.dumps(config))
    line = (
        "SERVER can't be reached: its certificate is not trusted: unable to get local issuer certificate; "
        "the kubeconfig's certificate-authority-data is another cluster's, or a proxy is in between"
    )
    assert said(path) == all_say(line)


def test_a_cluster_that_is_half_up(plane, said) -> None:
    """Its API server answers discovery without etcd, and hangs on the rest."""
    plane.kill("etcd")
    try:
        line = "SERVER is not ready to serve: etcd, etcd-readiness"
        assert said(plane.admin) == all_say(line)
    finally:
        plane.restart("etcd")
        plane.restart("kube-apiserver")


def test_a_cluster_that_hangs(plane, said) -> None:
    supervisor = next(pid for pid in plane.pids if "kube-apiserver" in command_line(pid))
    (program,) = children(supervisor)
    os.kill(program, signal.SIGSTOP)
    try:
        assert said(plane.admin) == all_say("SERVER gave no answer within 10 s")
    finally:
        os.kill(program, signal.SIGCONT)


def test_a_cluster_that_is_down(plane, said) -> None:
    plane.kill("kube-apiserver")
    try:
        line = "SERVER can't be reached: connection refused; nothing listens there"
        assert said(plane.admin) == all_say(line)
    finally:
        plane.restart("kube-apiserver")


def command_line(pid):
    return Path(f"/proc/{pid}/cmdline").read_text()


def children(pid):
    return map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
