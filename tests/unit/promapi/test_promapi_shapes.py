import math
from array import array

from gpuscale.base.exposition.write import positional
from gpuscale.series.promapi.body import query_body
from gpuscale.series.promapi.shapes import query_result
from gpuscale.series.values import (
    Matrix,
    MatrixSeries,
    Points,
    Scalar,
    StringValue,
    Vector,
    VectorSample,
)
from gpuscale.testing.prometheus import query_data


def test_a_vector_carries_the_time_of_evaluation_and_values_as_text() -> None:
    vector = Vector((VectorSample({"__name__": "up", "job": "a"}, 1.0, 1),))
    assert query_body(*query_result(vector, 1435781451781), [], lambda: None) == (
        b'{"status":"success","data":{"resultType":"vector","result":'
        b'[{"metric":{"__name__":"up","job":"a"},"value":[1435781451.781,"1"]}]}}'
    )


def test_a_matrix_has_values() -> None:
    matrix = Matrix((MatrixSeries({"a": "b"}, ((1000, 0.5), (2500, math.inf))),))
    assert query_data(matrix, 0) == {
        "resultType": "matrix",
        "result": [{"metric": {"a": "b"}, "values": [[1, "0.5"], [2.5, "+Inf"]]}],
    }


def test_numbers_are_written_as_go_writes_them_however_many_there_are() -> None:
    odd = [0.0, -0.0, 42.0, 0.1, 1e15, 1e16, 1e-5, 1.5e-7, 1e21, 5e-324, -math.inf, math.nan, 10.05]
    for values in (odd, [1.0] * 2_500, [0.5] * 999 + [1e300] + [3.0] * 1_500, [-0.0], []):
        times_ms = range(0, 500 * len(values), 500)
        packed = Points(times_ms, array("d", values))
        matrix = Matrix(tuple(MatrixSeries({}, each) for each in (packed, tuple(packed), packed)))
        for series in query_data(matrix, 0)["result"]:
            assert series["values"] == [
                [t_ms / 1000, positional(value)]
                for t_ms, value in zip(times_ms, values, strict=True)
            ]


def test_any_label_value_is_text() -> None:
    odd = {"a": 'quote " and \\ backslash', "b": "\x00\x1f\x7f\n\t", "c": "é \U0001f600 \u2028"}
    vector = Vector((VectorSample(odd, 1.0, 1), VectorSample({"d": "\ud800"}, 2.0, 1)))
    first, second = query_data(vector, 0)["result"]
    assert first["metric"] == odd
    assert second == {"metric": {"d": "?"}, "value": [0, "2"]}


def test_scalars_and_strings_are_pairs() -> None:
    assert query_data(Scalar(1e21), 2000) == {
        "resultType": "scalar",
        "result": [2, "1000000000000000000000"],
    }
    assert query_data(StringValue("x"), 2000) == {"resultType": "string", "result": [2, "x"]}
