"""What clients do to the node agent's log: nothing.

The agent is the real process; each fault is made by many connections.
"""

import re
import resource
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

FEW_FILES = 256
CONNECTIONS = 400


@pytest.fixture
def agent(tmp_path):
    """Start an agent that may open few files; return its port and its log."""
    log = tmp_path / "agent.log"
    command = [sys.executable, "-m", "gpuscale.cli.main", "exporter"]
    command += ["--gpu=simulated:NVIDIA H200:1", "--address=127.0.0.1:0"]
    with log.open("wb") as out:
        running = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, FEW_FILES)),
        )
    try:
        yield port_of(log), log
    finally:
        running.terminate()
        running.wait(30)


def port_of(log) -> int:
    for _ in range(240):
        if found := re.search(r"listening on port (\d+)", log.read_text()):
            return int(found[1])
        time.sleep(0.25)
    raise AssertionError(log.read_text())


def health(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as answer:
        body: bytes = answer.read()
    return body


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", id="a request, and gone"),
        pytest.param(b"GET /metrics HTTP/1.1\r\nHo", id="part of a request"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01", id="garbage"),
    ],
)
def test_clients_that_break_off_write_no_line(agent, said: bytes) -> None:
    port, log = agent
    health(port)
    before = log.read_text()
    for _ in range(CONNECTIONS):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(said)
    assert health(port) == b"OK"
    assert log.read_text() == before


def test_more_connections_than_files_write_no_line(agent) -> None:
    port, log = agent
    health(port)
    before = log.read_text()
    clients = []
    try:
        for _ in range(CONNECTIONS):
            client = socket.create_connection(("127.0.0.1", port), timeout=30)
            clients.append(client)
    finally:
        for client in clients:
            client.close()
    assert health(port) == b"OK"
    assert log.read_text() == before
