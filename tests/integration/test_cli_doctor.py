"""`gpuscale doctor` as users run it, without a cluster: what it refuses, and that it says why."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale_testing.addresses import free_ports


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "gpuscale.cli.main", "doctor", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def kubeconfig(tmp_path: Path):
    (port,) = free_ports(1)
    server = {"server": f"http://127.0.0.1:{port}"}
    path = tmp_path / "kubeconfig.json"
    config = {
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--yes"], "--yes: expected --fix beside it"),
        (["--fix"], "--fix: expected a terminal to ask at, or --yes"),
        (["--fix", "--output=json"], "--fix: expected --yes beside --output json"),
        (["--prometheus-url=p:9090"], "--prometheus-url: found 'p:9090', expected http://"),
        (["--agent=gpu-1"], "--agent: found 'gpu-1', expected a node and its agent's address"),
        (["--agent-ca-file=ca.crt"], "--agent-ca-file: expected --agent beside it"),
        (["--agent-server-name=a"], "--agent-server-name: expected --agent beside it"),
        (
            ["--agent=gpu-1=https://a:9400", "--agent-username=ann"],
            "--agent-username, --agent-password-file: expected both or none",
        ),
        (
            ["--agent=gpu-1=https://a:9400", "--agent-ca-file=gone.crt"],
            "gone.crt: can't be used to reach node agents: ",
        ),
        (["--pulse-wait"], "--pulse-url, --pulse-wait, --pulse-hpa: expected --pulse beside them"),
        (["--pulse"], "--pulse: expected either --pulse-url or --pulse-wait beside it"),
        (["--pulse", "--pulse-wait", "--pulse-url=http://a"], "--pulse: expected either"),
        (["--pulse", "--pulse-wait", "--fix", "--yes"], "--pulse: expected no --fix beside it"),
        (["--pulse", "--pulse-url=web"], "--pulse-url: found 'web', expected http://"),
        (["--pulse", "--pulse-wait", "--pulse-hpa=web"], "--pulse-hpa: found 'web', expected NAME"),
    ],
)
def test_what_can_not_be_is_refused(kubeconfig, arguments: list[str], told: str) -> None:
    done = run(f"--kubeconfig={kubeconfig}", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"gpuscale: {told}")


def test_a_cluster_that_does_not_answer_is_no_healthy_one(kubeconfig) -> None:
    done = run(f"--kubeconfig={kubeconfig}")
    assert done.returncode == 2
    assert done.stderr.startswith("gpuscale: the API server at http://127.0.0.1:")


def test_a_kubeconfig_is_found_as_kubectl_finds_it(
    kubeconfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    done = run()
    assert done.returncode == 2
    assert done.stderr == (
        "gpuscale: found no kubeconfig: $KUBECONFIG is not set, and "
        f"{tmp_path}/home/.kube/config does not exist; name one with --kubeconfig FILE, "
        "or set $KUBECONFIG as for kubectl\n"
    )
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none:{kubeconfig}")
    assert run().stderr.startswith("gpuscale: the API server at http://127.0.0.1:")
    (tmp_path / "home/.kube").mkdir(parents=True)
    (tmp_path / "home/.kube/config").write_text(kubeconfig.read_text())
    monkeypatch.delenv("KUBECONFIG")
    assert run().stderr.startswith("gpuscale: the API server at http://127.0.0.1:")
