"""Reasons name the cause: made by real connections, through the HTTP client that hides them."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gpuscale.base.errors import UnavailableError
from gpuscale.base.pki import make_ca, make_serving
from gpuscale.base.unreachable import distrust_of, reason_of


async def fault_of(url: str, seconds: float = 30) -> Exception:
    timeout = aiohttp.ClientTimeout(seconds)
    with pytest.raises((aiohttp.ClientError, TimeoutError)) as caught:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url):
            pass
    return caught.value


@asynccontextmanager
async def listening(*, closes: bool, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    ended = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not closes:
            await ended.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    scheme = "http" if tls is None else "https"
    try:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        ended.set()
        server.close()


async def test_nothing_listens(unused_tcp_port: int) -> None:
    for host in ("127.0.0.1", "localhost"):
        fault = await fault_of(f"http://{host}:{unused_tcp_port}")
        assert reason_of(fault) == "connection refused; nothing listens there"


async def test_a_name_that_is_not_known() -> None:
    # RFC 6761 keeps .invalid free of names.
    fault = await fault_of("http://gpuscale.invalid")
    assert reason_of(fault).startswith("its name is not known here: ")
    assert "ssl" not in reason_of(fault)


async def test_a_server_that_hangs_up_and_one_that_is_silent() -> None:
    async with listening(closes=True) as url:
        assert reason_of(await fault_of(url)) in ("Connection reset by peer", "Server disconnected")
    async with listening(closes=False) as url:
        assert reason_of(await fault_of(url, 0.05)) == "no answer in time"


async def test_plain_text_where_tls_is_expected() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        fault = await fault_of(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    # OpenSSL's name of it: SSL_R_WRONG_VERSION_NUMBER; newer releases have SSL_R_RECORD_LAYER_FAILURE.
    assert reason_of(fault) in (
        "TLS failed: wrong version number",
        "TLS failed: record layer failure",
    )


async def test_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    pair = make_serving(make_ca(now_ms), ("127.0.0.1",), now_ms)
    (tmp_path / "crt").write_bytes(pair.certificate)
    (tmp_path / "key").write_bytes(pair.key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    async with listening(closes=True, tls=tls) as url:
        fault = await fault_of(url)
    assert reason_of(fault) == (
        "its certificate is not trusted: unable to get local issuer certificate"
    )
    assert distrust_of(fault) == "unable to get local issuer certificate"


def test_what_speaks_for_itself_is_left_as_it_is() -> None:
    error = UnavailableError("the other replica has it")
    error.__cause__ = ConnectionRefusedError(111, "Connect call failed")
    assert reason_of(error) == "the other replica has it"
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    assert reason_of(caught.value) == str(caught.value)
    with pytest.raises(FileNotFoundError) as missing:
        Path("no-such-token").read_bytes()
    assert reason_of(missing.value) == "no-such-token: No such file or directory"
    assert reason_of(aiohttp.ClientPayloadError()) == "ClientPayloadError"
