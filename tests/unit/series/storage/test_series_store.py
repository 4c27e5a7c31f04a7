import gc
import math
import weakref
from array import array

import pytest

from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import STALE, is_stale

UP = {"__name__": "up", "job": "gpu", "instance": "a"}


def equal(name, value):
    return Matcher(name, MatchOp.EQUAL, value)


def refused(store):
    return {reason: count for reason, count in store.stats().refused.items() if count}


def test_appended_samples_are_selected_with_their_times() -> None:
    store = SeriesStore()
    assert store.append(UP, 1000, 1)
    assert store.append(UP, 2000, 0)
    (series,) = store.select((equal("__name__", "up"),))
    assert series.labels == UP
    assert list(series.times_ms) == [1000, 2000]
    assert list(series.values) == [1.0, 0.0]
    assert store.stats().series == 1
    assert store.stats().samples == 2
    assert store.stats().now_ms == 2000


def test_a_handle_names_the_same_series_as_its_labels() -> None:
    store = SeriesStore()
    ref = store.ref(UP)
    assert store.ref(dict(reversed(UP.items()))) is ref
    assert store.append_ref(ref, 1000, 1)
    assert store.append(UP, 2000, 1)
    assert store.stats().series == 1


def test_a_handle_alone_is_no_series() -> None:
    store = SeriesStore()
    ref = store.ref(UP)
    assert store.stats().series == 0
    assert store.series(()) == []
    assert not store.mark_stale(ref, 1000)


def test_out_of_order_and_duplicate_samples_are_refused_and_counted() -> None:
    store = SeriesStore()
    store.append(UP, 2000, 1)
    assert not store.append(UP, 1000, 2)
    assert not store.append(UP, 2000, 3)
    assert refused(store) == {"out_of_order": 1, "duplicate_timestamp": 1}
    assert list(store.select(())[0].values) == [1.0]


def test_a_new_series_above_the_bound_is_refused_and_old_ones_go_on() -> None:
    store = SeriesStore(max_series=1)
    store.append(UP, 1000, 1)
    assert not store.append({**UP, "instance": "b"}, 1000, 1)
    assert store.append(UP, 2000, 1)
    assert refused(store) == {"too_many_series": 1}


def test_samples_above_the_bound_are_refused_and_counted() -> None:
    store = SeriesStore(max_samples=2)
    ref = store.ref(UP)
    assert [store.append_ref(ref, t, 1) for t in (1, 2, 3)] == [True, True, False]
    assert refused(store) == {"too_many_samples": 1}


def test_many_samples_of_one_time_are_added_at_once() -> None:
    store = SeriesStore()
    refs = [store.ref({**UP, "instance": str(i)}) for i in range(3)]
    assert store.append_many(refs, [1, 2, 3], 1000) == 3
    # One series twice at one time: the second is refused.
    assert store.append_many([refs[0], refs[0]], [4, 5], 2000) == 1
    assert refused(store) == {"duplicate_timestamp": 1}


def test_samples_and_series_beyond_the_retention_go() -> None:
    store = SeriesStore(retention_ms=10_000)
    for t_ms in range(0, 30_000, 1000):
        store.append(UP, t_ms, 1)
    store.append({"__name__": "old"}, 20_000, 1)
    store.append(UP, 40_000, 1)
    (series,) = store.select(())
    # Only 40 s is within the last 10 s; "old" ended at 20 s.
    assert list(series.times_ms) == [40_000]
    assert store.stats().samples == 1
    assert store.label_values("__name__") == ["up"]
    assert not store.append({"__name__": "late"}, 29_999, 1)
    assert refused(store) == {"too_old": 1}


def test_a_handle_of_a_series_that_went_begins_it_again() -> None:
    store = SeriesStore(retention_ms=1000)
    ref = store.ref(UP)
    store.append_ref(ref, 0, 1)
    store.append({"__name__": "other"}, 10_000, 1)
    assert store.stats().series == 1
    assert store.append_ref(ref, 10_000, 2)
    assert store.append(UP, 10_001, 3)
    assert store.stats().series == 2
    assert store.select((equal("__name__", "up"),)) == (ref,)


def test_generation_changes_when_a_series_comes_or_goes() -> None:
    store = SeriesStore(retention_ms=1000)
    store.append(UP, 0, 1)
    first = store.generation
    store.append(UP, 1, 1)
    assert store.generation == first
    store.append({"__name__": "other"}, 10_000, 1)
    # One came and one went.
    assert store.generation == first + 2


def test_a_new_series_is_selected_though_the_selector_was_asked_before() -> None:
    store = SeriesStore()
    store.append(UP, 1000, 1)
    up = (equal("__name__", "up"),)
    assert len(store.select(up)) == 1
    store.append({**UP, "instance": "b"}, 1000, 1)
    assert len(store.select(up)) == 2


