"""Requests and responses of an OTLP/HTTP endpoint for metrics, in protobuf and JSON.

Source: opentelemetry-proto 1.x (collector/metrics/v1), OTLP specification 1.x (OTLP/HTTP).
"""

import json
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest as Request,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    SummaryDataPoint,
)

# isort: split
# Behind the others: where all are missing, the extra that brings them is named by the first.
from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from google.protobuf.message import DecodeError

__all__ = [
    "AGGREGATION_TEMPORALITY_CUMULATIVE",
    "AnyValue",
    "HistogramDataPoint",
    "KeyValue",
    "MalformedRequestError",
    "Metric",
    "NumberDataPoint",
    "Request",
    "ResourceMetrics",
    "SummaryDataPoint",
    "answer",
    "read_request",
]

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_UNREAD = "exemplars"
"""Their ids are hexadecimal in OTLP's JSON and base64 in protobuf's; nothing reads them here."""


class MalformedRequestError(ValueError):
    """A body is no valid OTLP request."""


def read_request(body: bytes, content_type: str) -> Request:
    """Parse a request's body.

    Args:
        body: not compressed.
        content_type: `PROTOBUF` or `JSON`.

    Raises:
        MalformedRequestError: it is none.
    """
    request = Request()
    try:
        if content_type == PROTOBUF:
            request.ParseFromString(body)
        else:
            value = _without_exemplars(json.loads(body))
            if not isinstance(value, dict):
                raise ParseError("found no object")  # noqa: TRY301 - one place makes the words
            ParseDict(value, request, ignore_unknown_fields=True)
    except (
        DecodeError,
        ParseError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        reason = str(error).partition("\n")[0][:200]
        raise MalformedRequestError(f"found no OTLP metrics in {content_type}: {reason}") from None
    return request


def answer(content_type: str, rejected: int, reason: str) -> bytes:
    """Return the body of a successful response, which reports what was left out."""
    response = ExportMetricsServiceResponse()
    if rejected or reason:
        response.partial_success.rejected_data_points = rejected
        response.partial_success.error_message = reason
    if content_type == PROTOBUF:
        return response.SerializeToString()
    return MessageToJson(response, indent=None).encode()


def _without_exemplars(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return {key: _without_exemplars(each) for key, each in value.items() if key != _UNREAD}
    return [_without_exemplars(each) for each in value] if isinstance(value, list) else value
