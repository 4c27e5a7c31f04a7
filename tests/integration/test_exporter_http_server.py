"""The node agent's HTTP server over real connections, byte by byte where that matters.

Source: RFC 9112 (HTTP/1.1: framing, persistence, pipelining), RFC 9110 (HEAD, status codes).
"""

import asyncio
import contextlib

import pytest

from gpuscale.base.http_server import HttpServer, Response, text_response

HOST = "127.0.0.1"
LIMIT_S = 30


class Served:
    """A server with a few paths, and what became of a stream."""

    def __init__(self) -> None:
        self.stream_ended = asyncio.Event()
        self.hold = asyncio.Event()
        self.server = HttpServer(self.answer, shutdown_s=5.0)
        self.port = 0

    async def answer(self, request):
        match request.path:
            case "/broken":
                raise RuntimeError("a fault of ours")
            case "/stream":
                return Response(self.stream, headers={"Content-Type": "text/plain"})
            case "/slow":
                await self.hold.wait()
                return text_response("late")
            case "/big":
                return Response(b"x" * 5_000_000)
        verbose = " verbose" if request.has_parameter("verbose") else ""
        return text_response(f"{request.method} {request.path}{verbose}")

    async def stream(self, client) -> None:
        try:
            for n in range(3):
                await client.write(f"line {n}\n".encode())
            await self.hold.wait()
        finally:
            self.stream_ended.set()

    @contextlib.asynccontextmanager
    async def connection(self):
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def say(self, request):
        """Return everything that the server says to some bytes, until it ends the connection."""
        async with self.connection() as (reader, writer):
            writer.write(request)
            async with asyncio.timeout(LIMIT_S):
                return await reader.read()


@pytest.fixture
async def served():
    it = Served()
    it.port = await it.server.start(HOST, 0)
    yield it
    it.hold.set()
    await it.server.stop()


def get(path, *headers, version="1.1", method="GET"):
    lines = [f"{method} {path} HTTP/{version}", "Host: here", *headers, "", ""]
    return "\r\n".join(lines).encode()


def parts(answer):
    """Return the status line, the headers and the body of an answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return status, dict(line.lower().split(": ", 1) for line in lines), body


CLOSE = "Connection: close"


async def test_answer_has_its_length_and_its_date(served) -> None:
    status, headers, body = parts(await served.say(get("/a?verbose", CLOSE)))
    assert (status, body) == ("HTTP/1.1 200 OK", b"GET /a verbose")
    assert headers["content-length"] == str(len(body))
    assert headers["date"].endswith(" gmt")


async def test_head_has_the_length_and_no_body(served) -> None:
    _, headers, body = parts(await served.say(get("/a", CLOSE, method="HEAD")))
    assert (headers["content-length"], body) == (str(len("HEAD /a")), b"")


async def test_connection_is_kept_for_further_requests_and_they_may_come_at_once(served) -> None:
    # The second and third are sent before the first is answered.
    answer = await served.say(get("/1") + get("/2") + get("/3", CLOSE))
    assert [answer.count(f"GET /{n}".encode()) for n in (1, 2, 3)] == [1, 1, 1]
    assert answer.index(b"GET /1") < answer.index(b"GET /2") < answer.index(b"GET /3")


async def test_client_of_http_1_0_gets_its_answer_and_the_end(served) -> None:
    _, _, body = parts(await served.say(get("/old", version="1.0")))
    assert body == b"GET /old"


async def test_request_may_come_in_pieces(served) -> None:
    async with served.connection() as (reader, writer):
        for byte in get("/pieces", CLOSE):
            writer.write(bytes([byte]))
            await writer.drain()
        async with asyncio.timeout(LIMIT_S):
            assert b"GET /pieces" in await reader.read()


async def test_proxys_form_of_the_target(served) -> None:
    assert b"GET /p verbose" in await served.say(get("http://gpu-0:9400/p?verbose", CLOSE))


async def test_body_of_a_request_is_passed_over(served) -> None:
    answer = await served.say(get("/1", "Content-Length: 3") + b"abc" + get("/2", CLOSE))
    assert b"GET /1" in answer
    assert b"GET /2" in answer


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
async def test_other_methods_are_not_allowed(served, method: str) -> None:
    status, headers, _ = parts(await served.say(get("/a", CLOSE, method=method)))
    assert status == "HTTP/1.1 405 Method Not Allowed"
    assert headers["allow"] == "get, head"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, id="TLS"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", 400, id="no host"),
        pytest.param(b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="control characters"),
        pytest.param(get("/", "Content-Length: x"), 400, id="no length"),
        pytest.param(get("/", "A: " + "b" * 200_000), 431, id="long headers"),
        pytest.param(get("/", "Content-Length: 100000") + b"x" * 100_000, 413, id="a large body"),
    ],
)
async def test_what_is_no_proper_request_is_refused_and_the_server_goes_on(
    served, request_bytes, status: int
) -> None:
    assert parts(await served.say(request_bytes))[0].startswith(f"HTTP/1.1 {status} ")
    assert b"GET /a" in await served.say(get("/a", CLOSE))


async def test_handler_that_breaks_is_a_500_with_a_log_line(
    served, caplog: pytest.LogCaptureFixture
) -> None:
    status, _, _ = parts(await served.say(get("/broken", CLOSE)))
    assert status == "HTTP/1.1 500 Internal Server Error"
    assert "answering /broken broke off" in caplog.text


async def test_large_answer_arrives_whole(served) -> None:
    _, headers, body = parts(await served.say(get("/big", CLOSE)))
    assert (headers["content-length"], len(body)) == ("5000000", 5_000_000)


async def test_stream_is_chunked_and_ends_properly(served) -> None:
    served.hold.set()
    _, headers, body = parts(await served.say(get("/stream")))
    assert headers["transfer-encoding"] == "chunked"
    assert body == b"".join(b"7\r\nline %d\n\r\n" % n for n in range(3)) + b"0\r\n\r\n"


async def test_stream_ends_when_its_client_leaves(served) -> None:
    async with served.connection() as (reader, writer):
        writer.write(get("/stream"))
        async with asyncio.timeout(LIMIT_S):
            await reader.readuntil(b"line 2\n")
    async with asyncio.timeout(LIMIT_S):
        await served.stream_ended.wait()


async def test_stopping_ends_idle_connections_and_waits_for_answers_under_way(served) -> None:
    async with served.connection() as idle, served.connection() as busy:
        idle[1].write(get("/a"))
        busy[1].write(get("/slow"))
        async with asyncio.timeout(LIMIT_S):
            await idle[0].readuntil(b"GET /a")
            await asyncio.sleep(0.1)
            stopping = asyncio.create_task(served.server.stop())
            with contextlib.suppress(ConnectionError):
                assert await idle[0].read() == b""
            assert not stopping.done()
            served.hold.set()
            assert (await busy[0].read()).endswith(b"late")
            await stopping
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HOST, served.port)


async def test_taken_port_is_an_os_error(served) -> None:
    with pytest.raises(OSError, match="address already in use"):
        await HttpServer(served.answer, 1.0).start(HOST, served.port)
