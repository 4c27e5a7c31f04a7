"""Results of other load tools: what they measured, second by second, on our timeline."""

import json
import os
from pathlib import Path

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.load.results.charted import percentile
from gpuscale.load.results.reading import joined, read_result
from gpuscale.load.timeline.document import timeline_document

START_S = 1_760_000_000
START_MS = START_S * 1000
HEY = "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset"


@pytest.fixture
def read(tmp_path):
    def of(text, name="result", started_ms=None):
        path = tmp_path / name
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return read_result(path, started_ms)

    return of


def lines(timeline):
    return {track.name: [value for _, value in track.points] for track in timeline.tracks}


def test_hey_has_a_row_for_each_answer(read) -> None:
    # In the first second 3 answers (10, 20 and 30 ms, one of them a 503), none in the second, 1 in the third.
    rows = ["0.010,0,0,0,0,0,200,0.1", "0.030,0,0,0,0,0,503,0.2", "0.020,0,0,0,0,0,200,0.9",
            "0.500,0,0,0,0,0,200,2.1"]  # fmt: skip
    timeline, totals, notes = read("\n".join([HEY, *rows]), "hey.csv", START_MS)
    assert lines(timeline) == {
        "sent": [3, 0, 1],
        "failed": [1, 0, 0],
        "p50": [20, None, 500],
        "p95": [30, None, 500],
        "p99": [30, None, 500],
    }
    assert timeline.started_ms == START_MS
    assert timeline.tracks[0].points[0][0] == START_MS + 1000
    assert totals["Requests"] == "4"
    assert len(notes) == 1  # that failures without an answer are not in the file


def test_a_file_without_a_date_goes_by_when_it_was_written(read, tmp_path) -> None:
    path = tmp_path / "hey.csv"
    path.write_text(f"{HEY}\n1.0,0,0,0,0,0,200,0\n0.5,0,0,0,0,0,200,9.5")
    os.utime(path, (START_S, START_S))
    timeline, _, notes = read_result(path, None)
    assert timeline.started_ms == START_MS - 10_000  # it ended 10 s after its first request began
    assert any("--started" in note for note in notes)


def stats(start, end, first=None, tokens=None):
    timings = {"request_start": start, "request_end": end, "first_token_iteration": first}
    return {"info": {"timings": timings, "status": "x"}, "output_tokens": tokens, "more": [1]}


def test_guidellm_benchmarks_follow_one_another(read) -> None:
    benchmark = {
        "config": {"strategy": {"type_": "constant", "rate": 2}, "sample_size": None},
        "start_time": START_S,
        "requests": {
            "successful": [stats(START_S, START_S + 1.5, START_S + 0.25, 40)],
            "errored": [stats(START_S + 1, START_S + 1.1)],
            "incomplete": [stats(START_S + 1, None)],
        },
    }
    report = {"metadata": {"version": 2, "guidellm_version": "0.7.3"}, "benchmarks": [benchmark]}
    timeline, _, notes = read(report)
    found = lines(timeline)
    assert (found["sent"], found["failed"], found["output"]) == ([1, 1], [0, 1], [40, 0])
    assert (found["p99"], found["first token p50"]) == ([1500, None], [250, None])
    assert timeline.started_ms == START_MS
    assert [mark.object for mark in timeline.marks] == ["Benchmark/constant"]
    assert notes == ("1 requests were cut off by the end of a benchmark",)


def aiperf(start_ns, **more):
    return {"metadata": {"request_start_ns": start_ns, "benchmark_phase": "profiling"}, **more}


def test_aiperf_has_a_line_for_each_request_with_units(read) -> None:
    start_ns = START_S * 10**9
    metrics = {
        "request_latency": {"value": 297.5, "unit": "ms"},
        "time_to_first_token": {"value": 0.25, "unit": "s"},
        "output_sequence_length": {"value": 9, "unit": "tokens"},
        "inter_chunk_latency": {"value": [4.8, 5.3], "unit": "ms"},
    }
    records = [
        aiperf(start_ns, metrics=metrics, error=None),
        aiperf(start_ns + 10**8, metrics=None, error={"code": 499, "type": "X", "message": "m"}),
    ]
    timeline, _, _ = read("\n".join(map(json.dumps, records)), "profile_export.jsonl")
    found = lines(timeline)
    assert (found["sent"], found["failed"], found["output"]) == ([2], [1], [9])
    assert (found["p95"], found["first token p95"]) == ([297.5], [250])
    assert timeline.started_ms == START_MS


def test_a_mooncake_trace_is_a_plan_and_measures_nothing(read) -> None:
    rows = [
        {"timestamp": t, "input_length": 10, "output_length": 5, "hash_ids": [1]}
        for t in (0, 400, 1700)
    ]
    timeline, totals, _ = read("\n".join(map(json.dumps, rows)), "trace.jsonl", START_MS)
    assert lines(timeline) == {"planned": [2, 1], "output": [10, 5]}
    assert totals == {"Requests": "3"}


