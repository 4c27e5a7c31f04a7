"""The result of `gpuscale tune` as a page: the cost of each policy and each promise."""

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuscale.base.golang.durations import format_duration
from gpuscale.base.pages.inline import totals_html
from gpuscale.base.pages.still import render_still, section

Found = Mapping[str, Any]
_FOOT = (
    "Scored on days that were not searched, where there were enough. The oracle knows the demand to come, and"
    " the best simple rule was chosen in hindsight."
)
_LEAST_DAYS = 2
"""Less is shown in hours and minutes."""
_WIDTHS = {"wide": 760.0, "narrow": 330.0}
_ROW, _NAME, _NUMBER = 26.0, 118.0, 74.0
"""Height of a bar with its gap, and room for the name before it and the number behind it."""
_STYLE = """
.bars { width: 100%; height: auto; max-width: 60rem; }
.bars text { font: 12px system-ui, sans-serif; fill: var(--ink-2); }
.bars .kept { fill: var(--series-1); } .bars .missed { fill: var(--warning); }
.bars .bound { fill: var(--line); }
.narrow { display: none; } .wide { display: block; }
.said li + li { margin-top: 0.25rem; }
.said { padding-bottom: 0.625rem; max-width: 60rem; }
@media (max-width: 640px) { .wide { display: none; } .narrow { display: block; } }
"""


def render_tuned(found: Found) -> str:
    """Return the page of a search's document; it loads nothing and runs nothing."""
    days, scored = found["days"], found["scoredDays"]
    how = "searched and scored" if scored == days else f"scored on {_length(scored)}"
    said = "".join(f"<li>{html.escape(each)}</li>" for each in found["said"])
    promise = html.escape(", ".join(found["promise"]))
    parts = [
        section("summary", "Summary", f'<ul class="said">{said}</ul>{totals_html(_totals(found))}'),
        section("cost", f"GPU-hours; red: breaks {promise}", bars(found)),
        section("rows", "Compared", _table(*_compared(found))),
    ]
    if found["offers"]:
        parts.append(section("offers", "What a promise costs", _table(*_offered(found))))
    if pool := found["nodePool"]:
        head = f"On nodes of the pool {pool['name']}"
        parts.append(section("nodes", head, _table(*_on_nodes(pool["rows"]))))
    parts.append(section("settings", "Settings", _table(*_settings(found))))
    workload = found["workload"]
    return render_still(
        workload,
        "Tuning",
        f"{workload}: {_length(days)} of demand, {how}",
        "\n".join(parts),
        _FOOT,
        _STYLE,
    )


def bars(found: Found) -> str:
    """Return the GPU-hours of rows and bounds as charts, one for wide and one for narrow screens."""
    bounds = found["bounds"]
    figures = [
        (row["name"], row["gpuHours"], "kept" if row["isKept"] else "missed")
        for row in found["rows"]
    ]
    figures += [
        (f"{bounds['staticReplicas']} standing still", bounds["staticGpuHours"], "bound"),
        ("best simple rule", bounds["simpleRuleGpuHours"], "bound"),
        ("oracle", bounds["oracleGpuHours"], "bound"),
    ]
    return "".join(
        f'<svg class="bars {name}" viewBox="0 0 {width:g} {len(figures) * _ROW:g}" role="img" '
        f'aria-label="GPU-hours of each policy">{"".join(_bars(figures, width))}</svg>'
        for name, width in _WIDTHS.items()
    )


def _bars(figures: Sequence[tuple[str, float, str]], width: float) -> Iterator[str]:
    most = max((hours for _, hours, _ in figures), default=0.0) or 1.0
    for at, (name, hours, kind) in enumerate(figures):
        top, length = at * _ROW, hours / most * (width - _NAME - _NUMBER)
        yield f'<text x="0" y="{top + 16:g}">{html.escape(name)}</text>'
        yield (
            f'<rect class="{kind}" x="{_NAME:g}" y="{top + 4:g}" width="{length:.1f}" height="16" rx="2"/>'
        )
        yield f'<text x="{_NAME + length + 6:.1f}" y="{top + 16:g}">{hours:,.1f}</text>'


def _totals(found: Found) -> Iterator[tuple[str, str]]:
    today, tuned = found["rows"][:2]
    yield "today", f"{today['gpuHours']:,.1f} GPU-hours"
    yield "tuned", f"{tuned['gpuHours']:,.1f} GPU-hours"
    if not found["isGain"]:
        yield "saved", "nothing to gain"
    elif today["gpuHours"]:
        yield "saved", _percent(1 - tuned["gpuHours"] / today["gpuHours"])
    yield ", ".join(found["promise"]), tuned["kept"]
    yield "settings tried", f"{found['settingsTried']:,}"


def _length(days: float) -> str:
    return (
        f"{days:.3g} days" if days >= _LEAST_DAYS else format_duration(round(days * 86_400) * 1000)
    )


Cells = list[str]


def _compared(found: Found) -> tuple[Cells, list[Cells]]:
    has_cost = any("cost" in row for row in found["rows"])
    head = ["", "GPU-hours", *(["cost"] if has_cost else []), "short", "wait p95", "wait p99"]
    rows = [
        [
            row["name"],
            f"{row['gpuHours']:,.1f}",
            *([f"{row['cost']:,.2f} {row['currency']}"] if has_cost else []),
            _percent(row["shortShare"]),
            f"{row['waitP95Seconds']:.2g} s",
            f"{row['waitP99Seconds']:.2g} s",
            _percent(row["withinShare"]),
            f"{row['changes']:,}",
        ]
        for row in found["rows"]
    ]
    return [*head, "in time", "changes"], rows


def _offered(found: Found) -> tuple[Cells, list[Cells]]:
    head = ["", "promise", "GPU-hours", "was", "changes"]
    return head, [
        [
            row["name"],
            row["promise"],
            f"{row['gpuHours']:,.1f}",
            row["kept"],
            f"{row['changes']:,}",
        ]
        for row in found["offers"]
    ]


def _on_nodes(rows: Sequence[Found]) -> tuple[Cells, list[Cells]]:
    has_cost = any("cost" in row for row in rows)
    head = ["", "node-hours", *(["cost"] if has_cost else []), "short", "changes"]
    return head, [
        [
            row["name"],
            f"{row['nodeHours']:,.1f}",
            *([f"{row['cost']:,.2f} {row['currency']}"] if has_cost else []),
            _percent(row["shortShare"]),
            f"{row['changes']:,}",
        ]
        for row in rows
    ]


def _settings(found: Found) -> tuple[Cells, list[Cells]]:
    rows = found["rows"][:2]
    if pool := found["nodePool"]:
        today, *_, best = pool["rows"]
        rows = [{**rows[0], "settings": today["settings"]}, rows[1], best]
    names = list(dict.fromkeys(name for row in rows for name in row["settings"]))
    head = ["", *(row["name"] for row in rows)]
    return head, [
        [
            name,
            *(f"{row['settings'][name]:g}" if name in row["settings"] else "-" for row in rows),
        ]
        for name in names
    ]


def _table(head: Cells, rows: Sequence[Cells]) -> str:
    """Return a table whose rows become blocks on narrow screens."""
    titles = [html.escape(each) for each in head]
    columns = "".join(f'<th scope="col" class="number">{each}</th>' for each in titles[1:])
    body = "".join(
        f'<tr><th scope="row">{html.escape(row[0])}</th>'
        + "".join(
            f'<td class="number" data-title="{title}">{html.escape(cell)}</td>'
            for title, cell in zip(titles[1:], row[1:], strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<table class="stacking"><thead><tr><th scope="col">{titles[0]}</th>{columns}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
