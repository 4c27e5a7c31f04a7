"""A history that is kept: minutes of GPUs, HPAs, nodes and prices, as Parquet files that DuckDB reads."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.history.pictures import PictureTaker
    from gpuscale.ops.history.questions import ask_use
    from gpuscale.ops.history.reading import History
    from gpuscale.ops.history.recalling import (
        recall_bill,
        recall_charts,
        recall_hours,
        recall_past,
        spans_kept,
    )
    from gpuscale.ops.history.shown import use_columns, use_lines, use_picture, use_rows
    from gpuscale.ops.history.taking import PrometheusTaker, keep_range
    from gpuscale.ops.history.writing import HistoryWriter
else:
    __getattr__ = door(__name__)

__all__ = [
    "History",
    "HistoryWriter",
    "PictureTaker",
    "PrometheusTaker",
    "ask_use",
    "keep_range",
    "recall_bill",
    "recall_charts",
    "recall_hours",
    "recall_past",
    "spans_kept",
    "use_columns",
    "use_lines",
    "use_picture",
    "use_rows",
]
