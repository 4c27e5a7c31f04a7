"""The functions of PromQL, by name.

Each takes the evaluation it runs in and its unevaluated arguments.
"""

import calendar
import math
from collections.abc import Callable
from datetime import UTC, datetime

from gpuscale.series.labels import EMPTY, METRIC_NAME, LabelSet
from gpuscale.series.matchers import MatchOp
from gpuscale.series.promql.elementwise import ELEMENTWISE, clamp, greater, lesser, round_to
from gpuscale.series.promql.functions.histogram import (
    histogram_fraction,
    histogram_quantile,
    histogram_quantiles,
)
from gpuscale.series.promql.functions.ranges import KEEPS_NAME, RANGE_FUNCTIONS, Bounds
from gpuscale.series.promql.functions.relabel import label_join, label_replace
from gpuscale.series.promql.functions.sorting import ascending, by_labels, descending
from gpuscale.series.promql.rows import NAN, Evaluator, QueryRange, Reading, Rows, nameless, unique
from gpuscale.series.promql.tree import Node, Select, SelectRange, ValueType, value_type

MIN_SECONDS = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
MAX_SECONDS = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())
"""The years 1 to 9999, which dates have."""

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
    """Return a part of a date; NaN outside the years 1 to 9999."""
    if not math.isfinite(seconds) or not MIN_SECONDS <= seconds <= MAX_SECONDS:
        return NAN
    return float(_PARTS[function](datetime.fromtimestamp(int(seconds), UTC)))


Arguments = tuple[Node, ...]
VectorFunction = Callable[[Evaluator, Arguments], Rows]
ScalarFunction = Callable[[Evaluator, Arguments], Reading]


def _time(evaluator: Evaluator, arguments: Arguments) -> Reading:
    return Reading(evaluator.at_ms / 1000)


def _of_query(seconds: Callable[[QueryRange], float]) -> ScalarFunction:
    return lambda evaluator, arguments: Reading(seconds(evaluator.query_range()))


def _of_two(choose: Callable[[float, float], float]) -> ScalarFunction:
    def answer(evaluator: Evaluator, arguments: Arguments) -> Reading:
        left, right = (evaluator.number(each) for each in arguments)
        times = [each.measured_ms for each in (left, right) if each.measured_ms is not None]
        return Reading(choose(left.value, right.value), min(times, default=None))

    return answer


def _scalar(evaluator: Evaluator, arguments: Arguments) -> Reading:
    rows = evaluator.rows(arguments[0])
    return Reading(rows[0][1], rows[0][2]) if len(rows) == 1 else Reading(NAN)


def _vector(evaluator: Evaluator, arguments: Arguments) -> Rows:
    number = evaluator.number(arguments[0])
    measured_ms = evaluator.at_ms if number.measured_ms is None else number.measured_ms
    return [(EMPTY, number.value, measured_ms)]


def _timestamp(evaluator: Evaluator, arguments: Arguments) -> Rows:
    rows = evaluator.rows(arguments[0])
    if isinstance(arguments[0], Select):
        return nameless([(labels, time_ms / 1000, time_ms) for labels, _, time_ms in rows])
    return nameless([(labels, evaluator.at_ms / 1000, time_ms) for labels, _, time_ms in rows])


def _absent(evaluator: Evaluator, arguments: Arguments) -> Rows:
    if evaluator.rows(arguments[0]):
        return []
    return [(expected_labels(arguments[0]), 1.0, evaluator.at_ms)]


def _absent_over_time(evaluator: Evaluator, arguments: Arguments) -> Rows:
    if evaluator.windows(arguments[0]).windows:
        return []
    return [(expected_labels(arguments[0]), 1.0, evaluator.at_ms)]


def expected_labels(node: Node) -> LabelSet:
    """Return the labels that a selector fixes to one value, for `absent`."""
    if isinstance(node, SelectRange):
        node = node.selector
    if not isinstance(node, Select):
        return EMPTY
    found: dict[str, str] = {}
    for matcher in node.matchers:
        fixed = matcher.op is MatchOp.EQUAL and matcher.name not in found
        found[matcher.name] = matcher.value if fixed else ""
    return LabelSet(found.items()).drop((METRIC_NAME,))


def _sort(evaluator: Evaluator, arguments: Arguments) -> Rows:
    return sorted(evaluator.rows(arguments[0]), key=ascending)


def _sort_desc(evaluator: Evaluator, arguments: Arguments) -> Rows:
    return sorted(evaluator.rows(arguments[0]), key=descending)


def _sort_by_label(*, largest_first: bool) -> VectorFunction:
    def answer(evaluator: Evaluator, arguments: Arguments) -> Rows:
        names = [evaluator.text(each) for each in arguments[1:]]
        return by_labels(evaluator.rows(arguments[0]), names, largest_first=largest_first)

    return answer


def _round(evaluator: Evaluator, arguments: Arguments) -> Rows:
    nearest = evaluator.number(arguments[1]).value if len(arguments) > 1 else 1.0
    return _mapped(evaluator.rows(arguments[0]), lambda value: round_to(value, nearest))


def _clamp(evaluator: Evaluator, arguments: Arguments) -> Rows:
    low, high = (evaluator.number(each).value for each in arguments[1:])
    return _clamped(evaluator.rows(arguments[0]), low, high)


def _clamp_min(evaluator: Evaluator, arguments: Arguments) -> Rows:
    low = evaluator.number(arguments[1]).value
    return _clamped(evaluator.rows(arguments[0]), low, math.inf)


