"""Detects which tool's result a file is, and reads its timeline."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from gpuscale.base.errors import ConfigError, Problem
from gpuscale.load.results.aiperf import read_aiperf, read_mooncake
from gpuscale.load.results.charted import result_timeline, result_totals
from gpuscale.load.results.guidellm import read_guidellm
from gpuscale.load.results.hey import HEADER, read_hey
from gpuscale.load.results.inference_perf import read_inference_perf
from gpuscale.load.results.types import MAX_BYTES, ReadResult, RequestResult, refuse
from gpuscale.load.timeline.document import KIND, read_timeline
from gpuscale.load.timeline.types import Timeline

_EXPECTED = (
    "a result of gpuscale load (-o json), hey (-o csv), GuideLLM (benchmarks.json), AIPerf "
    "(profile_export.jsonl), inference-perf (per_request_lifecycle_metrics.json), or a Mooncake trace"
)
_LATEST_MS = 4_102_444_800_000.0  # the year 2100
_LONGEST_MS = 7 * 86_400_000.0
_LINE = 1_000_000
"""Characters of a line; AIPerf's have some thousand."""


def read_result(
    path: Path, started_ms: int | None
) -> tuple[Timeline, dict[str, str], tuple[str, ...]]:
    """Return a file's timeline, total figures, and notes on them.

    Args:
        path: of the file.
        started_ms: when its first request was, for files that don't say; None goes by its file time.

    Raises:
        ConfigError: it is no result that is known, is too large, or has something wrong.
        OSError: it can't be read.
    """
    size = path.stat().st_size
    if size > MAX_BYTES:
        refuse(str(path), None, None, f"{size} bytes", f"at most {MAX_BYTES}")
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        lines = _lines(file, str(path))
        first = next(lines, "")
        found = _of_lines(first, chain([first], lines), str(path))
    if found is None:
        if not path.is_file():  # a pipe or a device, which can't be read twice, or has no end
            refuse(str(path), None, None, "another file", f"{_EXPECTED}, in a file of its own")
        whole = path.read_bytes()
        if (timeline := _own(whole, str(path))) is not None:
            return timeline, {}, ()
        found = _of_document(whole, str(path))
    if not found.requests:
        refuse(str(path), None, None, "no requests", "one or more")
    if not all(_is_possible(each) for each in found.requests):
        refuse(str(path), None, None, "a request at an impossible time", "times of this age")
    notes = list(found.notes)
    if not found.has_epoch and started_ms is None:
        ends_s = max(each.start_ms + (each.latency_ms or 0) for each in found.requests) / 1000
        begins_s = min(each.start_ms for each in found.requests) / 1000
        started_ms = round(1000 * (path.stat().st_mtime - (ends_s - begins_s)))
        notes.append("when it began is by when the file was written; --started says it exactly")
    return result_timeline(found, path.name, started_ms), result_totals(found), tuple(notes)


def _is_possible(request: RequestResult) -> bool:
    return 0 <= request.start_ms < _LATEST_MS and all(
        each is None or 0 <= each < _LONGEST_MS
        for each in (request.latency_ms, request.first_token_ms)
    )


def _lines(file: Any, source: str) -> Iterator[str]:  # noqa: ANN401 - a text file
    number = 0
    while line := file.readline(_LINE):
        number += 1
        if len(line) >= _LINE and number > 1:
            refuse(source, number, None, "a longer line", f"at most {_LINE} characters")
        yield line


def _of_lines(first: str, lines: Iterator[str], source: str) -> ReadResult | None:
    """Return the requests of a line-based file, detected by its first line; None if unknown."""
    if tuple(first.strip().split(",")) == HEADER:
        return read_hey(lines, source)
    try:
        entry = json.loads(first)
    except (ValueError, RecursionError):
        return None
    match entry:
        case {"metadata": {"request_start_ns": _}}:
            return read_aiperf(lines, source)
        case {"timestamp": _, "input_length": _} | {"timestamp": _, "text_input": _}:
            return read_mooncake(lines, source)
    return None


def _own(data: bytes, source: str) -> Timeline | None:
    """Return the timeline of our own result; None for another document."""
    if KIND.encode() not in data:
        return None
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(Problem(source, None, None, str(error)[:200], "JSON")) from None
    if isinstance(document, Mapping) and document.get("kind") == KIND:
        return read_timeline(document, source)
    inner = document.get("timeline") if isinstance(document, Mapping) else None
    return read_timeline(inner, source) if isinstance(inner, Mapping) else None


def _of_document(data: bytes, source: str) -> ReadResult:
    start = data[:4096].lstrip()
    if start.startswith(b"["):
        return read_inference_perf(data, source)
    if not start.startswith(b"{") or b'"benchmarks"' not in data:
        refuse(source, None, None, "another file", _EXPECTED)
    return read_guidellm(data, source)


def joined(timelines: list[Timeline]) -> Timeline:
    """Return several timelines as one, on one time axis; names get those of their files."""
    if len(timelines) == 1:
        return timelines[0]
    tracks = [
        replace(track, name=f"{each.title}: {track.name}")
        for each in timelines
        for track in each.tracks
    ]
    return Timeline(
        " + ".join(each.title for each in timelines),
        min(each.started_ms for each in timelines),
        max(each.ended_ms for each in timelines),
        tuple(tracks),
        tuple(sorted((m for each in timelines for m in each.marks), key=lambda mark: mark.at_ms)),
        tuple(span for each in timelines for span in each.spans),
    )
