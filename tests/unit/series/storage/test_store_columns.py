# mypy: disable-error-code="misc"
"""Whatever is appended in whatever order, the store holds what a list for each series would hold."""

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.series.storage import groups
from gpuscale.series.storage.frames import frames
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import ABSENT_BITS, STALE_BITS, is_stale

NAMES = 12
RETENTION_MS = 100

subsets = st.lists(st.integers(0, NAMES - 1), max_size=NAMES)
steps = st.one_of(
    st.tuples(st.just("many"), st.integers(0, 2), subsets),
    st.tuples(st.just("line"), st.just(3), subsets),
    st.tuples(st.just("alone"), st.just(0), subsets),
    st.tuples(st.just("end"), st.just(0), subsets),
    st.tuples(st.just("scrape"), st.integers(0, 2), subsets),
    st.tuples(st.just("wait"), st.integers(0, 60), st.just([])),
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "_MAX_ROWS": 4,
        "_MIN_ROWS": 2,
        "_BLOCK_PLACES": 16,
        "_WIDEN_PLACES": 8,
        "_FEW": 2,
    }.items():
        monkeypatch.setattr(groups, name, value)


def held(store, start_ms, end_ms, **options):
    """Return the samples of all frames by the label i, markers as None."""
    found = {}
    for frame in frames(store, (), start_ms, end_ms, **options):
        assert frame.values.shape == (len(frame.times_ms), len(frame.labels))
        bits = frame.values.view(np.uint64)
        for column, labels in enumerate(frame.labels):
            kept = bits[:, column] != ABSENT_BITS
            is_end = bits[kept, column] == STALE_BITS
            assert not frame.is_dense or (kept.all() and not is_end.any())
            values = np.where(is_end, -1, frame.values[kept, column])
            assert labels["i"] not in found
            found[labels["i"]] = list(
                zip(frame.times_ms[kept].tolist(), values.tolist(), strict=True)
            )
    return found


class Model:
    """A list of samples for each series; an end is None."""

    def __init__(self) -> None:
        self.samples = defaultdict(list)
        self.lines = {}

    def last_ms(self, name):
        return self.samples[name][-1][0] if self.samples[name] else -1

    def append(self, name, t_ms, value):
        if t_ms <= self.last_ms(name):
            return False
        self.samples[name].append((t_ms, value))
        return True

    def end(self, name, t_ms):
        if not self.samples[name] or self.has_ended(name):
            return False
        self.samples[name].append((max(t_ms, self.last_ms(name) + 1), None))
        return True

    def has_ended(self, name):
        return self.samples[name][-1][1] is None

    def expire(self, cutoff_ms) -> None:
        for samples in self.samples.values():
            samples[:] = [sample for sample in samples if sample[0] >= cutoff_ms]


class Driven:
    def __init__(self, max_samples) -> None:
        self.store = SeriesStore(RETENTION_MS, 1_000, max_samples)
        self.model = Model()
        self.refs = [self.store.ref({"__name__": "m", "i": str(i)}) for i in range(NAMES)]
        self.groups = [self.store.group() for _ in range(4)]
        self.scraped = defaultdict(list)
        self.streamed = {}
        self.now_ms = 1_000
        self.value = 0.0

    def step(self, what, group, names) -> None:
        self.now_ms += 1
        t_ms = self.now_ms
        match what:
            case "wait":
                self.now_ms += group
            case "many" | "scrape":
                self.many(group, names, t_ms)
                if what == "scrape":
                    self.end(set(self.scraped[group]) - set(names), t_ms)
                    self.scraped[group] = names
            case "alone":
                for name in names:
                    value = self.next()
                    taken = self.store.append_ref(self.refs[name], t_ms, value)
                    assert taken == self.model.append(name, t_ms, value)
            case "end":
                self.end(names, t_ms)

    def many(self, group, names, t_ms) -> None:
        values = [self.next() for _ in names]
        refs = [self.refs[name] for name in names]
        taken = self.store.append_many(refs, values, t_ms, group=self.groups[group])
        pairs = zip(names, values, strict=True)
        assert taken == sum([self.model.append(name, t_ms, value) for name, value in pairs])

    def end(self, names, t_ms) -> None:
        for name in sorted(names):
            is_there = self.model.last_ms(name) >= self.now_ms - RETENTION_MS
            if self.store.mark_stale(self.refs[name], t_ms):
                assert self.model.end(name, t_ms)
            else:
                assert not is_there or self.model.has_ended(name)

    def next(self):
        self.value += 1
        return self.value

    def check_frames(self, start_ms, end_ms, moments) -> None:
        """Frames hold what the series hold, whether all of it or what counts at some moments."""
        every = held(self.store, start_ms, end_ms)
        some = held(self.store, start_ms, end_ms, moments=moments)
        for name, ref in enumerate(self.refs):
            times_ms, values = ref.read(start_ms, end_ms)
            expected = [
                (t_ms, -1 if is_stale(value) else value)
                for t_ms, value in zip(times_ms, values, strict=True)
            ]
            assert every.get(str(name), []) == expected
            found = some.get(str(name), [])
            assert all(sample in expected for sample in found)
            for moment_ms in moments:
                until = [sample for sample in expected if sample[0] <= moment_ms]
                assert [sample for sample in found if sample[0] <= moment_ms][-1:] == until[-1:]

    def check(self) -> None:
        kept_ms = self.now_ms - RETENTION_MS
        self.store.advance(self.now_ms)
        self.model.expire(kept_ms)
        self.check_frames(kept_ms, self.now_ms, range(kept_ms, self.now_ms, 30))
        self.check_frames(
            self.now_ms - 20, self.now_ms - 5, range(self.now_ms - 5, self.now_ms - 4)
        )
        for name, ref in enumerate(self.refs):
            expected = self.model.samples[name]
            times_ms, values = ref.read(kept_ms, self.now_ms + 10)
            found = [
                (t_ms, None if is_stale(value) else value)
                for t_ms, value in zip(times_ms, values, strict=True)
            ]
            covered = [sample for sample in expected if sample[0] > ref.cut_ms]
            assert found[len(found) - len(covered) :] == covered
            assert found[-1:] == expected[-1:]
            assert all(sample in expected for sample in found)
            assert len(found) == len(expected) or self.store.stats().cut
            assert ref.is_stale() == (bool(expected) and expected[-1][1] is None) or not expected
            for sample, after in zip(
                expected, [*expected[1:], (self.now_ms + 11, 0)], strict=False
            ):
                if sample[0] > ref.cut_ms:
                    t_ms, value = ref.newest(after[0] - 1)
                    assert (t_ms, None if is_stale(value) else value) == sample


