"""Parts of a date in UTC: minute(), hour(), day_of_week() and their kin."""

import calendar
import math
from collections.abc import Callable
from datetime import UTC, datetime

from gpuscale.series.promql.rows import NAN

_MIN_SECONDS = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
_MAX_SECONDS = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())

_PARTS: dict[str, Callable[[datetime], int]] = {
    "minute": lambda moment: moment.minute,
    "hour": lambda moment: moment.hour,
    "day_of_week": lambda moment: moment.isoweekday() % 7,
    "day_of_month": lambda moment: moment.day,
    "day_of_year": lambda moment: moment.timetuple().tm_yday,
    "days_in_month": lambda moment: calendar.monthrange(moment.year, moment.month)[1],
    "month": lambda moment: moment.month,
    "year": lambda moment: moment.year,
}

DATE_FUNCTIONS = frozenset(_PARTS)


def date_part(function: str, seconds: float) -> float:
    """Return a part of the date; NaN outside the years 1 to 9999."""
    if not math.isfinite(seconds) or not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        return NAN
    return float(_PARTS[function](datetime.fromtimestamp(int(seconds), UTC)))
