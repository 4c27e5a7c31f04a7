"""The limits and defaults of a search's parameters, for the command and for Python."""

import math
from collections.abc import Mapping

from gpuscale.base.ranges import Range

_MONTH_S = 31 * 86_400.0
LIMITS: Mapping[str, Range] = {
    "start_up_s": Range(1e-3, _MONTH_S),
    "seconds_per_request": Range(1e-9, 1e12),
    "metric_full": Range(1e-9, 1e12),
    "price_per_hour": Range(0, 1e6),
    "held_back_percent": Range(1, 90),
    "tries": Range(1, 1_000_000),
    "seed": Range(0, math.inf),
    "workers": Range(1, 1024),
}
PROMISE = "short=0.5%"
HELD_BACK_PERCENT = 33.0
TRIES = 512
SEED = 1


def is_within(name: str, value: float) -> bool:
    """Return whether a number is within its limits in `LIMITS`; NaN is not."""
    limits = LIMITS[name]
    return limits.lowest <= value <= limits.highest
