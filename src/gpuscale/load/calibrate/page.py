"""A calibration as a page: one HTML file without scripts, with the curve of latency over throughput."""

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuscale.base.pages.inline import totals_html
from gpuscale.base.pages.still import render_still, section
from gpuscale.load.calibrate import report

Found = Mapping[str, Any]
_WIDTH, _HEIGHT = 720.0, 340.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 16.0, 14.0, 40.0
_CEILING = 4.0
"""Latencies beyond this many times the objective are drawn at the upper edge."""
_STYLE = """
.curve { width: 100%; min-width: 30rem; height: auto; max-width: 64rem; display: block; }
.curve text { font: 9px system-ui, sans-serif; fill: var(--ink-2); }
.curve text { stroke: var(--surface); stroke-width: 3px; paint-order: stroke; }
.curve .grid { stroke: var(--grid); } .curve .axis { stroke: var(--line); }
.curve .line { fill: none; stroke: var(--series-1); stroke-width: 2; }
.curve .mean { fill: none; stroke: var(--series-1); stroke-width: 1.5; stroke-dasharray: 4 3; }
.curve .kept { fill: var(--fine); } .curve .missed { fill: var(--warning); }
.curve .unused { fill: none; stroke: var(--ink-3); }
.curve .slo { stroke: var(--warning); stroke-dasharray: 6 4; } .curve .mark { stroke: var(--nodes); }
.curve .band { fill: var(--accent); opacity: 0.15; }
.said { font: 0.75rem/1.5 ui-monospace, monospace; overflow-x: auto; margin: 0; }
.curve-scroll { overflow-x: auto; }
"""
_FOOT = (
    "Points were measured; filled ones count: green where they keep the objective, red where they miss it. "
    "Lines are the queue's. The limit is within the band."
)


def render_page(found: Found) -> str:
    """Return the page of a calibration's document; it asks the network for nothing and runs nothing."""
    body = "\n".join(
        (
            section("summary", "Summary", totals_html(_totals(found))),
            section(
                "curve",
                "Latency over load",
                f'<div class="curve-scroll" tabindex="0">{curve_svg(found)}</div>',
            ),
            section(
                "report", "Report", f'<pre class="said">{html.escape(report.text(found))}</pre>'
            ),
        )
    )
    url = found["target"]["url"]
    return render_still(url, "Calibration", url, body, _FOOT, _STYLE)


def _totals(found: Found) -> Iterator[tuple[str, str]]:
    objective = found["objective"]
    yield "objective", f"p{objective['percentile']:g} ≤ {objective['milliseconds']:g} ms"
    if limit := found.get("limit"):
        yield "limit", f"{limit['rate']:.4g}/s"
    if model := found.get("model"):
        yield "knee", f"{found['knee']['rate']:.4g}/s"
        yield "full at", f"{model['capacity']:.4g}/s"
    best = next((each for each in found["signals"] if "target" in each), None)
    if best is not None:
        yield f"target of {best['name']}", f"{best['target']:.3g}"
    if "difference" in found.get("check", {}):
        yield "check", f"{100 * found['check']['difference']:+.0f} %"


def curve_svg(found: Found) -> str:
    """Return the picture: measured levels, the queue's curve, objective, knee, limit and check."""
    percentile = f"p{found['objective']['percentile']:g}"
    slo = found["objective"]["milliseconds"]
    levels = [each for each in found["levels"] if percentile in each["latencyMilliseconds"]]
    curve = found.get("curve", [])
    rates = [each["rate"] for each in (*levels, *curve)]
    if not rates:
        return "<p>No level was measured.</p>"
    most_rate, most_ms = 1.05 * float(max(rates)), _CEILING * float(slo)

    def x(rate: float) -> float:
        return _LEFT + rate / most_rate * (_WIDTH - _LEFT - _RIGHT)

    def y(ms: float) -> float:
        return _HEIGHT - _BOTTOM - min(ms, most_ms) / most_ms * (_HEIGHT - _TOP - _BOTTOM)

    parts = list(_axes(x, y, most_rate, most_ms))
    if limit := found.get("limit"):
        left, right = x(limit["low"]), x(limit.get("high", limit["low"]))
        parts.append(
            f'<rect class="band" x="{left:.1f}" y="{_TOP}" width="{max(1.0, right - left):.1f}" '
            f'height="{_HEIGHT - _TOP - _BOTTOM}"/>'
        )
    names = []
    for key, name in ((percentile, "line"), ("mean", "mean")):
        points = [(x(each["rate"]), y(each[key])) for each in curve if each[key] <= most_ms]
        if points:
            path = " ".join(f"{left:.1f},{top:.1f}" for left, top in points)
            parts.append(f'<polyline class="{name}" points="{path}"/>')
            left, top = points[-1]
            names.append(f'<text x="{left + 5:.1f}" y="{max(top + 3, _TOP + 8):.1f}">{key}</text>')
    parts.append(
        f'<line class="slo" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(slo):.1f}" y2="{y(slo):.1f}"/>'
    )
    parts.append(f'<text x="{_LEFT + 4}" y="{y(slo) - 5:.1f}">{percentile} {slo:g} ms</text>')
    marks = [
        ("knee", found.get("knee")),
        ("target", found.get("check")),
        ("limit", found.get("limit")),
    ]
    for index, (name, place) in enumerate(marks):
        if place:
            left = x(place["rate"])
            anchor, beside = ("start", 4) if name == "limit" else ("end", -4)
            names.append(
                f'<text x="{left + beside:.1f}" y="{_TOP + 10 + 14 * index:.1f}" text-anchor="{anchor}">'
                f"{name} {place['rate']:.4g}</text>"
            )
            parts.append(
                f'<line class="mark" x1="{left:.1f}" x2="{left:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>'
            )
    parts += [
        _dot(
            each,
            percentile,
            x(each["answeredPerSecond"]),
            y(each["latencyMilliseconds"][percentile]),
        )
        for each in levels
    ]
    parts += names  # above the curve's points
    label = html.escape(f"{percentile} latency of {len(levels)} levels over requests per second")
    return (
        f'<svg class="curve" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _dot(level: Found, percentile: str, left: float, top: float) -> str:
    name = "kept" if level["keepsObjective"] else "missed"
    if not level["isUsed"]:
        name = "unused"
    said = f"{level['rate']:.4g} requests/s: {percentile} {level['latencyMilliseconds'][percentile]:.4g} ms"
    return f'<circle class="{name}" cx="{left:.1f}" cy="{top:.1f}" r="4"><title>{said}</title></circle>'


def _axes(
    x: Callable[[float], float], y: Callable[[float], float], most_rate: float, most_ms: float
) -> Iterator[str]:
    bottom = _HEIGHT - _BOTTOM
    for rate in _steps(most_rate):
        yield f'<line class="grid" x1="{x(rate):.1f}" x2="{x(rate):.1f}" y1="{_TOP}" y2="{bottom}"/>'
        yield f'<text x="{x(rate):.1f}" y="{bottom + 15}" text-anchor="middle">{rate:g}</text>'
    for ms in _steps(most_ms):
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(ms):.1f}" y2="{y(ms):.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y(ms) + 4:.1f}" text-anchor="end">{ms:g}</text>'
    yield f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    yield f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end">requests per second</text>'
    yield f'<text x="4" y="{_HEIGHT - 6}">ms</text>'


def _steps(most: float) -> Sequence[float]:
    """Return about five round numbers up to the largest."""
    raw = most / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= raw)
    return [round(step * index, 10) for index in range(int(most / step) + 1)]
