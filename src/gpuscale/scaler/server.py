"""KEDA's external scaler over gRPC, with health and reflection. One of two modules here that import `grpc`.

What one client can do is bounded before anything is worked out for it: bytes of a message, streams, calls at
once. The number of streams on one connection is not bounded by HTTP/2 itself: a Go client holds back what
is above that bound without an error, and KEDA's polls would wait for good.
"""

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

# gRPC's own log has a line for each failed handshake, which any client can make many of.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from gpuscale.core.errors import UnavailableError
from gpuscale.scaler.certificate import TlsMaterial, WatchedCertificate
from gpuscale.scaler.connections import network_of
from gpuscale.scaler.known_triggers import RefusedError
from gpuscale.scaler.limits import ServerLimits
from gpuscale.scaler.proto import externalscaler_pb2 as pb
from gpuscale.scaler.service import ExternalScaler
from gpuscale.scaler.telemetry import ScalerMetrics
from gpuscale.triggers.answer import Answer

SERVICE = "externalscaler.ExternalScaler"
_LOG = logging.getLogger(__name__)
_SPARE_CONNECTIONS = 64
"""Above the bound, so that what is too much can be looked at before it is closed."""
_CALLS_AT_ONCE = 1_000
_REASON_CHARS = 2_000
_Handler = Callable[[Any, Any], Any]


