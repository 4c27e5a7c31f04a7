# mypy: disable-error-code="arg-type"
"""Whatever a store holds comes back from the records that were made of it."""

import struct
from io import BytesIO

from hypothesis import example, given
from hypothesis import strategies as st

from gpuscale.series.saved.reading import Restored, SegmentReader
from gpuscale.series.saved.records import (
    Record,
    SegmentHeader,
    TornSegmentError,
    UnusableSegmentError,
    encode_record,
    read_header,
    read_record,
)
from gpuscale.series.saved.writing import GroupNumbers, SegmentWriter
from gpuscale.series.storage.compression import best_compression
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.storage.tail import Tail

START_MS = 1_700_000_000_000
BITS = st.integers(0, 2**64 - 1).filter(
    # The two markers are the store's own; signalling NaNs are made quiet by some processors.
    lambda bits: bits & 0x7FF0000000000000 != 0x7FF0000000000000 or not bits & 0xFFFFFFFFFFFFF
)
VALUES = st.one_of(st.sampled_from([0.0, 1.0, -0.0]), BITS.map(lambda bits: _float(bits)))
TEXTS = st.text(max_size=8)
LABELS = st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=4).map(
    lambda labels: {**labels, "__name__": "x"}
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("many"), st.sets(st.integers(0, 5), min_size=1), VALUES),
        st.tuples(st.just("row"), st.sets(st.integers(0, 5), min_size=1), VALUES),
        st.tuples(st.just("newest"), st.sets(st.integers(0, 5), min_size=1), VALUES),
        st.tuples(st.just("one"), st.integers(0, 5), VALUES),
        st.tuples(st.just("end"), st.integers(0, 5), st.none()),
        st.tuples(st.just("save"), st.none(), st.none()),
        st.tuples(st.just("segment"), st.none(), st.none()),
        # A save that did not arrive, of which some records are there nevertheless.
        st.tuples(st.just("fail"), st.integers(0, 4), st.none()),
    ),
    max_size=60,
)


def _float(bits):
    return struct.unpack("=d", struct.pack("=Q", bits))[0]


def content(store):
    return {
        series.labels: [
            (t_ms, struct.pack("=d", value))
            for t_ms, value in zip(series.times_ms, series.values, strict=True)
        ]
        for series in store.select(())
    }


NAMES = [{"__name__": "x", "i": str(i)} for i in range(6)]


@given(
    st.lists(LABELS, min_size=6, max_size=6, unique_by=lambda it: tuple(sorted(it.items()))), STEPS
)
@example(NAMES, [("row", {0}, 1.0), ("many", {0}, 2.0), ("row", {1}, 3.0)])
def test_a_store_survives_its_segments(names, steps) -> None:
    store = SeriesStore()
    refs = [store.ref(labels) for labels in names]
    numbers = GroupNumbers()
    tail, segments = Tail(store), [SegmentWriter(numbers)]
    records = [[]]

    def save(*, arrives=True) -> None:
        for batch in tail.read():
            records[-1].extend(segments[-1].add(batch))
        records[-1].extend(segments[-1].flush())
        if arrives:
            tail.commit()
        else:
            tail.undo()

    def begin_segment() -> None:
        segments.append(SegmentWriter(numbers))
        records.append([])

    now_ms = START_MS
    rows, streamed = store.group(), store.group()
    for kind, which, value in steps:
        now_ms += 1_000
        if kind == "many":
            store.append_many([refs[i] for i in which], [value] * len(which), now_ms)
        elif kind == "row":
            some = [refs[i] for i in which]
            store.append_many(some, [value] * len(which), now_ms, group=rows)
        elif kind == "newest":
            some = [refs[i] for i in which]
            store.append_newest(streamed, some, [value] * len(which), now_ms, now_ms, 5_000)
        elif kind == "one":
            store.append_ref(refs[which], now_ms, value)
        elif kind == "end":
            store.mark_stale(refs[which], now_ms)
        elif kind == "fail":
            before = len(records[-1])
            save(arrives=False)
            del records[-1][before + which :]
            begin_segment()
        else:
            save()
        if kind == "segment":
            begin_segment()
    save()
    again, restored = SeriesStore(), Restored()
    reader = SegmentReader(again, now_ms, restored)
    for segment in records:
        reader.begin(bytes(16))
        for record in segment:
            data = BytesIO(encode_record(record, best_compression()))
            for _ in reader.take(read_record(data.read)):
                pass
    found, wanted = content(again), content(store)
    assert restored.samples == sum(map(len, found.values()))
    if all(kind != "newest" for kind, _, _ in steps):
        assert found == wanted
    for labels, samples in wanted.items():
        # The newest sample of a step takes the place of the one before, which may have been saved already.
        assert set(samples) <= set(found[labels])
        assert samples[-1] == found[labels][-1]
    assert found.keys() == wanted.keys()


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_crash_the_reader(data, has_header) -> None:
    header = SegmentHeader(START_MS, bytes(16)).encode() if has_header else b""
    file = BytesIO(header + data)
    reader = SegmentReader(SeriesStore(), START_MS, Restored())
    try:
        read_header(file.read)
        while (record := read_record(file.read)) is not None:
            for _ in reader.take(record):
                pass
    except (UnusableSegmentError, TornSegmentError):
        pass


@given(st.sampled_from([1, 2]), st.binary(max_size=120), st.binary(max_size=120))
def test_no_record_with_a_right_checksum_crashes_the_reader(kind, first, second) -> None:
    import json

    text = json.dumps([{"__name__": "x"}, None]).encode()
    declared = struct.pack("<IIII", 0, 0, 2, len(text)) + text
    reader = SegmentReader(SeriesStore(), START_MS, Restored())
    for record in (Record(1, declared), Record(kind, first), Record(2, second)):
        try:
            for _ in reader.take(record):
                pass
        except TornSegmentError:
            pass
