"""A client that asks a scaler what KEDA would: metric spec, value, activity."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio

from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.server.scaler.proto import externalscaler_pb2 as pb

_PATH = "/externalscaler.ExternalScaler"
_TIMEOUT_S = 5.0
_NO_ANSWER = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Channel:
    """A scaler's address and TLS files; an empty path is none."""

    server: str
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def open(self) -> grpc.aio.Channel:
        """Return a gRPC channel, which connects at the first call.

        Raises:
            UsageError: files that can't be read, or don't go together.
        """
        if bool(self.cert_file) != bool(self.key_file):
            raise UsageError("found one of --cert-file and --key-file, expected both")
        if not (self.ca_file or self.cert_file):
            return grpc.aio.insecure_channel(self.server)
        ca, key, certificate = map(_content, (self.ca_file, self.key_file, self.cert_file))
        return grpc.aio.secure_channel(
            self.server, grpc.ssl_channel_credentials(ca, key, certificate)
        )


async def ask_scaler(
    channel: Channel, namespace: str, name: str, metadata: Mapping[str, str]
) -> Found:
    """Return the scaler's answers for a trigger.

    Args:
        channel: to it.
        namespace: of the ScaledObject.
        name: of the ScaledObject.
        metadata: of the trigger.

    Raises:
        UsageError: the metadata is wrong.
        UnavailableError: there is no scaler.
    """
    ref = pb.ScaledObjectRef(name=name, namespace=namespace, scalerMetadata=metadata)
    async with channel.open() as opened:
        try:
            return await _ask(opened, ref)
        except grpc.aio.AioRpcError as error:
            details = error.details() or error.code().name
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise UsageError(details) from error
            raise UnavailableError(f"{channel.server}: {details}") from error


async def _ask(opened: grpc.aio.Channel, ref: pb.ScaledObjectRef) -> Found:
    specs = await _call(opened, "GetMetricSpec", pb.GetMetricSpecResponse)(ref, timeout=_TIMEOUT_S)
    spec = specs.metricSpecs[0]
    found: Found = {
        "metric": spec.metricName,
        "target": spec.targetSizeFloat or spec.targetSize,
        "value": None,
        "active": None,
        "basis": "unavailable",
    }
    request = pb.GetMetricsRequest(scaledObjectRef=ref, metricName=spec.metricName)
    try:
        asking = _call(opened, "GetMetrics", pb.GetMetricsResponse)(request, timeout=_TIMEOUT_S)
        value = (await asking).metricValues[0]
        trailing = await asking.trailing_metadata()
        active = await _call(opened, "IsActive", pb.IsActiveResponse)(ref, timeout=_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        if error.code().name not in _NO_ANSWER:
            raise
        return {**found, "reason": error.details()}
    noted = dict(trailing or ())
    found |= {
        "value": value.metricValueFloat or float(value.metricValue),
        "active": active.result,
        "basis": noted.get("gpuscale-basis", "measured"),
    }
    if "gpuscale-held-seconds" in noted:
        found["heldSeconds"] = float(noted["gpuscale-held-seconds"])
        found["reason"] = bytes(noted.get("gpuscale-reason-bin", b"")).decode(errors="replace")
    return found


def lines_of(found: Found) -> Iterator[str]:
    """Yield the answers as lines of text."""
    yield f"metric  {found['metric']}, target {found['target']:g} per pod"
    if found["value"] is None:
        yield f"value   none: {found['reason']}"
        return
    pods = found["value"] / found["target"]
    yield f"active  {'yes' if found['active'] else 'no'}"
    yield f"value   {found['value']:g}, which is {pods:.3g} pods at the target"
    if found["basis"] != "measured":
        yield f"basis   {found['basis']} for {found['heldSeconds']:.0f} s: {found['reason']}"


def _call(opened: grpc.aio.Channel, method: str, response: Any) -> Any:  # noqa: ANN401 - a message class
    return opened.unary_unary(
        f"{_PATH}/{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=response.FromString,
    )


def _content(path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from error
