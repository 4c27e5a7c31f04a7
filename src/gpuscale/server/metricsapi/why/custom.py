"""Why a custom metric of an object, or of all of them, has a value or none."""

from collections import Counter
from collections.abc import Iterator, Mapping

from gpuscale.base.errors import GpuscaleError, QueryError
from gpuscale.base.objects.metric_values import MetricValue
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.words import closest
from gpuscale.series import MatchOp, Vector, VectorSample
from gpuscale.series.promql import parse_query, selectors
from gpuscale.server.metricsapi.provider import MetricsProvider, RequestRecord
from gpuscale.server.metricsapi.why.hops import CUSTOM_HOPS, WRONG_SELECTOR, Explanation, asked_text
from gpuscale.server.metricsapi.why.parts import part_lines, seen_parts
from gpuscale.server.metricsapi.why.series import (
    AbsenceFinding,
    SeriesLook,
    label_names,
    why_no_match,
)
from gpuscale.server.metricsapi.why.shared import (
    PLAIN,
    explain_values,
    fault_lines,
    left_out_or_missing,
    row_of,
    rows_text,
    rule_and_series,
    sample_ages,
    without_rows,
)
from gpuscale.server.metricsapi.why.unserved import why_unserved
from gpuscale.server.metricsapi.wire.paths import ALL, CustomTarget
from gpuscale.server.rules.queries.plan import CustomPlan
from gpuscale.server.rules.resource_labels import NoLabelError
from gpuscale.server.rules.resources import NAMESPACES, ResourceType, UnknownResourceError


async def why_custom(
    provider: MetricsProvider, target: CustomTarget, objects: Selector, series: Selector
) -> Explanation:
    """Return the way of a custom metric's value; what goes wrong on it is part of the answer.

    The metric is asked for as by any client, with a record of what is met on the way. The rest only words
    that, and looks up what a request has no use for: which series there are, and how old they are.

    Args:
        provider: answers requests.
        target: the requested metric.
        objects: conditions on the objects' labels, for all of them.
        series: conditions on the labels of the series.
    """
    record = RequestRecord[CustomPlan](provider.clock.now_ms())
    served: Mapping[str, MetricValue] = {}
    refusal: GpuscaleError | None = None
    try:
        answer = await provider.custom(target, objects, series, record)
        served = {each.object_name: each for each in answer.values}
    except GpuscaleError as error:
        refusal = error
    plan, value, namespace = record.plan, record.value, target.namespace
    look = SeriesLook(provider.questions, record.at_ms, provider.max_age_ms)
    explanation = Explanation(asked_text(target), CUSTOM_HOPS)

    try:
        resource = provider.mapper.parse(target.resource)
    except UnknownResourceError:
        close = closest(target.resource, [each.name for each in provider.mapper.types])
        return explanation.failed(
            "rule",
            f"The cluster has no resource {target.resource!r}.",
            f"Ask for {close}." if close else "Ask for a resource such as pods.",
        )
    if resource.namespaced != (namespace is not None):
        where = "in a namespace" if resource.namespaced else "in no namespace"
        said = f"Objects of {resource.name} are {where}."
        return explanation.failed("rule", said, f"Ask for them {where}.")
    entry = provider.entry(target) if plan is None else plan.scope.entry
    if entry is None:
        team = (target.name if resource == NAMESPACES else namespace) or ""
        return await why_unserved(provider, look, target.metric, resource, team, explanation)
    rule = entry.rule
    found = await rule_and_series(provider, look, entry, target.metric, explanation)
    if not found and not served:
        return explanation

    try:
        label = rule.labels.label_for(resource)
        namespace_label = rule.labels.label_for(NAMESPACES) if resource.namespaced else None
    except NoLabelError as error:
        lacking = error.resource
        return explanation.failed(
            "labels",
            f"{rule.origin} maps no label to {lacking.name}, and each request asks for one.",
            f"Add it to resources.overrides, such as {lacking.singular}: "
            f"{{resource: {lacking.singular}}}.",
            f"the series have {', '.join(sorted(label_names(found)))}",
        )
    by_namespace = f" and namespaces by {namespace_label}" if namespace_label else ""
    explanation.ok("labels", f"the rule finds {resource.name} by {label}{by_namespace}")

    if target.name != ALL:
        await _explain_object(provider, target, resource, explanation)
    elif record.names is None:
        return explanation.failed(
            "objects",
            f"It is not known which objects there are: {refusal}.",
            "See /readyz?verbose, and whether the server may list and watch them.",
        )
    elif not record.names:
        chosen = f" with {objects}" if objects else ""
        return explanation.failed(
            "objects",
            f"There are no {resource.name}{chosen}.",
            "See kubectl get, and the selector of the HPA's target.",
        )
    else:
        explanation.ok("objects", f"{_counted(len(record.names), resource)} selected")

    if plan is None or not isinstance(value, Vector):
        return without_rows(rule, record, refusal, explanation)
    explanation.query = plan.promql
    faults = fault_lines(rule, entry.series, resource, series)
    seen = await seen_parts(look, rule, plan.query, label)
    left_out = await look.left_out_of(plan.promql, label, plan.names)
    if not value.samples:
        fix = "See whether its series are scraped with the same labels as those of the others."
        if left_out_or_missing(left_out, seen, plan.names, fix, explanation):
            return explanation
        finding = None
        if namespace_label is not None:
            wanted = [namespace or ""]
            finding = why_no_match(found, namespace_label, wanted, "namespace", [label])
        if finding is None:
            finding = why_no_match(found, label, plan.names, resource.singular)
        if finding is None:
            finding = await _lost_in_query(look, plan)
        return explanation.failed(
            "query", f"0 rows. {finding.said}", finding.fix, *finding.more, *faults
        )
    ages = await sample_ages(look, plan.query(PLAIN), label)
    explanation.ok("query", rows_text(len(value.samples)), *ages.age_remarks, *left_out, *faults)

    # Rows of other namespaces are counted, and not shown.
    shows_all = _asks_only_here(target, plan, namespace_label)
    known = set(plan.names)
    by_object: dict[str, VectorSample] = {}
    for sample in value.samples:
        name = sample.labels.get(label, "")
        is_known = name in known
        if is_known:
            by_object[name] = sample
        if is_known or shows_all:
            explanation.rows.append(row_of(sample, ages, name if is_known else ""))
        else:
            explanation.more_rows += 1
    explanation.matched = [name for name in plan.names if name in by_object]
    explanation.missed = [name for name in plan.names if name not in by_object]
    if by_object:
        have = f"{len(by_object)} of {_counted(len(known), resource)} with a row"
        explanation.ok("rows", have, *_strays(plan, value), *part_lines(seen, plan.names))
        return explain_values(provider, explanation, by_object, served, ages)
    count = rows_text(len(value.samples))
    if any(sample.labels.get(label) for sample in value.samples):
        return explanation.failed(
            "rows",
            f"{count}, all of other objects: none has the name in {label}.",
            f"See what stands in {label}: it has to be the name of the {resource.singular}.",
        )
    labels = ", ".join(sorted(label_names([sample.labels for sample in value.samples])))
    return explanation.failed(
        "rows",
        f"None of {count} has the label {label}, which names the {resource.singular}.",
        "Group the query by it: by (<<.GroupBy>>).",
        f"the rows have {labels or 'no labels'}",
    )


