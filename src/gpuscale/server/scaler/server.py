"""KEDA's external scaler over gRPC, with health and reflection. One of two modules here that import `grpc`.

What one client can do is bounded before anything is worked out for it: bytes of a message, streams, calls at
once. HTTP/2's own bound of the streams of a connection lies above all that: a Go client holds back what is
above it without an error, and KEDA's polls would wait for good.
"""

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Self

# gRPC logs each failed handshake, of which any client can cause many.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from gpuscale.base.errors import UnavailableError
from gpuscale.server.metricsapi.connections.counted_log import CountedLog
from gpuscale.server.scaler.certificate import TlsMaterial, WatchedCertificate
from gpuscale.server.scaler.connections import network_of
from gpuscale.server.scaler.known_triggers import RefusedError
from gpuscale.server.scaler.limits import ServerLimits
from gpuscale.server.scaler.proto import externalscaler_pb2 as pb
from gpuscale.server.scaler.service import ExternalScaler
from gpuscale.server.scaler.telemetry import ScalerMetrics
from gpuscale.triggers import Answer

SERVICE = "externalscaler.ExternalScaler"
_HEALTH_SERVICE = "grpc.health.v1.Health"
_REFLECTION_SERVICE = "grpc.reflection.v1alpha.ServerReflection"
_SERVED = (SERVICE, "")
"""What has a status of health; the empty name is the whole server."""
_LOG = logging.getLogger(__name__)
_SPARE_CONNECTIONS = 64
"""Above the bound, so that what is too much can be looked at before it is closed."""
_MORE_CALLS = 2_000
"""Of other addresses, when one has all of its streams and calls open."""
_REQUEST_S = 10.0
"""How long the message of a call may take to come, once the call has begun."""
_MOST_WAIT_S = 120
"""How long a call may wait until it is looked at."""
_REASON_CHARS = 2_000
_Handler = Callable[[Any, Any], Any]


