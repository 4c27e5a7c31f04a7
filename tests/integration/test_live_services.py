"""`gpuscale up` serves its workloads: real requests become GPU work, and scale out."""

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from gpuscale.lab.local.services.server import BODY_BYTES, LIMITS
from live_loop import Loop

pytestmark = pytest.mark.xdist_group("live")
HEY = shutil.which("hey")
IDLE = """
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: idle}
spec:
  duration: 2h
  manifests:
    - file: shipped:ack-bert/deployment.yaml
    - file: shipped:ack-bert/hpa.yaml
  rules: {file: shipped:ack-bert/rules.yaml}
  pipeline: {style: ack}
  nodePools:
    - {name: gpu, gpuModel: Tesla V100-SXM2-16GB, gpus: 1, min: %d, max: 6, provisioningTime: 20s}
  workloads:
    - deployment: bert-intent-detection
      imagePull: 1s
      startup: 1s
      service: {gpuSecondsPerRequest: 0.05, concurrency: 16, queueLimit: %d}
      load: {shape: constant, rate: 0}
"""
"""Nothing comes but what a test sends."""


class Served:
    """A loop, and the service that it serves."""

    def __init__(self, folder: Path, min_nodes: int = 1, queue: int = 10_000, speed: str = "20"):
        scenario = folder / "idle.yaml"
        scenario.write_text(IDLE % (min_nodes, queue))
        self.loop = Loop(folder, str(scenario), "--speed", speed)
        self.url = self.loop.wait(r"service +(http://127\.0\.0\.1:\d+/)", 30)[1]
        self.port = int(self.url.split(":")[2].strip("/"))
        if min_nodes:
            self.until(lambda: self.workload()["ready"] == 1)

    def until(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, self.loop.text()
            time.sleep(0.1)

    def workload(self):
        (workload,) = self.loop.json("/ui/state")["workloads"]
        return workload

    def ask(self, path="predict?query=Music", data=None, **headers):
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def memory_mib(self):
        text = Path(f"/proc/{self.loop.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = Served(tmp_path_factory.mktemp("services"))
    yield running
    running.loop.kill()


def test_an_answer_says_what_it_would_have_taken(served) -> None:
    status, body = served.ask()
    answer = json.loads(body)
    assert status == 200
    assert answer["service"] == "default/bert-intent-detection"
    assert answer["readyPods"] == 1
    assert answer["scenarioSeconds"] >= 0.05


def test_an_answer_takes_that_long(served) -> None:
    """At 20 times the speed, 0.05 s of the scenario are 2.5 ms; never less."""
    started = time.monotonic()
    _, body = served.ask()
    assert time.monotonic() - started >= json.loads(body)["scenarioSeconds"] / 20


def test_any_path_and_method_is_work_and_is_counted(served) -> None:
    before = served.workload()["received"]
    assert served.ask("v1/completions", b"{}")[0] == 200
    assert served.ask("an/image.png", b"x" * 1_000_000)[0] == 200
    assert served.ask("favicon.ico")[0] == 404  # browsers ask for it on their own
    assert served.workload()["received"] == before + 2


def test_the_page_and_the_terminal_name_the_address(served) -> None:
    assert served.loop.json("/ui/state")["addresses"]["services"] == {
        "bert-intent-detection": served.url
    }
    assert f"(bert-intent-detection; try: hey -z 60s -c 8 {served.url})" in served.loop.text()
    assert "what takes 20 s in the scenario is answered within 1 s here" in served.loop.text()


def test_other_sites_pages_and_other_names_are_refused(served) -> None:
    assert served.ask(**{"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert served.ask(Host="evil.example")[0] == 421


def test_bodies_are_bounded(served) -> None:
    before_mib = served.memory_mib()
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {1 << 40}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as client:
        client.sendall(head.encode())
        sent = 0
        with suppress(ConnectionError):
            while True:  # it ends when the server has closed, a second after its answer
                sent += client.send(b"x" * 65_536)
    assert BODY_BYTES < sent < 1 << 40
    assert served.memory_mib() - before_mib < 50
    status, body = served.ask(data=b"x" * (BODY_BYTES + 1))
    assert (status, body) == (413, b"found a body above 16777216 bytes\n")
    assert served.ask(data=b"x" * BODY_BYTES)[0] == 200


def test_idle_slow_and_many_connections_leave_room(served) -> None:
    before_mib = served.memory_mib()
    clients = []
    try:
        for number in range(LIMITS.total + 200):
            client = socket.create_connection(("127.0.0.1", served.port), timeout=30)
            clients.append(client)
            if number % 2:
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        assert served.ask()[0] == 200
        assert served.loop.get("/ui/state")
        # Measured 24 KiB a connection in the metrics API's server; a parser with half a request has more.
        assert served.memory_mib() - before_mib < 200
    finally:
        for client in clients:
            client.close()


def test_clients_that_never_finish_are_closed(served) -> None:
    """A header may take ten seconds, a body thirty; nobody else waits for them."""
    connect = partial(socket.create_connection, ("127.0.0.1", served.port), timeout=90)
    with connect() as half_a_header, connect() as half_a_body:
        half_a_header.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        half_a_body.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf")
        assert served.ask()[0] == 200
        assert half_a_header.recv(1000) == b""
        assert half_a_body.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_thousand_requests_wait_and_are_answered(served) -> None:
    """One on each connection that there may be: 50 s of work for one pod, 2.5 s at this speed."""
    clients = []
    try:
        for _ in range(LIMITS.total - 10):
            client = socket.create_connection(("127.0.0.1", served.port), timeout=90)
            clients.append(client)
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        times = []
        for client in clients:
            head, _, body = client.recv(10_000).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            times.append(json.loads(body or client.recv(1000))["scenarioSeconds"])
    finally:
        for client in clients:
            client.close()
    assert len(times) == LIMITS.total - 10
    assert max(times) > 1


def test_clients_that_leave_are_no_fault(served) -> None:
    """In the middle of a body, and while their request waits."""
    for sent in (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf", b""):
        with socket.create_connection(("127.0.0.1", served.port), timeout=30) as client:
            client.sendall(sent or b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert served.ask()[0] == 200
    assert "Traceback" not in served.loop.text()


def test_what_is_no_http_is_refused(served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as client:
        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 400 ") or client.recv(1000) == b""
    assert served.ask()[0] == 200


@pytest.mark.skipif(HEY is None and not os.environ.get("CI"), reason="needs hey")
def test_hey_makes_it_scale_out_and_its_end_scales_in(served) -> None:
    """Closed loop: 4 clients keep more than one GPU busy, against a target of 20 %."""
    result = subprocess.run(
        [str(HEY), "-z", "15s", "-c", "4", f"{served.url}predict?query=Music"],
        capture_output=True,
        text=True,
        check=True,
    )
    served.loop.wait(r"LoadChanged .* load is now [\d.]+ requests/s\n", 10)
    served.loop.wait(r"SuccessfulRescale .*New size: [2-9]; reason: pods metric", 30)
    counts = dict(re.findall(r"\[(\d+)\]\s+(\d+) responses", result.stdout))
    assert set(counts) == {"200"}, result.stdout
    # One pod works on 20 a second of the scenario, 400 here; twice as many with two, and so on.
    assert int(counts["200"]) > 100
    served.loop.wait(r"ReplicasReady .* after the load rose", 30)
    served.loop.wait(r"LoadChanged .* load is now 0 requests/s\n", 30)
    assert served.workload()["received"] >= int(counts["200"])
    served.loop.wait(r"New size: 1; reason: All metrics below target", 60)


def test_ctrl_c_answers_who_waits_and_ends(served) -> None:
    """Those who wait get an answer, and an idle client's connection does not delay the end."""
    idle = http.client.HTTPConnection("127.0.0.1", served.port, timeout=90)
    idle.request("GET", "/")
    idle.getresponse().read()
    clients = []
    for _ in range(500):  # 25 s of work for one pod, 1.25 s here
        client = http.client.HTTPConnection("127.0.0.1", served.port, timeout=90)
        client.request("GET", "/")
        clients.append(client)
    assert served.loop.stop() == 0
    statuses = {client.getresponse().status for client in clients}
    for client in (idle, *clients):
        client.close()
    assert statuses <= {200, 503}
    assert "Traceback" not in served.loop.text()


def test_a_service_without_a_ready_pod_is_503(tmp_path) -> None:
    none = Served(tmp_path, min_nodes=0, speed="1")
    try:
        status, body = none.ask()
        assert (status, body) == (503, b"no pod is ready\n")
        assert none.workload()["received"] == 1
    finally:
        none.loop.kill()


def test_a_full_queue_is_503(tmp_path) -> None:
    """Three may wait; one takes 50 ms."""
    slow = Served(tmp_path, queue=3, speed="1")
    try:
        clients = []
        for _ in range(12):
            client = http.client.HTTPConnection("127.0.0.1", slow.port, timeout=60)
            client.request("GET", "/")
            clients.append(client)
        statuses = []
        for client in clients:
            response = client.getresponse()
            statuses.append(response.status)
            response.read()
            client.close()
        assert set(statuses) == {200, 503}
        assert statuses.count(200) >= 3
    finally:
        slow.loop.kill()


def test_a_request_may_wait_longer_than_a_header_may_take(tmp_path) -> None:
    """240 x 0.05 s are 12 s for one pod, in real time."""
    real = Served(tmp_path, speed="1")
    clients = []
    try:
        for _ in range(240):
            clients.append(http.client.HTTPConnection("127.0.0.1", real.port, timeout=90))
            clients[-1].request("GET", "/")
        answers = [json.loads(client.getresponse().read()) for client in clients]
    finally:
        for client in clients:
            client.close()
        real.loop.kill()
    assert max(answer["scenarioSeconds"] for answer in answers) > LIMITS.header_s
