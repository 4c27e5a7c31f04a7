"""An in-memory store of time series, and PromQL over it. Part of the promised API.

It does no I/O and reads no clock: the caller says when. Times are milliseconds since the epoch.
"""

from gpuscale.series import (
    Matrix,
    MatrixSeries,
    Scalar,
    StringValue,
    Value,
    Vector,
    VectorSample,
)
from gpuscale.series.promql import instant, range_query
from gpuscale.series.scraping import ScrapeResult, ScrapeTarget
from gpuscale.series.storage import SeriesStore, StoreStats

__all__ = [
    "Matrix",
    "MatrixSeries",
    "Scalar",
    "ScrapeResult",
    "ScrapeTarget",
    "SeriesStore",
    "StoreStats",
    "StringValue",
    "Value",
    "Vector",
    "VectorSample",
    "instant",
    "range_query",
]
