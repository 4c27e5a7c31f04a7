"""AIPerf's `profile_export.jsonl`, a line for each request; and Mooncake traces, of what is to be sent.

Source: ai-dynamo/aiperf 0.1.1 (db4f639), docs/tutorials/working-with-profile-exports.md and
dataset/loader/models.py (MooncakeTrace). Records have epoch times in
nanoseconds, a trace has milliseconds from its start.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from gpuscale.load.results.types import MAX_REQUESTS, ReadResult, RequestResult, refuse

_T = TypeVar("_T")


class _Metadata(msgspec.Struct):
    request_start_ns: int
    request_end_ns: int | None = None
    benchmark_phase: str = "profiling"


class _Metric(msgspec.Struct):
    value: Any = None
    unit: str = ""


class _Record(msgspec.Struct):
    metadata: _Metadata
    metrics: dict[str, _Metric] | None = None
    error: Any = None


class _Entry(msgspec.Struct):
    timestamp: float
    input_length: int | None = None
    output_length: int | None = None


def read_aiperf(lines: Iterable[str], source: str) -> ReadResult:
    """Return the requests of AIPerf's records.

    Raises:
        ConfigError: a line is no record, or there are too many.
    """
    decoder = msgspec.json.Decoder(_Record)
    requests: list[RequestResult] = []
    warm_up = 0
    for record in _decoded(lines, decoder, source, "a record of profile_export.jsonl"):
        if record.metadata.benchmark_phase != "profiling":
            warm_up += 1
            continue
        metrics = record.metrics or {}
        is_ok = record.error is None
        latency_ms = _ms(metrics.get("request_latency"))
        if latency_ms is None and record.metadata.request_end_ns is not None:
            latency_ms = (record.metadata.request_end_ns - record.metadata.request_start_ns) / 1e6
        tokens = metrics.get("output_sequence_length")
        requests.append(
            RequestResult(
                record.metadata.request_start_ns / 1e6,
                latency_ms if is_ok else None,
                is_ok,
                _ms(metrics.get("time_to_first_token")),
                int(tokens.value) if tokens and isinstance(tokens.value, (int, float)) else None,
            )
        )
    notes = (f"{warm_up} requests of the warm-up are left out",) if warm_up else ()
    return ReadResult("AIPerf", requests, has_epoch=True, notes=notes)


def read_mooncake(lines: Iterable[str], source: str) -> ReadResult:
    """Return the requests of a Mooncake trace: when they are due, and how many tokens they ask for.

    Raises:
        ConfigError: a line is no entry with a timestamp, or there are too many.
    """
    decoder = msgspec.json.Decoder(_Entry)
    entries = _decoded(lines, decoder, source, "an entry of a Mooncake trace, with a timestamp")
    requests = [
        RequestResult(each.timestamp, None, True, None, each.output_length, each.input_length)
        for each in entries
    ]
    return ReadResult("Mooncake trace", requests, has_epoch=False, is_plan=True)


def _decoded(
    lines: Iterable[str], decoder: "msgspec.json.Decoder[_T]", source: str, expected: str
) -> Iterable[_T]:
    count = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        count += 1
        if count > MAX_REQUESTS:
            refuse(source, number, None, "more lines", f"at most {MAX_REQUESTS}")
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            refuse(source, number, None, str(error), expected)


def _ms(metric: _Metric | None) -> float | None:
    """Return a time in milliseconds; AIPerf names the unit beside each value."""
    if metric is None or not isinstance(metric.value, (int, float)):
        return None
    scale = {"ms": 1.0, "ns": 1e-6, "us": 1e-3, "s": 1e3, "sec": 1e3}.get(metric.unit)
    return None if scale is None else float(metric.value) * scale
