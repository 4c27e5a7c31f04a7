# mypy: disable-error-code="attr-defined"
"""Texts that a scrape may bring, each with the verdict of Prometheus' own parsers.

verdicts.jsonl holds made-up texts and mutations of them. The parsers of release 3.16.0 (model/textparse,
default options) judged each, with the checks of a scrape on labels: names that are not empty and UTF-8, no
label twice. `body` has one character a byte. A row without `samples` was refused. In one case the table does
not follow Prometheus: there, blanks before a bare name are part of it.
"""

import json
from pathlib import Path

import pytest

from gpuscale.base.exposition.reading.entries import ExpositionError
from gpuscale.base.exposition.reading.formats import OPENMETRICS, PROMETHEUS_TEXT, entries
from gpuscale.series.scraping.scrape import DEFAULT_LIMITS
from gpuscale.series.scraping.scraped_text import TextReader
from gpuscale.series.scraping.target import TargetSeries
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.wanted import KEEP_ALL

FORMATS = {"text": PROMETHEUS_TEXT, "openmetrics": OPENMETRICS}
ROWS = [
    json.loads(line) for line in (Path(__file__).parent / "verdicts.jsonl").read_text().splitlines()
]
TYPES = {"untyped": "unknown"}


def rows():
    for row in ROWS:
        text = row["body"].encode("latin-1").decode(errors="surrogateescape")
        yield row, text, FORMATS[row["format"]]


def expected(row):
    """Return samples without and with a time of their own."""
    found = [(labels, float(value), *time) for labels, value, *time in row["samples"]]
    return [each for each in found if len(each) == 2], [each for each in found if len(each) == 3]


def same(left, right):
    # NaN is equal to nothing, but prints alike.
    return repr(left) == repr(right)


def test_the_table_has_both_verdicts_of_both_formats() -> None:
    kinds = {(row["format"], "samples" in row) for row in ROWS}
    assert len(kinds) == 4
    assert len(ROWS) > 700


def test_a_scrape_takes_what_prometheus_takes() -> None:
    for row, text, format_ in rows():
        store = SeriesStore()
        target = TargetSeries(store, {}, honor_labels=False)
        reader = TextReader(store, target, DEFAULT_LIMITS, "target", KEEP_ALL)
        # The second time, its lines are known.
        for _ in range(2):
            try:
                scraped = reader.read(text, format_)
            except ExpositionError:
                assert "samples" not in row, row
                continue
            assert "samples" in row, row
            plain, timed = expected(row)
            pairs = zip(scraped.refs, scraped.values, strict=True)
            assert same([(dict(ref.labels), value) for ref, value in pairs], plain), row
            found = [(dict(ref.labels), value, time) for ref, value, time in scraped.timed]
            assert same(found, timed), row
            reader.remember(scraped)


def test_metadata_are_what_prometheus_reads() -> None:
    for row, text, format_ in rows():
        if "metadata" not in row:
            continue
        found = [
            [meta.keyword, meta.name, TYPES.get(meta.text, meta.text)]
            for meta in reader_metas(text, format_)
        ]
        assert found == row["metadata"], row


def reader_metas(text, format_):
    store = SeriesStore()
    target = TargetSeries(store, {}, honor_labels=False)
    return TextReader(store, target, DEFAULT_LIMITS, "target", KEEP_ALL).read(text, format_).metas


@pytest.mark.parametrize("format_", FORMATS.values(), ids=FORMATS)
def test_a_fault_is_found_on_its_line(format_) -> None:
    text = "a 1\nb 2\nc x\n# EOF\n"
    with pytest.raises(ExpositionError, match=r"^t:3: found 'x', expected a number as the value$"):
        list(entries(text, format_, "t"))
