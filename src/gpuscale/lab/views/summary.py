"""A run document's summary: numbers, small tables and the first events."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpuscale.base.pages.words import (
    NO_DATA,
    clock_text,
    label_text,
    number_text,
    plain_text,
    seconds_text,
)

_LONGEST_CELL = 120
Rows = Mapping[str, Mapping[str, object]]


def shown_events(
    document: Mapping[str, object], max_events: int
) -> tuple[Sequence[Mapping[str, object]], int]:
    """Return the first events of a run, and the number of the others."""
    events = list(mappings(document.get("events")))
    return events[:max_events], max(0, len(events) - max_events)


def summary_totals(document: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the summary's numbers as label and text, in the document's order."""
    summary = mapping(document.get("summary"))
    totals = _scale_out_rows(summary)
    for key, value in summary.items():
        if key in _SPECIAL:
            totals += _SPECIAL[key](summary)
            continue
        inner = {f"{key} {name}": item for name, item in mapping(value).items()}
        flat = inner if isinstance(value, Mapping) else {key: value}
        totals += [
            (label_text(name), _total_text(name, item))
            for name, item in flat.items()
            if not isinstance(item, Mapping)
        ]
    return totals


def _no_rows(_: Mapping[str, object]) -> list[tuple[str, str]]:
    return []


def _job_rows(summary: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the number of completed Jobs, if the run has any."""
    completed, submitted = summary.get("completedJobs"), summary.get("submittedJobs")
    return (
        [("Completed jobs", f"{number_text(completed)} of {number_text(submitted)}")]
        if submitted
        else []
    )


def _cost_rows(summary: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the cost with currency, or that prices are missing."""
    cost = summary.get("cost")
    if isinstance(cost, (int, float)):
        return [("Cost", f"{cost:.2f} {plain_text(summary.get('currency'))}".rstrip())]
    pools, without = mapping(summary.get("nodePools")), summary.get("poolsWithoutPrice")
    names = [plain_text(name) for name in without] if isinstance(without, Sequence) else []
    some = f" for {', '.join(names)}" if 0 < len(names) < len(pools) else ""
    return [("Cost", f"no price given{some}")]


def _energy_rows(summary: Mapping[str, object]) -> list[tuple[str, str]]:
    energy_kwh = summary.get("gpuEnergyKwh")
    if isinstance(energy_kwh, (int, float)) and energy_kwh < 1:
        return [("GPU energy", f"{number_text(energy_kwh * 1000)} Wh")]
    return [("GPU energy", f"{number_text(energy_kwh)} kWh")]


def _scale_out_rows(summary: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the durations of scale-outs, ready capacity first; none if no HPA could scale out."""
    times = mapping(summary.get("scaleOuts"))
    if not times or not summary.get("hpas"):
        return []
    rises, capacity = times.get("answeredRises"), _scale_out_time(times, "meanLoadToReadyTime")
    if isinstance(rises, int) and rises > 1:
        # For several rises, the range says more than the mean.
        parts = (("p50", "P50"), ("p95", "P95"), ("longest", "Max"))
        spread = ((word, f"loadToReadyTime{which}") for word, which in parts)
        capacity = ", ".join(f"{word} {_scale_out_time(times, key)}" for word, key in spread)
    return [
        ("Load rise to ready pods", capacity),
        ("Load rise to decision", _scale_out_time(times, "meanLoadToDecisionTime")),
        ("Decision to ready pods", _scale_out_time(times, "meanDecisionToReadyTime")),
    ]


def _scale_out_time(times: Mapping[str, object], key: str) -> str:
    seconds = times.get(key)
    if isinstance(seconds, (int, float)):
        return seconds_text(seconds)
    if not times.get("count"):
        return "no scale-out"
    if "load" in key.lower() and not times.get("loadRises"):
        return "no step in this load"
    return "not ready" if "ToReadyTime" in key else NO_DATA


_SPECIAL: Mapping[str, Callable[[Mapping[str, object]], list[tuple[str, str]]]] = {
    "submittedJobs": _no_rows,
    "completedJobs": _job_rows,
    "gpuEnergyKwh": _energy_rows,
    "cost": _cost_rows,
    "currency": _no_rows,
    "poolsWithoutPrice": _no_rows,
    "scaleOuts": _no_rows,
}
"""What is not shown as a number under its own name: the rows to show instead."""


def _total_text(key: str, value: object) -> str:
    if key == "duration" and isinstance(value, (int, float)):
        return clock_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    unit = " s" if re.search(r"(Lag|Seconds|[Tt]ime|Delay)(P\d+)?$", key) else ""
    unit = " h" if key.endswith("Hours") else unit
    return number_text(value) + (unit if isinstance(value, (int, float)) else "")


def summary_groups(document: Mapping[str, object]) -> list[tuple[str, Rows]]:
    """Return the summary's tables, such as that of HPAs: a title, and rows of values by name."""
    groups: list[tuple[str, Rows]] = []
    for key, value in mapping(document.get("summary")).items():
        rows = {name: row for name, row in mapping(value).items() if isinstance(row, Mapping)}
        if rows:
            groups.append((label_text(key), rows))
    return groups


def columns_of(rows: Rows) -> list[str]:
    """Return the keys of all rows, in order of first appearance."""
    return list(dict.fromkeys(column for values in rows.values() for column in values))


def row_cells(columns: Sequence[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """Return a row's values as text, cut to length; a missing value is a dash."""
    texts = (_total_text(column, values.get(column)) for column in columns)
    return tuple(
        f"{text[:_LONGEST_CELL]}…" if len(text) > _LONGEST_CELL else text for text in texts
    )


def mapping(value: object) -> Mapping[str, object]:
    """Return a mapping unchanged; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: object) -> Iterable[Mapping[str, object]]:
    """Return a list's mappings; anything else in it, or no list at all, is skipped."""
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return (item for item in items if isinstance(item, Mapping))