class GrpcServer:
    """The scaler's gRPC port.

    Args:
        scaler: answers.
        metrics: count the calls.
        limits: of clients.
        certificate: None serves plain text.
    """

    def __init__(
        self,
        scaler: ExternalScaler,
        metrics: ScalerMetrics,
        limits: ServerLimits,
        certificate: WatchedCertificate | None = None,
    ) -> None:
        self._scaler = scaler
        self._metrics = metrics
        self._limits = limits
        self._certificate = certificate
        self._streams: Counter[str] = Counter()
        self._streams_by_address: Counter[str] = Counter()
        self._calls_by_address: Counter[str] = Counter()
        self._unexpected = CountedLog("unexpected error of a call")
        self._health = _Health()
        self._server = grpc.aio.server(
            options=_options(limits),
            maximum_concurrent_rpcs=limits.streams + limits.calls_per_address + _MORE_CALLS,
        )
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, self._scaler_handlers()),
                grpc.method_handlers_generic_handler(_HEALTH_SERVICE, self._health_handlers()),
                grpc.method_handlers_generic_handler(
                    _REFLECTION_SERVICE, self._reflection_handlers()
                ),
            )
        )

    @property
    def streams(self) -> dict[str, int]:
        """Return the number of open streams by method."""
        return {method: count for method, count in self._streams.items() if count}

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port.

        Raises:
            UnavailableError: the address can't be listened on.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._certificate is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, _credentials(self._certificate))
        except RuntimeError as error:
            raise UnavailableError(
                f"can't listen on {address}: the address is in use, or is none of this machine"
            ) from error
        await self._server.start()
        return bound

    def say_not_ready(self) -> None:
        """Report NOT_SERVING through grpc.health.v1 from now on."""
        self._health.stop_serving()

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, end the streams, and wait for calls in progress."""
        self._health.stop_serving()
        self._scaler.drain()
        await self._server.stop(grace_s)

    # Every method is served as a stream of requests, which is the same on the wire. So a client is
    # known and counted before its message has come, which may never happen.

    def _scaler_handlers(self) -> dict[str, "grpc.RpcMethodHandler[Any, Any]"]:
        scaler = self._scaler
        ref, spec, activity = pb.ScaledObjectRef, pb.GetMetricSpecResponse, pb.IsActiveResponse

        async def get_spec(request: pb.ScaledObjectRef, _: str) -> tuple[Any, Answer | None]:
            return scaler.spec(request), None

        def specs(request: pb.ScaledObjectRef, _: str) -> AsyncGenerator[Any, None]:
            return scaler.specs(request)

        read = ref.FromString
        return {
            "GetMetricSpec": grpc.stream_unary_rpc_method_handler(
                self._call("GetMetricSpec", read, get_spec), None, spec.SerializeToString
            ),
            "IsActive": grpc.stream_unary_rpc_method_handler(
                self._call("IsActive", read, scaler.is_active), None, activity.SerializeToString
            ),
            "GetMetrics": grpc.stream_unary_rpc_method_handler(
                self._call("GetMetrics", pb.GetMetricsRequest.FromString, scaler.metrics),
                None,
                pb.GetMetricsResponse.SerializeToString,
            ),
            "StreamIsActive": grpc.stream_stream_rpc_method_handler(
                self._stream("StreamIsActive", read, scaler.activity),
                None,
                activity.SerializeToString,
            ),
            "StreamMetricSpec": grpc.stream_stream_rpc_method_handler(
                self._stream("StreamMetricSpec", read, specs), None, spec.SerializeToString
            ),
        }

    def _health_handlers(self) -> dict[str, "grpc.RpcMethodHandler[Any, Any]"]:
        async def check(request: Any, _: str) -> tuple[Any, Answer | None]:  # noqa: ANN401 - as grpc has it
            return self._health.check(request.service), None

        def watch(request: Any, _: str) -> AsyncGenerator[Any, None]:  # noqa: ANN401 - as grpc has it
            return self._health.watch(request.service)

        read = health_pb2.HealthCheckRequest.FromString
        write = health_pb2.HealthCheckResponse.SerializeToString
        return {
            "Check": grpc.stream_unary_rpc_method_handler(
                self._call("Check", read, check), None, write
            ),
            "Watch": grpc.stream_stream_rpc_method_handler(
                self._stream("Watch", read, watch), None, write
            ),
        }

    def _reflection_handlers(self) -> dict[str, "grpc.RpcMethodHandler[Any, Any]"]:
        method = "ServerReflectionInfo"

        async def info(_: Any, context: Any) -> AsyncGenerator[Any, None]:  # noqa: ANN401
            # KEDA never asks for this, and the package takes 3 MiB.
            from grpc_reflection.v1alpha import reflection, reflection_pb2

            async with self._guarded(method, context) as ended:
                with self._room_for_stream(method, context):
                    names = (SERVICE, _HEALTH_SERVICE, _REFLECTION_SERVICE)
                    servicer: Any = reflection.aio.ReflectionServicer(names)
                    read = reflection_pb2.ServerReflectionRequest.FromString
                    while (body := await context.read()) is not grpc.aio.EOF:
                        request = _read(read, body)
                        async for each in servicer.ServerReflectionInfo(_one(request), context):
                            yield each
                ended.code = "OK"

        def write(message: Any) -> bytes:  # noqa: ANN401 - a message
            return bytes(message.SerializeToString())

        return {method: grpc.stream_stream_rpc_method_handler(info, None, write)}

    def _call(
        self,
        method: str,
        read: Callable[[bytes], Any],
        answer: Callable[[Any, str], Awaitable[tuple[Any, Answer | None]]],
    ) -> _Handler:
        async def handle(_: Any, context: Any) -> Any:  # noqa: ANN401 - as grpc has it
            async with self._guarded(method, context) as ended:
                address = _address(context)
                self._count_call(address, context)
                request = await _request(context, read)
                ended.began = time.perf_counter()
                message, found = await answer(request, address)
                if found is not None:
                    context.set_trailing_metadata(_trailing(found))
                ended.code = "OK"
                return message

        return handle

    def _stream(
        self,
        method: str,
        read: Callable[[bytes], Any],
        answers: Callable[[Any, str], AsyncGenerator[Any, None]],
    ) -> _Handler:
        async def handle(_: Any, context: Any) -> AsyncGenerator[Any, None]:  # noqa: ANN401
            async with self._guarded(method, context) as ended:
                with self._room_for_stream(method, context) as address:
                    request = await _request(context, read)
                    async with aclosing(answers(request, address)) as found:
                        async for each in found:
                            yield each
                ended.code = "OK"

        return handle

    def _count_call(self, address: str, context: Any) -> None:  # noqa: ANN401 - as grpc has it
        """Hold a call's place of its address until the client has read the answer."""
        calls = self._calls_by_address
        if calls[address] >= self._limits.calls_per_address:
            raise RefusedError(
                "RESOURCE_EXHAUSTED",
                f"{address} has {self._limits.calls_per_address} calls under way",
            )
        calls[address] += 1

        def ended(_: object) -> None:
            calls[address] -= 1
            if not calls[address]:
                del calls[address]

        context.add_done_callback(ended)

    def _guarded(self, method: str, context: Any) -> "_Guarded":  # noqa: ANN401 - as grpc has it
        return _Guarded(self._metrics, self._unexpected, method, context)

    def _room_for_stream(self, method: str, context: Any) -> "_Place":  # noqa: ANN401
        return _Place(
            self._streams, self._streams_by_address, self._limits, method, _address(context)
        )


