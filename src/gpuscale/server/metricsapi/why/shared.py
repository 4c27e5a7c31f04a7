"""The hops that custom and external metrics have in common, and what they are followed with."""

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from gpuscale.base.errors import GpuscaleError, QueryError, UncoveredError
from gpuscale.base.golang.template import parse_template
from gpuscale.base.quantity import Quantity
from gpuscale.series.possible import MAX_AHEAD_MS
from gpuscale.series.values import Scalar, Value, Vector, VectorSample
from gpuscale.server.metricsapi.why.hops import AnswerRow, Explanation, ServedValue
from gpuscale.server.metricsapi.why.series import AbsenceFinding, LabelSets, SeriesLook
from gpuscale.server.metricsapi.why.text import age_text
from gpuscale.server.metricsapi.why.unserved import Unserved, UnservedMetric
from gpuscale.server.rules.catalogue import Catalogue, Entry
from gpuscale.server.rules.config import AdapterConfig, AdapterRule
from gpuscale.server.rules.queries.plan import to_milli
from gpuscale.server.rules.query import FIELDS
from gpuscale.server.rules.resources import ResourceMapper, ResourceType
from gpuscale.server.sources.asking.single_flight import SharedSource
from gpuscale.server.sources.source import ObjectDirectory

PLAIN = parse_template("<<.Series>>{<<.LabelMatchers>>}", FIELDS)
"""What a rule reads, without what it makes of it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a request is answered from, at one moment."""

    config: AdapterConfig
    catalogue: Catalogue
    questions: SharedSource
    directory: ObjectDirectory
    mapper: ResourceMapper
    ready: Callable[[ResourceType], Awaitable[None]] | None
    now_ms: int
    relisted_ms: int | None
    relist_interval_s: float
    max_age_ms: int
    max_value_age_ms: int | None
    team_faults: Callable[[str], tuple[str, ...]] = lambda _: ()
    """What is wrong with the rules of a namespace, by its name."""

    @property
    def look(self) -> SeriesLook:
        return SeriesLook(self.questions, self.now_ms, self.max_age_ms)


@dataclass(frozen=True, slots=True)
class RowAges:
    """When the samples behind the rows were taken; a Prometheus' answer says only when it was asked."""

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

    def of(self, sample: VectorSample, value: str) -> int:
        """Return how old a row is, in milliseconds.

        Args:
            sample: the row.
            value: of the label.
        """
        oldest = min(self.by_value.values(), default=sample.measured_ms)
        at_ms = min(sample.measured_ms, self.by_value.get(value, oldest))
        return max(0, self.now_ms - at_ms)


async def sample_ages(parts: Parts, plain: str, label: str) -> RowAges:
    """Return the times of the samples that a plain selector finds; none where they are unavailable.

    Args:
        parts: what requests are answered from.
        plain: a selector.
        label: of the series, by whose values the times are reported.
    """
    try:
        value = (await parts.questions.query(f"timestamp({plain})", parts.now_ms)).value
    except GpuscaleError:
        return RowAges(parts.now_ms)
    times: dict[str, int] = {}
    for sample in value.samples if isinstance(value, Vector) else ():
        name, at_ms = sample.labels.get(label, ""), round(sample.value * 1000)
        times[name] = min(at_ms, times.get(name, at_ms))
    return RowAges(parts.now_ms, times)


def _rule_document(config: AdapterConfig, entry: Entry) -> dict[str, object]:
    rule = entry.rule
    rules = config.external_rules if rule.external else config.rules
    return {
        "origin": rule.origin,
        "position": next(i for i, each in enumerate((*rules, rule), start=1) if each is rule),
        "seriesQuery": rule.series_query,
        "series": entry.series,
    }


def explain_rule(parts: Parts, entry: Entry, explanation: Explanation, metric: str) -> None:
    """Note the rule that gives the metric."""
    explanation.rule = _rule_document(parts.config, entry)
    rule = entry.rule
    others = [
        each.origin
        for each in (parts.config.external_rules if rule.external else parts.config.rules)
        if each is not rule
        and each.only_in == rule.only_in
        and any(
            shape.name == entry.series and each.api_name(shape.name) == metric
            for shape in parts.catalogue.shapes.get(each.series_query, ())
        )
    ]
    more = [f"{', '.join(others)} may give it too; the last of the rules has it"] if others else []
    position = explanation.rule["position"]
    explanation.ok("rule", f"{rule.origin} (rule {position}) gives it of {entry.series}", *more)


async def explain_unserved(
    parts: Parts, asked: UnservedMetric, explanation: Explanation
) -> Explanation:
    """Return the explanation of a metric that is not served."""
    unserved = Unserved(
        parts.config,
        parts.catalogue,
        parts.look,
        parts.relisted_ms,
        parts.relist_interval_s,
        parts.team_faults(asked.team) if asked.team else (),
    )
    await unserved.explain(asked, explanation)
    return explanation


