"""The timeline as a document: what goes in comes out, and what is wrong is named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.errors import ConfigError
from gpuscale.load.timeline.document import MAX_POINTS, read_timeline, timeline_document
from gpuscale.load.timeline.types import HOPS, Span, Timeline, TimelineMark, Track

TIMES = st.integers(0, 4_000_000_000_000)
VALUES = st.none() | st.floats(-1e300, 1e300, allow_nan=False)
POINTS = st.lists(st.tuples(TIMES, VALUES), max_size=5).map(
    lambda points: tuple(sorted(points, key=lambda point: point[0]))
)
TRACKS = st.builds(Track, st.text(), st.text(), st.sampled_from(HOPS), POINTS)
MARKS = st.builds(TimelineMark, TIMES, st.text(), st.text(), st.text())
SPANS = st.builds(
    lambda lane, state, times: Span(lane, state, min(times), max(times)),
    st.text(),
    st.text(),
    st.tuples(TIMES, TIMES),
)
TIMELINES = st.builds(
    lambda title, times, tracks, marks, spans: Timeline(
        title, min(times), max(times), tuple(tracks), tuple(marks), tuple(spans)
    ),
    st.text(),
    st.tuples(TIMES, TIMES),
    st.lists(TRACKS, max_size=4).map(lambda t: sorted(t, key=lambda each: HOPS.index(each.hop))),
    st.lists(MARKS, max_size=3),
    st.lists(SPANS, max_size=3),
)


@given(TIMELINES)
def test_a_document_gives_the_timeline_back(timeline) -> None:
    document = json.loads(json.dumps(timeline_document(timeline)))
    assert read_timeline(document, "run.json") == timeline


def test_tracks_stand_in_the_order_in_which_a_load_travels() -> None:
    tracks = tuple(Track(hop, "", hop, ()) for hop in reversed(HOPS))
    document = timeline_document(Timeline("run", 0, 1, tracks))
    assert [track["hop"] for track in document["tracks"]] == list(HOPS)


def test_a_value_that_json_cannot_say_is_absent() -> None:
    track = Track("p99", "ms", "latency", ((1, float("nan")), (2, float("inf")), (3, 0.0)))
    points = timeline_document(Timeline("run", 0, 9, (track,)))["tracks"][0]["points"]
    assert points == [[1, None], [2, None], [3, 0.0]]


def test_every_fault_of_a_document_is_named() -> None:
    document = timeline_document(Timeline("run", 5, 9))
    document["endedMs"] = 4
    document["tracks"] = [
        {"name": "a", "unit": "x", "hop": "load", "points": [[2, 1], [1, 1]]},
        {"name": "b", "unit": "x", "hop": "sky", "points": [[1, True]]},
    ]
    document["marks"] = [{"atMs": 1.5, "kind": "K", "object": "o", "text": None}, 7]
    with pytest.raises(ConfigError) as caught:
        read_timeline(document, "run.json")
    assert [str(problem) for problem in caught.value.problems] == [
        "run.json: endedMs: found 4, expected no less than startedMs, 5",
        "run.json: tracks[0].points[1]: found [1, 1], expected times that ascend",
        "run.json: tracks[1].hop: found 'sky', expected one of: " + ", ".join(HOPS),
        "run.json: tracks[1].points[0]: found [1, True], expected [milliseconds since the epoch, "
        "a finite number or null]",
        "run.json: marks[0].atMs: found 1.5, expected milliseconds since the epoch",
        "run.json: marks[0].text: found nothing, expected text",
        "run.json: marks[1]: found int, expected a mapping",
    ]


def test_another_kind_of_document_is_none() -> None:
    with pytest.raises(ConfigError, match="expected LoadTimeline of"):
        read_timeline({"kind": "List", "apiVersion": "v1"}, "run.json")


def test_more_points_than_the_bound_are_refused() -> None:
    point = [0, 1.0]
    document = timeline_document(Timeline("run", 0, 1))
    document["tracks"] = [
        {"name": "a", "unit": "", "hop": "load", "points": [point] * MAX_POINTS},
        {"name": "b", "unit": "", "hop": "load", "points": [point]},
    ]
    with pytest.raises(ConfigError, match=f"at most {MAX_POINTS} in all tracks"):
        read_timeline(document, "run.json")
