"""Bring the tables of docs/sizing.md up to date with the results: `python benchmarks/sizing_tables.py`."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import harness

PAGE = Path(__file__).parents[1] / "docs" / "sizing.md"
RESULT = harness.RESULTS / "sizing.json"
END = "<!-- end -->\n"
COLUMNS = {
    "pods": (
        ("pods", "pods", ",.0f"),
        ("serving_mib", "memory of the serving process", ",.0f MiB"),
        ("most_mib", "most at any time", ",.0f MiB"),
        ("start_cpu_s", "CPU until the first answer", ".1f s"),
    ),
    "rates": (
        ("hpas", "HPAs with one metric", ",.0f"),
        ("answered_per_s", "requests a second", ",.0f"),
        ("cores", "CPU", ".2f cores"),
        ("cpu_ms_a_request", "CPU of a request", ".2f ms"),
        ("prometheus_cores", "CPU of Prometheus", ".2f cores"),
        ("prometheus_queries_per_s", "queries to Prometheus", ".1f/s"),
        ("serving_mib", "memory", ",.0f MiB"),
    ),
    "connections": (
        ("opened", "opened", ",.0f"),
        ("limit", "`--max-connections`", ",.0f"),
        ("open", "still open", ",.0f"),
        ("serving_mib", "memory of the serving process", ",.0f MiB"),
    ),
    "replicas": (
        ("servers", "servers", ".0f"),
        ("hpas", "HPAs with one metric", ",.0f"),
        ("answered_per_s", "requests a second, both together", ",.0f"),
        ("cores", "CPU", ".2f cores"),
        ("cpu_ms_a_request", "CPU of a request", ".2f ms"),
        ("prometheus_queries_per_s", "queries to Prometheus", ".1f/s"),
        ("serving_mib", "memory", ",.0f MiB"),
    ),
    "streams": (
        ("nodes", "nodes of 8 GPUs", ",.0f"),
        ("series", "series", ",.0f"),
        ("cores", "CPU of both processes", ".2f cores"),
        ("serving_mib", "memory of the serving process", ",.0f MiB"),
        ("collector_mib", "memory of the collector", ",.0f MiB"),
        ("both_mib", "both", ",.0f MiB"),
    ),
    "store": (
        ("series", "series", ",.0f"),
        ("samples", "samples", ",.0f"),
        ("store_mib", "memory of the store", ",.0f MiB"),
        ("formula_mib", "by the formula", ",.0f MiB"),
    ),
    "prometheus": (
        ("series", "series", ",.0f"),
        ("mib", "memory of Prometheus", ",.0f MiB"),
        ("cores", "CPU, scraped every 15 s", ".3f cores"),
    ),
    "agent": (
        ("gpus", "simulated GPUs", ".0f"),
        ("series", "series", ",.0f"),
        ("cores", "CPU", ".3f cores"),
        ("mib", "memory", ",.0f MiB"),
    ),
}
"""By part: the value, the head of its column, its format with its unit."""
SYNC_S = 15
SERIES_BYTES, SAMPLE_BYTES = 1_000, 9
"""The page's formula of a store."""

Row = Mapping[str, float]


def main() -> int:
    """Bring the page up to date, and return the exit code."""
    PAGE.write_text(updated(PAGE.read_text()))
    return 0


def updated(page: str) -> str:
    """Return the page with the tables of the results; those of parts that were not measured stay."""
    for part, measured in json.loads(RESULT.read_text())["parts"].items():
        before, begin, rest = page.partition(head(part))
        if not begin:
            raise ValueError(f"{PAGE.name}: found no line {head(part).strip()!r}")
        page = before + begin + table(part, measured["rows"]) + END + rest.split(END, 1)[1]
    return page


def head(part: str) -> str:
    """Return the line before a part's table."""
    return f"<!-- {part}: written by benchmarks/bench_sizing.py -->\n"


def table(part: str, rows: Sequence[Row]) -> str:
    """Return the table of a part."""
    columns = COLUMNS[part]
    lines = [[title for _, title, _ in columns], ["---"] * len(columns)]
    lines += [[shown(row, name, form) for name, _, form in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def shown(row: Row, name: str, form: str) -> str:
    """Return a value with its unit."""
    number, _, unit = form.partition(" ")
    if name == "hpas":
        return format(row["rate"] * SYNC_S, number) if row["rate"] else "flat out"
    value = value_of(row, name)
    if value is None:
        return "not measured"
    if form.endswith("/s"):
        number, unit = form.removesuffix("/s"), "/s"
    return format(value, number) + (unit if unit == "/s" else f" {unit}" if unit else "")


def value_of(row: Row, name: str) -> float | None:
    """Return what was measured, or what follows from it; None where it was not."""
    if name == "formula_mib":
        return (row["series"] * SERIES_BYTES + row["samples"] * SAMPLE_BYTES) / 2**20
    if name == "cores" and "samples_per_cpu_s" in row:
        return row["series"] / SYNC_S / row["samples_per_cpu_s"]
    if name == "both_mib" and "collector_mib" in row:
        return row["serving_mib"] + row["collector_mib"]
    return row.get(name)


if __name__ == "__main__":
    sys.exit(main())
