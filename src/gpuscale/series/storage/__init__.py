"""Samples in memory: series, columns, limits and retention."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.series.storage.compression import best_compression, snappy_block
    from gpuscale.series.storage.index import Selector
    from gpuscale.series.storage.limits import (
        DEFAULT_LIMITS,
        RESOLUTION_MS,
        ScrapeLimitError,
        ScrapeLimits,
        TargetShare,
        check_labels,
    )
    from gpuscale.series.storage.samples import Series
    from gpuscale.series.storage.store import SeriesStore, StoreStats
    from gpuscale.series.storage.tail import Batch, Tail
else:
    __getattr__ = door(__name__)

__all__ = [
    "DEFAULT_LIMITS",
    "RESOLUTION_MS",
    "Batch",
    "ScrapeLimitError",
    "ScrapeLimits",
    "Selector",
    "Series",
    "SeriesStore",
    "StoreStats",
    "Tail",
    "TargetShare",
    "best_compression",
    "check_labels",
    "snappy_block",
]
