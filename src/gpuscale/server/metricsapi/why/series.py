"""Which series of a name exist, which of them a rule takes, and which are left out: looked up for `?why`.

Label values of other namespaces are looked at and never shown: who may read a metric in one namespace learns
no more of others than how many series there are.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.errors import GpuscaleError
from gpuscale.series import (
    IMPOSSIBLE_SERIES,
    METRIC_NAME,
    OF_SERIES,
    Matcher,
    MatchOp,
    Value,
    Vector,
    VectorSample,
)
from gpuscale.series.promql import parse_matchers
from gpuscale.server.metricsapi.why.text import age_text
from gpuscale.server.rules.config import AdapterRule
from gpuscale.server.sources.asking.single_flight import SharedSource

LONG_AGO_MS = 24 * 3_600_000
"""How far back a series is looked for that has no fresh sample."""
IMPOSSIBLE_FIX = (
    "The exporter or the driver gave a number that is no reading. If it lasts, restart the exporter, and "
    "look at the GPU with its vendor's tool."
)
_MAX_TOLD = 5
"""Impossible values that are told one by one."""
LabelSets = Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class AbsenceFinding:
    """Why a rule takes no series of a name, and what to do."""

    said: str
    fix: str
    more: tuple[str, ...] = ()
    is_absent: bool = False
    """Whether the source has no series of the name at all."""


@dataclass(frozen=True, slots=True)
class SeriesLook:
    """Queries of `?why` that no metric request makes: series of single names, results of partial queries."""

    questions: SharedSource
    now_ms: int
    max_age_ms: int

    async def value(self, promql: str) -> Value:
        """Return what a query gives.

        Raises:
            GpuscaleError: the source did not answer.
        """
        return (await self.questions.query(promql, self.now_ms)).value

    async def rows(self, promql: str) -> Sequence[VectorSample]:
        """Return the rows that a query gives; errors as for `value`."""
        value = await self.value(promql)
        return value.samples if isinstance(value, Vector) else ()

    async def taken(self, rule: AdapterRule, series: str) -> LabelSets:
        """Return the series of a name that a rule takes, as discovery sees them.

        Raises:
            GpuscaleError: the source did not answer.
        """
        return await self._asked(matchers_of(rule, series), self.max_age_ms)

    async def why_none(self, rule: AdapterRule, series: str) -> AbsenceFinding | None:
        """Return why a rule takes no series of a name; None if it takes some.

        Raises:
            GpuscaleError: the source did not answer.
        """
        matchers = matchers_of(rule, series)
        name, *conditions = matchers
        if rule.only_in:
            name, conditions = matchers[0], []
        kept = [*matchers[1:]] if rule.only_in else []
        found = await self._asked([name, *kept], LONG_AGO_MS)
        if not found:
            of_series = Matcher(METRIC_NAME, MatchOp.EQUAL, IMPOSSIBLE_SERIES)
            named = Matcher(OF_SERIES, MatchOp.EQUAL, series)
            if left_out := await self._impossible(_selector([of_series, named, *kept])):
                said = f"{series} has no possible value: {left_out[0]}."
                return AbsenceFinding(said, IMPOSSIBLE_FIX, left_out[1:])
            return _no_such_series(series)
        out = {str(each): _without(found, each) for each in conditions}
        left = [each for each in found if all(_fits(each, matcher) for matcher in conditions)]
        if not left:
            return _left_out(rule, series, found, out)
        if not await self._asked(matchers, self.max_age_ms):
            age = age_text(self.max_age_ms)
            return AbsenceFinding(
                f"{series} has {len(left)} series with a sample within a day, and none within {age}.",
                "See whether the exporter is still scraped, and whether its pods still run.",
            )
        return None

    async def _asked(self, matchers: Sequence[Matcher], age_ms: int) -> LabelSets:
        return await self.questions.series(_selector(matchers), self.now_ms - age_ms)

    async def left_out_of(
        self, promql: str, label: str = "", names: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Return which impossible values a query leaves out, one sentence for each series.

        Nothing where that is not known.

        Args:
            promql: the query.
            label: names an object.
            names: of objects that may be named; others are counted.
        """
        # Imported late, as with a collector it isn't needed.
        from gpuscale.server.sources.prometheus.guards import impossible_query

        try:
            asked = impossible_query(promql)
        except GpuscaleError:
            return ()
        return () if asked is None else await self._impossible(asked, label, names)

    async def _impossible(
        self, promql: str, label: str = "", names: Collection[str] = ()
    ) -> tuple[str, ...]:
        from gpuscale.signals import impossible

        try:
            samples = await self.rows(promql)
        except GpuscaleError:
            return ()
        said: list[str] = []
        for sample in samples:
            # A Prometheus only tells that a value was outside its range at some time in the last
            # minutes.
            reason = impossible(sample.labels.get(OF_SERIES, ""), sample.value)
            name = sample.labels.get(label, "")
            if reason is not None:
                whose = f" of {name}" if name in names else ""
                said.append(f"a series{whose} is left out: {reason}")
        more = len(said) - _MAX_TOLD
        return (*said[:_MAX_TOLD], *((f"and {more} more are left out",) if more > 0 else ()))