class GrpcServer:
    """The port that KEDA comes to.

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
        self._health = health.aio.HealthServicer()
        reflected = reflection.aio.ReflectionServicer(
            (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        )
        self._server = grpc.aio.server(
            options=_options(limits), maximum_concurrent_rpcs=limits.streams + _CALLS_AT_ONCE
        )
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, self._scaler_handlers()),
                grpc.method_handlers_generic_handler(health.SERVICE_NAME, self._health_handlers()),
                grpc.method_handlers_generic_handler(
                    reflection.SERVICE_NAME, self._reflection_handlers(reflected)
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
        await self.say_ready(is_ready=True)
        return bound

    async def say_ready(self, *, is_ready: bool) -> None:
        """Set what grpc.health.v1 answers."""
        status = health_pb2.HealthCheckResponse.SERVING
        if not is_ready:
            status = health_pb2.HealthCheckResponse.NOT_SERVING
        for name in (SERVICE, ""):
            await self._health.set(name, status)

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, end the streams, and let what is under way end."""
        self._scaler.drain()
        await self._server.stop(grace_s)

    def _scaler_handlers(self) -> dict[str, "grpc.RpcMethodHandler[Any, Any]"]:
        scaler = self._scaler
        ref, spec, activity = pb.ScaledObjectRef, pb.GetMetricSpecResponse, pb.IsActiveResponse

        async def get_spec(request: pb.ScaledObjectRef, _: str) -> tuple[Any, Answer | None]:
            return scaler.spec(request), None

        async def specs(request: pb.ScaledObjectRef, _: str) -> AsyncIterator[Any]:
            async for each in scaler.specs(request):
                yield each

        return {
            "GetMetricSpec": grpc.unary_unary_rpc_method_handler(
                self._call("GetMetricSpec", get_spec), ref.FromString, spec.SerializeToString
            ),
            "IsActive": grpc.unary_unary_rpc_method_handler(
                self._call("IsActive", scaler.is_active), ref.FromString, activity.SerializeToString
            ),
            "GetMetrics": grpc.unary_unary_rpc_method_handler(
                self._call("GetMetrics", scaler.metrics),
                pb.GetMetricsRequest.FromString,
                pb.GetMetricsResponse.SerializeToString,
            ),
            "StreamIsActive": grpc.unary_stream_rpc_method_handler(
                self._stream("StreamIsActive", scaler.activity),
                ref.FromString,
                activity.SerializeToString,
            ),
            "StreamMetricSpec": grpc.unary_stream_rpc_method_handler(
                self._stream("StreamMetricSpec", specs), ref.FromString, spec.SerializeToString
            ),
        }

    def _health_handlers(self) -> dict[str, "grpc.RpcMethodHandler[Any, Any]"]:
        async def watch(request: Any, context: Any) -> None:  # noqa: ANN401 - as grpc has it
            with self._room_for_stream("Watch", context):
                await self._health.Watch(request, context)

        request, response = health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
        return {
            "Check": grpc.unary_unary_rpc_method_handler(
                self._health.Check, request.FromString, response.SerializeToString
            ),
            "Watch": grpc.unary_stream_rpc_method_handler(
                _refusing(watch), request.FromString, response.SerializeToString
            ),
        }

    def _reflection_handlers(self, servicer: Any) -> dict[str, "grpc.RpcMethodHandler[Any, Any]"]:  # noqa: ANN401
        async def info(requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ANN401
            try:
                with self._room_for_stream("ServerReflectionInfo", context):
                    async for each in servicer.ServerReflectionInfo(requests, context):
                        yield each
            except RefusedError as error:
                await _abort(context, error)

        return {
            "ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(
                info,
                reflection_pb2.ServerReflectionRequest.FromString,
                reflection_pb2.ServerReflectionResponse.SerializeToString,
            )
        }

    def _call(
        self, method: str, answer: Callable[[Any, str], Awaitable[tuple[Any, Answer | None]]]
    ) -> _Handler:
        async def handle(request: Any, context: Any) -> Any:  # noqa: ANN401 - as grpc has it
            began = time.perf_counter()
            code = "INTERNAL"
            try:
                message, found = await answer(request, _address(context))
                if found is not None:
                    context.set_trailing_metadata(_trailing(found))
                code = "OK"
                return message
            except RefusedError as error:
                code = error.code
                await _abort(context, error)
            except asyncio.CancelledError:
                code = "CANCELLED"
                raise
            finally:
                self._metrics.called(method, code, time.perf_counter() - began)

        return handle

    def _stream(self, method: str, answers: Callable[[Any, str], AsyncIterator[Any]]) -> _Handler:
        async def handle(request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ANN401
            code = "INTERNAL"
            try:
                with self._room_for_stream(method, context) as address:
                    found = answers(request, address)
                    try:
                        async for each in found:
                            yield each
                    finally:
                        await found.aclose()  # type: ignore[attr-defined]
                code = "OK"
            except RefusedError as error:
                code = error.code
                await _abort(context, error)
            except (asyncio.CancelledError, GeneratorExit):
                code = "CANCELLED"
                raise
            finally:
                self._metrics.called(method, code, None)

        return handle

    def _room_for_stream(self, method: str, context: Any) -> "_Place":  # noqa: ANN401
        return _Place(
            self._streams, self._streams_by_address, self._limits, method, _address(context)
        )


class _Place:
    """A stream's place among all of them, and among those of its address."""

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


def _refusing(handler: Callable[[Any, Any], Awaitable[None]]) -> _Handler:
    async def handle(request: Any, context: Any) -> None:  # noqa: ANN401 - as grpc has it
        try:
            await handler(request, context)
        except RefusedError as error:
            await _abort(context, error)

    return handle


async def _abort(context: Any, error: RefusedError) -> None:  # noqa: ANN401 - as grpc has it
    await context.abort(grpc.StatusCode[error.code], str(error)[:_REASON_CHARS])


def _address(context: Any) -> str:  # noqa: ANN401 - as grpc has it
    """Return the client of `ipv4:10.0.0.1:4242` or `ipv6:%5B2001:db8::1%5D:4242`."""
    kind, _, rest = context.peer().partition(":")
    if kind not in ("ipv4", "ipv6"):
        return str(kind)
    host = rest.rpartition(":")[0].removeprefix("%5B").removesuffix("%5D").strip("[]")
    return host if kind == "ipv4" else network_of(host)


def _trailing(answer: Answer) -> tuple[tuple[str, str | bytes], ...]:
    """Return what an answer rests on, as metadata after it."""
    found: list[tuple[str, str | bytes]] = [("gpuscale-basis", answer.basis)]
    if answer.measured_ms is not None:
        found.append(("gpuscale-measured-ms", str(answer.measured_ms)))
    if answer.basis != "measured":
        found.append(("gpuscale-held-seconds", f"{answer.held_s:.3f}"))
        found.append(("gpuscale-reason-bin", answer.reason[:_REASON_CHARS].encode()))
    return tuple(found)


def _credentials(certificate: WatchedCertificate) -> grpc.ServerCredentials:
    """Return credentials that are asked for again with each new connection, by a thread of gRPC's."""
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
    """Return gRPC's own limits; see its include/grpc/impl/channel_arg_names.h."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_allowed_incoming_connections", limits.connections + _SPARE_CONNECTIONS),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.max_connection_idle_ms", round(limits.idle_s * 1000)),
        ("grpc.max_connection_age_ms", round(limits.age_s * 1000)),
        ("grpc.max_connection_age_grace_ms", round(limits.age_grace_s * 1000)),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # Go's clients may ping each 10 s, and are cut off for pinging where there is no call.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.max_metadata_size", 8 * 1024),
        ("grpc.enable_http_proxy", 0),
    ]