@given(st.lists(steps, max_size=60))
def test_all_that_is_appended_is_there(steps) -> None:
    driven = Driven(1_000_000)
    for step in steps:
        if step[0] != "line":
            driven.step(*step)
    driven.check()
    assert driven.store.stats().cut == 0
    # Much later nothing is left, nothing is counted, and no place is taken.
    driven.store.append({"__name__": "other"}, driven.now_ms + 1_000, 1)
    assert (driven.store.stats().series, driven.store.stats().samples) == (1, 1)
    for group in driven.groups:
        assert (group.going_on, group.blocks) == (0, [])


@given(st.lists(steps, min_size=15, max_size=60))
def test_what_makes_room_is_known_to_be_missing_and_the_newest_stays(steps) -> None:
    driven = Driven(25)
    for step in steps:
        if step[0] in {"scrape", "end", "wait"}:
            before = sum(map(len, driven.model.samples.values()))
            try:
                driven.step(*step)
            except AssertionError:
                assert driven.store.stats().refused["too_many_samples"], before
                return
    driven.check()


@given(st.lists(st.tuples(st.integers(1, 15), subsets, subsets), min_size=1, max_size=60))
def test_of_each_step_the_newest_line_is_kept_whole(lines) -> None:
    store = SeriesStore(10_000)
    group = store.group()
    there, expected = {}, []
    t_ms = 1_000
    for number, (wait_ms, present, changed) in enumerate(lines):
        t_ms += wait_ms
        names = set(present)
        refs = {i: store.ref({"__name__": "m", "i": str(i)}) for i in names}
        gone = [store.ref({"__name__": "m", "i": str(i)}) for i in sorted(there.keys() - names)]
        new = {i: number for i in names if i not in there or i in changed}
        store.append_newest(group, [refs[i] for i in new], list(new.values()), t_ms, t_ms, 10, gone)
        has_come = bool(names - there.keys())
        there = {i: new.get(i, there.get(i)) for i in names}
        row = {**there, **{int(ref.labels["i"]): None for ref in gone}}
        is_same_step = expected and expected[-1][0] >= t_ms - t_ms % 10
        if is_same_step and not (gone or has_come or None in expected[-1][1].values()):
            expected.pop()
        expected.append((t_ms, row))
    for i in range(NAMES):
        times_ms, values = store.ref({"__name__": "m", "i": str(i)}).read(0, 10_000)
        found = {
            t: None if is_stale(value) else value for t, value in zip(times_ms, values, strict=True)
        }
        assert found == {t: row[i] for t, row in expected if i in row}


def test_frames_hold_the_samples_between_two_times_both_included() -> None:
    store = SeriesStore()
    refs = [store.ref({"__name__": "m", "i": str(i)}) for i in range(3)]
    for t_ms in range(0, 5_000, 1_000):
        store.append_many(refs, [t_ms, t_ms + 1, math.nan], t_ms)
    store.append({"__name__": "m", "i": "late"}, 5_000, 1)
    store.mark_stale(refs[0], 2_500 + 2_000)
    found = held(store, 3_000, 4_500)
    assert found.keys() == {"0", "1", "2"}
    assert found["0"] == [(3_000, 3_000), (4_000, 4_000), (4_500, -1)]
    assert found["1"] == [(3_000, 3_001), (4_000, 4_001)]
    assert [t_ms for t_ms, value in found["2"] if math.isnan(value)] == [3_000, 4_000]


def test_a_series_that_was_cut_is_there_without_samples() -> None:
    store = SeriesStore(max_samples=10)
    ref = store.ref({"__name__": "m", "i": "0"})
    for t_ms in range(0, 100_000, 1_000):
        store.append_ref(ref, t_ms + 3_600_000, 1)
    (frame,) = frames(store, (), 3_600_000, 3_601_000)
    assert (len(frame.times_ms), len(frame.labels)) == (0, 1)
    assert 3_601_000 <= frame.cut_ms[0] < 3_700_000
