"""inference-perf's `per_request_lifecycle_metrics.json`: a list of requests.

Source: kubernetes-sigs/inference-perf 0.6.1 (7de5ef2), reportgen/base.py, apis/base.py; times are seconds of
a clock of the machine (time.perf_counter), not of the epoch.
"""

import msgspec

from gpuscale.load.results.types import MAX_REQUESTS, ReadResult, RequestResult, refuse


class _Response(msgspec.Struct):
    output_tokens: int | None = None
    output_token_times: list[float] = []


class _Info(msgspec.Struct):
    response_metrics: _Response | None = None


class _Error(msgspec.Struct):
    error_type: str = ""


class _Metric(msgspec.Struct):
    start_time: float
    end_time: float
    info: _Info | None = None
    error: _Error | None = None


def read_inference_perf(data: bytes, source: str) -> ReadResult:
    """Return the requests of an inference-perf report.

    Raises:
        ConfigError: a field is missing or wrong, or there are too many requests.
    """
    try:
        metrics = msgspec.json.decode(data, type=list[_Metric])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        expected = "per_request_lifecycle_metrics.json (report.request_lifecycle.per_request: true)"
        refuse(source, None, None, str(error), expected)
    if len(metrics) > MAX_REQUESTS:
        refuse(source, None, None, f"{len(metrics)} requests", f"at most {MAX_REQUESTS}")
    return ReadResult("inference-perf", [_request(each) for each in metrics], has_epoch=False)


def _request(metric: _Metric) -> RequestResult:
    is_ok = metric.error is None
    response = metric.info.response_metrics if metric.info is not None else None
    times = response.output_token_times if response is not None else []
    return RequestResult(
        metric.start_time * 1000,
        (metric.end_time - metric.start_time) * 1000 if is_ok else None,
        is_ok,
        (times[0] - metric.start_time) * 1000 if times else None,
        response.output_tokens if response is not None else None,
    )
