"""Clients that keep a sample waiting are disconnected, and others are served meanwhile."""

import socket
from collections.abc import Iterator

import pytest

import samples

pytestmark = pytest.mark.timeout(600)  # of the installation, most of it
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def text(sample_venv) -> Iterator[samples.Sample]:
    with samples.serving(sample_venv, "text.app", "--idle-s", "0.5") as running:
        yield running


def connection(sample: samples.Sample) -> socket.socket:
    return socket.create_connection(("127.0.0.1", sample.port), timeout=30)


def ended(client: socket.socket) -> bytes:
    """Return what came until the server closed."""
    found = b""
    try:
        while some := client.recv(65_536):
            found += some
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /metr",
        HEAD + b"X-More: a\r\n",
        HEAD + b"Content-Length: 100\r\n\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    ],
    ids=["nothing", "half a line", "headers without an end", "half a body", "half a chunk"],
)
def test_a_client_that_stops_sending_is_disconnected(text: samples.Sample, sent: bytes) -> None:
    with connection(text) as client:
        client.sendall(sent)
        assert ended(client) == b""
    assert text.ask("/health").status == 200


def test_one_that_asks_no_more_is_disconnected(text: samples.Sample) -> None:
    with connection(text) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert ended(client).startswith(b"HTTP/1.1 200 OK\r\n")


def test_endless_headers_are_refused(text: samples.Sample) -> None:
    with connection(text) as client:
        try:
            for _ in range(100):
                client.sendall(b"GET / HTTP/1.1\r\n" + b"X-More: a\r\n" * 100)
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert b"200 OK" not in ended(client)
    assert text.ask("/health").status == 200


def test_an_answer_takes_as_long_as_it_wants(text: samples.Sample) -> None:
    """Fifty words at 20 ms each are a second, twice what a client may take."""
    body = b'{"prompt": "a", "max_tokens": 50}'
    answer = text.ask("/v1/completions", "POST", body, **{"Content-Type": "application/json"})
    assert answer.status == 200
    assert b'"completion_tokens": 50' in answer.body


def test_nothing_of_it_is_logged(text: samples.Sample) -> None:
    code, printed = text.stop()
    assert (code, printed) == (0, "text: finishing what is there\n")
