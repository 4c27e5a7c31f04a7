"""What GPUs cost, for whom, and how much of that is of no use: from what a Prometheus recorded."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.money.bill import PARTS, Bill
    from gpuscale.ops.money.prices import PriceBook, read_gpu_prices
    from gpuscale.ops.money.questions import BillQueries, days_of, scaled_query, series_label
    from gpuscale.ops.money.report import bill_document, bill_lines
    from gpuscale.ops.money.sizes import GpuSize, smaller
else:
    __getattr__ = door(__name__)

__all__ = [
    "PARTS",
    "Bill",
    "BillQueries",
    "GpuSize",
    "PriceBook",
    "bill_document",
    "bill_lines",
    "days_of",
    "read_gpu_prices",
    "scaled_query",
    "series_label",
    "smaller",
]
