# mypy: disable-error-code="arg-type, attr-defined"
"""Connections to the metrics API under attack: slow, idle, many, malformed, and clients that never read.

The expected numbers are the limits that each test sets.
"""

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import resource
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from OpenSSL import SSL

from gpuscale.server.metricsapi.connections.connection import Connection
from gpuscale.server.metricsapi.connections.counted_log import CountedLog
from gpuscale.server.metricsapi.connections.lobby import ConnectionLimits
from gpuscale.server.metricsapi.connections.port import Port
from gpuscale.server.metricsapi.security.client_tls import TlsRules, server_context

LIMITS = ConnectionLimits(total=1_000, per_address=1_000, proxies=1_000)
MALFORMED = CountedLog("malformed request")
GET = b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n"
GO = web.AppKey("go", asyncio.Event)
LARGE = os.urandom(8 * 1024 * 1024)


def _certificates():
    path = Path(__file__).parents[1] / "unit" / "metricsapi" / "certificates_for_tests.py"
    spec = importlib.util.spec_from_file_location("certificates_for_tests", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CA = _certificates().Ca("clients")


@web.middleware
async def noted(request, handler):
    request.transport.request_begins()
    return await handler(request)


async def large(_):
    return web.Response(body=LARGE)


async def ok(_):
    return web.Response(text="ok")


async def wait(request):
    await request.app[GO].wait()
    return web.Response(text="waited")


async def known(request):
    request.transport.is_known = True
    return web.Response(text="known")


async def fault(_) -> None:
    raise RuntimeError("secret")


async def until(is_so) -> None:
    """Return once a function says so."""
    for _ in range(3_000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it does not come to this")


class Served:
    """A port on loopback, and what its clients do."""

    def __init__(self, port, number, folder) -> None:
        self.port, self.number, self.folder = port, number, folder

    def context(self, pair=None):
        context = ssl.create_default_context(cadata=CA.pem)
        if pair is not None:
            (self.folder / "client.pem").write_text("".join(pair))
            context.load_cert_chain(self.folder / "client.pem")
        return context

    async def connect(self, pair=None, source="127.0.0.1"):
        return await asyncio.open_connection(
            "127.0.0.1",
            self.number,
            ssl=self.context(pair) if self.port._choose_context else None,
            server_hostname="localhost" if self.port._choose_context else None,
            local_addr=(source, 0),
        )

    async def tcp(self):
        return await asyncio.open_connection("127.0.0.1", self.number)

    def states(self):
        return dict(self.port.lobby.states())

    async def come_to(self, **states) -> None:
        await until(lambda: self.states() == states)


@pytest.fixture
def serve(tmp_path: Path):
    pem, key = CA.server("localhost")
    (tmp_path / "tls.crt").write_text(pem)
    (tmp_path / "tls.key").write_text(key)
    context = server_context(tmp_path / "tls.crt", tmp_path / "tls.key", TlsRules())

    @contextlib.asynccontextmanager
    async def serve(limits=LIMITS, *, tls=True, malformed=None, in_haste=True):
        app = web.Application(middlewares=[noted])
        app[GO] = asyncio.Event()
        for handler in (ok, large, wait, known, fault):
            app.router.add_get(f"/{handler.__name__}", handler)
        choose = (lambda: context) if tls else None
        port = Port(app, limits, malformed or MALFORMED, choose, Connection.presented)
        await port.open("127.0.0.1", 0)
        sweeping = asyncio.create_task(port.lobby.run())
        served = Served(port, port.addresses[0][1], tmp_path)
        served.go = app[GO]
        try:
            yield served
        finally:
            app[GO].set()
            await port.close(in_haste=in_haste)
            sweeping.cancel()

    return serve


async def answer(reader):
    """Return the status line's code and the body of one answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = head.partition("content-length: ")[2].partition("\r\n")[0]
    return int(head[9:12]), await reader.readexactly(int(length))


async def closed(reader):
    """Return what comes until the server closes."""
    async with asyncio.timeout(30):
        with contextlib.suppress(ConnectionError):
            return await reader.read()
    return b""


@pytest.mark.parametrize("tls", [True, False])
async def test_requests_of_one_connection_are_answered_in_order(serve, tls: bool) -> None:
    async with serve(tls=tls) as served:
        reader, writer = await served.connect()
        writer.write(GET * 50 + GET.replace(b"/ok", b"/large") + GET)
        for _ in range(50):
            assert await answer(reader) == (200, b"ok")
        assert await answer(reader) == (200, LARGE)
        assert await answer(reader) == (200, b"ok")
        await served.come_to(idle=1)
        writer.close()
        await served.come_to()


async def test_bytes_that_come_one_by_one_are_a_request(serve) -> None:
    async with serve() as served:
        reader, writer = await served.connect()
        for byte in GET:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert await answer(reader) == (200, b"ok")
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x40\x00" + b"a" * 3_000])
async def test_a_handshake_that_takes_too_long_ends(serve, sent) -> None:
    async with serve(replace(LIMITS, handshake_s=0.2)) as served:
        reader, writer = await served.tcp()
        writer.write(sent)
        await closed(reader)
        await served.come_to()
        assert served.port.lobby.closed == {"handshake timeout": 1}
        writer.close()


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("sent", [b"", b"GET /ok HTTP/1.1\r\nHost: x\r\nX: "])
async def test_headers_that_drip_end_in_time_whatever_comes(serve, tls: bool, sent: bytes) -> None:
    async with serve(replace(LIMITS, header_s=1.0), tls=tls) as served:
        reader, writer = await served.connect()
        writer.write(sent)
        started = asyncio.get_running_loop().time()
        ending = asyncio.create_task(closed(reader))
        while not ending.done():
            if sent and not writer.is_closing():
                writer.write(b"a")
            await asyncio.sleep(0.05)
        assert await ending == b""
        # The limit, and the sweep that looks once a second.
        assert asyncio.get_running_loop().time() - started >= 1.0
        assert served.port.lobby.closed == {"header timeout": 1}
        writer.close()


async def test_an_idle_connection_ends_and_one_in_use_does_not(serve) -> None:
    async with serve(replace(LIMITS, idle_s=1.5)) as served:
        idle, first = await served.connect()
        used, second = await served.connect()
        first.write(GET)
        assert await answer(idle) == (200, b"ok")
        ending = asyncio.create_task(closed(idle))
        while not ending.done():
            second.write(GET)
            assert await answer(used) == (200, b"ok")
            await asyncio.sleep(0.05)
        assert served.port.lobby.closed == {"idle timeout": 1}
        first.close()
        second.close()


async def test_a_request_that_is_being_answered_has_no_deadline_here(serve) -> None:
    limits = replace(LIMITS, header_s=0.2, idle_s=0.2)
    async with serve(limits) as served:
        reader, writer = await served.connect()
        writer.write(GET.replace(b"/ok", b"/wait"))
        await served.come_to(active=1)
        served.port.lobby.sweep()
        await asyncio.sleep(0.3)
        served.port.lobby.sweep()
        served.go.set()
        assert await answer(reader) == (200, b"waited")
        writer.close()


@pytest.mark.parametrize("tls", [True, False])
async def test_a_client_that_never_reads_is_cut_off_and_its_answer_freed(serve, tls: bool) -> None:
    async with serve(replace(LIMITS, write_s=0.5), tls=tls) as served:
        _, writer = await served.connect()
        writer.transport.pause_reading()
        writer.write(GET.replace(b"/ok", b"/large"))
        await served.come_to(active=1)
        await served.come_to()
        assert served.port.lobby.closed == {"write timeout": 1}
        assert served.port.lobby.unsent_bytes == 0
        writer.transport.abort()


async def test_answers_that_are_not_taken_are_bounded_together(serve) -> None:
    # Three answers of 8 MiB; the kernel takes some MiB of each at most.
    async with serve(replace(LIMITS, unsent_bytes=12 * 1024 * 1024), tls=False) as served:
        writers = []
        for _ in range(3):
            reader, writer = await served.connect()
            writer.transport.pause_reading()
            writer.write(GET.replace(b"/ok", b"/large"))
            await asyncio.sleep(0.05)
            writers.append((reader, writer))
        await until(lambda: served.port.lobby.closed["slow reader"])
        assert served.port.lobby.unsent_bytes <= 12 * 1024 * 1024
        # Who has waited longest goes; the last one can still read all of its answer.
        last, writer = writers[-1]
        writer.transport.resume_reading()
        assert await answer(last) == (200, LARGE)
        for _, writer in writers:
            writer.transport.abort()


async def test_an_address_makes_room_for_itself_and_requests_are_never_the_price(serve) -> None:
    limits = replace(LIMITS, total=20, per_address=3)
    async with serve(limits) as served:
        busy, first = await served.connect()
        first.write(GET.replace(b"/ok", b"/wait"))
        await served.come_to(active=1)
        oldest, second = await served.connect()
        kept, third = await served.connect()
        await served.come_to(active=1, header=2)
        newest, fourth = await served.connect()
        assert await closed(oldest) == b""
        other, fifth = await served.connect(source="127.0.0.2")
        await served.come_to(active=1, header=3)
        served.go.set()
        assert await answer(busy) == (200, b"waited")
        for reader, writer in ((kept, third), (newest, fourth), (other, fifth)):
            writer.write(GET)
            assert await answer(reader) == (200, b"ok")
        assert served.port.lobby.closed == {"made room": 1}
        for writer in (first, second, third, fourth, fifth):
            writer.close()


async def test_strangers_go_before_clients_that_are_known(serve) -> None:
    async with serve(replace(LIMITS, total=2)) as served:
        known, first = await served.connect()
        first.write(GET.replace(b"/ok", b"/known"))
        assert await answer(known) == (200, b"known")
        stranger, second = await served.connect()
        _, third = await served.connect()
        assert await closed(stranger) == b""
        first.write(GET)
        assert await answer(known) == (200, b"ok")
        for writer in (first, second, third):
            writer.close()


async def test_a_client_that_is_gone_without_a_word_is_noticed_by_the_system(serve) -> None:
    async with serve() as served:
        _, writer = await served.connect()
        await served.come_to(header=1)
        (connection,) = served.port.lobby.connections
        set_here = {
            name: connection._sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_NODELAY", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        }
        assert set_here == {
            "TCP_NODELAY": 1,
            "TCP_KEEPIDLE": 30,
            "TCP_KEEPINTVL": 10,
            "TCP_KEEPCNT": 3,
        }
        assert connection._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connection._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        writer.close()


@pytest.mark.parametrize(
    ("sent", "code", "reason", "allowed"),
    [
        (GET.replace(b"GET", b"POST"), 405, "MethodNotAllowed", "get,head"),
        (GET.replace(b"\r\n\r\n", b"\r\nExpect: x\r\n\r\n"), 417, "ExpectationFailed", None),
    ],
)
async def test_what_aiohttp_refuses_by_itself_is_a_status(
    serve, sent, code: int, reason: str, allowed: str | None
) -> None:
    async with serve() as served:
        reader, writer = await served.connect()
        writer.write(sent + GET)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        status = json.loads(await reader.readexactly(length))
        assert (status["kind"], status["code"], status["reason"]) == ("Status", code, reason)
        assert (f"allow: {allowed}" in head) == (allowed is not None)
        assert await answer(reader) == (200, b"ok")
        writer.close()


async def test_a_full_house_is_at_the_cost_of_who_has_most(serve) -> None:
    limits = replace(LIMITS, total=4)
    async with serve(limits) as served:
        alone, one = await served.connect(source="127.0.0.2")
        crowd = [await served.connect() for _ in range(3)]
        newcomer, two = await served.connect(source="127.0.0.3")
        assert await closed(crowd[0][0]) == b""
        for reader, writer in ((alone, one), (newcomer, two), *crowd[1:]):
            writer.write(GET)
            assert await answer(reader) == (200, b"ok")
        for writer in (one, two, *(each for _, each in crowd)):
            writer.close()


async def test_where_all_are_busy_a_newcomer_is_refused(serve) -> None:
    async with serve(replace(LIMITS, total=1)) as served:
        busy, writer = await served.connect()
        writer.write(GET.replace(b"/ok", b"/wait"))
        await served.come_to(active=1)
        with pytest.raises(ConnectionError):
            await served.connect()
        served.go.set()
        assert await answer(busy) == (200, b"waited")
        assert served.port.lobby.closed["refused"] == 1
        writer.close()


async def test_connections_of_front_proxies_have_room_of_their_own(serve) -> None:
    async with serve(replace(LIMITS, total=2, per_address=2, proxies=2)) as served:
        pair = CA.client("front-proxy-client")
        proxies = [await served.connect(pair) for _ in range(2)]
        await served.come_to(header=2)
        strangers = [await served.connect() for _ in range(4)]
        for reader, writer in (*proxies, *strangers[2:]):
            writer.write(GET)
            assert await answer(reader) == (200, b"ok")
        assert served.port.lobby.closed == {"made room": 2}
        for _, writer in (*proxies, *strangers):
            writer.close()


async def test_renegotiation_is_refused_and_others_are_served(serve) -> None:
    async with serve() as served:

        def renegotiate() -> None:
            context = SSL.Context(SSL.TLS_CLIENT_METHOD)
            context.set_max_proto_version(SSL.TLS1_2_VERSION)
            with socket.create_connection(("127.0.0.1", served.number)) as sock:
                connection = SSL.Connection(context, sock)
                connection.set_connect_state()
                connection.do_handshake()
                connection.renegotiate()
                with pytest.raises(SSL.Error):
                    connection.do_handshake()

        await asyncio.to_thread(renegotiate)
        reader, writer = await served.connect()
        writer.write(GET)
        assert await answer(reader) == (200, b"ok")
        writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /ok HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /ok HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /ok HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 2_000 + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01 no TLS inside of TLS\r\n\r\n",
    ],
)
async def test_what_is_no_http_gets_a_status_and_the_connection_ends(serve, sent) -> None:
    async with serve() as served:
        reader, writer = await served.connect()
        writer.write(sent)
        head, _, body = (await closed(reader)).partition(b"\r\n\r\n")
        assert b" 400 " in head
        assert b"Server:" not in head
        assert json.loads(body) == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "the request is malformed",
            "reason": "BadRequest",
            "code": 400,
        }
        writer.close()


async def test_a_thousand_malformed_requests_are_one_line_without_a_traceback(
    serve, caplog: pytest.LogCaptureFixture
) -> None:
    malformed = CountedLog("malformed request")
    with caplog.at_level(logging.INFO):
        async with serve(tls=False, malformed=malformed) as served:
            for _ in range(1_000):
                reader, writer = await served.connect()
                writer.write(b"GET /ok HTTP/1.1\r\nX: \x00 INFO a line of the log\r\n\r\n")
                await closed(reader)
                writer.close()
    assert malformed.count == 1_000
    (line,) = [each for each in caplog.records if each.name.startswith("gpuscale")]
    assert line.exc_info is None
    assert len(line.getMessage()) < 300


async def test_a_fault_of_ours_is_a_status_that_says_nothing_of_it(
    serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve() as served:
        reader, writer = await served.connect()
        writer.write(GET.replace(b"/ok", b"/fault"))
        code, body = await answer(reader)
        assert code == 500
        assert json.loads(body)["kind"] == "Status"
        assert b"secret" not in body
        writer.close()
    assert "RuntimeError: secret" in caplog.text


async def test_a_stopping_port_answers_what_has_been_sent(serve) -> None:
    async with serve(in_haste=False) as served:
        waiting, first = await served.connect()
        first.write(GET.replace(b"/ok", b"/wait"))
        idle, second = await served.connect()
        second.write(GET)
        assert await answer(idle) == (200, b"ok")
        await served.come_to(active=1, idle=1)
        closing = asyncio.create_task(served.port.close(in_haste=False))
        await asyncio.sleep(0.1)
        with pytest.raises(ConnectionError):
            await served.connect()
        second.write(GET)
        assert await answer(idle) == (200, b"ok")
        served.go.set()
        assert await answer(waiting) == (200, b"waited")
        assert await closed(idle) == b""
        await closing
        first.close()
        second.close()


SERVER = """
import asyncio, sys
from pathlib import Path
from aiohttp import web
from gpuscale.server.metricsapi.security.client_tls import TlsRules, server_context
from gpuscale.server.metricsapi.connections.counted_log import CountedLog
from gpuscale.server.metricsapi.connections.lobby import ConnectionLimits
from gpuscale.server.metricsapi.connections.port import Port

async def main():
    folder = Path(sys.argv[1])
    context = server_context(folder / "tls.crt", folder / "tls.key", TlsRules())
    async def ok(_): return web.Response(text="ok")
    app = web.Application()
    app.router.add_get("/ok", ok)
    limits = ConnectionLimits(total=6_000, per_address=6_000, header_s=float(sys.argv[2]))
    port = Port(app, limits, CountedLog("malformed request"), lambda: context)
    await port.open("127.0.0.1", 0)
    print(port.addresses[0][1], flush=True)
    await port.lobby.run()

asyncio.run(main())
"""


def _resident_kib(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


@pytest.mark.xdist_group("heavy")
def test_five_thousand_idle_connections_are_cheap_end_and_give_their_memory_back(
    tmp_path: Path,
) -> None:
    """asyncio's TLS takes 300 KiB for each: 1.5 GiB."""
    count, most_kib = 5_000, 28
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 500:
        pytest.skip(f"needs {count + 500} open files, the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 500), hard))
    pem, key = CA.server("localhost")
    (tmp_path / "tls.crt").write_text(pem)
    (tmp_path / "tls.key").write_text(key)
    context = ssl.create_default_context(cadata=CA.pem)
    held = []
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path), "20"], stdout=subprocess.PIPE
    )
    try:
        number = int(process.stdout.readline())

        def connect():
            sock = socket.create_connection(("127.0.0.1", number))
            return context.wrap_socket(sock, server_hostname="localhost")

        def ask(connection):
            connection.sendall(GET)
            return connection.recv(4_096).endswith(b"ok")

        with connect() as used:
            assert all(ask(used) for _ in range(100))
            before_kib = _resident_kib(process.pid)
            for _ in range(count):
                held.append(connect())
                if len(held) % 100 == 0:
                    assert ask(used)
            assert (_resident_kib(process.pid) - before_kib) / count < most_kib
            for connection in held:
                connection.settimeout(60)
                with contextlib.suppress(ConnectionError):
                    assert connection.recv(1) == b""
            with connect() as another:
                assert ask(another)
            # The next sweep gives it back.
            for _ in range(600):
                grown_kib = _resident_kib(process.pid) - before_kib
                if grown_kib < 16 * 1024:
                    break
                time.sleep(0.05)
            assert grown_kib < 16 * 1024
    finally:
        for connection in held:
            connection.close()
        process.kill()
        process.wait()
        process.stdout.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
