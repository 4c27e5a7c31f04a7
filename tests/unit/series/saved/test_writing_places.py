"""A place of a group's rows is another series' in other rows, and each sample comes back for its own."""

from array import array

import pytest

from gpuscale.series.saved.reading import Restored, SegmentReader
from gpuscale.series.saved.writing import GroupNumbers, SegmentWriter
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.storage.tail import Batch

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(0, 1), (2, 1)], id="another series"),
        pytest.param([(None, 1), (2, 1)], id="nobody's before"),
        pytest.param([(0, 1), (None, 1), (2, 1)], id="nobody's in between"),
        pytest.param([(0, 1, 2), (0,), (0, 3, 4)], id="narrow in between"),
        pytest.param([(0,), (0, 1), (0, 1, 2)], id="wider"),
        pytest.param([(0, 1), (1, 0)], id="changed about"),
    ],
)
def test_each_row_comes_back_for_the_series_of_its_own_places(rows) -> None:
    store, again = SeriesStore(), SeriesStore()
    refs = [store.ref({"__name__": "x", "i": str(i)}) for i in range(5)]
    writer, wanted = SegmentWriter(GroupNumbers()), {}
    records = []
    for number, places in enumerate(rows):
        t_ms = NOW_MS + number
        values = [10.0 * number + place for place in range(len(places))]
        for series, value in zip(places, values, strict=True):
            if series is not None:
                wanted.setdefault(str(series), []).append((t_ms, value))
        owners = [None if series is None else refs[series] for series in places]
        records += writer.add(Batch("rows", owners, array("q", [t_ms]), array("d", values)))
    reader = SegmentReader(again, NOW_MS + 10, Restored())
    reader.begin(bytes(16))
    for record in (*records, *writer.flush()):
        for _ in reader.take(record):
            pass
    found = {
        series.labels["i"]: list(zip(series.times_ms, series.values, strict=True))
        for series in again.select(())
    }
    assert found == wanted