class _Guarded:
    """A call or stream: counts its result, and gives the client the reason of a refusal."""

    def __init__(
        self,
        metrics: ScalerMetrics,
        unexpected: CountedLog,
        method: str,
        context: Any,  # noqa: ANN401 - as grpc has it
    ) -> None:
        self.code = "INTERNAL"
        self.began: float | None = None
        """When the request was there; None of streams."""
        self._metrics, self._method, self._context = metrics, method, context
        self._unexpected = unexpected

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, RefusedError):
            self.code = error.code
        elif isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.code = "CANCELLED"
        seconds = None if self.began is None else time.perf_counter() - self.began
        self._metrics.called(self._method, self.code, seconds)
        if isinstance(error, RefusedError):
            await self._context.abort(grpc.StatusCode[error.code], str(error)[:_REASON_CHARS])
        elif isinstance(error, Exception):
            # gRPC would log each of them with a traceback.
            self._unexpected.add(_address(self._context), f"{type(error).__name__}: {error}")
            _LOG.debug("the unexpected error", exc_info=error)
            await self._context.abort(grpc.StatusCode.INTERNAL, "unexpected error")


async def _request(context: Any, read: Callable[[bytes], Any]) -> Any:  # noqa: ANN401 - as grpc has it
    """Return the request message of a call.

    Raises:
        RefusedError: it does not come, or is none.
    """
    try:
        async with asyncio.timeout(_REQUEST_S):
            found = await context.read()
    except TimeoutError:
        raise RefusedError("DEADLINE_EXCEEDED", "the request did not come") from None
    if found is grpc.aio.EOF:
        raise RefusedError("INVALID_ARGUMENT", "found no request, expected one")
    return _read(read, found)


def _read(read: Callable[[bytes], Any], found: bytes) -> Any:  # noqa: ANN401 - a message
    try:
        return read(found)
    except Exception as error:  # protobuf's DecodeError has no common home over its releases
        raise RefusedError(
            "INVALID_ARGUMENT", f"found {len(found)} bytes that are no message of this method"
        ) from error


class _Place:
    """A stream's place within the limits of the server and of its address."""

    def __init__(
        self,
        by_method: Counter[str],
        by_address: Counter[str],
        limits: ServerLimits,
        method: str,
        address: str,
    ) -> None:
        self._by_method, self._by_address = by_method, by_address
        self._limits, self._method, self._address = limits, method, address

    def __enter__(self) -> str:
        limits = self._limits
        if self._by_address[self._address] >= limits.streams_per_address:
            raise RefusedError(
                "RESOURCE_EXHAUSTED",
                f"{self._address} has {limits.streams_per_address} streams open; "
                "see --max-streams-per-address",
            )
        if self._by_method.total() >= limits.streams:
            raise RefusedError(
                "RESOURCE_EXHAUSTED", f"{limits.streams} streams are open; see --max-streams"
            )
        self._by_method[self._method] += 1
        self._by_address[self._address] += 1
        return self._address

    def __exit__(self, *_: object) -> None:
        self._by_method[self._method] -= 1
        self._by_address[self._address] -= 1
        if not self._by_address[self._address]:
            del self._by_address[self._address]


