"""Connections to the page and the APIs of `gpuscale up`: idle, slow and flooding ones leave room."""

import re
import socket
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from gpuscale.server.page.front import LIMITS
from live_loop import Loop

pytestmark = pytest.mark.xdist_group("live")
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
SLOW_POST = b"POST /ui/load HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf"


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    running = Loop(tmp_path_factory.mktemp("connections"), "ack-bert", "--speed", "20")
    yield running
    running.kill()


def port(loop: Loop) -> int:
    return int(loop.url.rpartition(":")[2])


def held(loop: Loop) -> int:
    """Return how many connections clients have with the process.

    The loop has connections of its own, to its agents and APIs; a bound for clients does not count them.
    """
    links = {_where(link) for link in Path(f"/proc/{loop.process.pid}/fd").iterdir()}
    at, listening = f":{port(loop):04X}", "0A"
    rows = [
        row.split()
        for row in Path(f"/proc/{loop.process.pid}/net/tcp").read_text().splitlines()[1:]
    ]
    return sum(
        row[1].endswith(at) and row[3] != listening and f"socket:[{row[9]}]" in links
        for row in rows
    )


def _where(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""  # closed meanwhile


def memory_mib(loop: Loop) -> float:
    text = Path(f"/proc/{loop.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


def answers(loop: Loop) -> None:
    assert "<html" in loop.get("/")
    assert loop.json("/api/v1/namespaces/default/pods")["kind"] == "PodList"
    assert loop.json("/api/v1/query?query=1")["status"] == "success"


def test_more_connections_than_there_may_be_leave_room_and_are_gone_after(loop: Loop) -> None:
    answers(loop)
    before, before_mib = held(loop), memory_mib(loop)
    with ExitStack() as clients:
        # Idle, slow in a header and slow in a body, from three addresses; each beyond its own bound or all
        # together beyond that of the port.
        for number in range(LIMITS.total + 600):
            address = f"127.0.0.{1 + number % 3}"
            client = socket.create_connection(
                ("127.0.0.1", port(loop)), timeout=30, source_address=(address, 0)
            )
            clients.enter_context(client)
            if number % 9 == 4:
                client.sendall(SLOW_POST)
            elif number % 3 == 1:
                client.sendall(GET + b"X-Slow: ")
        answers(loop)
        assert LIMITS.total - 600 < held(loop) <= LIMITS.total
        # 24 KiB a connection in the metrics API's server; a parser with half a request has more.
        assert memory_mib(loop) - before_mib < 200
    deadline = time.monotonic() + 60
    while held(loop) > before + 10:
        assert time.monotonic() < deadline, (held(loop), before)
        time.sleep(0.1)
    answers(loop)
    assert "Traceback" not in loop.text()


def test_one_address_has_its_own_bound(loop: Loop) -> None:
    before = held(loop)
    connect = partial(socket.create_connection, ("127.0.0.1", port(loop)), timeout=30)
    with ExitStack() as clients:
        for _ in range(LIMITS.per_address + 100):
            clients.enter_context(connect())
        answers(loop)
        assert held(loop) - before <= LIMITS.per_address


def test_clients_that_never_finish_are_closed(loop: Loop) -> None:
    connect = partial(socket.create_connection, ("127.0.0.1", port(loop)), timeout=90)
    with connect() as silent, connect() as half_a_header, connect() as half_a_body:
        half_a_header.sendall(GET + b"X-Slow: ")
        half_a_body.sendall(SLOW_POST)
        answers(loop)
        for each in (silent, half_a_header, half_a_body):
            assert each.recv(1000) == b""
    answers(loop)


def test_a_watch_and_a_stream_outlive_the_time_of_a_header(loop: Loop) -> None:
    connect = partial(socket.create_connection, ("127.0.0.1", port(loop)), timeout=90)
    with connect() as watch, connect() as stream:
        watch.sendall(
            b"GET /api/v1/namespaces?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        stream.sendall(b"GET /ui/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert watch.recv(65_536).startswith(b"HTTP/1.1 200 ")
        # A header may take ten seconds; the stream sends twice a second.
        end = time.monotonic() + 13
        while time.monotonic() < end:
            assert stream.recv(1_000_000)
        watch.settimeout(0.5)
        with suppress(TimeoutError):  # nothing new, and open
            assert watch.recv(1_000_000)


def test_what_is_no_http_is_refused(loop: Loop) -> None:
    with socket.create_connection(("127.0.0.1", port(loop)), timeout=30) as client:
        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 400 ") or client.recv(1000) == b""
    with pytest.raises(urllib.error.HTTPError) as refused:
        loop.get("/no-such-page")
    refused.value.close()
    assert refused.value.code == 404
    answers(loop)


def test_it_ends_soon_with_clients_that_never_finish(tmp_path: Path) -> None:
    loop = Loop(tmp_path, "ack-bert", "--speed", "20")
    with ExitStack() as clients:
        clients.callback(loop.kill)
        for number in range(40):
            client = socket.create_connection(("127.0.0.1", port(loop)), timeout=30)
            clients.enter_context(client)
            client.sendall(SLOW_POST if number % 2 else GET)
        assert loop.stop() == 0
    assert "Traceback" not in loop.text()


def test_the_live_loop_does_without_openssl() -> None:
    """Its library takes 9 MiB, and nothing here speaks TLS."""
    code = "import sys, gpuscale.lab.local.loop; print('OpenSSL' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
