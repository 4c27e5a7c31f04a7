# mypy: disable-error-code="attr-defined"
"""Questions by POST: servers that are reached in a plain way get them without the usual client."""

import asyncio
import contextlib
import json
import re
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.errors import ApiStatusError, ApiUnreachableError
from gpuscale.kube.client.settings import KubeSettings

PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Server:
    """Answers with what it is given, and notes who asks and by which client."""

    def __init__(self) -> None:
        self.status, self.text, self.hangs = 201, '{"kind":"SubjectAccessReview"}', False
        self.asked = []

    async def answer(self, request):
        body = await request.json()
        agent = request.headers["User-Agent"].partition("/")[0]
        self.asked.append((agent, request.headers.get("Authorization"), body))
        if self.hangs:
            await asyncio.sleep(60)
        return web.Response(status=self.status, text=self.text, content_type="application/json")


@pytest.fixture
async def server():
    found = Server()
    app = web.Application()
    app.router.add_post(PATH, found.answer)
    async with TestServer(app) as running:
        found.url = str(running.make_url(""))
        yield found


def client(server, tmp_path, timeout_s=5.0, most_bytes=67_108_864, **user):
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": user}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return KubeClient(KubeSettings(kubeconfig=path, timeout_s=timeout_s, max_body_bytes=most_bytes))


async def test_a_token_goes_along_on_the_plain_way(server, tmp_path: Path) -> None:
    async with client(server, tmp_path, token="t") as api:
        for number in range(3):
            found = await api.ask(PATH, {"n": number})
            assert found == {"kind": "SubjectAccessReview"}
    assert [(auth, body) for _, auth, body in server.asked] == [
        ("Bearer t", {"n": number}) for number in range(3)
    ]
    assert {agent for agent, _, _ in server.asked} == {"gpuscale"}


async def test_a_user_who_acts_as_another_goes_the_usual_way(server, tmp_path: Path) -> None:
    async with client(server, tmp_path, token="t", **{"as": "jane"}) as api:
        await api.ask(PATH, {})
    assert "gpuscale" not in {agent for agent, _, _ in server.asked}


@pytest.mark.parametrize(
    ("status", "error"), [(401, ApiStatusError), (403, ApiStatusError), (503, ApiUnreachableError)]
)
async def test_a_refusal_has_the_usual_words(server, tmp_path: Path, status: int, error) -> None:
    server.status, server.text = status, json.dumps({"kind": "Status", "message": "because"})
    async with client(server, tmp_path, token="t") as api:
        with pytest.raises(error, match="because"):
            await api.ask(PATH, {})


async def test_no_json_is_an_error(server, tmp_path: Path) -> None:
    server.text = "<html>"
    async with client(server, tmp_path, token="t") as api:
        with pytest.raises(ApiUnreachableError, match="no JSON object"):
            await api.ask(PATH, {})


async def test_a_server_that_hangs_is_waited_for_once(server, tmp_path: Path) -> None:
    server.hangs = True
    async with client(server, tmp_path, timeout_s=0.2, token="t") as api:
        with pytest.raises(ApiUnreachableError):
            await api.ask(PATH, {})
    assert len(server.asked) == 1


OK = b"HTTP/1.1 201 Created\r\n"


