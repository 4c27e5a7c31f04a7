"""What `load http` makes of answers that no good server gives, one connection at a time on loopback."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from gpuscale.load.http.sender import Sender
from gpuscale.load.http.target import resolve
from gpuscale.load.plan import LoadPlan, LoadRequest
from gpuscale.load.recording import RequestCounts
from gpuscale.load.run import new_runner
from gpuscale.load.shapes import constant

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SENT = 5
MANY = 70_000
"""Bytes, more than the 65 536 that may come without a body."""


def outcome(answer: bytes, *, hangs_up: bool = False, ago_s: float = 0.0) -> RequestCounts:
    """Send five requests, the first due so long ago, to a server that gives this answer to each."""
    with new_runner() as runner:
        return runner.run(_outcome(answer, ago_s, hangs_up=hangs_up))


async def _outcome(answer: bytes, ago_s: float, *, hangs_up: bool) -> RequestCounts:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(answer)
                await writer.drain()
                if hangs_up:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    request = LoadRequest(f"http://127.0.0.1:{port}/", timeout_s=0.5)
    plan = LoadPlan(request, constant(50), duration_s=0.1, arrivals="even")
    due: Iterator[float] = iter([number / 50 for number in range(SENT)])
    counts = RequestCounts()
    async with server:
        async for second in Sender(plan, resolve(request), due).run(
            time.monotonic() - ago_s, asyncio.Event()
        ):
            counts.add(second.counts)
    return counts


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(OK + OK, id="two answers to one request"),
        pytest.param(OK + b"HTTP/1.1 200 O", id="the beginning of another answer"),
        pytest.param(OK + b"\x00rubbish", id="an answer and rubbish"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK, id="an interim answer first"),
        pytest.param(CHUNKED + b"1;" + b"x" * 1000 + b"\r\na\r\n0\r\n\r\n", id="a chunk's extension"),
        pytest.param(
            CHUNKED + b"1\r\na\r\n" * MANY + b"0\r\n\r\n", id="chunks that are framing for the most part"
        ),
    ],
)  # fmt: skip
def test_one_request_has_one_answer(answer: bytes) -> None:
    counts = outcome(answer)
    assert counts.statuses == {200: SENT}
    assert (counts.sent, counts.ok, counts.errors) == (SENT, SENT, 0)


def test_requests_later_than_the_time_out_are_not_sent() -> None:
    # Were they sent, a rate beyond the machine would have the run go on for many times its length.
    counts = outcome(OK, ago_s=10)
    assert (counts.sent, counts.not_sent, counts.errors) == (0, SENT, SENT)


def test_a_body_without_header_ends_with_the_connection() -> None:
    assert outcome(b"HTTP/1.0 200 OK\r\n\r\nhello", hangs_up=True).statuses == {200: SENT}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 " + b"x" * MANY, id="a status line"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"x" * MANY, id="one header"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * (MANY // 6), id="many headers"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" * (MANY // 25), id="interim answers"),
        pytest.param(CHUNKED + b"5;" + b"x" * MANY, id="a chunk's extension"),
        pytest.param(CHUNKED + b"0\r\nX: " + b"x" * MANY, id="a trailer"),
        pytest.param(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", id="101"
        ),
    ],
)  # fmt: skip
def test_what_never_becomes_an_answer_ends_early(answer: bytes) -> None:
    counts = outcome(answer)
    assert counts.faults == {"malformed": SENT}
    assert counts.errors == SENT


@pytest.mark.parametrize(("status", "errors"), [(302, 0), (404, SENT), (429, SENT), (503, SENT)])
def test_what_refuses_or_fails_is_an_error(status: int, errors: int) -> None:
    counts = outcome(f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n".encode())
    assert counts.statuses == {status: SENT}
    assert (counts.ok, counts.errors) == (SENT - errors, errors)
