"""Single requests aggregated to lines over time."""

import math
from collections.abc import Callable, Sequence

from gpuscale.base.words import shown_ms
from gpuscale.load.results.types import ReadResult, RequestResult
from gpuscale.load.timeline.types import Hop, Timeline, TimelineMark, Track

MAX_POINTS = 3_600
"""Of a line: one a second of an hour; longer runs have coarser ones."""
PERCENTILES = (50, 95, 99)


def result_timeline(result: ReadResult, title: str, started_ms: int | None) -> Timeline:
    """Return a run as a timeline; a request counts in the interval in which it began.

    Args:
        result: of one file.
        title: what it is called.
        started_ms: when the first request was, for a file that doesn't say; None is 1970.
    """
    requests = sorted(result.requests, key=lambda request: request.start_ms)
    first_ms = requests[0].start_ms if requests else 0.0
    shift_ms = 0.0 if result.has_epoch else (started_ms or 0) - first_ms
    start_ms = math.floor(first_ms + shift_ms)
    end_ms = max((each.start_ms + (each.latency_ms or 0) for each in requests), default=0.0)
    length_s = max(1.0, (end_ms - first_ms) / 1000)
    step_s = math.ceil(length_s / MAX_POINTS)
    stretches: list[list[RequestResult]] = [[] for _ in range(math.ceil(length_s / step_s) + 1)]
    for each in requests:
        stretches[int((each.start_ms - first_ms) / 1000 / step_s)].append(each)
    while len(stretches) > 1 and not stretches[-1]:
        stretches.pop()

    def track(
        name: str, unit: str, hop: Hop, value: Callable[[list[RequestResult]], float | None]
    ) -> Track:
        points = tuple(
            (start_ms + round(1000 * step_s * (index + 1)), value(stretch))
            for index, stretch in enumerate(stretches)
        )
        return Track(name, unit, hop, points)

    sent = "planned" if result.is_plan else "sent"
    tracks = [track(sent, "requests/s", "load", lambda stretch: len(stretch) / step_s)]
    if any(each.output_tokens is not None for each in requests):
        tracks.append(
            track(
                "output", "tokens/s", "load",
                lambda stretch: sum(each.output_tokens or 0 for each in stretch) / step_s,
            )
        )  # fmt: skip
    if not result.is_plan:
        tracks.insert(
            1,
            track(
                "failed", "requests/s", "load",
                lambda stretch: sum(not each.is_ok for each in stretch) / step_s,
            ),
        )  # fmt: skip
        tracks += _percentile_tracks(track, "", lambda each: each.latency_ms)
        if any(each.first_token_ms is not None for each in requests):
            tracks += _percentile_tracks(track, "first token ", lambda each: each.first_token_ms)
    marks = tuple(
        TimelineMark(max(start_ms, each.at_ms), each.kind, each.object, each.text)
        for each in result.marks
    )
    ended_ms = max(math.ceil(end_ms + shift_ms), *(track.points[-1][0] for track in tracks))
    return Timeline(f"{result.tool} · {title}", start_ms, ended_ms, tuple(tracks), marks)


_MakeTrack = Callable[[str, str, Hop, Callable[[list[RequestResult]], float | None]], Track]


def _percentile_tracks(
    track: _MakeTrack, prefix: str, time_ms: Callable[[RequestResult], float | None]
) -> list[Track]:
    def of(percent: int) -> Callable[[list[RequestResult]], float | None]:
        return lambda stretch: percentile(
            [found for each in stretch if (found := time_ms(each)) is not None], percent
        )

    return [track(f"{prefix}p{each}", "ms", "latency", of(each)) for each in PERCENTILES]


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return the least value that so many percent don't exceed (nearest rank); None of no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def result_totals(result: ReadResult) -> dict[str, str]:
    """Return the run's total figures, by name, in words."""
    latencies = [each.latency_ms for each in result.requests if each.latency_ms is not None]
    failed = sum(not each.is_ok for each in result.requests)
    totals = {"Requests": f"{len(result.requests):,}"}
    if not result.is_plan:
        totals["Failed"] = f"{failed:,}"
    for each in PERCENTILES:
        if (value := percentile(latencies, each)) is not None:
            totals[f"Latency p{each}"] = shown_ms(value)
    return totals
