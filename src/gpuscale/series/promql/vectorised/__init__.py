"""PromQL on all series and steps at once with numpy, which the rest of `series` does not need.

The answers are those of the row-wise evaluator, `series.promql.evaluate`. What is rare, or has to fail,
is left to it: `RowWiseError` says so, and the caller asks there again.
"""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.series.promql.vectorised.samples import QuerySamples
    from gpuscale.series.promql.vectorised.support import RowWiseError, is_vectorised
else:
    __getattr__ = door(__name__)

__all__ = ["QuerySamples", "RowWiseError", "is_vectorised"]
