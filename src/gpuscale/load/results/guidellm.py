"""GuideLLM's `benchmarks.json`, version 2 of its report: every benchmark of it, one after the other.

Source: vllm-project/guidellm 0.7.3 (ee7a774), benchmark/schemas/report.py and benchmark.py,
schemas/request_stats.py and info.py; times are seconds since the epoch.
"""

import msgspec

from gpuscale.load.results.types import MAX_REQUESTS, ReadResult, RequestResult, refuse
from gpuscale.load.timeline.types import TimelineMark

_VERSION = 2


class _Timings(msgspec.Struct):
    request_start: float | None = None
    resolve_start: float | None = None
    request_end: float | None = None
    resolve_end: float | None = None
    first_token_iteration: float | None = None


class _Info(msgspec.Struct):
    timings: _Timings


class _Stats(msgspec.Struct):
    info: _Info
    output_tokens: float | None = None


class _Requests(msgspec.Struct):
    successful: list[_Stats] | None = None
    errored: list[_Stats] | None = None
    incomplete: list[_Stats] | None = None


class _Strategy(msgspec.Struct):
    type_: str = ""


class _Config(msgspec.Struct):
    strategy: _Strategy | None = None
    sample_size: int | None = None


class _Benchmark(msgspec.Struct):
    config: _Config
    requests: _Requests
    start_time: float | None = None


class _Metadata(msgspec.Struct):
    version: int
    guidellm_version: str = ""


class _Report(msgspec.Struct):
    metadata: _Metadata
    benchmarks: list[_Benchmark]


def read_guidellm(data: bytes, source: str) -> ReadResult:
    """Return the requests of a GuideLLM report.

    Raises:
        ConfigError: another version, a field that is missing or wrong, or too many requests.
    """
    try:
        report = msgspec.json.decode(data, type=_Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        refuse(source, None, None, str(error), "a benchmarks.json of GuideLLM")
    if report.metadata.version != _VERSION:
        found = f"version {report.metadata.version}"
        refuse(source, None, "metadata.version", found, f"version {_VERSION}")
    requests: list[RequestResult] = []
    marks: list[TimelineMark] = []
    notes: dict[str, None] = {}
    for benchmark in report.benchmarks:
        groups = benchmark.requests
        if benchmark.config.sample_size is not None:
            notes[
                "GuideLLM kept a sample of the requests (sample_size); rates are of that sample"
            ] = None
        if benchmark.start_time is not None:
            strategy = benchmark.config.strategy.type_ if benchmark.config.strategy else ""
            at_ms = round(benchmark.start_time * 1000)
            marks.append(TimelineMark(at_ms, "BenchmarkStarted", f"Benchmark/{strategy}", ""))
        for listed, is_ok in ((groups.successful, True), (groups.errored, False)):
            read = (_request(each, is_ok=is_ok) for each in listed or ())
            requests += (each for each in read if each is not None)
        if len(requests) > MAX_REQUESTS:
            refuse(source, None, "benchmarks", "more requests", f"at most {MAX_REQUESTS}")
        if groups.incomplete:
            notes[f"{len(groups.incomplete)} requests were cut off by the end of a benchmark"] = (
                None
            )
    return ReadResult("GuideLLM", requests, has_epoch=True, marks=tuple(marks), notes=tuple(notes))


def _request(stats: _Stats, *, is_ok: bool) -> RequestResult | None:
    times = stats.info.timings
    start = times.request_start if times.request_start is not None else times.resolve_start
    end = times.request_end if times.request_end is not None else times.resolve_end
    if start is None:
        return None
    first = times.first_token_iteration
    return RequestResult(
        start * 1000,
        (end - start) * 1000 if is_ok and end is not None else None,
        is_ok,
        (first - start) * 1000 if first is not None else None,
        round(stats.output_tokens) if stats.output_tokens is not None else None,
    )
