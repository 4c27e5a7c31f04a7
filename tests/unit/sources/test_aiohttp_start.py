"""aiohttp without the system's authorities: they are read by who asks over TLS, and trusted as before."""

import asyncio
import os
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuscale.base.pki import make_ca, make_serving

PROGRAM = """
import asyncio, ssl, sys
real = ssl.SSLContext.set_default_verify_paths
from gpuscale.server.sources.http.aiohttp_start import import_aiohttp
import_aiohttp()
assert ssl.SSLContext.set_default_verify_paths is real
from aiohttp import ClientError
from yarl import URL
from gpuscale.server.sources.http.session import HttpSession

async def main():
    async with HttpSession(10) as session:
        try:
            print(await session.fetch("GET", URL(sys.argv[1])))
        except ClientError as error:
            print(type(error).__name__)

asyncio.run(main())
"""


async def asked(url: str, authorities: Path) -> str:
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, url),
        env={**os.environ, "SSL_CERT_FILE": str(authorities), "SSL_CERT_DIR": "/none"},
        stdout=subprocess.PIPE,
    )
    output, _ = await run.communicate()
    assert run.returncode == 0
    return output.decode().strip()


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_a_server_is_trusted_if_the_system_does(tmp_path: Path, is_trusted: bool) -> None:
    now_ms = int(time.time() * 1000)
    ca, other = make_ca(now_ms), make_ca(now_ms)
    pair = make_serving(ca, ("127.0.0.1",), now_ms)
    (tmp_path / "server.pem").write_bytes(pair.certificate + pair.key)
    (tmp_path / "ca.pem").write_bytes((ca if is_trusted else other).certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "server.pem")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        found = await asked(f"https://127.0.0.1:{port}/", tmp_path / "ca.pem")
    assert found == ("(200, b'ok')" if is_trusted else "ClientConnectorCertificateError")
