"""A client of KEDA's external scaler, and a server for it, over real gRPC on loopback."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio

from answering import SetAnswers, read_plainly
from gpuscale.server.scaler.certificate import WatchedCertificate
from gpuscale.server.scaler.known_triggers import KnownTriggers, WatchedTriggers
from gpuscale.server.scaler.limits import ServerLimits
from gpuscale.server.scaler.proto import externalscaler_pb2 as pb
from gpuscale.server.scaler.server import GrpcServer
from gpuscale.server.scaler.service import ExternalScaler
from gpuscale.server.scaler.telemetry import ScalerMetrics

PATH = "/externalscaler.ExternalScaler"
PLAIN = {"workload": "vision", "target": "2.5"}


def ref(name: str = "so", namespace: str = "ml", **metadata: str) -> pb.ScaledObjectRef:
    return pb.ScaledObjectRef(name=name, namespace=namespace, scalerMetadata={**PLAIN, **metadata})


class Client:
    """The calls that KEDA makes."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.get_spec = self._unary("GetMetricSpec", pb.GetMetricSpecResponse)
        self.is_active = self._unary("IsActive", pb.IsActiveResponse)
        self._metrics = self._unary("GetMetrics", pb.GetMetricsResponse)
        self.activity = self._streaming("StreamIsActive", pb.IsActiveResponse)
        self.specs = self._streaming("StreamMetricSpec", pb.GetMetricSpecResponse)

    def metrics(self, scaled_object: pb.ScaledObjectRef, name: str = "queue") -> Any:
        return self._metrics(pb.GetMetricsRequest(scaledObjectRef=scaled_object, metricName=name))

    def _unary(self, method: str, response: Any) -> Callable[[Any], Any]:
        return self.channel.unary_unary(
            f"{PATH}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )

    def _streaming(self, method: str, response: Any) -> Callable[[Any], Any]:
        return self.channel.unary_stream(
            f"{PATH}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )


def own_channel(
    port: int, credentials: grpc.ChannelCredentials | None = None, *options: tuple[str, Any]
) -> grpc.aio.Channel:
    """Return a channel with a connection of its own."""
    own = (("grpc.use_local_subchannel_pool", 1), *options)
    target = f"localhost:{port}" if credentials else f"127.0.0.1:{port}"
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=own)
    return grpc.aio.secure_channel(target, credentials, options=own)


class Served:
    """A server whose answers a test sets."""

    def __init__(
        self, limits: ServerLimits, certificate: WatchedCertificate | None, most: int
    ) -> None:
        self.answers = SetAnswers(most)
        self.metrics = ScalerMetrics()
        self.watched = WatchedTriggers(limits.triggers, limits.triggers_per_address)
        self.scaler = ExternalScaler(
            self.answers,
            KnownTriggers(read_plainly),
            self.watched,
            self.metrics,
            limits.stream_lifetime_s,
        )
        self.server = GrpcServer(self.scaler, self.metrics, limits, certificate)
        self.port = 0


@asynccontextmanager
async def served(
    certificate: WatchedCertificate | None = None, most: int = 100_000, **limits: Any
) -> AsyncIterator[Served]:
    found = Served(replace(ServerLimits(), **limits), certificate, most)
    found.port = await found.server.start("127.0.0.1", 0)
    try:
        yield found
    finally:
        await found.server.stop(0.1)


@asynccontextmanager
async def client_of(
    found: Served, credentials: grpc.ChannelCredentials | None = None, *options: tuple[str, Any]
) -> AsyncIterator[Client]:
    async with own_channel(found.port, credentials, *options) as channel:
        yield Client(channel)