async def _one(request: Any) -> AsyncGenerator[Any, None]:  # noqa: ANN401 - a message
    yield request


class _Health:
    """The grpc.health.v1 service for the scaler and for the server as a whole.

    The package's own service writes to each watcher under a lock, so that one who reads nothing holds up all.
    """

    def __init__(self) -> None:
        self._status = health_pb2.HealthCheckResponse.SERVING
        self._changed = asyncio.Event()

    def stop_serving(self) -> None:
        self._status = health_pb2.HealthCheckResponse.NOT_SERVING
        self._changed.set()

    def check(self, service: str) -> Any:  # noqa: ANN401 - a message
        if service not in _SERVED:
            raise RefusedError("NOT_FOUND", "unknown service")
        return health_pb2.HealthCheckResponse(status=self._status)

    async def watch(self, service: str) -> AsyncGenerator[Any, None]:
        """Yield the status and its change to NOT_SERVING, which is final."""
        known = service in _SERVED
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        sent = self._status if known else unknown
        yield health_pb2.HealthCheckResponse(status=sent)
        await self._changed.wait()
        if known and sent != self._status:
            yield health_pb2.HealthCheckResponse(status=self._status)


def _address(context: Any) -> str:  # noqa: ANN401 - as grpc has it
    """Parse a gRPC peer such as `ipv4:10.0.0.1:4242` or `ipv6:%5B2001:db8::1%5D:4242`."""
    kind, _, rest = context.peer().partition(":")
    if kind not in ("ipv4", "ipv6"):
        return str(kind)
    host = rest.rpartition(":")[0].removeprefix("%5B").removesuffix("%5D").strip("[]")
    return host if kind == "ipv4" else network_of(host)


def _trailing(answer: Answer) -> tuple[tuple[str, str | bytes], ...]:
    """Return an answer's basis as trailing metadata."""
    found: list[tuple[str, str | bytes]] = [("gpuscale-basis", answer.basis)]
    if answer.measured_ms is not None:
        found.append(("gpuscale-measured-ms", str(answer.measured_ms)))
    if answer.basis != "measured":
        found.append(("gpuscale-held-seconds", f"{answer.held_s:.3f}"))
        found.append(("gpuscale-reason-bin", answer.reason[:_REASON_CHARS].encode()))
    return tuple(found)


def _credentials(certificate: WatchedCertificate) -> grpc.ServerCredentials:
    """Return server credentials that gRPC reloads at each new connection, in one of its own threads."""
    used = certificate.material

    def renewed() -> Any:  # noqa: ANN401 - grpc keeps the class to itself
        nonlocal used
        if certificate.material == used:
            return None
        used = certificate.material
        return _configuration(used)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(used),
        renewed,
        require_client_authentication=used.client_cas is not None,
    )


def _configuration(material: TlsMaterial) -> Any:  # noqa: ANN401 - grpc keeps the class to itself
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], material.client_cas
    )


def _options(limits: ServerLimits) -> list[tuple[str, int]]:
    """Return gRPC channel arguments; see its include/grpc/impl/channel_arg_names.h."""
    of_connection = limits.streams_per_address + limits.calls_per_address
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", of_connection),
        # KEDA opens all its streams at once; those above this limit are queued, and may be
        # cancelled.
        ("grpc.server.max_pending_requests", of_connection),
        ("grpc.server.max_pending_requests_hard_limit", of_connection + _MORE_CALLS),
        # The default is 30 s: a busy machine would not reach the last of so many in time.
        ("grpc.server_max_unrequested_time_in_server", _MOST_WAIT_S),
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_allowed_incoming_connections", limits.connections + _SPARE_CONNECTIONS),
        ("grpc.server_handshake_timeout_ms", 10_000),
        # Small flow-control windows, as data before a refusal for size is kept in memory.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_connection_idle_ms", round(limits.idle_s * 1000)),
        ("grpc.max_connection_age_ms", round(limits.age_s * 1000)),
        ("grpc.max_connection_age_grace_ms", round(limits.age_grace_s * 1000)),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # Go's clients may ping every 10 s, and by default would be disconnected for pings without
        # a call.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.max_metadata_size", 8 * 1024),
        ("grpc.enable_http_proxy", 0),
    ]
