"""What GPUs cost, for whom, and how much of that is of no use: from what a Prometheus recorded."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.money.bill import PARTS, Bill, bought_by_hour
    from gpuscale.ops.money.forecast import look_ahead
    from gpuscale.ops.money.prices import HourPrice, NodeFacts, PriceBook, read_gpu_prices
    from gpuscale.ops.money.questions import (
        HOUR_S,
        BillQueries,
        days_of,
        hourly_queries,
        scaled_query,
        series_label,
    )
    from gpuscale.ops.money.report import (
        bill_document,
        bill_lines,
        forecast_document,
        forecast_lines,
    )
    from gpuscale.ops.money.sizes import GpuSize, smaller
else:
    __getattr__ = door(__name__)

__all__ = [
    "HOUR_S",
    "PARTS",
    "Bill",
    "BillQueries",
    "GpuSize",
    "HourPrice",
    "NodeFacts",
    "PriceBook",
    "bill_document",
    "bill_lines",
    "bought_by_hour",
    "days_of",
    "forecast_document",
    "forecast_lines",
    "hourly_queries",
    "look_ahead",
    "read_gpu_prices",
    "scaled_query",
    "series_label",
    "smaller",
]
