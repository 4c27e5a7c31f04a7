"""Why an external metric has values or none."""

from dataclasses import dataclass

from gpuscale.core.errors import GpuscaleError
from gpuscale.metricsapi.why.hops import EXTERNAL_HOPS, Explanation
from gpuscale.metricsapi.why.series import Finding, LabelSets, label_names, why_no_match
from gpuscale.metricsapi.why.shared import (
    PLAIN,
    Parts,
    SampleAges,
    labels_text,
    live_series,
    no_query,
    no_vector,
    query_failed,
    row_of,
    rows_text,
    sample_ages,
    tell_rule,
    tell_scalar,
    tell_unserved,
    tell_values,
)
from gpuscale.metricsapi.why.unserved import Asked
from gpuscale.metricsapi.wire.paths import ExternalTarget
from gpuscale.objects.selectors import Selector
from gpuscale.rules.catalogue import Entry
from gpuscale.rules.config import Rule
from gpuscale.rules.queries.plan import ExternalPlan, FetchError, plan_external
from gpuscale.rules.query import external_query
from gpuscale.rules.resource_labels import NoLabelError
from gpuscale.rules.resources import NAMESPACES
from gpuscale.series.values import Scalar, Vector


async def why_external(parts: Parts, target: ExternalTarget, series: Selector) -> Explanation:
    """Return the way of an external metric's values; see `why_custom`."""
    asked = f"{target.metric}, external, in {target.namespace}"
    told = Explanation(asked, EXTERNAL_HOPS)
    return await _External(parts, target, series, told).follow()


@dataclass(slots=True)
class _External:
    """One question about an external metric, while it is followed."""

    parts: Parts
    target: ExternalTarget
    series: Selector
    told: Explanation

    async def follow(self) -> Explanation:
        target, told = self.target, self.told
        entry = self.parts.catalogue.external_entry(target.metric, target.namespace)
        if entry is None:
            asked = Asked(target.metric, None, target.namespace, external=True)
            return await tell_unserved(self.parts, asked, told)
        tell_rule(self.parts, entry, told, target.metric)
        found = await live_series(self.parts, entry, told)
        if found is None or not self._labels(entry, found):
            return told
        try:
            plan = plan_external(self.parts.catalogue, target.namespace, target.metric, self.series)
        except FetchError as error:
            return no_query(entry.rule, error, told)
        return await self._asked(entry.rule, plan, found)

    def _labels(self, entry: Entry, found: LabelSets) -> bool:
        rule = entry.rule
        if not rule.namespaced:
            self.told.ok("labels", "the rule asks for no namespace (namespaced: false)")
            return True
        try:
            label = rule.labels.label_for(NAMESPACES)
        except NoLabelError:
            self.told.failed(
                "labels",
                f"{rule.origin} maps no label to namespaces, and each request asks for one.",
                "Add it to resources.overrides, or say `namespaced: false`.",
                f"the series have {', '.join(sorted(label_names(found)))}",
            )
            return False
        self.told.ok("labels", f"the rule finds namespaces by {label}")
        return True

    async def _asked(self, rule: Rule, plan: ExternalPlan, found: LabelSets) -> Explanation:
        told = self.told
        told.query = plan.promql
        try:
            answer = await self.parts.questions.query(plan.promql, self.parts.now_ms)
        except GpuscaleError as error:
            return query_failed(error, told)
        value = rule.read(answer.value)
        if not isinstance(value, Vector | Scalar):
            return no_vector(value, told)
        if isinstance(value, Vector) and not value.samples:
            return self._no_rows(rule, found)
        rows = value.samples if isinstance(value, Vector) else ()
        ages = await self._ages(rule, plan)
        told.rows = [row_of(sample, ages, None) for sample in rows]
        told.ok("query", rows_text(len(rows)) if rows else "a scalar", *ages.told)
        if isinstance(value, Scalar):
            return tell_scalar(told, value)
        by_labels = {labels_text(each): each for each in rows}
        return tell_values(self.parts, told, by_labels, ages)

    async def _ages(self, rule: Rule, plan: ExternalPlan) -> SampleAges:
        within = self.target.namespace if rule.namespaced else None
        entry = self.parts.catalogue.external_entry(plan.metric, self.target.namespace)
        series = entry.series if entry is not None else plan.metric
        plain = external_query(PLAIN, series, rule.labels, within, self.series)
        return await sample_ages(self.parts, plain, "")

    def _no_rows(self, rule: Rule, found: LabelSets) -> Explanation:
        finding: Finding | None = None
        if rule.namespaced:
            label = rule.labels.label_for(NAMESPACES)
            finding = why_no_match(found, label, [self.target.namespace], "namespace")
        if finding is not None and self.target.namespace:
            fix = f"{finding.fix} A rule for series of no namespace says `namespaced: false`."
            return self.told.failed("query", f"0 rows. {finding.said}", fix, *finding.more)
        chosen = f" with {self.series}" if self.series else ""
        return self.told.failed(
            "query",
            f"0 rows. The series are there{chosen and ', but the query finds none'}{chosen}.",
            "Look at metricsQuery and the selector: a range has to hold two samples, and a "
            "selector has to name labels of the series.",
        )