def _clamp_max(evaluator: Evaluator, arguments: Arguments) -> Rows:
    high = evaluator.number(arguments[1]).value
    return _clamped(evaluator.rows(arguments[0]), -math.inf, high)


def _clamped(rows: Rows, low: float, high: float) -> Rows:
    if high < low:
        return []
    return _mapped(rows, lambda value: clamp(value, low, high))


def _label_replace(evaluator: Evaluator, arguments: Arguments) -> Rows:
    target, replacement, source, expression = (evaluator.text(each) for each in arguments[1:])
    rows = evaluator.rows(arguments[0])
    return label_replace(rows, target, replacement, source, expression, evaluator.hold_labels)


def _label_join(evaluator: Evaluator, arguments: Arguments) -> Rows:
    target, separator, *sources = (evaluator.text(each) for each in arguments[1:])
    rows = evaluator.rows(arguments[0])
    return label_join(rows, target, separator, tuple(sources), evaluator.hold_labels)


def _histogram_quantile(evaluator: Evaluator, arguments: Arguments) -> Rows:
    share = evaluator.number(arguments[0]).value
    return histogram_quantile(share, evaluator.rows(arguments[1]))


def _histogram_quantiles(evaluator: Evaluator, arguments: Arguments) -> Rows:
    label = evaluator.text(arguments[1])
    shares = [evaluator.number(each).value for each in arguments[2:]]
    return histogram_quantiles(label, shares, evaluator.rows(arguments[0]))


def _histogram_fraction(evaluator: Evaluator, arguments: Arguments) -> Rows:
    low, high = (evaluator.number(each).value for each in arguments[:2])
    return histogram_fraction(low, high, evaluator.rows(arguments[2]))


def _mapped(rows: Rows, function: Callable[[float], float]) -> Rows:
    return nameless([(labels, function(value), time_ms) for labels, value, time_ms in rows])


def _elementwise(function: Callable[[float], float]) -> VectorFunction:
    return lambda evaluator, arguments: _mapped(evaluator.rows(arguments[0]), function)


def _date(name: str) -> VectorFunction:
    def answer(evaluator: Evaluator, arguments: Arguments) -> Rows:
        now: Rows = [(EMPTY, evaluator.at_ms / 1000, evaluator.at_ms)]
        rows = evaluator.rows(arguments[0]) if arguments else now
        return _mapped(rows, lambda value: date_part(name, value))

    return answer


def _over_range(name: str) -> VectorFunction:
    """Return a function of a range vector and scalars, in either order."""
    function = RANGE_FUNCTIONS[name]
    keeps_name = name in KEEPS_NAME

    def answer(evaluator: Evaluator, arguments: Arguments) -> Rows:
        numbers = [evaluator.number(each).value for each in arguments if _is_scalar(each)]
        ranged = next(each for each in arguments if not _is_scalar(each))
        start_ms, end_ms, windows = evaluator.windows(ranged)
        bounds = Bounds(start_ms, end_ms, evaluator.at_ms)
        rows: Rows = []
        for window in windows:
            value = function(window, bounds, *numbers)
            if value is not None:
                labels = window.labels if keeps_name else window.labels.without_name()
                rows.append((labels, value, window.measured_ms))
        return unique(rows)

    return answer


def _is_scalar(node: Node) -> bool:
    return value_type(node) is ValueType.SCALAR


SCALAR_FUNCTIONS: dict[str, ScalarFunction] = {
    "time": _time,
    "scalar": _scalar,
    "pi": lambda evaluator, arguments: Reading(math.pi),
    "start": _of_query(lambda covered: covered.start_ms / 1000),
    "end": _of_query(lambda covered: covered.end_ms / 1000),
    "range": _of_query(lambda covered: (covered.end_ms - covered.start_ms) / 1000),
    "step": _of_query(lambda covered: covered.step_ms / 1000),
    "min_of": _of_two(lesser),
    "max_of": _of_two(greater),
}
VECTOR_FUNCTIONS: dict[str, VectorFunction] = {
    "vector": _vector,
    "timestamp": _timestamp,
    "absent": _absent,
    "absent_over_time": _absent_over_time,
    "sort": _sort,
    "sort_desc": _sort_desc,
    "sort_by_label": _sort_by_label(largest_first=False),
    "sort_by_label_desc": _sort_by_label(largest_first=True),
    "round": _round,
    "clamp": _clamp,
    "clamp_min": _clamp_min,
    "clamp_max": _clamp_max,
    "label_replace": _label_replace,
    "label_join": _label_join,
    "histogram_quantile": _histogram_quantile,
    "histogram_quantiles": _histogram_quantiles,
    "histogram_fraction": _histogram_fraction,
    **{name: _elementwise(function) for name, function in ELEMENTWISE.items()},
    **{name: _date(name) for name in DATE_FUNCTIONS},
    **{name: _over_range(name) for name in RANGE_FUNCTIONS},
}
FUNCTIONS = frozenset({*SCALAR_FUNCTIONS, *VECTOR_FUNCTIONS})
"""Every function that can be called."""
OF_NATIVE_HISTOGRAMS = frozenset(
    {
        "histogram_avg",
        "histogram_count",
        "histogram_stddev",
        "histogram_stdvar",
        "histogram_sum",
    }
)
"""Functions that pass over everything but native histograms, which this store does not hold."""
