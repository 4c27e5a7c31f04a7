"""Functions and aggregations of PromQL."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.series.promql.functions.statistics import largest, mean, smallest, total
else:
    __getattr__ = door(__name__)

__all__ = ["largest", "mean", "smallest", "total"]