def _selector(matchers: Sequence[Matcher]) -> str:
    return f"{{{','.join(map(str, matchers))}}}"


def matchers_of(rule: AdapterRule, series: str) -> list[Matcher]:
    """Return the matchers of a rule's series query for one name only, that of the name first."""
    others = [each for each in parse_matchers(rule.series_query) if each.name != METRIC_NAME]
    return [Matcher(METRIC_NAME, MatchOp.EQUAL, series), *others]


def _fits(labels: Mapping[str, str], matcher: Matcher) -> bool:
    return matcher.predicate()(labels.get(matcher.name, ""))


def _without(found: LabelSets, matcher: Matcher) -> int:
    return sum(not _fits(labels, matcher) for labels in found)


def _no_such_series(series: str) -> AbsenceFinding:
    return AbsenceFinding(
        f"The source has no series {series}, not within a day either.",
        "See whether the exporter is scraped, and whether it serves the metric: GPU fields have to "
        "stand in its counters file.",
        is_absent=True,
    )


def _left_out(
    rule: AdapterRule, series: str, found: LabelSets, out: Mapping[str, int]
) -> AbsenceFinding:
    explanation = (
        f"{text} leaves out {count} of {len(found)}" for text, count in out.items() if count
    )
    return AbsenceFinding(
        f"{series} has {len(found)} series, and the series query takes none of them.",
        f"Correct the seriesQuery of {rule.origin}, or the labels of the series.",
        (*explanation, f"they have the labels {', '.join(sorted(label_names(found)))}"),
    )


def label_names(found: LabelSets) -> set[str]:
    """Return the label names of series, without `__name__`."""
    return {name for labels in found for name in labels} - {METRIC_NAME}


def why_no_match(
    found: LabelSets, label: str, wanted: Collection[str], what: str, others: Collection[str] = ()
) -> AbsenceFinding | None:
    """Return why no series has one of these values in a label; None where one has.

    Args:
        found: the series.
        label: the rule's.
        wanted: values that are no secret: those that were asked for.
        what: the resource that the label names.
        others: label names that are known to mean something else.
    """
    if any(labels.get(label) in wanted for labels in found):
        return None
    shown = f'{label}="{next(iter(wanted))}"' if len(wanted) == 1 else f"any of them in {label}"
    elsewhere = {
        name: sum(labels.get(name) in wanted for labels in found)
        for name in sorted(label_names(found) - {label, *others})
    }
    there = {name: count for name, count in elsewhere.items() if count}
    count = sum(bool(labels.get(label)) for labels in found)
    more = [f"{count} of {len(found)} have another value there"]
    if not count:
        more = [f"none has the label {label}; they have {', '.join(sorted(label_names(found)))}"]
    more += [f"{times} of {len(found)} have it in {name}" for name, times in there.items()]
    exported = [f"exported_{each}" for each in (label, *others)]
    kept = [each for each in exported if each in label_names(found)]
    fix = _label_fix(label, what, there, kept)
    return AbsenceFinding(f"None of {len(found)} series has {shown}.", fix, tuple(more))


def _label_fix(label: str, what: str, there: Mapping[str, int], exported: Sequence[str]) -> str:
    if f"exported_{label}" in there:
        return (
            f"Map {' and '.join(exported)} in resources.overrides, or scrape the exporter with "
            "honorLabels: true, which keeps the labels it gives."
        )
    if there:
        return f"Map {next(iter(there))} to {what} in resources.overrides of the rule."
    return (
        f"See whether the {what} has such series at all: an exporter that does not know whose a GPU "
        "is leaves its labels empty."
    )
