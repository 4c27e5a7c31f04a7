# mypy: disable-error-code="arg-type"
"""A target that is back after a restart goes on in the rows that were restored."""

import json
from io import BytesIO

from gpuscale.series.saved.reading import Restored, SegmentReader
from gpuscale.series.saved.records import encode_record, read_record
from gpuscale.series.saved.writing import GroupNumbers, SegmentWriter
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.scraping.streamed import StreamedTarget
from gpuscale.series.scraping.target import TargetSeries
from gpuscale.series.storage.compression import Compression
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.storage.tail import Tail

NOW_MS = 1_700_000_000_000


def restarted(store, now_ms):
    """Return a store with what another one had."""
    writer = SegmentWriter(GroupNumbers())
    records = [each for batch in Tail(store).read() for each in writer.add(batch)]
    again = SeriesStore()
    reader = SegmentReader(again, now_ms, Restored())
    reader.begin(b"run")
    for record in (*records, *writer.flush()):
        data = BytesIO(encode_record(record, Compression.ZLIB))
        for _ in reader.take(read_record(data.read)):
            pass
    reader.end()
    return again


def by_name(store):
    return {series.labels["__name__"]: series for series in store.select(())}


def test_a_scraped_target_goes_on_in_its_rows() -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {"job": "a"})
    for step in range(3):
        target.ingest(f"x {step}\ny {step}\nz {step}\n", NOW_MS + step * 1000)
    again = restarted(store, NOW_MS + 9_000)
    target = ScrapeTarget(again, {"job": "a"})
    target.ingest("y 9\nx 9\nnew 9\n", NOW_MS + 9_000)
    found = by_name(again)
    assert list(found["x"].times_ms) == [NOW_MS, NOW_MS + 1000, NOW_MS + 2000, NOW_MS + 9000]
    assert list(found["x"].values) == [0, 1, 2, 9]
    # All in one group, and none of its samples had to move.
    assert found["x"].group is found["y"].group is found["new"].group
    assert found["x"].own_times_ms is None
    # What the target does not expose any more has ended, and is not carried on.
    assert [found[name].is_stale() for name in "xyz"] == [False, False, True]
    assert found["z"].times_ms[-1] == NOW_MS + 9_000
    # What was restored counts as the share of the target that goes on with it.
    assert target._target.share.series == 3


def snapshot(t_ms, **values):
    series = [[i, name, {"gpu": "0"}, values[name]] for i, name in enumerate(values)]
    return json.dumps({"kind": "snapshot", "version": 1, "ms": t_ms, "series": series}).encode()


def test_a_stream_goes_on_in_its_rows() -> None:
    store = SeriesStore()
    stream = StreamedTarget(store, TargetSeries(store, {"job": "a"}, honor_labels=True))
    stream.connected()
    stream.feed(snapshot(NOW_MS, x=1.0, y=2.0), NOW_MS)
    again = restarted(store, NOW_MS + 9_000)
    stream = StreamedTarget(again, TargetSeries(again, {"job": "a"}, honor_labels=True))
    stream.connected()
    stream.feed(snapshot(NOW_MS + 9_000, x=5.0), NOW_MS + 9_000)
    found = by_name(again)
    assert list(found["x"].values) == [1.0, 5.0]
    assert found["x"].own_times_ms is None
    # A line says that all series were measured, those that are not in it are no more.
    assert found["y"].is_stale()
    assert not found["x"].is_stale()
