"""The result of a run as a document, and as text for a terminal."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gpuscale.load.plan import LoadPlan
from gpuscale.load.recording import Row, Timeline, percentile_ms

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


def load_document(plan: LoadPlan, timeline: Timeline) -> dict[str, Any]:
    """Return what a run did and measured; times in milliseconds, absent where no answer came."""
    counts = timeline.counts
    wanted = tuple(dict.fromkeys((*PERCENTILES, *(each for each, _ in plan.slo.percentiles))))
    latency = {each: percentile_ms(timeline.latency, each) for each in wanted}
    due = counts.sent + counts.not_sent
    errors_percent = 100 * counts.errors / due if due else None
    return {
        "apiVersion": "gpuscale.dev/v1alpha1",
        "kind": "LoadResult",
        "target": {"url": plan.request.url, "method": plan.request.method},
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
            {each: percentile_ms(timeline.service, each) for each in PERCENTILES}
        ),
        "lateMilliseconds": _percentiles({99.0: percentile_ms(timeline.lateness, 99)}),
        "slo": [*plan.slo.faults(latency, errors_percent)],
        "timeline": [_row(row) for row in timeline.rows],
    }


def _percentiles(values: Mapping[float, float | None]) -> dict[str, float]:
    return {f"p{key:g}": value for key, value in values.items() if value is not None}


def _row(row: Row) -> dict[str, Any]:
    names = {"t_s": "t", "not_sent": "notSent", "in_flight": "inFlight"}
    names |= {"p50_ms": "p50", "p95_ms": "p95", "p99_ms": "p99"}
    return {names.get(key, key): value for key, value in asdict(row).items() if value is not None}


def load_text(document: Mapping[str, Any]) -> str:
    """Return the result in a few lines."""
    requests, load = document["requests"], document["load"]
    lines = [
        f"{document['target']['method']} {document['target']['url']}",
        f"load      {load['shape']}, {load['loop']} loop, {load['durationSeconds']:g} s",
        f"requests  {requests['sent']} sent, {requests['ok']} ok, {requests['errors']} failed"
        + (f", of which {requests['notSent']} not sent" if requests["notSent"] else ""),
    ]
    if requests["statuses"] or requests["faults"]:
        found = {**requests["statuses"], **requests["faults"]}
        lines.append("answers   " + ", ".join(f"{key}: {count}" for key, count in found.items()))
    for title, key in (("latency", "latencyMilliseconds"), ("service", "serviceMilliseconds")):
        if document[key]:
            values = ", ".join(f"{name} {value:.4g} ms" for name, value in document[key].items())
            lines.append(f"{title:10}{values}")
    if late := document["lateMilliseconds"].get("p99"):
        lines.append(f"late      p99 {late:.3g} ms from due to sent, in this process")
    lines += [f"SLO       {fault}" for fault in document["slo"]]
    return "\n".join(lines)
