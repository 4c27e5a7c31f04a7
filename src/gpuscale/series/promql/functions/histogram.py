"""Quantiles and fractions of classic histograms.

Source: prometheus promql/quantile.go (BucketQuantile, BucketFraction), release 3.
"""

import math
from collections.abc import Callable

from gpuscale.base.exposition.write import positional
from gpuscale.series.labels import LabelKey, LabelSet
from gpuscale.series.promql.rows import NAN, Rows, nameless, unique

BUCKET = "le"
"""The label with the upper bound."""
SMALL_DELTA = 1e-12
"""Counts closer than this, relative to their size, differ by rounding only."""

Buckets = list[tuple[float, float]]
"""Upper bound and cumulative count."""


def histogram_quantile(share: float, rows: Rows) -> Rows:
    """Return each histogram's quantile; rows without a bucket bound are skipped.

    Raises:
        QueryError: two histograms differ by nothing but their name.
    """
    return _of_each(rows, lambda buckets: bucket_quantile(share, buckets))


def histogram_quantiles(label: str, shares: list[float], rows: Rows) -> Rows:
    """Return several quantiles of each histogram, told apart by a label.

    Raises:
        QueryError: two results have the same labels.
    """
    found: Rows = []
    for share in shares:
        text = share_text(share)
        for labels, value, measured_ms in histogram_quantile(share, rows):
            found.append((labels.override({label: text}), value, measured_ms))
    return unique(found)


def share_text(share: float) -> str:
    """Return the label value for a quantile."""
    return repr(share) if math.isfinite(share) else positional(share)


def histogram_fraction(low: float, high: float, rows: Rows) -> Rows:
    """Return the fraction of each histogram's observations between two values.

    Raises:
        QueryError: two histograms differ by nothing but their name.
    """
    return _of_each(rows, lambda buckets: bucket_fraction(low, high, buckets))


def _of_each(rows: Rows, function: Callable[[Buckets], float]) -> Rows:
    histograms: dict[LabelKey, tuple[LabelSet, Buckets, list[int]]] = {}
    for labels, count, measured_ms in rows:
        bound = bound_of(labels.value(BUCKET))
        if bound is not None:
            rest = labels.drop((BUCKET,))
            _, buckets, times = histograms.setdefault(rest.key, (rest, [], []))
            buckets.append((bound, count))
            times.append(measured_ms)
    return nameless(
        [(labels, function(buckets), min(times)) for labels, buckets, times in histograms.values()]
    )


def bucket_quantile(share: float, buckets: Buckets) -> float:
    """Return the quantile; observations count as evenly spread within their bucket.

    Args:
        share: from 0 to 1; beyond that an infinity comes back.
        buckets: in any order; without one for +Inf the answer is NaN.
    """
    if math.isnan(share):
        return NAN
    if share < 0 or share > 1:
        return math.copysign(math.inf, share)
    ordered = _monotonic(_ordered(buckets))
    if ordered[-1][0] != math.inf or len(ordered) < 2 or ordered[-1][1] == 0:
        return NAN
    rank = share * ordered[-1][1]
    last = len(ordered) - 1
    position = next((i for i in range(last) if ordered[i][1] >= rank), last)
    return _inside(ordered, position, rank)


def bucket_fraction(low: float, high: float, buckets: Buckets) -> float:
    """Return the fraction of observations above `low` and up to `high`, evenly spread in buckets.

    Args:
        low: may be an infinity.
        high: at or below `low` the answer is 0.
        buckets: in any order; without one for +Inf the answer is NaN.
    """
    ordered = _ordered(buckets)
    count = ordered[-1][1]
    if ordered[-1][0] != math.inf or count == 0 or math.isnan(low) or math.isnan(high):
        return NAN
    if low >= high:
        return 0.0
    return (_rank(high, ordered) - _rank(low, ordered)) / count


def _rank(value: float, ordered: Buckets) -> float:
    """Return how many observations are up to a value; an unbounded bucket counts all or none of its own."""
    count = ordered[-1][1]
    start, below = (0.0 if ordered[0][0] > 0 else -math.inf), 0.0
    for bound, up_to in ordered:
        if start >= value:
            return min(below, count)
        if value < bound:
            return min(_spread(value, start, bound, below, up_to), count)
        start, below = bound, up_to
    return count


def _spread(value: float, start: float, end: float, below: float, up_to: float) -> float:
    if start == -math.inf:
        return up_to
    return below + (up_to - below) * (value - start) / (end - start)


def _inside(ordered: Buckets, position: int, rank: float) -> float:
    bound, count = ordered[position]
    if position == len(ordered) - 1:
        return ordered[-2][0]
    if position == 0 and bound <= 0:
        return bound
    start = 0.0
    if position > 0:
        start, below = ordered[position - 1]
        count -= below
        rank -= below
    return start + (bound - start) * (rank / count) if count else NAN


def bound_of(text: str) -> float | None:
    """Return the bound in a bucket's label; None if it is invalid."""
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _ordered(buckets: Buckets) -> Buckets:
    return _merged(sorted(buckets, key=lambda bucket: bucket[0]))


def _merged(ordered: Buckets) -> Buckets:
    """Return one bucket for each bound; two spellings of a bound are added up."""
    merged: Buckets = []
    for bound, count in ordered:
        if merged and merged[-1][0] == bound:
            merged[-1] = (bound, merged[-1][1] + count)
        else:
            merged.append((bound, count))
    return merged


def _monotonic(ordered: Buckets) -> Buckets:
    """Return buckets with non-decreasing counts, which scrapes at slightly different times can violate."""
    result: Buckets = []
    highest = ordered[0][1]
    for bound, count in ordered:
        if count > highest and not math.isclose(count, highest, rel_tol=SMALL_DELTA):
            highest = count
        result.append((bound, highest))
    return result
