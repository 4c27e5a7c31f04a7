"""Why an external metric has values or none."""

from collections.abc import Mapping, Sequence

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.metric_values import ExternalValue
from gpuscale.base.objects.selectors import Selector
from gpuscale.series import Scalar, Vector
from gpuscale.server.metricsapi.provider import MetricsProvider, RequestRecord
from gpuscale.server.metricsapi.why.hops import EXTERNAL_HOPS, Explanation, asked_text
from gpuscale.server.metricsapi.why.parts import part_lines, seen_parts
from gpuscale.server.metricsapi.why.series import SeriesLook, label_names, why_no_match
from gpuscale.server.metricsapi.why.shared import (
    PLAIN,
    explain_values,
    fault_lines,
    left_out_or_missing,
    note_value,
    row_of,
    rows_text,
    rule_and_series,
    sample_ages,
    without_rows,
)
from gpuscale.server.metricsapi.why.unserved import why_unserved
from gpuscale.server.metricsapi.wire.paths import ExternalTarget
from gpuscale.server.rules.queries.plan import ExternalPlan
from gpuscale.server.rules.resource_labels import NoLabelError
from gpuscale.server.rules.resources import NAMESPACES


async def why_external(
    provider: MetricsProvider, target: ExternalTarget, series: Selector
) -> Explanation:
    """Return the way of an external metric's values; see `why_custom`."""
    record = RequestRecord[ExternalPlan](provider.clock.now_ms())
    served: Sequence[ExternalValue] = ()
    refusal: GpuscaleError | None = None
    try:
        served = await provider.external(target, series, record)
    except GpuscaleError as error:
        refusal = error
    plan, value, namespace = record.plan, record.value, target.namespace
    look = SeriesLook(provider.questions, record.at_ms, provider.max_age_ms)
    explanation = Explanation(asked_text(target), EXTERNAL_HOPS)

    entry = provider.entry(target) if plan is None else plan.entry
    if entry is None:
        return await why_unserved(provider, look, target.metric, None, namespace, explanation)
    rule = entry.rule
    found = await rule_and_series(provider, look, entry, target.metric, explanation)
    if not found and not served:
        return explanation

    finding = None
    if not rule.namespaced:
        explanation.ok("labels", "the rule asks for no namespace (namespaced: false)")
    else:
        try:
            label = rule.labels.label_for(NAMESPACES)
        except NoLabelError:
            return explanation.failed(
                "labels",
                f"{rule.origin} maps no label to namespaces, and each request asks for one.",
                "Add it to resources.overrides, or say `namespaced: false`.",
                f"the series have {', '.join(sorted(label_names(found)))}",
            )
        explanation.ok("labels", f"the rule finds namespaces by {label}")
        finding = why_no_match(found, label, [namespace], "namespace")

    if plan is None or not isinstance(value, Vector | Scalar):
        return without_rows(rule, record, refusal, explanation)
    explanation.query = plan.promql
    faults = fault_lines(rule, entry.series, None, series)
    seen = await seen_parts(look, rule, plan.query, "")
    left_out = await look.left_out_of(plan.promql)
    if isinstance(value, Vector) and not value.samples:
        fix = "See whether its series are scraped, and with which namespace."
        if left_out_or_missing(left_out, seen, [""], fix, explanation):
            return explanation
        if finding is not None and namespace:
            fix = f"{finding.fix} A rule for series of no namespace says `namespaced: false`."
            return explanation.failed("query", f"0 rows. {finding.said}", fix, *finding.more)
        chosen = f" with {series}" if series else ""
        return explanation.failed(
            "query",
            f"0 rows. The series are there{chosen and ', but the query finds none'}{chosen}.",
            "Look at metricsQuery and the selector: a range has to hold two samples, and a "
            "selector has to name labels of the series.",
            *faults,
        )
    rows = value.samples if isinstance(value, Vector) else ()
    ages = await sample_ages(look, plan.query(PLAIN), "")
    explanation.rows = [row_of(sample, ages, None) for sample in rows]
    have = rows_text(len(rows)) if rows else "a scalar"
    several = ("an HPA takes the sum of all rows",) if len(rows) > 1 else ()
    parts = part_lines(seen, [""])
    explanation.ok("query", have, *several, *ages.age_remarks, *parts, *left_out, *faults)

    if isinstance(value, Vector):
        by_labels = {_labels_text(row.labels): row for row in rows}
        values = {_labels_text(each.labels or {}): each for each in served}
        return explain_values(provider, explanation, by_labels, values, ages)
    for each in served:
        note_value(explanation, "the scalar", each, 0)
    if not served:
        said = f"The scalar is {value.value:g}."
        return explanation.failed("value", said, "Look at metricsQuery.")
    explanation.ok("value", "1 of 1 usable")
    return explanation


def _labels_text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items())) or "no labels"
