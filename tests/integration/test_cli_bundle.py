"""`gpuscale bundle` on the API server of `gpuscale up`, as users run it."""

import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from live_loop import Loop

GPUSCALE = Path(sys.executable).parent / "gpuscale"
VALUES = """apiVersion: gpuscale.dev/v1alpha1
kind: Values
spec:
  provider: eks
  prometheus: {url: "http://admin:planted-1@prometheus:9090", password: planted-2}
"""


def bundle(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [GPUSCALE, "bundle", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    running = Loop(tmp_path_factory.mktemp("loop"), "ack-bert", "--speed", "60")
    try:
        running.wait("SuccessfulRescale", 60)
        yield running
    finally:
        running.kill()


def test_a_cluster_and_its_metrics_in_one_file(loop: Loop, tmp_path: Path) -> None:
    kubeconfig = loop.wait(r"KUBECONFIG=(\S+)", 1)[1]
    (tmp_path / "values.yaml").write_text(VALUES)
    done = bundle(
        *(f"--kubeconfig={kubeconfig}", f"--prometheus-url={loop.url}"),
        *("--values=values.yaml", "--output-file=case.tar.gz"),
        folder=tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "wrote case.tar.gz\n"), done.stderr
    with tarfile.open(tmp_path / "case.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    files = {
        str(path.relative_to(tmp_path / "case")): path.read_text()
        for path in (tmp_path / "case").rglob("*.*")
    }
    (hpa,) = json.loads(files["objects/hpas.json"])
    assert hpa["metadata"]["name"] == "gpu-hpa"
    assert json.loads(files["metrics/utilization.json"])["result"]
    assert "findings" in json.loads(files["findings.json"])
    values = files["values.yaml"]
    assert "planted" not in values
    assert "provider: eks" in values
    for name in files.keys() - {"index.md"}:
        assert f"| {name} |" in files["index.md"]
    # this API server has no ConfigMaps, which is named and ends nothing
    assert "| objects/configmaps.json |" in files["index.md"].partition("## Left out")[2]
    again = subprocess.run(
        [GPUSCALE, "decide", "case/decisions/default-gpu-hpa.json", "-o", "json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (said,) = json.loads(files["decisions.json"])
    answered = json.loads(again.stdout)
    assert answered["desiredReplicas"] == said["desiredReplicas"]


def test_without_the_cluster_it_says_so_and_has_the_rest(tmp_path: Path) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": "planted-token"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    done = bundle("--kubeconfig=kubeconfig", "--output-file=b.zip", folder=tmp_path)
    assert done.returncode == 1
    assert "not in it: cluster: the API server at http://127.0.0.1:9" in done.stderr
    with zipfile.ZipFile(tmp_path / "b.zip") as packed:
        assert packed.namelist() == ["b/versions.json", "b/index.md"]
        assert b"planted" not in b"".join(map(packed.read, packed.namelist()))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--output-file=b.rar"],
            "--output-file: found 'b.rar', expected one that ends in .tar.gz",
        ),
        (["--output-file=gone/b.zip"], "--output-file gone/b.zip: found no folder gone"),
        (["--prometheus-url=p"], "--prometheus-url: found 'p', expected http://"),
        (["--kubeconfig=gone.yaml"], "gone.yaml"),
    ],
)
def test_what_it_refuses(tmp_path: Path, arguments: list[str], told: str) -> None:
    done = bundle(*arguments, folder=tmp_path)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    assert list(tmp_path.iterdir()) == []
