"""The store's bounds at the size where they count, in virtual time."""

import gc
import json
import tracemalloc

import pytest

from gpuscale.series.promql.evaluate import instant
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.scraping.streamed import StreamedTarget
from gpuscale.series.scraping.target import TargetSeries
from gpuscale.series.storage.limits import ScrapeLimits
from gpuscale.series.storage.store import SeriesStore

T = 1_700_000_000_000
MAX_SERIES = 20_000
MAX_SAMPLES = 2_000_000


def values(store, query, at_ms):
    return {each.labels.get("pod", ""): each.value for each in instant(store, query, at_ms).samples}


def test_new_names_in_every_scrape_take_a_bounded_memory() -> None:
    store = SeriesStore(900_000, MAX_SERIES, MAX_SAMPLES)
    target = ScrapeTarget(store, {"job": "flooding"}, limits=ScrapeLimits(samples=0))
    grown = []
    tracemalloc.start()
    try:
        for scrape in range(12):
            lines = (f'f{{id="{scrape}-{i}",a="aaaaaaaaaaaa"}} 1' for i in range(100_000))
            assert target.ingest("\n".join(lines) + "\n", T + 5000 * scrape).limit == "series"
            gc.collect()
            grown.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    # Of all 1 200 000 names at most 20 000 handles stay, of less than 2 KiB each.
    assert max(grown) < MAX_SERIES * 2048
    assert store.stats().series == 2  # up and scrape_samples_scraped


def test_names_that_fit_fill_the_share_and_no_more() -> None:
    store = SeriesStore(900_000, MAX_SERIES, MAX_SAMPLES)
    flooding, good = ScrapeTarget(store, {"job": "flooding"}), ScrapeTarget(store, {"job": "good"})
    for scrape in range(60):
        now_ms = T + 5000 * scrape
        flooding.ingest("".join(f'f{{id="{scrape}-{i}"}} 1\n' for i in range(5_000)), now_ms)
        good.ingest(f'util{{pod="a"}} 51\nutil{{pod="b{scrape}"}} 1\n', now_ms)
        assert values(store, "util", now_ms) == {"a": 51, f"b{scrape}": 1}
    # One scrape of 5 000 fits into half of 20 000, and no second one once others have series too.
    assert 5_000 <= store.stats().series <= 5_000 + 61 + 4


def test_half_an_hour_of_a_stream_of_100_ms_is_covered_whole() -> None:
    # One node of 25, with its part of the samples: 8 GPUs of 20 series, half of them changing each time.
    store = SeriesStore(900_000, 200_000, 20_000_000 // 25)
    agent = StreamedTarget(store, TargetSeries(store, {"node": "n"}, honor_labels=True))
    agent.connected()
    series = [[i, f"m{i % 20}", {"gpu": str(i // 20)}, 0.0] for i in range(160)]
    snapshot = {"kind": "snapshot", "version": 1, "ms": T, "series": series}
    agent.feed(json.dumps(snapshot).encode(), T)
    for tick in range(1, 18_001):
        now_ms = T + tick * 100
        changed = {str(i): tick for i in range(0, 160, 2)}
        agent.feed(json.dumps({"kind": "change", "ms": now_ms, "values": changed}).encode(), now_ms)
        if tick % 1_000 == 0:
            (row,) = instant(store, 'm0{gpu="0"}', now_ms).samples
            assert (row.value, row.measured_ms) == (tick, now_ms)
            if tick >= 9_000:
                (row,) = instant(store, 'delta(m0{gpu="0"}[10m])', now_ms).samples
                assert row.value == pytest.approx(6_000)
    stats = store.stats()
    # A sample a second of 160 series and of up, over 15 minutes and a sixteenth.
    assert stats.samples <= 161 * (900 + 900 / 16 + 2)
    assert (stats.cut, stats.covered_ms) == (0, 900_000)


def test_of_500_pods_that_end_in_a_full_store_none_is_current() -> None:
    store = SeriesStore(900_000, MAX_SERIES, 200_000)
    target = ScrapeTarget(store, {"job": "a"})
    for generation in range(6):
        pods = "".join(f'u{{pod="p{generation}-{number}"}} 1\n' for number in range(500))
        for scrape in range(60):
            now_ms = T + (generation * 60 + scrape) * 2_000
            target.ingest(pods, now_ms)
            found = values(store, "u", now_ms)
            assert len(found) == 500
            assert all(pod.startswith(f"p{generation}-") for pod in found)
    target.ingest("", now_ms + 2_000)
    assert values(store, "u", now_ms + 2_000) == {}
    assert values(store, "u", now_ms + 242_000) == {}


def node_text(node, scrape):
    """Return what a node of 8 GPUs exposes: 25 metrics of each, 12 labels."""
    return "".join(
        f'DCGM_FI_DEV_METRIC_{metric:02d}{{gpu="{gpu}",UUID="GPU-{node:08x}-5b1c-4e7a-9d2f-{gpu:012x}",'
        f'pci_bus_id="00000000:{gpu:02X}:00.0",device="nvidia{gpu}",modelName="NVIDIA H200",'
        f'Hostname="node-{node:05d}",DCGM_FI_DRIVER_VERSION="570.124.06",container="main",'
        f'namespace="team-{node % 40}",pod="infer-{node}-{gpu}-7d9f8b6c5-x2x4z",pool="h200"}} '
        f"{(metric + gpu + scrape) % 101}\n"
        for metric in range(25)
        for gpu in range(8)
    )


def test_a_series_takes_less_than_1_kib_and_a_sample_9_bytes() -> None:
    nodes, scrapes = 10, 128  # half an hour at 15 s
    store = SeriesStore()
    targets = [ScrapeTarget(store, {"job": "gpu", "instance": f"n{n}:9400"}) for n in range(nodes)]
    texts = [[node_text(node, scrape) for node in range(nodes)] for scrape in range(2)]
    series = nodes * 200
    gc.collect()
    tracemalloc.start()
    try:
        held = []
        for scrape in range(scrapes):
            for target, text in zip(targets, texts[scrape % 2], strict=True):
                assert target.ingest(text, T + scrape * 15_000).added == 200
            if scrape in {0, scrapes - 1}:
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert held[0] / series <= 1024
    assert (held[1] - held[0]) / series / (scrapes - 1) <= 9


def test_what_counts_as_a_sample_bounds_the_memory_whoever_comes_and_goes() -> None:
    store = SeriesStore(900_000, 4_000, 20_000)
    target = ScrapeTarget(store, {"job": "a"})
    tracemalloc.start()
    try:
        grown = []
        for scrape in range(400):
            # 30 pods, of which each lives for 5 scrapes, and 100 that are all replaced every 50.
            pods = [f"p{number}-{(scrape + number) // 5}" for number in range(30)]
            pods += [f"q{number}-{scrape // 50}" for number in range(100)]
            target.ingest("".join(f'u{{pod="{pod}"}} 1\n' for pod in pods), T + scrape * 5_000)
            if scrape % 50 == 49 and scrape > 180:
                gc.collect()
                grown.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    stats = store.stats()
    # An end is taken even by a full store; a row of them at a time.
    assert stats.samples <= 20_000 + 500
    assert len(values(store, "u", T + 399 * 5_000)) == 130
    # 16 bytes a sample at most, 1 KiB a series.
    assert max(grown) <= stats.samples * 16 + 4_000 * 1024
    assert grown[-1] <= 1.1 * max(grown[:-1])
