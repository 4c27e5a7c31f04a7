import math

from gpuscale.promapi.body import query_body
from gpuscale.promapi.shapes import query_result
from gpuscale.series.values import Matrix, MatrixSeries, Scalar, StringValue, Vector, VectorSample
from gpuscale.testing.prometheus import query_data


def test_a_vector_carries_the_time_of_evaluation_and_values_as_text():
    vector = Vector((VectorSample({"__name__": "up", "job": "a"}, 1.0, 1),))
    assert query_body(*query_result(vector, 1435781451781), [], lambda: None) == (
        b'{"status":"success","data":{"resultType":"vector","result":'
        b'[{"metric":{"__name__":"up","job":"a"},"value":[1435781451.781,"1"]}]}}'
    )


def test_a_matrix_has_values():
    matrix = Matrix((MatrixSeries({"a": "b"}, ((1000, 0.5), (2500, math.inf))),))
    assert query_data(matrix, 0) == {
        "resultType": "matrix",
        "result": [{"metric": {"a": "b"}, "values": [[1, "0.5"], [2.5, "+Inf"]]}],
    }


def test_scalars_and_strings_are_pairs():
    assert query_data(Scalar(1e21), 2000) == {
        "resultType": "scalar",
        "result": [2, "1000000000000000000000"],
    }
    assert query_data(StringValue("x"), 2000) == {"resultType": "string", "result": [2, "x"]}