@contextlib.asynccontextmanager
async def raw_server(*answers: bytes, piece: int = 7):
    """Answer each request with bytes as they are, a piece at a time, and count the connections."""
    left, connections = list(answers), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while left:
                head = await reader.readuntil(b"\r\n\r\n")
                (size,) = re.findall(rb"Content-Length: (\d+)", head)
                await reader.readexactly(int(size))
                answer = left.pop(0)
                for at in range(0, len(answer), piece):
                    writer.write(answer[at : at + piece])
                    await writer.drain()
                    await asyncio.sleep(0)
                if not answer:
                    break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield server, connections
    finally:
        server.close()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b'Content-Length: 8\r\n\r\n{"a": 1}', id="with a length"),
        pytest.param(b'content-length:8 \r\nX: y\r\n\r\n{"a": 1}', id="in small letters"),
        pytest.param(
            b'Transfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n5;x=y\r\n": 1}\r\n0\r\n\r\n',
            id="in chunks",
        ),
        pytest.param(
            b'Transfer-Encoding: chunked\r\n\r\n8\r\n{"a": 1}\r\n0\r\nA: b\r\n\r\n',
            id="with a trailer",
        ),
    ],
)
async def test_an_answer_may_come_in_pieces_and_its_connection_serves_again(
    tmp_path: Path, answer: bytes
) -> None:
    async with raw_server(OK + answer, OK + answer) as (server, connections):
        async with client(server, tmp_path, token="t") as api:
            assert [await api.ask(PATH, {}) for _ in range(2)] == [{"a": 1}] * 2
        assert len(connections) == 1


async def test_a_connection_that_the_server_closes_is_not_used_again(tmp_path: Path) -> None:
    closes = OK + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}"
    async with raw_server(closes, closes) as (server, connections):
        async with client(server, tmp_path, token="t") as api:
            assert [await api.ask(PATH, {}) for _ in range(2)] == [{}, {}]
        assert len(connections) == 2


async def test_a_question_on_a_connection_that_ends_is_asked_once_more(tmp_path: Path) -> None:
    async with raw_server(b"", OK + b"Content-Length: 2\r\n\r\n{}") as (server, connections):
        async with client(server, tmp_path, token="t") as api:
            assert await api.ask(PATH, {}) == {}
        assert len(connections) == 2


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "illegal status line"),
        (OK + b"Content-Length: 99999999999\r\n\r\n", "more than 67108864 bytes"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", "illegal chunk header"),
        (OK + b"X: " + b"y" * 70_000, "Receive buffer too long"),
        (OK + b"Content-Length: 9\r\n\r\n{}", "closed"),
    ],
)
async def test_what_is_no_answer_is_said(tmp_path: Path, answer: bytes, told: str) -> None:
    async with raw_server(answer) as (server, _), client(server, tmp_path, token="t") as api:
        with pytest.raises(ApiUnreachableError, match=told):
            await api.ask(PATH, {})


async def test_an_answer_in_tiny_pieces_costs_no_more_time_the_longer_it_is(tmp_path: Path) -> None:
    """Work grows with the pieces, not with their square: 80 kB are read in half a second, not in five."""
    body = json.dumps({"a": "x" * 80_000}).encode()
    answer = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with (
        raw_server(answer) as (server, _),
        client(server, tmp_path, token="t", timeout_s=60) as api,
    ):
        assert await api.ask(PATH, {}) == {"a": "x" * 80_000}


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(b"1;" + b"x" * 80_000, id="a chunk's extension"),
        pytest.param(b"0\r\nA: " + b"x" * 80_000, id="a trailer"),
        pytest.param(b"1;x=yyyyyyyy\r\na\r\n" * 20_000, id="many small chunks"),
    ],
)
async def test_what_is_no_body_counts_as_well(tmp_path: Path, endless: bytes) -> None:
    answer = OK + b"Transfer-Encoding: chunked\r\n\r\n" + endless
    async with (
        raw_server(answer, piece=4_096) as (server, _),
        client(server, tmp_path, most_bytes=10_000, token="t") as api,
    ):
        with pytest.raises(ApiUnreachableError, match=r"more than 10000 bytes|too long"):
            await api.ask(PATH, {})


async def test_a_token_that_is_no_header_is_not_sent(tmp_path: Path) -> None:
    async with raw_server() as (server, connections):
        async with client(server, tmp_path, token="t\r\nX: y") as api:
            with pytest.raises(ApiUnreachableError, match=r"no header can have$"):
                await api.ask(PATH, {})
        assert not connections
