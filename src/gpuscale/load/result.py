"""A run's result as document and as text."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gpuscale.base.words import shown_ms
from gpuscale.load.plan import LoadPlan, LoadRequest
from gpuscale.load.recording import RunRecording, RunSecond, percentile_ms
from gpuscale.load.timeline.document import timeline_document
from gpuscale.load.timeline.types import Hop, Timeline, Track
from gpuscale.load.watching.notes import Watched

_TOO_LATE_MS = 10.0
"""From here on the generator's own delays are a part of what it measures."""
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


def load_document(
    plan: LoadPlan, recording: RunRecording, watched: Watched | None = None
) -> dict[str, Any]:
    """Return a run's results; times in milliseconds, absent if no response came.

    Args:
        plan: of the run.
        recording: what came of its requests.
        watched: what else was seen meanwhile.
    """
    counts = recording.counts
    wanted = tuple(dict.fromkeys((*PERCENTILES, *(each for each, _ in plan.slo.percentiles))))
    latency = {each: percentile_ms(recording.latency, each) for each in wanted}
    due = counts.sent + counts.not_sent
    errors_percent = 100 * counts.errors / due if due else None
    return {
        "apiVersion": "gpuscale.dev/v1alpha1",
        "kind": "LoadResult",
        "target": _sent(plan.request),
        **(
            {"inTurnWith": [_sent(each) for each in others]}
            if (others := plan.request.others)
            else {}
        ),
        "load": {
            "loop": "closed" if plan.load is None else "open",
            "shape": plan.shape,
            "arrivals": plan.arrivals if plan.load is not None else None,
            "seed": plan.seed,
            "durationSeconds": plan.duration_s,
        },
        "requests": {
            "sent": counts.sent,
            "ok": counts.ok,
            "errors": counts.errors,
            "notSent": counts.not_sent,
            "statuses": {str(key): counts.statuses[key] for key in sorted(counts.statuses)},
            "faults": dict(sorted(counts.faults.items())),
            "errorPercent": errors_percent,
            "bytesReceived": counts.bytes_in,
        },
        "latencyMilliseconds": _percentiles(latency),
        "serviceMilliseconds": _percentiles(
            {each: percentile_ms(recording.service, each) for each in PERCENTILES}
        ),
        "lateMilliseconds": _percentiles({99.0: percentile_ms(recording.lateness, 99)}),
        "slo": [*plan.slo.faults(latency, errors_percent)],
        "seconds": [_row(row) for row in recording.rows],
        "timeline": timeline_document(load_timeline(plan, recording, watched)),
        **({"notes": [*watched.notes]} if watched is not None and watched.notes else {}),
    }


def _sent(request: LoadRequest) -> dict[str, str]:
    return {"url": request.url, "method": request.method}


def _more(plan: LoadPlan) -> str:
    count = len(plan.request.others)
    return f" and {count} more in turn" if count else ""


def load_timeline(
    plan: LoadPlan, recording: RunRecording, watched: Watched | None = None
) -> Timeline:
    """Return a run as a timeline: a point at the end of each second, and what else was watched."""
    start_ms, rows = recording.started_ms, recording.rows
    # Results after the last second belong to earlier requests: they count as latency, not as load.
    due = [row for row in rows if row.t_s < plan.duration_s]

    def track(name: str, unit: str, hop: Hop, values: list[float | None]) -> Track:
        times = (start_ms + 1000 * (row.t_s + 1) for row in rows)
        return Track(name, unit, hop, tuple(zip(times, values, strict=False)))

    tracks = [
        track("sent", "requests/s", "load", [row.sent for row in due]),
        track("failed", "requests/s", "load", [row.errors for row in due]),
        track("p50", "ms", "latency", [row.p50_ms for row in rows]),
        track("p95", "ms", "latency", [row.p95_ms for row in rows]),
        track("p99", "ms", "latency", [row.p99_ms for row in rows]),
    ]
    if plan.load is not None:
        tracks.insert(1, track("planned", "requests/s", "load", [row.planned for row in due]))
    ended_ms = start_ms + 1000 * max((row.t_s + 1 for row in rows), default=1)
    seen = watched or Watched()
    return Timeline(
        title=f"{plan.request.method} {plan.request.url}{_more(plan)} · {plan.shape}",
        started_ms=start_ms,
        ended_ms=ended_ms,
        tracks=(*tracks, *seen.tracks),
        marks=seen.marks,
        spans=seen.spans,
    )


def load_totals(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures shown above a run's charts."""
    requests, latency = document["requests"], document["latencyMilliseconds"]
    percent = requests["errorPercent"]
    return {
        "Requests": f"{requests['sent']:,}",
        "Failed": "-" if percent is None else f"{percent:.3g} %",
        **{f"Latency {name}": shown_ms(value) for name, value in latency.items()},
        **({"SLO": "; ".join(document["slo"])} if document["slo"] else {}),
    }


def _percentiles(values: Mapping[float, float | None]) -> dict[str, float]:
    return {f"p{key:g}": value for key, value in values.items() if value is not None}


def _row(row: RunSecond) -> dict[str, Any]:
    names = {"t_s": "t", "not_sent": "notSent", "in_flight": "inFlight"}
    names |= {"p50_ms": "p50", "p95_ms": "p95", "p99_ms": "p99"}
    return {names.get(key, key): value for key, value in asdict(row).items() if value is not None}


def load_text(document: Mapping[str, Any]) -> str:
    """Return the result as a short text."""
    requests, load = document["requests"], document["load"]
    sent = [document["target"], *document.get("inTurnWith", ())]
    lines = [
        *(f"{each['method']} {each['url']}" for each in sent),
        f"load      {load['shape']}, {load['loop']} loop, {load['durationSeconds']:g} s",
        f"requests  {requests['sent']} sent, {requests['ok']} ok, {requests['errors']} failed"
        + (f", of which {requests['notSent']} not sent" if requests["notSent"] else ""),
    ]
    if requests["statuses"] or requests["faults"]:
        found = {**requests["statuses"], **requests["faults"]}
        lines.append("answers   " + ", ".join(f"{key}: {count}" for key, count in found.items()))
    for title, key in (("latency", "latencyMilliseconds"), ("service", "serviceMilliseconds")):
        if document[key]:
            values = ", ".join(f"{name} {shown_ms(value)}" for name, value in document[key].items())
            lines.append(f"{title:10}{values}")
    if late := document["lateMilliseconds"].get("p99"):
        lines.append(f"late      p99 {shown_ms(late)} from due to sent, in this process")
        if late > _TOO_LATE_MS:
            lines.append(
                "note      this machine is too busy to send on time: a lower rate, --processes or another "
                "machine"
            )
    lines += [f"SLO       {fault}" for fault in document["slo"]]
    lines += [f"note      {note}" for note in document.get("notes", ())]
    return "\n".join(lines)
