"""PromQL over all series and all steps at once, in numpy; the rest of `series` does without it.

The answers are those of the row-wise evaluator, `series.promql.evaluate`. What is rare, or has to fail,
is left to it: `RowWiseError` says so, and the caller asks there again.
"""
