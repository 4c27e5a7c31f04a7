"""Why an external metric has values or none."""

from dataclasses import dataclass

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.selectors import Selector
from gpuscale.series.values import Scalar, Vector
from gpuscale.server.metricsapi.why.hops import EXTERNAL_HOPS, Explanation
from gpuscale.server.metricsapi.why.left_out import IMPOSSIBLE_FIX, left_out_of
from gpuscale.server.metricsapi.why.parts import missing_text, part_lines, seen_parts
from gpuscale.server.metricsapi.why.series import (
    AbsenceFinding,
    LabelSets,
    label_names,
    why_no_match,
)
from gpuscale.server.metricsapi.why.shared import (
    PLAIN,
    Parts,
    RowAges,
    explain_rule,
    explain_scalar,
    explain_unserved,
    explain_values,
    labels_text,
    live_series,
    no_query,
    no_vector,
    query_failed,
    row_of,
    rows_text,
    sample_ages,
)
from gpuscale.server.metricsapi.why.unserved import UnservedMetric
from gpuscale.server.metricsapi.wire.paths import ExternalTarget
from gpuscale.server.rules.catalogue import Entry
from gpuscale.server.rules.config import AdapterRule
from gpuscale.server.rules.queries.plan import ExternalPlan, MetricFetchError, plan_external
from gpuscale.server.rules.query import external_query
from gpuscale.server.rules.resource_labels import NoLabelError
from gpuscale.server.rules.resources import NAMESPACES


async def why_external(parts: Parts, target: ExternalTarget, series: Selector) -> Explanation:
    """Return the way of an external metric's values; see `why_custom`."""
    asked = f"{target.metric}, external, in {target.namespace}"
    explanation = Explanation(asked, EXTERNAL_HOPS)
    return await _External(parts, target, series, explanation).follow()


@dataclass(slots=True)
class _External:
    """One question about an external metric, while it is followed."""

    parts: Parts
    target: ExternalTarget
    series: Selector
    explanation: Explanation

    async def follow(self) -> Explanation:
        target, explanation = self.target, self.explanation
        entry = self.parts.catalogue.external_entry(target.metric, target.namespace)
        if entry is None:
            asked = UnservedMetric(target.metric, None, target.namespace, external=True)
            return await explain_unserved(self.parts, asked, explanation)
        explain_rule(self.parts, entry, explanation, target.metric)
        found = await live_series(self.parts, entry, explanation)
        if found is None or not self._labels(entry, found):
            return explanation
        try:
            plan = plan_external(self.parts.catalogue, target.namespace, target.metric, self.series)
        except MetricFetchError as error:
            return no_query(entry.rule, error, explanation)
        return await self._asked(entry.rule, plan, found)

    def _labels(self, entry: Entry, found: LabelSets) -> bool:
        rule = entry.rule
        if not rule.namespaced:
            self.explanation.ok("labels", "the rule asks for no namespace (namespaced: false)")
            return True
        try:
            label = rule.labels.label_for(NAMESPACES)
        except NoLabelError:
            self.explanation.failed(
                "labels",
                f"{rule.origin} maps no label to namespaces, and each request asks for one.",
                "Add it to resources.overrides, or say `namespaced: false`.",
                f"the series have {', '.join(sorted(label_names(found)))}",
            )
            return False
        self.explanation.ok("labels", f"the rule finds namespaces by {label}")
        return True

    async def _asked(self, rule: AdapterRule, plan: ExternalPlan, found: LabelSets) -> Explanation:
        explanation = self.explanation
        explanation.query = plan.promql
        try:
            answer = await self.parts.questions.query(plan.promql, self.parts.now_ms)
        except GpuscaleError as error:
            return query_failed(error, explanation)
        value = rule.read(answer.value)
        if not isinstance(value, Vector | Scalar):
            return no_vector(value, explanation)
        within = self.target.namespace if rule.namespaced else None
        seen = await seen_parts(
            self.parts,
            rule,
            lambda part: external_query(part, plan.series, rule.labels, within, self.series),
            "",
        )
        left_out = await left_out_of(self.parts.questions, plan.promql, self.parts.now_ms)
        if isinstance(value, Vector) and not value.samples:
            if left_out:
                said = f"0 rows. Impossible values count as absent: {left_out[0]}."
                return explanation.failed("query", said, IMPOSSIBLE_FIX, *left_out[1:])
            if missing := missing_text(seen, [""]):
                fix = "See whether its series are scraped, and with which namespace."
                return explanation.failed(
                    "query", f"0 rows. {missing}.", fix, *part_lines(seen, [""])
                )
            return self._no_rows(rule, found)
        rows = value.samples if isinstance(value, Vector) else ()
        ages = await self._ages(rule, plan)
        explanation.rows = [row_of(sample, ages, None) for sample in rows]
        have = rows_text(len(rows)) if rows else "a scalar"
        several = ("an HPA takes the sum of all rows",) if len(rows) > 1 else ()
        parts = part_lines(seen, [""])
        explanation.ok("query", have, *several, *ages.age_remarks, *parts, *left_out)
        if isinstance(value, Scalar):
            return explain_scalar(explanation, value)
        by_labels = {labels_text(each): each for each in rows}
        return explain_values(self.parts, explanation, by_labels, ages)

    async def _ages(self, rule: AdapterRule, plan: ExternalPlan) -> RowAges:
        within = self.target.namespace if rule.namespaced else None
        plain = external_query(PLAIN, plan.series, rule.labels, within, self.series)
        return await sample_ages(self.parts, plain, "")

    def _no_rows(self, rule: AdapterRule, found: LabelSets) -> Explanation:
        finding: AbsenceFinding | None = None
        if rule.namespaced:
            label = rule.labels.label_for(NAMESPACES)
            finding = why_no_match(found, label, [self.target.namespace], "namespace")
        if finding is not None and self.target.namespace:
            fix = f"{finding.fix} A rule for series of no namespace says `namespaced: false`."
            return self.explanation.failed("query", f"0 rows. {finding.said}", fix, *finding.more)
        chosen = f" with {self.series}" if self.series else ""
        return self.explanation.failed(
            "query",
            f"0 rows. The series are there{chosen and ', but the query finds none'}{chosen}.",
            "Look at metricsQuery and the selector: a range has to hold two samples, and a "
            "selector has to name labels of the series.",
        )
