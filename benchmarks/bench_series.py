"""The series store against its budgets, and against the alternatives in the same run.

Text to store, and memory: see `series_ingest`; beside it the general reader (`parse_text`) followed by
appends, which is what a store without a per-target memory would do.

`avg by (pod)` over 10 000 series: warm, the first time after a series came or went, over HTTP, and from a
real Prometheus on the same data over HTTP where the program is installed.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import harness
import series_ingest
import series_queries
from bench_exporter import resident_mib
from gpuscale.base.exposition.parse import parse_text
from gpuscale.base.exposition.reading.entries import SampleLine
from gpuscale.base.exposition.reading.formats import PROMETHEUS_TEXT, line_entry
from gpuscale.series.storage.store import SeriesStore
from gpuscale.testing.prometheus import Sample, serve

SERIES = 10_000
PODS = 1_250
FILLED_SCRAPES = 40
"""Ten minutes of them."""
START_MS = 1_700_000_000_000
STEP_MS = 15_000
TARGET = {"job": "gpu", "instance": "10.0.0.1:9400"}


def lines(scrape: int) -> list[str]:
    """Return one line per GPU as dcgm-exporter prints it."""
    return [
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{i % 8}",UUID="GPU-{i:08x}-0000",device="nvidia{i % 8}",'
        f'modelName="NVIDIA H200",Hostname="node-{i // 8}",container="main",namespace="prod",'
        f'pod="infer-{i % PODS}"}} {(i * 7 + scrape * 13) % 101}'
        for i in range(SERIES)
    ]


def exposition(scrape: int) -> str:
    """Return the whole text of one scrape."""
    head = (
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
    )
    return head + "\n".join(lines(scrape)) + "\n"


def ingest_general() -> list[float]:
    """Return samples/s of reading whole families and appending each sample by its labels."""
    text = exposition(0)
    store = SeriesStore()
    t_ms = START_MS

    def work() -> None:
        nonlocal t_ms
        t_ms += STEP_MS
        for family in parse_text(text):
            for sample in family.samples:
                labels = {**dict(sample.labels), **TARGET, "__name__": family.name}
                store.append(labels, t_ms, sample.value)

    return [SERIES / seconds for seconds in harness.timed(work, runs=5)]


def samples() -> Iterator[Sample]:
    """Return what the store holds, for Prometheus."""
    for scrape in range(FILLED_SCRAPES):
        for line in lines(scrape):
            parsed = line_entry(line, PROMETHEUS_TEXT)
            assert isinstance(parsed, SampleLine)
            labels = {"__name__": parsed.name, **dict(parsed.labels), **TARGET}
            yield labels, START_MS + scrape * STEP_MS, float(parsed.value)


def prometheus_memory() -> harness.Figure:
    """Return how much a real Prometheus grows by the series."""
    with tempfile.TemporaryDirectory() as folder, serve([], Path(folder)) as prometheus:
        empty = resident_mib(prometheus.pid)
        prometheus.write(samples())
        grown = (resident_mib(prometheus.pid) - empty) * 1024 * 1024
    return harness.figure(
        f"alternative: Prometheus, resident growth a series of {FILLED_SCRAPES} samples",
        "bytes",
        [grown / SERIES],
        note="written at once by remote write; garbage of the writes included",
    )


def main() -> int:
    """Measure everything; return an exit code."""
    figures = [
        *series_ingest.figures(),
        harness.figure(
            "alternative: parse_text, then append by labels", "samples/s", ingest_general()
        ),
        *series_queries.figures(),
    ]
    if shutil.which("prometheus"):
        figures.append(prometheus_memory())
    return harness.write(
        "series",
        figures,
        packages=["google-re2", "msgspec", "numpy"],
        programs={"prometheus": ["prometheus", "--version"]},
        settings={
            "series": SERIES,
            "pods": PODS,
            "ingest_sizes": series_ingest.SIZES,
            "filled_scrapes": FILLED_SCRAPES,
            "query_sizes": series_queries.SIZES,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
