"""OTLP metrics: parsed, and converted as Prometheus' own OTLP endpoint does."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.series.otlp.message import MalformedRequestError, Request, answer, read_request
    from gpuscale.series.otlp.points import OtlpSample, Refusals, samples
else:
    __getattr__ = door(__name__)

__all__ = [
    "MalformedRequestError",
    "OtlpSample",
    "Refusals",
    "Request",
    "answer",
    "read_request",
    "samples",
]
