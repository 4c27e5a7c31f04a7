"""Why a custom metric of an object, or of all of them, has a value or none."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuscale.base.errors import GpuscaleError, QueryError
from gpuscale.base.golang.template import Template
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.words import closest
from gpuscale.series.matchers import MatchOp
from gpuscale.series.promql.parse import parse_query, selectors
from gpuscale.series.values import Vector, VectorSample
from gpuscale.server.metricsapi.why.hops import CUSTOM_HOPS, Explanation
from gpuscale.server.metricsapi.why.left_out import IMPOSSIBLE_FIX, left_out_of
from gpuscale.server.metricsapi.why.parts import SeenPart, missing_text, part_lines, seen_parts
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
    counted,
    explain_rule,
    explain_unserved,
    explain_values,
    live_series,
    no_query,
    no_vector,
    query_failed,
    row_of,
    rows_text,
    sample_ages,
)
from gpuscale.server.metricsapi.why.unserved import UnservedMetric
from gpuscale.server.metricsapi.wire.paths import ALL, CustomTarget
from gpuscale.server.rules.catalogue import Entry
from gpuscale.server.rules.config import AdapterRule
from gpuscale.server.rules.queries.plan import CustomPlan, MetricNotFoundError, plan_custom
from gpuscale.server.rules.query import custom_query
from gpuscale.server.rules.resource_labels import NoLabelError
from gpuscale.server.rules.resources import NAMESPACES, ResourceType, UnknownResourceError

WRONG_SELECTOR = "Correct the metric's selector in the HPA."
"""What to do where series are there, and the HPA's selector takes none of them."""


async def why_custom(
    parts: Parts, target: CustomTarget, objects: Selector, series: Selector
) -> Explanation:
    """Return the way of a custom metric's value; what goes wrong on it is part of the answer.

    Args:
        parts: what requests are answered from.
        target: what is asked for.
        objects: conditions on the objects' labels, for all of them.
        series: conditions on the labels of the series.
    """
    place = f"{target.namespace}/{target.name}" if target.namespace else target.name
    explanation = Explanation(f"{target.metric} of {target.resource} {place}", CUSTOM_HOPS)
    return await _Custom(parts, target, objects, series, explanation).follow()


