"""What queries over 200 000 series add to a process, and what is left of it, as the system counts it."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, gc, json
from pathlib import Path

from gpuscale.series.promql.evaluate import instant, range_query
from gpuscale.series.promql.parse import parse_query
from gpuscale.series.promql.rows import QueryRange
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.promapi.query_pool import QueryPool

NOW_MS, SERIES, TARGET = 1_700_000_000_000, 200_000, 1_000
LONG = 'label_join(u, "{}", "", ' + ", ".join(['"pod"'] * 40) + ")"
CHAIN = "u"
for _ in range(4):
    CHAIN = 'label_join(' + CHAIN + ', "pod", "", "pod", "pod", "pod", "pod", "pod", "pod", "pod", "pod")'
INSTANT = [
    CHAIN, *map(LONG.format, ["b1", "b2"]),
    f"u * on (pod) group_left (b) {LONG.format('b')}",
    'count_values("v", u)', "u", "sum by (node) (u)", "u or -u", "topk(3, u)",
]
RANGE = ["u", "rate(u[5m])", "sum by (node) (rate(u[5m]))", "sum_over_time(u[5m:15s])", CHAIN,
    "sum by (node) (max_over_time((u * 2)[5m:15s]))", "max_over_time(sum by (node) (u)[5m:15s])",
    "sum(deriv(u[5m]))", "avg(quantile_over_time(0.9, u[5m]))", 'count_values("v", u)', "u > 9 or u",
    'histogram_quantile(0.9, label_replace(u, "le", "$1", "pod", ".*(.)"))']


def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def settled():
    found = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    return found


async def main():
    store = SeriesStore(900_000, SERIES + 1, SERIES * 30)
    for first in range(0, SERIES, TARGET):
        group = store.group()
        refs = [
            store.ref({"__name__": "u", "pod": f"pod-{i}", "node": f"n{i // 8}"})
            for i in range(first, first + TARGET)
        ]
        for scrape in range(21):
            values = [float(i + scrape) for i in range(first, first + TARGET)]
            at_ms = NOW_MS - 15_000 * (20 - scrape)
            store.append_many(refs, values, at_ms, at_ms, group)
    gc.collect()
    gc.disable()  # what waits for the collector waits long in a server
    pool = QueryPool(100)

    async def asked(text, start_ms):
        query = parse_query(text)
        times = start_ms, NOW_MS, 15_000
        if start_ms == NOW_MS:
            work = lambda samples, check: instant(samples, query, NOW_MS, check=check)
            covered = QueryRange(NOW_MS, NOW_MS, 0)
        else:
            work = lambda samples, check: range_query(samples, query, *times, check=check)
            covered = QueryRange(*times)
        try:
            value = await pool.evaluate(store, query, covered, work)
        except Exception as error:
            return str(error)
        return len(getattr(value, "samples", None) or value.series)

    await asked("count(u)", NOW_MS)  # imports numpy
    base, found = settled(), []
    for start_ms, texts in ((NOW_MS, INSTANT), (NOW_MS - 300_000, RANGE)):
        for text in texts:
            before = settled()
            answer = await asked(text, start_ms)
            await asyncio.sleep(0.1)
            found.append((text, answer, status("VmHWM") - before, status("VmRSS") - base))
    print(json.dumps([base, found]))


asyncio.run(main())
"""


@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="counts by /proc")
def test_queries_over_200_000_series_add_no_more_than_they_may() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    base, found = json.loads(done.stdout)
    for text, answer, grown, _ in found:
        assert grown <= 64, (text, answer, grown)
    # Label sets that are remembered, 32 MiB at most, and as much that the allocator keeps.
    assert found[-1][3] <= 64, (base, found)
    answers = {text: answer for text, answer, _, _ in found[:9]}
    assert [text for text, answer in answers.items() if isinstance(answer, int)] == [
        *("u", "sum by (node) (u)", "topk(3, u)")
    ]
    for answer in answers.values():
        if isinstance(answer, str):
            assert "bytes" in answer
            assert "expected at most 37748736; select fewer series" in answer
