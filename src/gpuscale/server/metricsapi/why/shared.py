"""The steps of `?why` that custom and external metrics share."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.base.errors import GpuscaleError, QueryError, UncoveredError
from gpuscale.base.golang.template import parse_template
from gpuscale.base.objects.metric_values import ExternalValue, MetricValue
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.quantity import Quantity
from gpuscale.series import MAX_AHEAD_MS, VectorSample
from gpuscale.server.metricsapi.provider import (
    MetricsProvider,
    RequestRecord,
)
from gpuscale.server.metricsapi.why.hops import AnswerRow, Explanation, ServedValue
from gpuscale.server.metricsapi.why.parts import SeenPart, missing_text, part_lines
from gpuscale.server.metricsapi.why.series import (
    IMPOSSIBLE_FIX,
    AbsenceFinding,
    LabelSets,
    SeriesLook,
)
from gpuscale.server.metricsapi.why.text import age_text
from gpuscale.server.rules.catalogue import Entry
from gpuscale.server.rules.config import AdapterRule
from gpuscale.server.rules.queries.faults import mixed_fault, one_number_fault, selector_fault
from gpuscale.server.rules.queries.plan import CustomPlan, ExternalPlan, MetricFetchError
from gpuscale.server.rules.query import FIELDS
from gpuscale.server.rules.resources import PODS, ResourceType
from gpuscale.server.sources.freshness import is_ahead

PLAIN = parse_template("<<.Series>>{<<.LabelMatchers>>}", FIELDS)
"""What a rule reads, without what it makes of it."""


async def rule_and_series(
    provider: MetricsProvider,
    look: SeriesLook,
    entry: Entry,
    metric: str,
    explanation: Explanation,
) -> LabelSets:
    """Add the rule and series steps to the explanation, and return the series that the rule takes now.

    That there are none is noted too, and is no end where the request has its answer.
    """
    rule, config = entry.rule, provider.config
    rules = config.external_rules if rule.external else config.rules
    position = next(i for i, each in enumerate((*rules, rule), start=1) if each is rule)
    explanation.rule = {
        "origin": rule.origin,
        "position": position,
        "seriesQuery": rule.series_query,
        "series": entry.series,
    }
    others = [
        each.origin
        for each in rules
        if each is not rule
        and each.only_in == rule.only_in
        and each.api_name(entry.series) == metric
        and any(shape.name == entry.series for shape in provider.catalogue.shapes_of(each))
    ]
    more = [f"{', '.join(others)} may give it too; the last of the rules has it"] if others else []
    explanation.ok("rule", f"{rule.origin} (rule {position}) gives it of {entry.series}", *more)

    failure = provider.catalogue.failures.get(rule.series_query)
    more = [f"the last discovery of it failed: {failure.reason}"] if failure is not None else []
    try:
        found = await look.taken(rule, entry.series)
        finding = None if found else await look.why_none(rule, entry.series)
    except GpuscaleError as error:
        said = f"The source does not answer: {error}."
        explanation.absent("series", said, "See the source.", *more)
        return ()
    if found:
        age = age_text(look.max_age_ms)
        explanation.ok("series", f"{len(found)} series had a sample within {age}", *more)
        return found
    if finding is None:
        finding = AbsenceFinding(f"The series of {entry.series} come and go.", "Ask again.")
    explanation.absent("series", finding.said, finding.fix, *finding.more, *more)
    return ()


def without_rows(
    rule: AdapterRule,
    record: RequestRecord[CustomPlan] | RequestRecord[ExternalPlan],
    refusal: GpuscaleError | None,
    explanation: Explanation,
) -> Explanation:
    """Return the explanation of a request whose query failed, was not made, or gave no rows.

    Args:
        rule: of the metric.
        record: of the request.
        refusal: what the request ended with.
        explanation: gets the hop of the query.
    """
    if record.plan is None:
        reason = (refusal and refusal.__cause__) or refusal
        return explanation.failed(
            "query",
            f"{rule.origin} has no query for this request: {reason}.",
            "Correct metricsQuery, or the selector.",
        )
    explanation.query = record.plan.promql
    if record.value is None:
        # Clients learn no more than that the metric could not be fetched.
        error = refusal.__cause__ if isinstance(refusal, MetricFetchError) else refusal
        fix = "See the source."
        if isinstance(error, UncoveredError):
            fix = (
                "Wait until the store covers the range again, ask for less of it, or let the store "
                "keep more."
            )
        elif isinstance(error, QueryError):
            fix = "Correct metricsQuery: the source takes the query for no PromQL."
        return explanation.failed("query", f"{error}.", fix)
    kind = type(record.value).__name__.lower().removesuffix("value")
    return explanation.failed(
        "query",
        f"The query gives a {kind}, and only an instant vector has rows of objects.",
        "Correct metricsQuery: a range such as [5m] belongs into a function such as rate().",
    )


def left_out_or_missing(
    left_out: Sequence[str],
    seen: Sequence[SeenPart],
    names: Sequence[str],
    fix: str,
    explanation: Explanation,
) -> bool:
    """Note impossible values or missing parts as the reason for a query without rows; return whether so."""
    if left_out:
        said = f"0 rows. Impossible values count as absent: {left_out[0]}."
        explanation.failed("query", said, IMPOSSIBLE_FIX, *left_out[1:])
        return True
    if missing := missing_text(seen, names):
        explanation.failed("query", f"0 rows. {missing}.", fix, *part_lines(seen, names))
        return True
    return False


@dataclass(frozen=True, slots=True)
class RowAges:
    """The times of the samples behind the rows; Prometheus' answer has only the time of the query."""

    now_ms: int
    by_value: Mapping[str, int] = field(default_factory=dict)
    """Time of the oldest sample, in milliseconds, by the value of the label."""

    @property
    def age_remarks(self) -> tuple[str, ...]:
        """Return the ages of the samples, as remarks."""
        if not self.by_value:
            return ()
        oldest, newest = min(self.by_value.values()), max(self.by_value.values())
        ages = dict.fromkeys(age_text(max(0, self.now_ms - at)) for at in (newest, oldest))
        return (f"the samples behind are {' to '.join(ages)} old",)

    def of(self, measured_ms: int, value: str) -> int:
        """Return the age of a row's oldest sample in milliseconds.

        Args:
            measured_ms: as the row has it.
            value: of the label.
        """
        oldest = min(self.by_value.values(), default=measured_ms)
        return max(0, self.now_ms - min(measured_ms, self.by_value.get(value, oldest)))


