"""An in-memory store of time series, and PromQL evaluated over it."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.series.labels import METRIC_NAME, LabelSet, label_set
    from gpuscale.series.matchers import Matcher, MatchOp
    from gpuscale.series.possible import IMPOSSIBLE_SERIES, MAX_AHEAD_MS, OF_SERIES
    from gpuscale.series.values import (
        Matrix,
        MatrixSeries,
        Scalar,
        StringValue,
        Value,
        Vector,
        VectorSample,
    )
    from gpuscale.series.wanted import EVERYTHING, KEEP_ALL, WantedNames, WantedSeries, wanted_by
else:
    __getattr__ = door(__name__)

__all__ = [
    "EVERYTHING",
    "IMPOSSIBLE_SERIES",
    "KEEP_ALL",
    "MAX_AHEAD_MS",
    "METRIC_NAME",
    "OF_SERIES",
    "LabelSet",
    "MatchOp",
    "Matcher",
    "Matrix",
    "MatrixSeries",
    "Scalar",
    "StringValue",
    "Value",
    "Vector",
    "VectorSample",
    "WantedNames",
    "WantedSeries",
    "label_set",
    "wanted_by",
]
