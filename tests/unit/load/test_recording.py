"""Seconds of a run joined into rows and totals, in memory that doesn't grow with the number of requests."""

import pickle
import random

import pytest

from gpuscale.load.recording import RunRecorder, RunRecording, new_histogram, percentile_ms


def recorded(recorder, values_ms):
    for value in values_ms:
        recorder.latency.record_value(round(value * 1000))
        recorder.counts.sent += 1


def test_a_second_begins_empty_after_the_one_before() -> None:
    recorder, recording = RunRecorder(), RunRecording(0)
    recorded(recorder, [1000.0] * 10)
    recording.add([recorder.take(0, 0)], 10)
    recorded(recorder, [2.0, 4.0])
    row = recording.add([recorder.take(1, 0)], 2)
    assert row.sent == 2
    assert row.p50_ms == pytest.approx(2, rel=1e-3)
    empty = recording.add([recorder.take(2, 0)], 0)
    assert (empty.sent, empty.p50_ms, empty.p99_ms) == (0, None, None)
    # Of the 12 of the run 10 took a second; 15 % of 12 are 1.8, so the second value counts.
    assert percentile_ms(recording.latency, 15) == pytest.approx(4, rel=1e-3)
    assert percentile_ms(recording.latency, 50) == pytest.approx(1000, rel=1e-3)


def test_percentiles_of_several_processes_are_those_of_all_their_values() -> None:
    draw = random.Random(1)
    parts = [[draw.expovariate(1 / 50) + 1 for _ in range(1000)] for _ in range(3)]
    recorders = [RunRecorder() for _ in parts]
    for recorder, part in zip(recorders, parts, strict=True):
        recorded(recorder, part)
    row = RunRecording(0).add([recorder.take(0, 1) for recorder in recorders], 3000)
    ordered = sorted(value for part in parts for value in part)
    assert row.p99_ms == pytest.approx(ordered[2969], rel=2e-3)  # nearest rank of 99 % of 3 000
    assert row.p50_ms == pytest.approx(ordered[1499], rel=2e-3)
    assert row.in_flight == 3


def test_a_second_of_another_process_is_the_same() -> None:
    recorder = RunRecorder()
    recorded(recorder, [5.0, 7.0, 7.0])
    second = recorder.take(3, 2)
    there = pickle.loads(pickle.dumps(second))
    assert (there.index, there.in_flight, there.counts) == (3, 2, second.counts)
    assert list(there.latency.counts) == list(second.latency.counts)
    assert there.service.get_total_count() == 0
    assert RunRecording(0).add([there], 3).p50_ms == pytest.approx(7, rel=1e-3)


def test_an_empty_histogram_is_as_new() -> None:
    recorder = RunRecorder()
    recorded(recorder, [5.0, 7.0])
    recorder.take(0, 0)
    recorder.take(1, 0)
    fresh = new_histogram()
    assert list(recorder.latency.counts) == list(fresh.counts)
    for name in ("total_count", "min_value", "max_value"):
        assert getattr(recorder.latency, name) == getattr(fresh, name), name
