"""The measured tables of docs/beside.md, made of the result files, losses included.

`make reference` writes them into the page: `python tools/beside_reference.py`.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "beside.md"
RESULTS = ROOT / "benchmarks" / "results"
_TABLE = re.compile(r"<!-- measured: (\w+) -->\n.*?<!-- end of measured -->\n", re.DOTALL)


@dataclass(frozen=True)
class Pair:
    """A row: the same figure of both, by its names in the result file."""

    what: str
    ours: str
    theirs: str


PAIRS = {
    "exporter_4xh100": (
        Pair(
            "CPU, four H100 read each second", "gpuscale at 1 s: CPU", "nvitop-exporter at 1 s: CPU"
        ),
        Pair(
            "memory", "gpuscale at 1 s: resident memory", "nvitop-exporter at 1 s: resident memory"
        ),
        Pair(
            "a scrape, p99",
            "gpuscale at 1 s: scrape p99, one scraper",
            "nvitop-exporter at 1 s: scrape p99, one scraper",
        ),
        Pair(
            "50 scrapes at once, p99",
            "gpuscale at 1 s: scrape p99, 50 at once",
            "nvitop-exporter at 1 s: scrape p99, 50 at once",
        ),
    ),
    "metrics_api": (
        *(
            Pair(
                f"{what}, {load}",
                f"gpuscale: {load}: {name}",
                f"prometheus-adapter: {load}: {name}",
            )
            for load in ("10 pods, 5/s", "10,000 pods, 66/s")
            for what, name in (
                ("own CPU", "own CPU"),
                ("CPU of Prometheus", "CPU of Prometheus"),
                ("an answer, p99", "p99"),
                ("memory", "resident memory"),
            )
        ),
        Pair(
            "CPU from start to the first answer, 10,000 pods",
            "gpuscale: CPU to the first answer, 10,000 pods",
            "prometheus-adapter: CPU to the first answer, 10,000 pods",
        ),
    ),
    "wake": (
        Pair(
            "from zero to one replica wanted, p50",
            "KEDA with gpuscale's scaler, by push: p50",
            "KEDA with its own prometheus trigger: p50",
        ),
        Pair(
            "the same, p99",
            "KEDA with gpuscale's scaler, by push: p99",
            "KEDA with its own prometheus trigger: p99",
        ),
    ),
    "scaler_1000_quiet": (
        Pair(
            "value and activity of 1 000 ScaledObjects, p50",
            "1000 ScaledObjects: GetMetrics and IsActive, p50",
            "1000 ScaledObjects: KEDA's Prometheus scaler, value and activity, p50",
        ),
        Pair(
            "the same, p99",
            "1000 ScaledObjects: GetMetrics and IsActive, p99",
            "1000 ScaledObjects: KEDA's Prometheus scaler, value and activity, p99",
        ),
        Pair(
            "CPU of Prometheus",
            "1000 ScaledObjects: CPU of Prometheus",
            "1000 ScaledObjects: KEDA's Prometheus scaler, CPU of Prometheus",
        ),
    ),
    "load": (
        Pair(
            "p95 of a server that stalls (theory: 750 ms)",
            "p95 of a server that stalls",
            "the same by hey, as it prints it",
        ),
        Pair(
            "p99 of a known distribution",
            "p99 of a known distribution",
            "p99 of a known distribution, by hey",
        ),
    ),
}
OTHERS = {
    "exporter_4xh100": "nvitop-exporter",
    "metrics_api": "prometheus-adapter",
    "wake": "KEDA's Prometheus trigger",
    "scaler_1000_quiet": "KEDA's Prometheus trigger",
    "load": "hey",
}


def with_tables(text: str) -> str:
    """Return the page with current tables."""
    return _TABLE.sub(lambda found: "".join(_table(found[1])), text)


def _table(name: str) -> Iterator[str]:
    found = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    figures = {each["name"]: each for each in found["figures"]}
    yield f"<!-- measured: {name} -->\n"
    yield f"| | gpuscale | {OTHERS[name]} | ratio |\n| --- | --- | --- | --- |\n"
    for pair in PAIRS[name]:
        ours, theirs = figures[pair.ours], figures[pair.theirs]
        ratio = ours["median"] / theirs["median"]
        times = f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2g}"
        yield f"| {pair.what} | {_amount(ours)} | {_amount(theirs)} | {times} |\n"
    machine, day = found["machine"], found["measured_at"][:10]
    yield (
        f"\nMedians, both in one run, on {day} with {machine['cores']} cores of {machine['cpu']} "
        f"([result](../benchmarks/results/{name}.json)).\n<!-- end of measured -->\n"
    )


def _amount(figure: dict[str, object]) -> str:
    value = float(str(figure["median"]))
    return f"{value:,.0f} {figure['unit']}" if value >= 100 else f"{value:.3g} {figure['unit']}"


def main() -> None:
    """Write the tables into the page."""
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
