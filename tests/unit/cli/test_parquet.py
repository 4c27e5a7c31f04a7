"""Runs as Parquet read back equal; recordings as Parquet are those that a CSV gives."""

import contextlib
import io
import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import parquet

from gpuscale.base.errors import ConfigError
from gpuscale.cli import parquet as ours
from gpuscale.cli.parquet import read_rows, write_events, write_series
from gpuscale.lab.sim.history.tables import MAX_STEPS, read_recording, recording_of

DOCUMENT = {
    "scenario": "größer",
    "seed": 1,
    "summary": {"cost": None},
    "events": [
        {"t": 0.0, "kind": "A", "object": "Deployment/a", "from": None, "to": 3, "reason": "x"},
        {"t": 15.5, "kind": "B", "object": "Node/é", "from": 1, "to": 2.5, "reason": ""},
    ],
    "series": {
        "t": [0.0, 15.0, 30.0, 45.0],
        "load/a": [1, 0, 2.25, 0.1],
        "pod/default/a": [None, 0.0, None, 99.5],
        "pod/default/never": [None, None, None, None],
    },
}


def written(write, document=DOCUMENT):
    file = io.BytesIO()
    write(document, file)
    return parquet.ParquetFile(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize("group_rows", [1, 3, 6, 1 << 17])
def test_series_are_read_back_equal_and_gaps_have_no_row(monkeypatch, group_rows) -> None:
    monkeypatch.setattr(ours, "_GROUP_ROWS", group_rows)
    file = written(write_series)
    table = file.read()
    assert list(
        zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True)
    ) == [
        ("load/a", 0.0, 1.0),
        ("load/a", 15.0, 0.0),
        ("load/a", 30.0, 2.25),
        ("load/a", 45.0, 0.1),
        ("pod/default/a", 15.0, 0.0),
        ("pod/default/a", 45.0, 99.5),
    ]
    assert file.metadata.num_row_groups == -(-6 // group_rows)


def test_events_are_read_back_equal() -> None:
    assert written(write_events).read().to_pylist() == DOCUMENT["events"]


def test_a_run_without_events_has_the_columns_all_the_same() -> None:
    table = written(write_events, {**DOCUMENT, "events": []}).read()
    assert table.num_rows == 0
    assert table.column_names == ["t", "kind", "object", "from", "to", "reason"]


@pytest.mark.parametrize("write", [write_series, write_events])
def test_the_rest_of_the_document_is_in_the_metadata(write) -> None:
    kept = json.loads(written(write).schema_arrow.metadata[b"gpuscale.run"])
    assert kept == {"scenario": "größer", "seed": 1, "summary": {"cost": None}}


# Recordings

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
TABLE = (
    "time,replicas,utilization\n"
    "2026-03-02T09:00:00Z,1,40.5\n2026-03-02T09:00:15Z,,\n2026-03-02T09:00:30Z,2,0\n"
)
MOMENTS = [START, START + timedelta(seconds=15), START + timedelta(seconds=30)]


def recording(folder, columns, **options):
    path = folder / "days.parquet"
    parquet.write_table(pa.table(columns), path, **options)
    return recording_of(read_rows(path, "days.parquet"), "days.parquet")


@pytest.mark.parametrize(
    "times",
    [
        pa.array([each.timestamp() for each in MOMENTS]),
        pa.array([int(each.timestamp()) for each in MOMENTS]),
        *(pa.array(MOMENTS, pa.timestamp(unit, "UTC")) for unit in ("s", "ms", "us", "ns")),
        pa.array([each.replace(tzinfo=None) for each in MOMENTS], pa.timestamp("us")),
        pa.array(
            [each.astimezone(timezone(timedelta(hours=5))) for each in MOMENTS],
            pa.timestamp("us", "+05:00"),
        ),
    ],
    ids=lambda times: str(times.type),
)
@pytest.mark.parametrize(
    "utilization",
    [pa.array([40.5, None, 0.0]), pa.array([Decimal("40.5"), None, Decimal("0.0")])],
    ids=lambda values: str(values.type),
)
def test_a_recording_is_the_one_that_a_csv_gives(tmp_path, times, utilization) -> None:
    columns = {
        "other": ["x", "y", "z"],
        "utilization": utilization,
        "replicas": pa.array([1, None, 2], pa.int32()),
        "rate": pa.nulls(3),
        "time": times,
    }
    assert recording(tmp_path, columns) == read_recording(TABLE, "days.csv")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"a": [1], "b": [2]},
            "days.parquet: found a, b, expected columns named time and replicas",
        ),
        (
            {"time": ["2026-03-02"], "replicas": [[1]]},
            "days.parquet: time: found values of type string, expected timestamps, or seconds as numbers; "
            "cast the column\n"
            "days.parquet: replicas: found values of type list<element: int64>, expected numbers; "
            "cast the column",
        ),
        (
            {"time": [0.0, None, 30.0], "replicas": [1, 1, -1]},
            "days.parquet:2: time: found no value, expected a time in each row\n"
            "days.parquet:3: replicas: found -1.0, expected a number from 0 to 100000, or nothing",
        ),
        (
            {"time": [0.0, 15.0], "replicas": [1.0, float("nan")]},
            "days.parquet:2: replicas: found nan, expected a number from 0 to 100000, or nothing",
        ),
        (
            {"time": pa.array([0, 5 * 10**14], pa.timestamp("ms")), "replicas": [1, 1]},
            "days.parquet:2: found the time 500000000000.0, expected seconds since 1970, or a date",
        ),
        (
            {"time": [0.0] * (MAX_STEPS + 1), "replicas": [1] * (MAX_STEPS + 1)},
            "days.parquet: found 100001 rows, expected at most 100000",
        ),
    ],
)
def test_what_is_no_recording_is_refused_with_its_row(tmp_path, columns, message) -> None:
    with pytest.raises(ConfigError) as caught:
        recording(tmp_path, columns)
    assert str(caught.value) == message


def test_two_columns_of_a_name_are_refused(tmp_path) -> None:
    path = tmp_path / "twice.parquet"
    table = pa.Table.from_arrays([pa.array([1.0])] * 3, names=["time", "replicas", "replicas"])
    parquet.write_table(table, path)
    with pytest.raises(
        ConfigError, match="a: replicas: found two columns of this name, expected one"
    ):
        list(read_rows(path, "a"))


@pytest.mark.parametrize("data", [b"", b"time,replicas\n", b"PAR1" + bytes(40) + b"PAR1"])
def test_another_file_is_refused_in_one_line(tmp_path, data) -> None:
    path = tmp_path / "days.parquet"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        list(read_rows(path, "a"))
    assert str(caught.value).startswith("a: can't be read as Parquet: ")
    assert "\n" not in str(caught.value)


def test_every_damaged_byte_is_refused_or_harmless(tmp_path) -> None:
    path = tmp_path / "days.parquet"
    recording(tmp_path, {"time": [0.0, 15.0, 30.0], "replicas": [1, 2, 3]})
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with contextlib.suppress(ConfigError):
            recording_of(read_rows(path, "a"), "a")


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match="a: no such file"):
        list(read_rows(tmp_path / "none.parquet", "a"))
