"""An in-memory store of time series, and PromQL over it. Part of the promised API.

It does no I/O and reads no clock: the caller says when. Times are milliseconds since the epoch.
"""

from gpuscale.series.promql.evaluate import instant, range_query
from gpuscale.series.scraping.scrape import ScrapeResult, ScrapeTarget
from gpuscale.series.storage.store import SeriesStore, StoreStats
from gpuscale.series.values import (
    Matrix,
    MatrixSeries,
    Scalar,
    StringValue,
    Value,
    Vector,
    VectorSample,
)

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
