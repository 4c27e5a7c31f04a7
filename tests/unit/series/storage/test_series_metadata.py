"""What targets say of their metrics: kept once, bounded, and gone with the target."""

import pytest

from gpuscale.base.exposition.reading.formats import OPENMETRICS
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.storage.metadata import MetadataBook, MetricMetadata
from gpuscale.series.storage.store import SeriesStore

TEXT = "# HELP a Of a.\n# TYPE a counter\na 1\n# TYPE b untyped\nb 1\nc 1\n"


def said(book):
    return [(dict(labels), list(kept)) for labels, kept in book.targets()]


def test_types_and_help_of_a_scrape_are_kept_with_the_target() -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {"job": "gpu"})
    expected = [MetricMetadata("a", "counter", "Of a."), MetricMetadata("b", "unknown")]
    for t_ms in (1000, 2000):
        target.ingest(TEXT, t_ms)
        assert said(store.metadata) == [({"job": "gpu"}, expected)]
    # A failed scrape says nothing of metrics.
    target.failed(3000)
    assert said(store.metadata) == [({"job": "gpu"}, expected)]
    target.ingest("# TYPE a gauge\na 1\n", 4000)
    assert said(store.metadata) == [({"job": "gpu"}, [MetricMetadata("a", "gauge")])]
    target.gone(5000)
    assert said(store.metadata) == []
    assert store.metadata.size_bytes == 0


def test_targets_that_say_the_same_share_it() -> None:
    store = SeriesStore()
    targets = [ScrapeTarget(store, {"instance": str(i)}) for i in range(100)]
    targets[0].ingest(TEXT, 1000)
    one = store.metadata.size_bytes
    for target in targets[1:]:
        target.ingest(TEXT, 1000)
    assert store.metadata.size_bytes == one
    assert len(said(store.metadata)) == 100
    for target in targets:
        target.gone(2000)
    assert store.metadata.size_bytes == 0


def test_versions_of_one_metric_are_told_apart() -> None:
    book = MetadataBook()
    for target, help_ in enumerate(["old", "new", "new"]):
        book.put(target, {}, [MetricMetadata("z"), MetricMetadata("a", "gauge", help_)])
    assert list(book.by_metric()) == ["a", "z"]
    assert [each.help for each in book.by_metric("a")["a"]] == ["old", "new"]
    assert book.by_metric("nosuch") == {}


@pytest.mark.parametrize("help_", ["x" * 1000, "é" * 250], ids=["ascii", "wide"])
def test_a_target_that_says_too_much_is_cut_short(help_: str) -> None:
    book = MetadataBook(max_bytes=20_000, max_target_bytes=5_000)
    flood = [MetricMetadata(f"m{i:03}", "gauge", help_) for i in range(100)]
    # 300 for the entry, 4 + 5 + 1000 characters: three fit into 5000.
    assert not book.put("flood", {}, flood)
    assert [len(kept) for _, kept in said(book)] == [3]
    for i in range(10):
        book.put(i, {}, [MetricMetadata(f"{i}-{each.name}", "gauge", help_) for each in flood])
        assert book.size_bytes <= 20_000
    book.drop("flood")
    assert book.put("good", {}, [MetricMetadata("util", "gauge", "How busy.")])


def test_a_scrape_is_stored_even_where_its_metadata_is_not() -> None:
    store = SeriesStore()
    store.metadata = MetadataBook(max_bytes=0)
    target = ScrapeTarget(store, {})
    for t_ms in (1000, 2000):
        assert target.ingest(TEXT, t_ms).added == 3
    assert said(store.metadata) == []


def test_open_metrics_brings_units() -> None:
    store = SeriesStore()
    text = "# TYPE a_seconds gauge\n# UNIT a_seconds seconds\n# HELP a_seconds Of a.\n# EOF\n"
    ScrapeTarget(store, {}).ingest(text, 1000, None, OPENMETRICS)
    assert said(store.metadata) == [
        ({}, [MetricMetadata("a_seconds", "gauge", "Of a.", "seconds")])
    ]
