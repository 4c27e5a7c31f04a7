"""What hostile and busy clients of the scaler can do, at the size of its bounds; KEDA's calls go on."""

import asyncio
import socket
import struct

import grpc
import pytest

from answering import measured
from gpuscale.server.scaler.connections import ConnectionBounds
from gpuscale.server.scaler.limits import ServerLimits
from gpuscale.server.scaler.proto import externalscaler_pb2 as pb
from scaler_client import client_of, own_channel, ref, served

Code = grpc.StatusCode
LIMITS = ServerLimits()
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
NO_WINDOW = struct.pack(">HI", 4, 0)
"""A setting: the server may send no byte of an answer."""


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """Return a header in HPACK that is not indexed."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call_headers(method):
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/externalscaler.ExternalScaler/{method}",
        ":authority": "scaler",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return b"".join(literal(name, value) for name, value in fields.items())


def message(proto):
    body = proto.SerializeToString()
    return b"\x00" + struct.pack(">I", len(body)) + body


def connected(port, source="127.0.0.2"):
    """Return a connection from another address of the loopback network."""
    found = socket.socket()
    found.bind((source, 0))
    found.settimeout(10.0)
    found.connect(("127.0.0.1", port))
    return found


def is_closed(connection):
    connection.settimeout(0.0)
    try:
        while (part := connection.recv(65_536)) != b"":
            assert part
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


async def failure(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def eventually(condition, seconds=20.0):
    """Wait for what happens in its own time."""
    for _ in range(round(seconds / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(condition)


async def works(scaler):
    """KEDA, from an address of its own, gets everything."""
    scaler.answers.set("queue", measured(1.0))
    async with client_of(scaler) as keda:
        assert (await keda.get_spec(ref())).metricSpecs
        assert (await keda.metrics(ref())).metricValues[0].metricValueFloat == 1.0
        stream = keda.activity(ref())
        assert (await stream.read()).result
        stream.cancel()


async def test_connections_of_one_address_are_bounded_and_others_get_in() -> None:
    async with served() as scaler:
        bounds = ConnectionBounds(scaler.port, LIMITS.connections, LIMITS.connections_per_address)
        bounding = asyncio.ensure_future(bounds.run())
        greedy = [connected(scaler.port) for _ in range(LIMITS.connections)]
        most = LIMITS.connections_per_address
        await eventually(lambda: sum(not is_closed(each) for each in greedy) <= most)
        assert sum(not is_closed(each) for each in greedy) == most
        await works(scaler)
        assert bounds.counts["address"] == LIMITS.connections - most
        for each in greedy:
            each.close()
        await eventually(lambda: bounds.counts["open"] == 0)
        bounding.cancel()
        await asyncio.gather(bounding, return_exceptions=True)


async def test_connections_of_many_addresses_are_bounded_together() -> None:
    async with served() as scaler:
        bounds = ConnectionBounds(scaler.port, most=40, most_of_address=30)
        bounding = asyncio.ensure_future(bounds.run())
        kept = connected(scaler.port, "127.0.0.9")
        await eventually(lambda: bounds.counts["open"] == 1)
        many = [connected(scaler.port, f"127.0.0.{2 + n % 4}") for n in range(80)]
        await eventually(lambda: sum(not is_closed(each) for each in many) == 39)
        assert not is_closed(kept)
        for each in (*many, kept):
            each.close()
        bounding.cancel()
        await asyncio.gather(bounding, return_exceptions=True)


async def test_streams_of_one_address_are_bounded_at_full_size() -> None:
    most = LIMITS.streams_per_address
    async with served() as scaler, own_channel(scaler.port) as channel:
        scaler.answers.set("queue", measured(0.0))
        opened = channel.unary_stream("/externalscaler.ExternalScaler/StreamIsActive")
        body = ref().SerializeToString()
        streams = [opened(body) for _ in range(most)]
        for stream in streams:
            await stream.read()
        assert sum(scaler.server.streams.values()) == most
        error = await failure(opened(body).read())
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert "--max-streams-per-address" in error.details()
        other = connected(scaler.port)
        request = message(ref())
        other.sendall(
            PREFACE
            + frame(SETTINGS, 0, 0)
            + frame(HEADERS, END_HEADERS, 1, call_headers("StreamIsActive"))
            + frame(DATA, END_STREAM, 1, request)
        )
        await eventually(lambda: sum(scaler.server.streams.values()) == most + 1)
        other.close()
        for stream in streams:
            stream.cancel()
        await eventually(lambda: not scaler.server.streams)
        await works(scaler)


async def test_a_message_of_megabytes_is_refused_and_the_connection_goes_on() -> None:
    async with served() as scaler, client_of(scaler) as keda:
        huge = ref(query="x" * 4_000_000)
        many = ref(**{f"key{n}": "v" for n in range(50_000)})
        for bad in (huge, many):
            assert (await failure(keda.get_spec(bad))).code() is Code.RESOURCE_EXHAUSTED
        large = ref(query="x" * 100_000)  # fits into a message, and is more than metadata may be
        assert (await failure(keda.get_spec(large))).code() is Code.INVALID_ARGUMENT
        assert (await keda.get_spec(ref())).metricSpecs


async def test_a_flood_of_new_triggers_takes_the_room_of_its_address_alone() -> None:
    async with served(triggers=500, triggers_per_address=200) as scaler:
        scaler.answers.set("queue", measured(1.0))
        async with client_of(scaler) as flooding:
            found = await asyncio.gather(
                *(flooding.is_active(ref(metricName="queue", query=f"q{n}")) for n in range(300)),
                return_exceptions=True,
            )
            refused = [each for each in found if isinstance(each, grpc.aio.AioRpcError)]
            assert {each.code() for each in refused} == {Code.RESOURCE_EXHAUSTED}
            assert len(refused) == 100
            assert len(scaler.answers.watched) == 200
            await flooding.get_spec(ref(query="another"))  # needs no room


async def test_calls_whose_answers_are_not_read_are_bounded_for_each_address(
    monkeypatch,
) -> None:
    async with served(calls_per_address=100) as scaler:
        scaler.answers.set("queue", measured(1.0))
        slow = connected(scaler.port)
        request = message(ref())
        slow.sendall(PREFACE + frame(SETTINGS, 0, 0, NO_WINDOW))
        for number in range(300):
            slow.sendall(
                frame(HEADERS, END_HEADERS, 2 * number + 1, call_headers("IsActive"))
                + frame(DATA, END_STREAM, 2 * number + 1, request)
            )
        calls = scaler.server._calls_by_address
        await eventually(lambda: calls["127.0.0.2"] == 100)
        await works(scaler)
        slow.close()
        await eventually(lambda: not calls)
        await works(scaler)


async def test_calls_that_send_no_request_are_ended(monkeypatch) -> None:
    monkeypatch.setattr("gpuscale.server.scaler.server._REQUEST_S", 0.3)
    async with served(calls_per_address=50, streams_per_address=50) as scaler:
        hanging = connected(scaler.port)
        hanging.sendall(PREFACE + frame(SETTINGS, 0, 0))
        for number in range(40):
            method = "IsActive" if number % 2 else "StreamIsActive"
            hanging.sendall(frame(HEADERS, END_HEADERS, 2 * number + 1, call_headers(method)))
        await eventually(lambda: scaler.server._calls_by_address["127.0.0.2"] == 20)
        await works(scaler)
        await eventually(lambda: not scaler.server._calls_by_address and not scaler.server.streams)
        hanging.close()


async def test_what_is_no_grpc_leaves_no_line_in_the_log(caplog, capfd) -> None:
    async with served() as scaler:
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01" + b"x" * 500,
            PREFACE + b"\xff" * 99,
        ):
            for _ in range(20):
                with connected(scaler.port) as connection:
                    connection.sendall(garbage)
        async with client_of(scaler) as keda:
            for _ in range(200):
                bad = pb.ScaledObjectRef(name="x", namespace="y")
                await failure(keda.get_spec(bad))
            unknown = keda.channel.unary_unary("/externalscaler.ExternalScaler/Nothing")
            assert (await failure(unknown(b""))).code() is Code.UNIMPLEMENTED
            malformed = keda.channel.unary_unary("/externalscaler.ExternalScaler/IsActive")
            for _ in range(50):
                assert (await failure(malformed(b"\xff\xff"))).code() is Code.INVALID_ARGUMENT
        await works(scaler)
    out, err = capfd.readouterr()
    assert len((caplog.text + out + err).splitlines()) <= 5, caplog.text + out + err
