"""histogram_quantile over the buckets of a classic histogram.

Source: prometheus promql/quantile.go (BucketQuantile), release 3.
"""

import math

from gpuscale.series.labels import LabelSet
from gpuscale.series.rows import NAN, Rows, nameless

_BUCKET = "le"
_SMALL_DELTA = 1e-12
"""Counts closer than this, relative to their size, differ by rounding only."""

Buckets = list[tuple[float, float]]
"""Upper bound and cumulative count."""


def histogram_quantile(share: float, rows: Rows) -> Rows:
    """Return the quantile of each histogram among the rows; rows without a bound are passed over.

    Raises:
        QueryError: two histograms differ by nothing but their name.
    """
    histograms: dict[str, tuple[LabelSet, Buckets, list[int]]] = {}
    for labels, count, measured_ms in rows:
        bound = _bound(labels.value(_BUCKET))
        if bound is not None:
            rest = labels.drop((_BUCKET,))
            _, buckets, times = histograms.setdefault(rest.key, (rest, [], []))
            buckets.append((bound, count))
            times.append(measured_ms)
    return nameless(
        [
            (labels, bucket_quantile(share, buckets), min(times))
            for labels, buckets, times in histograms.values()
        ]
    )


def bucket_quantile(share: float, buckets: Buckets) -> float:
    """Return the quantile, taking observations as spread evenly inside their bucket.

    Args:
        share: from 0 to 1; beyond that an infinity comes back.
        buckets: in any order; without one for +Inf the answer is NaN.
    """
    if math.isnan(share):
        return NAN
    if share < 0 or share > 1:
        return math.copysign(math.inf, share)
    ordered = _monotonic(_merged(sorted(buckets, key=lambda bucket: bucket[0])))
    if ordered[-1][0] != math.inf or len(ordered) < 2 or ordered[-1][1] == 0:
        return NAN
    rank = share * ordered[-1][1]
    last = len(ordered) - 1
    position = next((i for i in range(last) if ordered[i][1] >= rank), last)
    return _inside(ordered, position, rank)


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


def _bound(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _merged(ordered: Buckets) -> Buckets:
    """Return one bucket per bound; bounds written in two ways are counted together."""
    merged: Buckets = []
    for bound, count in ordered:
        if merged and merged[-1][0] == bound:
            merged[-1] = (bound, merged[-1][1] + count)
        else:
            merged.append((bound, count))
    return merged


def _monotonic(ordered: Buckets) -> Buckets:
    """Return the buckets with counts that never fall, as scrapes a moment apart can make them do."""
    result: Buckets = []
    highest = ordered[0][1]
    for bound, count in ordered:
        if count > highest and not math.isclose(count, highest, rel_tol=_SMALL_DELTA):
            highest = count
        result.append((bound, highest))
    return result
