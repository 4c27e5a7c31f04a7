import pytest

from gpuscale.base.pages import timeline as recorder
from gpuscale.base.pages.timeline import SeriesRecorder


def test_a_series_that_comes_late_has_gaps_before_and_after() -> None:
    record = SeriesRecorder()
    record.add(0.0, {"a": 1})
    record.add(15.0, {"a": 2, "b": 5})
    record.add(30.0, {"a": 3})
    assert record.series() == (0, [0.0, 15.0, 30.0], {"a": [1, 2, 3], "b": [None, 5, None]})


def test_only_what_is_new_is_given() -> None:
    record = SeriesRecorder()
    for t in range(5):
        record.add(float(t), {"a": t})
    assert record.series(3) == (3, [3.0, 4.0], {"a": [3, 4]})
    assert record.series(99) == (5, [], {"a": []})


def test_old_rows_are_dropped_and_still_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_POINTS", 10)
    record = SeriesRecorder()
    for t in range(12):
        record.add(float(t), {"a": t})
    first, times, series = record.series()
    assert record.total == 12
    assert times[0] == float(first) == series["a"][0]
    assert times[-1] == 11.0
