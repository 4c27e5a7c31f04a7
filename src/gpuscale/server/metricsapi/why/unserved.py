"""Why a metric is not among those that are served: followed from the rules to the series."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.words import closest
from gpuscale.server.metricsapi.why.hops import Explanation
from gpuscale.server.metricsapi.why.series import AbsenceFinding, SeriesLook
from gpuscale.server.rules.catalogue import Catalogue, SeriesShape
from gpuscale.server.rules.config import AdapterConfig, AdapterRule, DisabledRule
from gpuscale.server.rules.queries.backwards import Candidate, candidates
from gpuscale.server.rules.resources import ResourceType

_MOST_LOOKS = 8
"""Series that are looked up for one question; each is a request to the source."""


@dataclass(frozen=True, slots=True)
class UnservedMetric:
    """A metric that is not served."""

    metric: str
    resource: ResourceType | None
    """None for an external metric."""
    team: str
    """The namespace whose own rules count."""
    external: bool


@dataclass(frozen=True, slots=True)
class Unserved:
    """Looks for what keeps a metric from being served."""

    config: AdapterConfig
    catalogue: Catalogue
    look: SeriesLook
    relisted_ms: int | None
    relist_interval_s: float
    team_faults: tuple[str, ...] = ()
    """What is wrong with the rules of the namespace that is asked about."""

    async def explain(self, asked: UnservedMetric, explanation: Explanation) -> None:
        """Note the hops up to the one that gives nothing."""
        if self.relisted_ms is None:
            explanation.failed(
                "rule",
                "Discovery has not ended yet, so that no metric is known.",
                "Wait, and see /readyz?verbose.",
            )
            return
        if (
            self._tell_missing_label(asked, explanation)
            or self._tell_failure(asked, explanation)
            or self._tell_disabled(asked, explanation)
        ):
            return
        if not await self._tell_missing_series(asked, explanation):
            self._tell_unknown(asked, explanation)

    # A series is there, and no label for the resource

    def _tell_missing_label(self, asked: UnservedMetric, explanation: Explanation) -> bool:
        resource = asked.resource
        found = [
            (rule, shape)
            for rule in self._rules(asked)
            for shape in self._shapes(rule)
            if rule.api_name(shape.name) == asked.metric
        ]
        if not found or resource is None:
            return False
        rule, shape = found[-1]
        explanation.ok("rule", f"{rule.origin} gives it of {shape.name}")
        explanation.ok("series", f"{shape.name} is there")
        labels = ", ".join(sorted(shape.labels))
        there = ", ".join(each.name for each in rule.labels.resources_of(sorted(shape.labels)))
        explanation.failed(
            "labels",
            f"No label of the series names {resource.name}.",
            _mapping_fix(rule, shape, resource),
            f"the series have {labels}",
            f"{rule.origin} finds {there or 'no resource'} among them",
        )
        return True

    # The series query failed

    def _tell_failure(self, asked: UnservedMetric, explanation: Explanation) -> bool:
        for rule in reversed(self._rules(asked)):
            failure = self.catalogue.failures.get(rule.series_query)
            if failure is not None and any(candidates(rule, asked.metric)):
                explanation.ok("rule", f"{rule.origin} may give it")
                explanation.failed(
                    "series",
                    f"The series query of {rule.origin} was not answered: {failure.reason}",
                    "See whether the source can be reached, and whether it takes the query.",
                    rule.series_query,
                )
                return True
        return False

    # The rule is left out

    def _tell_disabled(self, asked: UnservedMetric, explanation: Explanation) -> bool:
        for rule in self._disabled(asked):
            if rule.would_give(asked.metric):
                explanation.failed(
                    "rule",
                    "The rule that would give it can give nothing, and is left out.",
                    "Correct the rule; a server takes it within seconds.",
                    str(rule),
                )
                return True
        return False

    def _disabled(self, asked: UnservedMetric) -> list[DisabledRule]:
        return [
            rule
            for rule in reversed(self.config.disabled)
            if rule.external == asked.external and rule.only_in in {"", asked.team}
        ]

    # The series is not there

    async def _tell_missing_series(self, asked: UnservedMetric, explanation: Explanation) -> bool:
        may = [
            (rule, each)
            for rule in reversed(self._rules(asked))
            for each in candidates(rule, asked.metric)
            if each.series is not None
        ]
        certain = [(rule, each) for rule, each in may if each.certain]
        for rule, each in (certain or may)[:_MOST_LOOKS]:
            try:
                finding = await self._finding(rule, each)
            except GpuscaleError as error:
                explanation.ok("rule", f"{rule.origin} may give it of {each.series}")
                explanation.failed(
                    "series", f"The source does not answer: {error}.", "See the source."
                )
                return True
            if finding is not None:
                word = "gives" if each.certain else "would give"
                explanation.ok("rule", f"{rule.origin} {word} it of {each.series}")
                explanation.failed("series", finding.said, finding.fix, *finding.more)
                return True
        return False

    async def _finding(self, rule: AdapterRule, each: Candidate) -> AbsenceFinding | None:
        """Return why a rule has no such series; None where it only may have had one, and has none."""
        series = each.series or ""
        finding = await self.look.why_none(rule, series)
        if finding is None:
            wait = f"{self.relist_interval_s:g} s"
            return AbsenceFinding(
                f"Series of {series} are there by now; discovery has not seen them yet.",
                f"Wait: it looks every {wait} (--metrics-relist-interval).",
            )
        if finding.is_absent and not each.certain:
            return None
        return finding

    # Nothing names it

    def _tell_unknown(self, asked: UnservedMetric, explanation: Explanation) -> None:
        left_out = tuple(self._left_out(asked))
        names = self._names(asked)
        close = closest(asked.metric, names, cutoff=0.6)
        kind = "an external" if asked.external else "a custom"
        fix = f"Ask for {close}." if close else "Write a rule for it."
        if asked.metric in self._other_names(asked):
            other = "a custom" if asked.external else "an external"
            fix = f"It is {other} metric: ask for that."
        faults = [f"not served: {fault}" for fault in self.team_faults]
        faults += [
            f"left out, and may have given it: {rule}"
            for rule in self._disabled(asked)
            if rule.would_give(asked.metric) is None
        ]
        if asked.team in self.catalogue.over_budget:
            faults.append(f"not served: {self.catalogue.over_budget[asked.team]}")
        explanation.failed(
            "rule",
            f"No rule gives {kind} metric of this name, and no series is there for one that could."
            if not left_out
            else "A series of this name is there, and no rule gives it under this name.",
            fix,
            *left_out,
            *faults,
            f"metrics that are served: {len(names)}"
            + (f", such as {', '.join(sorted(names)[:5])}" if names else ""),
        )

    def _left_out(self, asked: UnservedMetric) -> Iterator[str]:
        for rule in self._rules(asked):
            if all(shape.name != asked.metric for shape in self._shapes(rule)):
                continue
            name = rule.api_name(asked.metric)
            if name is None:
                yield f"{rule.origin} leaves it out: its name does not pass seriesFilters or name.matches"
            else:
                yield f"{rule.origin} calls it {name}"

    def _names(self, asked: UnservedMetric) -> set[str]:
        catalogue = self.catalogue
        if asked.external:
            return {*catalogue.external, *catalogue.external_in.get(asked.team, {})}
        tables = (catalogue.custom, catalogue.custom_in.get(asked.team, {}))
        return {metric for table in tables for _, metric in table}

    def _other_names(self, asked: UnservedMetric) -> set[str]:
        return self._names(
            UnservedMetric(asked.metric, None, asked.team, external=not asked.external)
        )

    def _rules(self, asked: UnservedMetric) -> tuple[AdapterRule, ...]:
        rules = self.config.external_rules if asked.external else self.config.rules
        return tuple(rule for rule in rules if rule.only_in in {"", asked.team})

    def _shapes(self, rule: AdapterRule) -> tuple[SeriesShape, ...]:
        return self.catalogue.shapes.get(rule.series_query, ())


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
