# mypy: disable-error-code="assignment, call-overload"
"""A reader of what is new gets each sample once and in order, however a store changes meanwhile."""

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.storage.tail import Tail
from gpuscale.series.values import ABSENT_BITS

START_MS = 1_700_000_000_000
ABSENT = struct.pack("=Q", ABSENT_BITS)
NAMES = 6
SOME = st.sets(st.integers(0, NAMES - 1), min_size=1).map(sorted)
ONE = st.integers(0, NAMES - 1)
WAITS_MS = st.sampled_from([0, 1, 500])
ROWS = st.tuples(st.sampled_from(["first", "second", "many"]), SOME)
STEPS = [
    ROWS,
    ROWS,
    st.tuples(st.sampled_from(["one", "end"]), ONE),
    st.tuples(st.just("early"), ONE),
    st.tuples(st.just("wait"), WAITS_MS),
    st.tuples(st.just("read"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["commit", "undo"]), st.none()),
]
LINES = st.tuples(st.just("line"), SOME)
"""Of a stream, which keep the newest row of a second: one that was read may come again, at a later time."""


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


class Driven:
    """A store, what is appended to it, and who reads it."""

    def __init__(self, steps, *, max_samples=1_000_000, wait_ms=0) -> None:
        self.store = SeriesStore(60_000, max_samples=max_samples)
        self.refs = [self.store.ref({"__name__": "x", "i": str(i)}) for i in range(NAMES)]
        groups = {"first": self.store.group(), "second": self.store.group(), "many": None}
        streamed = self.store.group()
        self.reader = Reader(self.store)
        now_ms = START_MS
        for number, (kind, which) in enumerate(steps):
            now_ms += wait_ms
            if kind in groups:
                some = [self.refs[i] for i in which]
                values = [float(NAMES * number + i) for i in which]
                self.store.append_many(some, values, now_ms, group=groups[kind])
            elif kind == "line":
                some = [self.refs[i] for i in which]
                values = [float(NAMES * number + i) for i in which]
                self.store.append_newest(streamed, some, values, now_ms, now_ms, 1_000)
            elif kind in {"one", "early"}:
                # A timestamp of its own may be older than the rows around it.
                at_ms = now_ms - 700 * (kind == "early")
                self.store.append_ref(self.refs[which], at_ms, NAMES * number + which, now_ms)
            elif kind == "end":
                self.store.mark_stale(self.refs[which], now_ms)
            elif kind == "wait":
                now_ms += which
            elif kind == "read":
                self.reader.read(which)
            else:
                self.reader.finish(worked=kind == "commit")
        self.reader.finish(worked=True)
        self.reader.finish(worked=True)

    def held(self):
        return {
            series: [
                (t_ms, struct.pack("=d", value))
                for t_ms, value in zip(series.times_ms, series.values, strict=True)
            ]
            for series in self.store.select(())
        }

    def check_kept(self) -> None:
        """Check that all there is was read, what was read is in order, and none is another series'."""
        for number, series in enumerate(self.refs):
            kept = self.reader.kept.get(series, [])
            assert kept == sorted(dict(kept).items())
            values = [struct.unpack("=d", bits)[0] for _, bits in kept]
            assert all(value % NAMES == number for value in values if value == value)
        for series, samples in self.held().items():
            assert set(samples) <= set(self.reader.kept.get(series, []))


READ_ONE = ("read", 1)


@given(st.lists(st.one_of(STEPS), max_size=80), st.sampled_from([0, 500]))
@example(
    [("first", [0]), READ_ONE, ("second", [0, 1]), ("first", [1]), READ_ONE, ("first", [0])], 500
)
def test_each_sample_is_read_once_and_in_order(steps, wait_ms) -> None:
    driven = Driven(steps, wait_ms=wait_ms)
    driven.check_kept()
    assert driven.reader.kept == driven.held()


@given(st.lists(st.one_of([*STEPS, LINES, LINES]), max_size=80), st.sampled_from([0, 300]))
def test_lines_of_a_stream_are_read_in_order_too(steps, wait_ms) -> None:
    Driven(steps, wait_ms=wait_ms).check_kept()


@given(
    st.lists(st.one_of([*STEPS, LINES]), min_size=20, max_size=80),
    st.integers(15, 60),
    st.sampled_from([500, 3_000]),
)
def test_what_a_store_drops_does_not_disturb_its_readers(steps, max_samples, wait_ms) -> None:
    Driven(steps, max_samples=max_samples, wait_ms=wait_ms).check_kept()