def test_inference_perf_has_a_list_of_requests(read) -> None:
    info = {"response_metrics": {"output_tokens": 7, "output_token_times": [100.5, 100.6]}, "x": 1}
    requests = [
        {"start_time": 100.0, "end_time": 101.0, "request": "r", "info": info, "error": None},
        {"start_time": 100.2, "end_time": 100.3, "info": None, "error": {"error_type": "E"}},
    ]  # fmt: skip
    found = lines(read(requests, started_ms=START_MS)[0])
    assert (found["sent"], found["failed"], found["p50"]) == ([2], [1], [1000])
    assert (found["first token p50"], found["output"]) == ([500], [7])


def test_our_own_results_are_read_too(read) -> None:
    timeline, _, _ = read(f"{HEY}\n1.0,0,0,0,0,0,200,0", started_ms=START_MS)
    document = timeline_document(timeline)
    assert read(document)[0] == timeline
    assert read({"kind": "LoadResult", "timeline": document})[0] == timeline


def test_several_files_share_one_time_axis(read) -> None:
    one = read(f"{HEY}\n1.0,0,0,0,0,0,200,0", "one.csv", START_MS)[0]
    two = read(f"{HEY}\n1.0,0,0,0,0,0,200,0", "two.csv", START_MS + 60_000)[0]
    whole = joined([one, two])
    assert (whole.started_ms, whole.title) == (START_MS, "hey · one.csv + hey · two.csv")
    assert whole.ended_ms >= START_MS + 61_000
    assert {track.name for track in whole.tracks if track.unit == "requests/s"} == {
        "hey · one.csv: sent", "hey · one.csv: failed", "hey · two.csv: sent", "hey · two.csv: failed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "expected a result of gpuscale load"),
        ("", "expected a result of gpuscale load"),
        (f"{HEY}\n1,2", "result:2: found 1,2, expected numbers in 8 columns"),
        (f"{HEY}\n-1,0,0,0,0,0,200,0", "expected times from 0 on"),
        (HEY, "found no requests"),
        ({"metadata": {"version": 1}, "benchmarks": []}, "found version 1, expected version 2"),
        ({"benchmarks": 7}, "expected a benchmarks.json of GuideLLM"),
        ([{"start_time": "soon"}], "per_request_lifecycle_metrics.json"),
        ([{"start_time": 1e300, "end_time": 1e300}], "an impossible time"),
        ('{"timestamp": 0, "input_length": 1}\n{"timestamp": "x"}', "result:2: found Expected"),
        ('{"timestamp": 0, "input_length": 1}\n' + "x" * 2_000_000, "a longer line"),
        ({"kind": "LoadTimeline", "apiVersion": "v9"}, "expected LoadTimeline of"),
        ("[" * 100_000, "expected per_request_lifecycle_metrics.json"),
    ],
)
def test_a_file_that_is_no_result_or_wrong_is_refused(read, text, said) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'[{"start_time": "\x80"}]', "expected per_request_lifecycle_metrics.json"),
        (b'{"benchmarks": [], "metadata": {"version": "\x80"}}', "a benchmarks.json of GuideLLM"),
        (b'{"kind": "LoadTimeline\x80"}', "result"),
        (b'{"timestamp": 0, "input_length": 1}\n{"timestamp": "\x80"}', "result:2: found "),
        (HEY.encode() + b"\n\x80,2", "result:2: found "),
    ],
)
def test_a_text_that_is_not_utf_8_is_refused(tmp_path, body, said) -> None:
    (tmp_path / "result").write_bytes(body)
    with pytest.raises(ConfigError) as caught:
        read_result(tmp_path / "result", None)
    assert said in str(caught.value)


def test_a_device_without_an_end_is_not_read_whole() -> None:
    with pytest.raises(ConfigError) as caught:
        read_result(Path("/dev/zero"), None)
    assert "in a file of its own" in str(caught.value)


def test_a_long_run_has_a_bounded_number_of_points(read) -> None:
    # 10 hours, a request each second: 36 000 s in stretches of 10 s.
    rows = "\n".join(f"0.1,0,0,0,0,0,200,{second}" for second in range(36_000))
    timeline, _, _ = read(f"{HEY}\n{rows}", started_ms=START_MS)
    sent = timeline.tracks[0].points
    assert len(sent) <= 3_601
    assert {value for _, value in sent[:-1]} == {1.0}


def test_percentiles_are_by_the_nearest_rank() -> None:
    # Of 1 to 100 the 99th percentile is 99; of two values the 50th is the lower one.
    assert percentile([*range(1, 101)], 99) == 99
    assert percentile([7, 3], 50) == 3
    assert percentile([], 50) is None
