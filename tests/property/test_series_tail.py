# mypy: disable-error-code="assignment, call-overload"
"""A reader of what is new gets each sample once and in order, however a store changes meanwhile."""

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.storage.tail import Tail
from gpuscale.series.values import ABSENT_BITS

START_MS = 1_700_000_000_000
ABSENT = struct.pack("=Q", ABSENT_BITS)
SOME = st.sets(st.integers(0, 5), min_size=1).map(sorted)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["first", "second", "many"]), SOME),
        st.tuples(st.just("one"), st.integers(0, 5)),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("read"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["commit", "undo", "later"]), st.none()),
    ),
    max_size=80,
)


class Reader:
    """Reads some batches at a time."""

    def __init__(self, store) -> None:
        self.tail = Tail(store)
        self.kept = {}
        self.new = []
        self._reading = None
        self._since_barrier = set()

    def read(self, count):
        """Read some batches; return whether there may be more."""
        if self._reading is None:
            self._reading, self._since_barrier = self.tail.read(), set()
        for _ in range(count):
            batch = next(self._reading, None)
            if batch is None:
                self._reading = None
                return False
            self._take(batch)
        return True

    def read_all(self) -> None:
        while self.read(100):
            pass

    def finish(self, *, worked) -> None:
        self.read_all()
        if worked:
            for series, sample in self.new:
                self.kept.setdefault(series, []).append(sample)
            self.tail.commit()
        else:
            self.tail.undo()
        self.new = []

    def _take(self, batch) -> None:
        if batch.is_later:
            self._since_barrier = set()
        width, values = len(batch.refs), batch.values.tobytes()
        assert len(values) == 8 * width * len(batch.times_ms)
        for row, t_ms in enumerate(batch.times_ms):
            for place, series in enumerate(batch.refs):
                at = 8 * (row * width + place)
                bits = values[at : at + 8]
                if series is not None and bits != ABSENT:
                    self.new.append((series, (t_ms, bits)))
                    # Batches may be sent at the same time up to one that is later.
                    assert series not in self._since_barrier
        read = {series for series in batch.refs if series is not None}
        self._since_barrier |= read


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_each_sample_is_read_once_and_in_order(steps) -> None:
    store = SeriesStore(60_000)
    refs = [store.ref({"__name__": "x", "i": str(i)}) for i in range(6)]
    groups = {"first": store.group(), "second": store.group(), "many": None}
    reader = Reader(store)
    now_ms = START_MS
    for number, (kind, which) in enumerate(steps):
        now_ms += 500
        if kind in groups:
            some = [refs[i] for i in which]
            store.append_many(some, [float(number)] * len(some), now_ms, group=groups[kind])
        elif kind == "one":
            store.append_ref(refs[which], now_ms, float(number))
        elif kind == "end":
            store.mark_stale(refs[which], now_ms)
        elif kind == "read":
            reader.read(which)
        else:
            reader.finish(worked=kind != "undo")
    reader.finish(worked=True)
    reader.finish(worked=True)
    wanted = {
        series: [
            (t_ms, struct.pack("=d", value))
            for t_ms, value in zip(series.times_ms, series.values, strict=True)
        ]
        for series in store.select(())
    }
    assert reader.kept == wanted
