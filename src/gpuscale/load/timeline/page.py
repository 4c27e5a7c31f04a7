"""The timeline as a page: one HTML file with charts over one time axis, lanes and events."""

import html
from collections.abc import Mapping
from datetime import UTC, datetime

from gpuscale.base.golang.durations import format_duration
from gpuscale.base.pages.inline import render_page, totals_html
from gpuscale.load.timeline.document import timeline_document
from gpuscale.load.timeline.types import Timeline


def render_timeline(timeline: Timeline, totals: Mapping[str, str] | None = None) -> str:
    """Return the page as one HTML text, which asks the network for nothing.

    Its script element `run` holds the document of `timeline_document`.

    Args:
        timeline: what it shows.
        totals: figures of the whole run, by name, in words; they stand above the charts.
    """
    return render_page(
        "timeline.html",
        "timeline.js",
        timeline_document(timeline),
        title=html.escape(timeline.title),
        when=html.escape(_when(timeline)),
        summary=_summary(totals or {}),
    )


def _when(timeline: Timeline) -> str:
    start = datetime.fromtimestamp(timeline.started_ms / 1000, tz=UTC)
    length_ms = round(timeline.ended_ms - timeline.started_ms, -3)
    return f"{start:%Y-%m-%d %H:%M:%S} UTC · {format_duration(length_ms)}"


def _summary(totals: Mapping[str, str]) -> str:
    if not totals:
        return ""
    return (
        '<section class="panel summary" aria-labelledby="summary-title">'
        f'<h2 id="summary-title">Summary</h2>{totals_html(totals.items())}</section>'
    )