async def _explain_object(
    provider: MetricsProvider,
    target: CustomTarget,
    resource: ResourceType,
    explanation: Explanation,
) -> None:
    """Add to the explanation whether the object exists; the request itself doesn't need to know."""
    try:
        names = await provider.objects(resource, target.namespace, Selector())
    except GpuscaleError:
        explanation.unknown("objects", "whether there is such an object is not known here")
        return
    if target.name in names:
        explanation.ok("objects", f"{target.name} is there")
        return
    place = f" -n {target.namespace}" if resource.namespaced else ""
    explanation.absent(
        "objects",
        f"The cluster has no {resource.singular} {target.name} there.",
        f"See kubectl get {resource.name}{place}.",
    )


async def _lost_in_query(look: SeriesLook, plan: CustomPlan) -> AbsenceFinding:
    """Find out why existing series give no rows: the query's selector, or the query itself."""
    series = plan.scope.selector
    plain = plan.query(PLAIN)
    try:
        rows = len(await look.rows(plain))
        if not rows and series:
            unselected = len(await look.rows(plan.query(PLAIN, Selector())))
            if unselected:
                said = f"The selector {series} leaves none of {unselected} series."
                return AbsenceFinding(said, WRONG_SELECTOR)
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


def _asks_only_here(target: CustomTarget, plan: CustomPlan, namespace_label: str | None) -> bool:
    """Return whether the query can only give rows of the requested namespace."""
    if namespace_label is None:
        return target.name == ALL
    try:
        asked = list(selectors(parse_query(plan.promql).root))
    except QueryError:
        return False
    return bool(asked) and all(
        any(
            (each.name, each.op, each.value) == (namespace_label, MatchOp.EQUAL, target.namespace)
            for each in select.matchers
        )
        for select in asked
    )


def _strays(plan: CustomPlan, value: Vector) -> Iterator[str]:
    """Yield a remark for rows without an object, and for objects with several rows."""
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


def _counted(count: int, resource: ResourceType) -> str:
    return f"{count} {resource.singular if count == 1 else resource.plural}"