@pytest.mark.parametrize(
    ("matchers", "instances"),
    [
        pytest.param((equal("instance", "a"),), "a", id="equal"),
        pytest.param((equal("zone", ""),), "bc", id="equal-empty"),
        pytest.param((Matcher("instance", MatchOp.NOT_EQUAL, "a"),), "bc", id="not-equal"),
        pytest.param((Matcher("zone", MatchOp.NOT_EQUAL, "z"),), "bc", id="not-equal-absent"),
        pytest.param((Matcher("instance", MatchOp.REGEX, "a|b"),), "ab", id="regex"),
        pytest.param((Matcher("instance", MatchOp.REGEX, "xax|"),), "", id="regex-anchored"),
        pytest.param((Matcher("zone", MatchOp.REGEX, ".*"),), "abc", id="regex-empty"),
        pytest.param((Matcher("zone", MatchOp.REGEX, ".+"),), "a", id="regex-some"),
        pytest.param((Matcher("instance", MatchOp.NOT_REGEX, "a|b"),), "c", id="not-regex"),
        pytest.param(
            (
                equal("__name__", "up"),
                Matcher("instance", MatchOp.REGEX, "[bc]"),
                equal("zone", ""),
            ),
            "bc",
            id="several",
        ),
        pytest.param((equal("instance", "nosuch"),), "", id="nothing"),
    ],
)
def test_matchers_select(matchers, instances: str) -> None:
    store = SeriesStore()
    store.append({**UP, "zone": "z"}, 1000, 1)
    store.append({**UP, "instance": "b"}, 1000, 1)
    store.append({**UP, "instance": "c"}, 1000, 1)
    found = [labels["instance"] for labels in store.series(matchers)]
    assert found == list(instances)


def test_a_bad_expression_is_refused() -> None:
    with pytest.raises(ValueError, match="not a regular expression of RE2: missing"):
        SeriesStore().select((Matcher("a", MatchOp.REGEX, "("),))


def test_series_and_labels_look_only_between_the_times() -> None:
    store = SeriesStore()
    store.append(UP, 1000, 1)
    store.append({**UP, "instance": "b", "zone": "z"}, 5000, 1)
    assert store.series((), 1001, 4999) == []
    assert store.series((), None, 1000) == [UP]
    assert store.label_names() == ["__name__", "instance", "job", "zone"]
    assert store.label_names((), 0, 1000) == ["__name__", "instance", "job"]
    assert store.label_values("instance") == ["a", "b"]
    assert store.label_values("instance", (equal("zone", "z"),)) == ["b"]
    assert store.label_values("nosuch") == []


def test_a_marker_ends_a_series_once() -> None:
    store = SeriesStore()
    ref = store.ref(UP)
    store.append_ref(ref, 1000, math.nan)
    assert not ref.is_stale()
    assert store.mark_stale(ref, 2000)
    assert ref.is_stale()
    assert not store.mark_stale(ref, 3000)
    assert store.append_ref(ref, 4000, 1)
    assert not ref.is_stale()


def test_a_marker_at_the_time_of_the_newest_sample_comes_right_behind_it() -> None:
    store = SeriesStore()
    ref = store.ref(UP)
    store.append_ref(ref, 1000, 1)
    assert store.mark_stale(ref, 1000)
    assert list(ref.times_ms) == [1000, 1001]


def test_the_marker_survives_a_packed_array_and_is_not_any_nan() -> None:
    assert is_stale(array("d", [STALE])[0])
    assert not is_stale(math.nan)
    assert not is_stale(0.0)


def test_a_series_that_ended_comes_back_under_the_same_handle() -> None:
    store = SeriesStore(retention_ms=1000)
    ref = store.ref({"__name__": "m", "pod": "a"})
    assert store.append_ref(ref, 0, 1)
    assert store.append({"__name__": "other"}, 5000, 1)
    assert [each["__name__"] for each in store.series(())] == ["other"]
    assert store.label_values("pod") == []
    assert store.label_names() == ["__name__"]
    assert store.ref({"__name__": "m", "pod": "a"}) is ref
    assert store.append_ref(ref, 5001, 2)
    assert store.label_values("pod") == ["a"]


def test_handles_that_nobody_holds_are_let_go() -> None:
    store = SeriesStore(retention_ms=1000)
    unused = weakref.ref(store.ref({"__name__": "never_appended"}))
    held = store.ref({"__name__": "held"})
    for t_ms in (0, 2000, 4000):
        store.append({"__name__": "m"}, t_ms, 1)
    assert store.ref({"__name__": "held"}) is held
    gc.collect()
    assert unused() is None
