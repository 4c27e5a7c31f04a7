"""`gpuscale shadow` as users run it: beside the HPA of a live loop."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from live_loop import Loop

GPUSCALE = Path(sys.executable).parent / "gpuscale"


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    running = Loop(tmp_path, "ack-bert", "--speed", "20")
    try:
        yield running
    finally:
        running.kill()


def test_beside_a_live_hpa(loop: Loop, tmp_path: Path) -> None:
    environment = {**os.environ, "KUBECONFIG": loop.wait(r"KUBECONFIG=(\S+)", 10)[1]}
    (listed,) = loop.json("/apis/autoscaling/v2/horizontalpodautoscalers")["items"]
    name, spec = f"hpa/{listed['metadata']['name']}", listed["spec"]
    least = spec["maxReplicas"] + 2

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(GPUSCALE), "shadow", name, "--every=0.5", *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=90, check=False, env=environment
        )

    done = run(f"--set=min={least},max={least}", "--for=2s", "--output=json", "--gpu-price=*=2")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["shadow"]["replicas"] == least
    first = document["steps"][0]
    assert first["shadow"]["to"] == least
    assert any("minReplicas" in each for each in first["shadow"]["why"])
    assert document["shadow"]["podHours"] * document["gpusPerPod"] == document["shadow"]["gpuHours"]
    assert document["shadow"]["money"] == 2 * document["shadow"]["gpuHours"]
    # It changed nothing.
    (after,) = loop.json("/apis/autoscaling/v2/horizontalpodautoscalers")["items"]
    assert after["spec"] == spec
    assert document["real"]["replicas"] <= spec["maxReplicas"]

    file = tmp_path / "other.yaml"
    other = {**spec, "scaleTargetRef": {**spec["scaleTargetRef"], "name": "else"}}
    kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    body = {**kind, "metadata": {"name": "x"}}
    file.write_text(json.dumps({**body, "spec": other}))
    refused = run(str(file))
    assert refused.returncode == 2
    assert "the HPA in the file scales Deployment/else" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1

    file.write_text(json.dumps({**body, "spec": {**spec, "maxReplicas": "x"}}))
    refused = run(str(file))
    assert refused.returncode == 2
    assert "other.yaml" in refused.stderr
    assert "spec.maxReplicas: found 'x'" in refused.stderr

    amount = {"type": "AverageValue", "averageValue": "1"}
    queue = {"type": "External", "external": {"metric": {"name": "queue"}, "target": amount}}
    zero = {**spec, "minReplicas": 0, "metrics": [queue]}
    file.write_text(json.dumps({**body, "spec": zero}))
    refused = run(str(file))
    assert refused.returncode == 2
    assert "this cluster's HPAs don't go to zero" in refused.stderr

    out = tmp_path / "out"
    with out.open("w") as written:
        running = subprocess.Popen(
            [str(GPUSCALE), "shadow", name, f"--set=min={least},max={least}"],
            stdout=written,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    while "Ctrl-C" not in out.read_text():
        assert running.poll() is None, out.read_text()
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 0
    assert "REAL  SHADOW" in out.read_text()