async def live_series(parts: Parts, entry: Entry, explanation: Explanation) -> LabelSets | None:
    """Return the series that the rule takes now; None where none is there, which is reported."""
    look = parts.look
    failure = parts.catalogue.failures.get(entry.rule.series_query)
    more = [f"the last discovery of it failed: {failure.reason}"] if failure is not None else []
    try:
        found = await look.taken(entry.rule, entry.series)
        finding = None if found else await look.why_none(entry.rule, entry.series)
    except GpuscaleError as error:
        explanation.failed(
            "series", f"The source does not answer: {error}.", "See the source.", *more
        )
        return None
    if found:
        age = age_text(parts.max_age_ms)
        explanation.ok("series", f"{len(found)} series had a sample within {age}", *more)
        return found
    if finding is None:
        finding = AbsenceFinding(f"The series of {entry.series} come and go.", "Ask again.")
    explanation.failed("series", finding.said, finding.fix, *finding.more, *more)
    return None


def no_query(rule: AdapterRule, error: GpuscaleError, explanation: Explanation) -> Explanation:
    """Return the explanation of a rule without a query for the request."""
    reason = error.__cause__ or error
    return explanation.failed(
        "query",
        f"{rule.origin} has no query for this request: {reason}.",
        "Correct metricsQuery, or the selector.",
    )


def query_failed(error: GpuscaleError, explanation: Explanation) -> Explanation:
    """Return the explanation of a query that was not answered."""
    fix = "See the source."
    if isinstance(error, UncoveredError):
        fix = "Wait until the store covers the range again, ask for less of it, or let the store keep more."
    elif isinstance(error, QueryError):
        fix = "Correct metricsQuery: the source takes the query for no PromQL."
    return explanation.failed("query", f"{error}.", fix)


def no_vector(value: Value, explanation: Explanation) -> Explanation:
    """Return the explanation of an answer that has no rows."""
    kind = type(value).__name__.lower().removesuffix("value")
    return explanation.failed(
        "query",
        f"The query gives a {kind}, and only an instant vector has rows of objects.",
        "Correct metricsQuery: a range such as [5m] belongs into a function such as rate().",
    )


def explain_values(
    parts: Parts,
    explanation: Explanation,
    samples: Mapping[str, VectorSample],
    ages: RowAges,
) -> Explanation:
    """Report which rows are usable numbers that are young enough."""
    limit_ms = parts.max_value_age_ms
    unusable = [name for name, sample in samples.items() if not math.isfinite(sample.value)]
    for name, sample in samples.items():
        age_ms = parts.now_ms - sample.measured_ms
        is_young = limit_ms is None or age_ms <= limit_ms
        if math.isfinite(sample.value) and is_young and age_ms >= -MAX_AHEAD_MS:
            quantity = str(Quantity.from_milli(to_milli(sample.value)))
            explanation.values.append(ServedValue(name, quantity, ages.of(sample, name)))
    newest_ms = parts.now_ms + MAX_AHEAD_MS
    ahead = sum(
        math.isfinite(sample.value) and sample.measured_ms > newest_ms
        for sample in samples.values()
    )
    stale = len(samples) - len(unusable) - len(explanation.values) - ahead
    more = []
    if unusable:
        more.append(f"{rows_text(len(unusable))} NaN or infinite, which is no number to scale by")
    if stale:
        more.append(f"{rows_text(stale)} older than {age_text(limit_ms or 0)}")
    if ahead:
        skew = age_text(MAX_AHEAD_MS)
        more.append(f"{rows_text(ahead)} more than {skew} in the future by this server's clock")
    if explanation.values:
        explanation.ok("value", f"{len(explanation.values)} of {len(samples)} usable", *more)
        return explanation
    fix = "See whether the exporter is still scraped, or raise --value-max-age."
    if ahead:
        fix = "Set the clocks of this server's node and of the source's."
    if unusable:
        fix = "Look for a division by zero in metricsQuery, such as by a limit that is not set."
    if any(math.isnan(samples[name].value) for name in unusable):
        fix += " Or say `nan: zero` in the rule, where NaN means that there is nothing to do."
    return explanation.failed("value", "None of the rows is a value to scale by.", fix, *more)


def explain_scalar(explanation: Explanation, value: Scalar) -> Explanation:
    """Return the explanation of a scalar."""
    if not math.isfinite(value.value):
        return explanation.failed(
            "value", f"The scalar is {value.value:g}.", "Look at metricsQuery."
        )
    quantity = str(Quantity.from_milli(to_milli(value.value)))
    explanation.values.append(ServedValue("the scalar", quantity, 0))
    explanation.ok("value", "1 of 1 usable")
    return explanation


def row_of(sample: VectorSample, ages: RowAges, belongs_to: str | None) -> AnswerRow:
    """Return a row as it is shown."""
    return AnswerRow(
        sample.labels, f"{sample.value:g}", ages.of(sample, belongs_to or ""), belongs_to
    )


def labels_text(sample: VectorSample) -> str:
    """Return the labels of a row in one text."""
    return _mapping(sample.labels)


def _mapping(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items())) or "no labels"


def rows_text(count: int) -> str:
    """Return a number of rows in words."""
    return f"{count} row{'' if count == 1 else 's'}"


def counted(count: int, resource: ResourceType) -> str:
    """Return a number of objects in words."""
    return f"{count} {resource.singular if count == 1 else resource.plural}"