@dataclass(slots=True)
class _Custom:
    """One question about a custom metric, while it is followed."""

    parts: Parts
    target: CustomTarget
    objects: Selector
    series: Selector
    explanation: Explanation

    async def follow(self) -> Explanation:
        resource = self._resource()
        if resource is None:
            return self.explanation
        target = self.target
        entry = self.parts.catalogue.custom_entry(
            resource, target.metric, target.namespace, target.name
        )
        if entry is None:
            team = target.name if resource == NAMESPACES else target.namespace
            asked = UnservedMetric(target.metric, resource, team or "", external=False)
            return await explain_unserved(self.parts, asked, self.explanation)
        explain_rule(self.parts, entry, self.explanation, target.metric)
        found = await live_series(self.parts, entry, self.explanation)
        if found is None or not self._labels(entry, resource, found):
            return self.explanation
        names = await self._objects(resource)
        if not names:
            return self.explanation
        return await self._asked(entry, resource, names, found)

    def _resource(self) -> ResourceType | None:
        target = self.target
        try:
            resource = self.parts.mapper.parse(target.resource)
        except UnknownResourceError:
            known = [each.name for each in self.parts.mapper.types]
            close = closest(target.resource, known)
            self.explanation.failed(
                "rule",
                f"The cluster has no resource {target.resource!r}.",
                f"Ask for {close}." if close else "Ask for a resource such as pods.",
            )
            return None
        if resource.namespaced != (target.namespace is not None):
            place = "in a namespace" if resource.namespaced else "in no namespace"
            self.explanation.failed(
                "rule", f"Objects of {resource.name} are {place}.", f"Ask for them {place}."
            )
            return None
        return resource

    def _labels(self, entry: Entry, resource: ResourceType, found: LabelSets) -> bool:
        labels = entry.rule.labels
        try:
            label = labels.label_for(resource)
            places = [f"{resource.name} by {label}"]
            if resource.namespaced:
                places.append(f"namespaces by {labels.label_for(NAMESPACES)}")
        except NoLabelError as error:
            self.explanation.failed(
                "labels",
                f"{entry.rule.origin} maps no label to {error.resource.name}, "
                "and each request asks for one.",
                f"Add it to resources.overrides, such as {error.resource.singular}: "
                f"{{resource: {error.resource.singular}}}.",
                f"the series have {', '.join(sorted(label_names(found)))}",
            )
            return False
        self.explanation.ok("labels", f"the rule finds {' and '.join(places)}")
        return True

    async def _objects(self, resource: ResourceType) -> tuple[str, ...]:
        """Return the names to ask for; none where there are none of all."""
        target = self.target
        wanted_all = target.name == ALL
        try:
            if self.parts.ready is not None:
                await self.parts.ready(resource)
            names = self.parts.directory.names(
                resource, target.namespace, self.objects if wanted_all else Selector()
            )
        except GpuscaleError as error:
            return self._objects_unknown(error)
        if not wanted_all:
            self._tell_object(resource, names)
            return (target.name,)
        if names:
            self.explanation.ok("objects", f"{counted(len(names), resource)} selected")
        else:
            chosen = f" with {self.objects}" if self.objects else ""
            self.explanation.failed(
                "objects",
                f"There are no {resource.name}{chosen}.",
                "See kubectl get, and the selector of the HPA's target.",
            )
        return names

    def _objects_unknown(self, error: GpuscaleError) -> tuple[str, ...]:
        if self.target.name == ALL:
            self.explanation.failed(
                "objects",
                f"It is not known which objects there are: {error}.",
                "See /readyz?verbose, and whether the server may list and watch them.",
            )
            return ()
        self.explanation.unknown("objects", "whether there is such an object is not known here")
        return (self.target.name,)

    def _tell_object(self, resource: ResourceType, names: Sequence[str]) -> None:
        name = self.target.name
        if name in names:
            self.explanation.ok("objects", f"{name} is there")
            return
        place = f" -n {self.target.namespace}" if resource.namespaced else ""
        self.explanation.absent(
            "objects",
            f"The cluster has no {resource.singular} {name} there.",
            f"See kubectl get {resource.name}{place}.",
        )

    async def _asked(
        self, entry: Entry, resource: ResourceType, names: tuple[str, ...], found: LabelSets
    ) -> Explanation:
        target, explanation = self.target, self.explanation
        try:
            plan = plan_custom(
                self.parts.catalogue,
                self.parts.mapper,
                target.resource,
                target.namespace,
                names,
                target.metric,
                self.series,
            )
        except MetricNotFoundError as error:
            return no_query(entry.rule, error, explanation)
        explanation.query = plan.promql
        try:
            value = await self.parts.questions.custom(plan, self.parts.now_ms)
        except GpuscaleError as error:
            return query_failed(error, explanation)
        value = entry.rule.read(value)
        if not isinstance(value, Vector):
            return no_vector(value, explanation)
        seen = await self._parts(entry.rule, plan)
        left_out = await left_out_of(
            self.parts.questions, plan.promql, self.parts.now_ms, plan.label, plan.names
        )
        if not value.samples and left_out:
            said = f"0 rows. Impossible values count as absent: {left_out[0]}."
            return explanation.failed("query", said, IMPOSSIBLE_FIX, *left_out[1:])
        if not value.samples:
            return await self._no_rows(entry.rule, plan, found, seen)
        ages = await self._ages(entry.rule, plan)
        explanation.ok("query", rows_text(len(value.samples)), *ages.age_remarks, *left_out)
        return self._rows(plan, value, ages, seen)

    async def _parts(self, rule: AdapterRule, plan: CustomPlan) -> tuple[SeenPart, ...]:
        def query_of(template: Template) -> str:
            return custom_query(
                template,
                plan.scope.entry.series,
                rule.labels,
                plan.resource,
                self.target.namespace,
                plan.names,
                self.series,
            )

        return await seen_parts(self.parts, rule, query_of, plan.label)

    async def _no_rows(
        self, rule: AdapterRule, plan: CustomPlan, found: LabelSets, seen: Sequence[SeenPart]
    ) -> Explanation:
        resource, names = plan.resource, plan.names
        if missing := missing_text(seen, names):
            fix = "See whether its series are scraped with the same labels as those of the others."
            return self.explanation.failed(
                "query", f"0 rows. {missing}.", fix, *part_lines(seen, names)
            )
        finding: AbsenceFinding | None = None
        if resource.namespaced:
            label = rule.labels.label_for(NAMESPACES)
            wanted = [self.target.namespace or ""]
            finding = why_no_match(found, label, wanted, "namespace", [plan.label])
        if finding is None:
            finding = why_no_match(found, plan.label, names, resource.singular)
        if finding is None:
            finding = await self._lost_in_query(rule, plan)
        return self.explanation.failed(
            "query", f"0 rows. {finding.said}", finding.fix, *finding.more
        )

    async def _lost_in_query(self, rule: AdapterRule, plan: CustomPlan) -> AbsenceFinding:
        """Report series that are there and that the query makes no rows of."""
        try:
            plain = self._plain(rule, plan, self.series)
            rows = await self._count(plain)
            if not rows and self.series:
                unselected = await self._count(self._plain(rule, plan, Selector()))
                if unselected:
                    return AbsenceFinding(
                        f"The selector {self.series} leaves none of {unselected} series.",
                        WRONG_SELECTOR,
                    )
        except GpuscaleError as error:
            return AbsenceFinding(f"Why could not be found out: {error}.", "Ask again.")
        if not rows:
            return AbsenceFinding(
                "Matching series had samples before, and have none now.",
                "See whether the exporter is still scraped. Prometheus takes samples of the last "
                "5 minutes by default.",
                (f"{plain} gives nothing",),
            )
        return AbsenceFinding(
            f"Series match ({rows} of them), and the query makes no row of them.",
            "Look at metricsQuery: a range such as [30s] has to hold two samples, both sides of an "
            "operator have to have the same labels, and conditions have to hold.",
            (f"{plain} gives {rows_text(rows)}",),
        )

    async def _ages(self, rule: AdapterRule, plan: CustomPlan) -> RowAges:
        return await sample_ages(self.parts, self._plain(rule, plan, self.series), plan.label)

    def _plain(self, rule: AdapterRule, plan: CustomPlan, series: Selector) -> str:
        return custom_query(
            PLAIN,
            plan.scope.entry.series,
            rule.labels,
            plan.resource,
            self.target.namespace,
            plan.names,
            series,
        )

    async def _count(self, promql: str) -> int:
        value = (await self.parts.questions.query(promql, self.parts.now_ms)).value
        return len(value.samples) if isinstance(value, Vector) else 0

    def _rows(
        self, plan: CustomPlan, value: Vector, ages: RowAges, seen: Sequence[SeenPart]
    ) -> Explanation:
        explanation, known = self.explanation, set(plan.names)
        shows_all = self._asks_only_here(plan)
        by_object: dict[str, VectorSample] = {}
        for sample in value.samples:
            name = sample.labels.get(plan.label, "")
            is_known = name in known
            if is_known:
                by_object[name] = sample
            if is_known or shows_all:
                explanation.rows.append(row_of(sample, ages, name if is_known else ""))
            else:
                explanation.more_rows += 1
        explanation.matched = [name for name in plan.names if name in by_object]
        explanation.missed = [name for name in plan.names if name not in by_object]
        if not by_object:
            return self._unmatched(plan, value)
        have = f"{len(by_object)} of {counted(len(known), plan.resource)} with a row"
        explanation.ok("rows", have, *_strays(plan, value), *part_lines(seen, plan.names))
        return explain_values(self.parts, explanation, by_object, ages)

    def _asks_only_here(self, plan: CustomPlan) -> bool:
        """Return whether every row can only be of the namespace that was asked for."""
        namespace = self.target.namespace
        if namespace is None:
            return self.target.name == ALL
        label = plan.scope.entry.rule.labels.label_for(NAMESPACES)
        try:
            asked = list(selectors(parse_query(plan.promql).root))
        except QueryError:
            return False
        return bool(asked) and all(
            any(
                (each.name, each.op, each.value) == (label, MatchOp.EQUAL, namespace)
                for each in select.matchers
            )
            for select in asked
        )

    def _unmatched(self, plan: CustomPlan, value: Vector) -> Explanation:
        count = len(value.samples)
        have = sum(bool(sample.labels.get(plan.label)) for sample in value.samples)
        labels = ", ".join(sorted(label_names([sample.labels for sample in value.samples])))
        if not have:
            return self.explanation.failed(
                "rows",
                f"None of {rows_text(count)} has the label {plan.label}, which names the "
                f"{plan.resource.singular}.",
                "Group the query by it: by (<<.GroupBy>>).",
                f"the rows have {labels or 'no labels'}",
            )
        return self.explanation.failed(
            "rows",
            f"{rows_text(count)}, all of other objects: none has the name in {plan.label}.",
            f"See what stands in {plan.label}: it has to be the name of the "
            f"{plan.resource.singular}.",
        )


def _strays(plan: CustomPlan, value: Vector) -> Iterator[str]:
    """Return what is to be said of rows that are of no object, or not the only one of theirs."""
    rows = Counter(sample.labels.get(plan.label, "") for sample in value.samples)
    known = set(plan.names)
    foreign = sum(count for name, count in rows.items() if name and name not in known)
    twice = sorted(name for name, count in rows.items() if name in known and count > 1)
    if rows[""]:
        yield f"{rows_text(rows[''])} without the label {plan.label}"
    if foreign:
        yield f"{rows_text(foreign)} of other objects"
    if twice:
        yield f"several rows of {', '.join(twice[:3])}; the last of them counts"