async def sample_ages(look: SeriesLook, plain: str, label: str) -> RowAges:
    """Return the times of the samples that a plain selector finds; none if the query fails.

    Args:
        look: asks the source.
        plain: a selector.
        label: of the series, by whose values the times are reported.
    """
    times: dict[str, int] = {}
    try:
        for sample in await look.rows(f"timestamp({plain})"):
            name, at_ms = sample.labels.get(label, ""), round(sample.value * 1000)
            times[name] = min(at_ms, times.get(name, at_ms))
    except GpuscaleError:
        pass
    return RowAges(look.now_ms, times)


def explain_values(
    provider: MetricsProvider,
    explanation: Explanation,
    rows: Mapping[str, VectorSample],
    served: Mapping[str, MetricValue | ExternalValue],
    ages: RowAges,
) -> Explanation:
    """Add the served values to the explanation, and why other rows give no values.

    Args:
        provider: serves.
        explanation: gets the values and their hop.
        rows: by what they are of; each of them has a value, or none.
        served: the values, by the same.
        ages: of the samples behind.
    """
    for name in rows:
        if (value := served.get(name)) is not None:
            note_value(explanation, name, value, ages.of(value.measured_ms, name))
    left_out = [row for name, row in rows.items() if name not in served]
    unusable = [row.value for row in left_out if not math.isfinite(row.value)]
    ahead = sum(math.isfinite(row.value) and is_ahead(row, ages.now_ms) for row in left_out)
    stale = len(left_out) - len(unusable) - ahead
    more = []
    if unusable:
        more.append(f"{rows_text(len(unusable))} NaN or infinite, which is no number to scale by")
    if stale:
        limit = age_text(provider.age_limit.limit_ms or 0)
        more.append(f"{rows_text(stale)} older than {limit}")
    if ahead:
        skew = age_text(MAX_AHEAD_MS)
        more.append(f"{rows_text(ahead)} more than {skew} in the future by this server's clock")
    if served:
        explanation.ok("value", f"{len(explanation.values)} of {len(rows)} usable", *more)
        return explanation
    fix = "See whether the exporter is still scraped, or raise --value-max-age."
    if ahead:
        fix = "Set the clocks of this server's node and of the source's."
    if unusable:
        fix = "Look for a division by zero in metricsQuery, such as by a limit that is not set."
    if any(map(math.isnan, unusable)):
        fix += " Or say `nan: zero` in the rule, where NaN means that there is nothing to do."
    return explanation.failed("value", "None of the rows is a value to scale by.", fix, *more)


def fault_lines(
    rule: AdapterRule, series: str, resource: ResourceType | None, selector: Selector
) -> tuple[str, ...]:
    """Return what lint says of a request's query, by the ids of its checks.

    Args:
        rule: answers.
        series: that it reads.
        resource: what is asked for; None for an external metric.
        selector: conditions on the labels of the series.
    """
    faults = [selector_fault(rule, series, resource, selector)]
    if resource is not None:
        faults.append(mixed_fault(rule, series, resource))
    if resource == PODS:
        faults.append(one_number_fault(rule, series))
    return tuple(f"{each.id}: {each.what} {each.fix}" for each in faults if each is not None)


def note_value(
    explanation: Explanation, what: str, value: MetricValue | ExternalValue, age_ms: int
) -> None:
    """Add a served value to the explanation."""
    shown = str(Quantity.from_milli(value.value_milli))
    explanation.values.append(ServedValue(what, shown, age_ms))


def row_of(sample: VectorSample, ages: RowAges, belongs_to: str | None) -> AnswerRow:
    """Return a row as it is shown."""
    age_ms = ages.of(sample.measured_ms, belongs_to or "")
    return AnswerRow(sample.labels, f"{sample.value:g}", age_ms, belongs_to)


def rows_text(count: int) -> str:
    """Return a number of rows in words."""
    return f"{count} row{'' if count == 1 else 's'}"
