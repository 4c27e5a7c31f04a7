"""The timeline as text for a terminal."""

import pytest

from gpuscale.load.timeline.table import timeline_text
from gpuscale.load.timeline.types import Hop, Span, Timeline, TimelineMark, Track

START_MS = 1_750_000_000_000


def timeline(**parts):
    return Timeline("run", START_MS, START_MS + 40_000, **parts)


def points(*values):
    """One value a second, the first a second after the start."""
    return tuple((START_MS + 1000 * (index + 1), value) for index, value in enumerate(values))


def test_each_row_has_the_last_value_of_its_stretch_and_a_dash_where_there_was_none() -> None:
    # 40 s in 20 rows: a row each 2 s. No value from 5 s to 8 s, and 0 from 9 s on.
    values = [10.0, 11.0, 12.0, 13.0, *[None] * 4, *[0.0] * 32]
    lines = timeline_text(timeline(tracks=(Track("sent", "1/s", "load", points(*values)),)))
    rows = [line.split() for line in lines.splitlines()]
    assert rows[:3] == [["load"], ["time", "sent"], ["1/s"]]
    assert rows[3:8] == [
        ["00:00:02", "11"], ["00:00:04", "13"], ["00:00:06", "-"], ["00:00:08", "-"],
        ["00:00:10", "0"],
    ]  # fmt: skip
    assert len(rows) == 3 + 20


def test_what_happened_stands_before_the_row_of_its_stretch() -> None:
    marks = (
        TimelineMark(
            START_MS + 5_000, "SuccessfulRescale", "HorizontalPodAutoscaler/bert", "New size: 2"
        ),
    )
    text = timeline_text(timeline(tracks=(Track("sent", "1/s", "load", points(1.0)),), marks=marks))
    lines = text.splitlines()
    place = lines.index("00:00:05  SuccessfulRescale  HorizontalPodAutoscaler/bert  New size: 2")
    assert lines[place - 1].startswith("00:00:04")
    assert lines[place + 1].startswith("00:00:06")


def test_lanes_have_a_letter_for_each_state_over_time() -> None:
    spans = (
        Span("job-1", "pending", START_MS, START_MS + 20_000),
        Span("job-1", "running", START_MS + 20_000, START_MS + 40_000),
        Span("job-2", "held", START_MS + 39_999, START_MS + 40_000),
    )
    # 27 letters, of which 5 are the names and 2 the gap: 20 columns for 40 s.
    lines = timeline_text(timeline(spans=spans), width=27).splitlines()
    assert lines[1:] == [
        "job-1  " + "░" * 10 + "▓" * 10,
        "job-2  " + " " * 19 + "a",
        "░ pending  ▓ running  a held",
    ]


@pytest.mark.parametrize("width", [30, 60, 100])
def test_no_line_is_wider_than_the_terminal(width) -> None:
    tracks = tuple(
        Track(f"a rather long name {index}", "requests/s", "load", points(1e9, 2.0))
        for index in range(9)
    )
    marks = (TimelineMark(START_MS, "Kind", "object/" + "x" * 90, "text"),)
    text = timeline_text(timeline(tracks=tracks, marks=marks), width)
    assert max(map(len, text.splitlines())) <= width
    assert "no room for" in text


def test_names_cannot_steer_the_terminal() -> None:
    track = Track("\x1b[2Jsent\nnow", "1/s", "load", points(1.0))
    assert "\x1b" not in timeline_text(timeline(tracks=(track,)))


def test_every_hop_keeps_a_column_as_long_as_there_is_room_for_one_each() -> None:
    hops: tuple[Hop, ...] = ("load", "latency", "replicas", "nodes")
    tracks = tuple(
        Track(f"{hop}-{name}", "x", hop, points(1.0))
        for hop in hops
        for name in ("first", "second")
    )
    # Columns of 8, 10 to 16 letters and gaps of 2: the four first ones take 8 + 12 + 15 + 16 + 13.
    heads = timeline_text(timeline(tracks=tracks), width=64).splitlines()[1].split()
    assert heads == ["time", "load-first", "latency-first", "replicas-first", "nodes-first"]


def test_names_are_shortened_before_a_hop_goes() -> None:
    named: dict[Hop, str] = {"load": "sent", "replicas": "a-rather-long-deployment ready"}
    tracks = tuple(Track(name, "x", hop, points(1.0)) for hop, name in named.items())
    # 8 letters of time, 4 of load and 10 of the shortened name, with gaps of 2.
    heads = timeline_text(timeline(tracks=tracks), width=26).splitlines()[1].split()
    assert heads == ["time", "sent", "a-rath…ady"]
