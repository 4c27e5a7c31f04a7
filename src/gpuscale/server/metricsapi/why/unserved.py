"""Why a metric is not served: a search through rules, catalogue and series.

No request takes this way; it is a search of its own, in the same rules and the same catalogue.
"""

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.words import closest
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.why.hops import Explanation
from gpuscale.server.metricsapi.why.series import SeriesLook
from gpuscale.server.rules.catalogue import Catalogue, SeriesShape
from gpuscale.server.rules.config import AdapterRule
from gpuscale.server.rules.queries.backwards import candidates
from gpuscale.server.rules.resources import ResourceType

_MOST_LOOKS = 8
"""Series that are looked up for one question; each is a request to the source."""


async def why_unserved(
    provider: MetricsProvider,
    look: SeriesLook,
    metric: str,
    resource: ResourceType | None,
    team: str,
    explanation: Explanation,
) -> Explanation:
    """Add the steps up to the one that keeps the metric from being served.

    Args:
        provider: does not serve the metric.
        look: asks the source for series.
        metric: its name in the API.
        resource: whose objects it is asked of; None for an external metric.
        team: the namespace whose own rules count.
        explanation: gets the hops, and is returned.
    """
    if provider.relisted_ms is None:
        return explanation.failed(
            "rule",
            "Discovery has not ended yet, so that no metric is known.",
            "Wait, and see /readyz?verbose.",
        )
    catalogue, is_external = provider.catalogue, resource is None
    rules = provider.config.rules_in(team, external=is_external)

    # The series exists, but no label of it names the resource.
    giving = [
        (rule, shape)
        for rule in rules
        for shape in catalogue.shapes_of(rule)
        if rule.api_name(shape.name) == metric
    ]
    if giving and resource is not None:
        rule, shape = giving[-1]
        explanation.ok("rule", f"{rule.origin} gives it of {shape.name}")
        explanation.ok("series", f"{shape.name} is there")
        labels = sorted(shape.labels)
        there = ", ".join(each.name for each in rule.labels.resources_of(labels))
        return explanation.failed(
            "labels",
            f"No label of the series names {resource.name}.",
            _mapping_fix(rule, shape, resource),
            f"the series have {', '.join(labels)}",
            f"{rule.origin} finds {there or 'no resource'} among them",
        )

    # The series query of a candidate rule failed.
    may_give = [(rule, each) for rule in reversed(rules) for each in candidates(rule, metric)]
    for rule, _ in may_give:
        if (failure := catalogue.failures.get(rule.series_query)) is not None:
            explanation.ok("rule", f"{rule.origin} may give it")
            return explanation.failed(
                "series",
                f"The series query of {rule.origin} was not answered: {failure.reason}",
                "See whether the source can be reached, and whether it takes the query.",
                rule.series_query,
            )

    # The rule for the metric has faults.
    disabled = [
        rule
        for rule in reversed(provider.config.disabled)
        if rule.external == is_external and rule.only_in in {"", team}
    ]
    for left_out in disabled:
        if left_out.would_give(metric):
            return explanation.failed(
                "rule",
                "The rule that would give it can give nothing, and is left out.",
                "Correct the rule; a server takes it within seconds.",
                str(left_out),
            )

    # The series is missing. A rule that names it tells more than one that might have matched it.
    named = [(rule, each) for rule, each in may_give if each.series is not None]
    certain = [(rule, each) for rule, each in named if each.certain]
    for rule, each in (certain or named)[:_MOST_LOOKS]:
        series = each.series or ""
        try:
            finding = await look.why_none(rule, series)
        except GpuscaleError as error:
            explanation.ok("rule", f"{rule.origin} may give it of {series}")
            return explanation.failed(
                "series", f"The source does not answer: {error}.", "See the source."
            )
        if finding is not None and finding.is_absent and not each.certain:
            continue
        word = "gives" if each.certain else "would give"
        explanation.ok("rule", f"{rule.origin} {word} it of {series}")
        if finding is not None:
            return explanation.failed("series", finding.said, finding.fix, *finding.more)
        return explanation.failed(
            "series",
            f"Series of {series} are there by now; discovery has not seen them yet.",
            f"Wait: it looks every {provider.relist_interval_s:g} s (--metrics-relist-interval).",
        )

    # No rule names it.
    renamed: list[str] = []
    for rule in rules:
        if any(shape.name == metric for shape in catalogue.shapes_of(rule)):
            name = rule.api_name(metric)
            said = f"calls it {name}"
            if name is None:
                said = "leaves it out: its name does not pass seriesFilters or name.matches"
            renamed.append(f"{rule.origin} {said}")
    names = _names(catalogue, team, external=is_external)
    close = closest(metric, names, cutoff=0.6)
    kind, other = ("an external", "a custom") if is_external else ("a custom", "an external")
    fix = f"Ask for {close}." if close else "Write a rule for it."
    if metric in _names(catalogue, team, external=not is_external):
        fix = f"It is {other} metric: ask for that."
    faults = [f"not served: {fault}" for fault in (provider.team_faults(team) if team else ())]
    faults += [
        f"left out, and may have given it: {rule}"
        for rule in disabled
        if rule.would_give(metric) is None
    ]
    if team in catalogue.over_budget:
        faults.append(f"not served: {catalogue.over_budget[team]}")
    return explanation.failed(
        "rule",
        "A series of this name is there, and no rule gives it under this name."
        if renamed
        else f"No rule gives {kind} metric of this name, and no series is there for one that could.",
        fix,
        *renamed,
        *faults,
        f"metrics that are served: {len(names)}"
        + (f", such as {', '.join(sorted(names)[:5])}" if names else ""),
    )


def _names(catalogue: Catalogue, team: str, *, external: bool) -> set[str]:
    if external:
        return {*catalogue.external, *catalogue.external_in.get(team, {})}
    tables = (catalogue.custom, catalogue.custom_in.get(team, {}))
    return {metric for table in tables for _, metric in table}


def _mapping_fix(rule: AdapterRule, shape: SeriesShape, resource: ResourceType) -> str:
    like = sorted(label for label in shape.labels if resource.singular in label.lower())
    if like:
        return (
            f"Map {like[0]} to {resource.singular} in resources.overrides of {rule.origin}: "
            f"{like[0]}: {{resource: {resource.singular}}}."
        )
    return (
        f"The series says nothing of {resource.plural}: scrape it with such a label, or take "
        "another series."
    )
