"""`gpuscale metrics-api --triggers` as a process in front of a real Prometheus, without an API server."""

import json
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from gpuscale.testing.prometheus import free_port, serve

pytestmark = pytest.mark.prometheus

GPUSCALE = Path(sys.executable).parent / "gpuscale"
TRIGGERS = """
triggers:
- {namespace: team-a, metricName: jobs, query: sum(jobs_waiting), target: 5}
- {namespace: team-a, metricName: woken, wakeQuery: sum(jobs_waiting), wakeReplicas: 2}
"""


class Server:
    def __init__(self, folder, prometheus_port):
        self.folder = folder
        self.triggers = folder / "triggers.yaml"
        self.triggers.write_text(TRIGGERS)
        self._port = free_port()
        self._command = [
            *(str(GPUSCALE), "metrics-api", f"--triggers={self.triggers}", "--secure-port=0"),
            *(f"--insecure-loopback-port={self._port}", f"--held-file={folder / 'held.json'}"),
            f"--prometheus-url=http://127.0.0.1:{prometheus_port}",
        ]
        self.start()

    def start(self):
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        self.until(lambda: self.get("/livez", text=True) == "ok")

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(20)

    def get(self, path, *, text=False):
        with closing(urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5)) as answer:
            body = answer.read().decode()
        return body if text else json.loads(body)

    def value(self, metric, namespace="team-a"):
        return self.get(self._path(metric, namespace))["items"][0]["value"]

    def why(self, metric):
        return json.dumps(self.get(f"{self._path(metric, 'team-a')}?why=json"))

    def until(self, condition, limit_s=60.0):
        ends_s = time.monotonic() + limit_s
        while time.monotonic() < ends_s:
            try:
                if condition():
                    return
            except (OSError, HTTPError):
                assert self._process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.1)
        pytest.fail((self.folder / "log").read_text()[-3000:])

    def _path(self, metric, namespace):
        return f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{metric}"


def _now(value):
    return [({"__name__": "jobs_waiting"}, round(time.time() * 1000), value)]


def test_triggers_are_served_held_and_read_again(tmp_path):
    port = free_port()
    with serve(_now(12.0), tmp_path, port):
        server = Server(tmp_path, port)
        try:
            server.until(lambda: server.value("jobs") == "12")
            assert server.value("woken") == "2"
            listed = server.get("/apis/external.metrics.k8s.io/v1beta1")["resources"]
            assert [each["name"] for each in listed] == ["jobs", "woken"]
            with pytest.raises(HTTPError, match="404"):
                server.value("jobs", "team-b")
            server.until(lambda: (tmp_path / "held.json").exists())

            server.triggers.write_text(TRIGGERS.replace("target: 5", "targt: 5"))
            server.until(lambda: "write target" in server.get("/readyz?verbose", text=True))
            assert server.value("jobs") == "12"
            server.triggers.write_text(TRIGGERS.replace("jobs,", "other,"))
            server.until(lambda: server.value("other") == "12")
            with pytest.raises(HTTPError, match="404"):
                server.value("jobs")
            server.triggers.write_text(TRIGGERS)
            server.until(lambda: server.value("jobs") == "12")
        finally:
            server.kill()

    server.start()  # while Prometheus is away
    try:
        server.until(lambda: server.value("jobs") == "12")
        assert server.value("woken") == "2"
        assert "the last decision is held" in server.why("jobs")
        metrics = server.get("/metrics", text=True)
        assert 'gpuscale_trigger_count{basis="held"} 2' in metrics
    finally:
        server.kill()


def test_faults_end_the_start_and_are_all_named(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text(TRIGGERS.replace("target: 5", "targt: 5, hold: soon"))
    done = subprocess.run(
        [
            *(str(GPUSCALE), "metrics-api", f"--triggers={path}"),
            *("--secure-port=0", "--insecure-loopback-port=1"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for words in ("t.yaml:3", "write target", "hold", "soon"):
        assert words in done.stderr
