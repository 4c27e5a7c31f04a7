"""Rule groups, evaluated in order, so that each rule sees the results of those before it.

A failed recording rule marks its series stale, where Prometheus leaves them as they were for five minutes: an
old value must not look current. A failed alerting rule leaves its alerts as they are.

Source: prometheus rules/group.go (v3.0.0).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpuscale.base.errors import GpuscaleError
from gpuscale.series.promql.evaluate import Samples, instant
from gpuscale.series.promql.parse import metric_names
from gpuscale.series.rules.alerting import AlertingRule
from gpuscale.series.rules.rule import (
    RecordingRule,
    Results,
    Rule,
    RuleFailure,
    RuleQuestion,
    RuleResult,
    RuleRun,
    RuleStatus,
)
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Value

AnyRule = RecordingRule | AlertingRule


@dataclass(slots=True, kw_only=True)
class RuleGroup:
    """A group's rules, and the time of its last evaluation."""

    name: str
    file: str
    interval_ms: int | None
    """None where it has none of its own: it is due at every call, and the caller keeps the pace."""
    offset_ms: int
    """How long before the time of the evaluation its queries look."""
    limit: int
    """Series or alerts that one rule may give; 0 for any number."""
    rules: tuple[AnyRule, ...]
    last_ms: int | None = None
    """When it was evaluated last; None before the first time."""
    evaluation_s: float = 0.0
    """How long that took; set by the evaluator."""
    external_url: str = ""

    @property
    def key(self) -> str:
        """Return the group's name in metrics."""
        return f"{self.file};{self.name}"

    def is_due(self, now_ms: int) -> bool:
        return self.last_ms is None or now_ms - self.last_ms >= (self.interval_ms or 0)

    def phase_ms(self, interval_ms: int) -> int:
        """Return the group's offset within its interval, which spreads groups over time."""
        digest = hashlib.blake2b(self.key.encode(errors="replace"), digest_size=8).digest()
        return int.from_bytes(digest) % interval_ms

    def run(self, store: SeriesStore, now_ms: int) -> RuleRun:
        """Ask for the rules' values one by one, and append the results to the store."""
        self.last_ms = now_ms
        at_ms = now_ms - self.offset_ms
        samples = 0
        failures: list[RuleFailure] = []
        for rule in self.rules:
            value = yield RuleQuestion(rule.query, at_ms, rule.status)
            rule.status.evaluated_ms = now_ms
            taken, reason = self._record(rule, value, store, at_ms, now_ms)
            samples += taken
            rule.status.health = "err" if reason else "ok"
            rule.status.last_error = reason
            rule.status.evaluations += 1
            if reason:
                rule.status.failures += 1
                rule.status.latest_failure = reason
                failures.append(RuleFailure(self.name, rule.name, reason))
        return RuleResult(samples, tuple(failures))

    def take_over(self, before: "RuleGroup") -> None:
        """Take over the series, alerts and status of another group's rules with equal names and labels."""
        self.last_ms, self.evaluation_s = before.last_ms, before.evaluation_s
        known: dict[object, list[AnyRule]] = {}
        for rule in before.rules:
            known.setdefault(_identity(rule), []).append(rule)
        for rule in self.rules:
            same = known.get(_identity(rule))
            if same:
                old = same.pop(0)
                rule.written, old.written = old.written, {}
                rule.group, rule.status = old.group, old.status
                if isinstance(rule, AlertingRule) and isinstance(old, AlertingRule):
                    rule.active, rule.is_restored = old.active, old.is_restored

    def end(self, store: SeriesStore, now_ms: int) -> None:
        """Mark the group's recorded series as stale, as it won't be evaluated again."""
        for rule in self.rules:
            for series in rule.written.values():
                store.mark_stale(series, now_ms)
            rule.written = {}

    def _record(
        self,
        rule: AnyRule,
        value: Value | GpuscaleError,
        store: SeriesStore,
        at_ms: int,
        now_ms: int,
    ) -> tuple[int, str]:
        """Return how many samples the store took, and the rule's error if it failed."""
        try:
            if isinstance(rule, RecordingRule):
                results = rule.results(value, self.limit)
            else:
                results = rule.results(value, self.limit, now_ms, self.external_url)
        except GpuscaleError as error:
            if isinstance(rule, RecordingRule):
                _write(rule, {}, store, at_ms, now_ms)
            return 0, str(error)
        taken = _write(rule, results, store, at_ms, now_ms)
        if taken < len(results):
            return taken, f"the store took only {taken} of {len(results)} samples"
        return taken, ""


@dataclass(frozen=True, slots=True)
class RuleGroups:
    """The groups of some rule files."""

    groups: tuple[RuleGroup, ...] = ()

    def fresh(self) -> "RuleGroups":
        """Return new copies of the groups, as before their first evaluation."""
        return RuleGroups(
            tuple(
                replace(group, rules=tuple(map(_fresh, group.rules)), last_ms=None)
                for group in self.groups
            )
        )

    def evaluate(
        self, store: SeriesStore, now_ms: int, samples: Samples | None = None
    ) -> RuleResult:
        """Evaluate the groups that are due, and append their results at `now_ms`.

        A series that a rule gave last time and does not give now is marked stale. A rule that fails leaves
        the others alone.

        Args:
            store: where results go.
            now_ms: the time.
            samples: what the queries are evaluated on; None is the store.
        """
        run = self.run(store, now_ms)
        try:
            question = next(run)
            while True:
                question = run.send(_answer(samples or store, question))
        except StopIteration as ended:
            result: RuleResult = ended.value
            return result

    def run(self, store: SeriesStore, now_ms: int) -> RuleRun:
        """Evaluate as `evaluate` does, but let the caller answer the queries."""
        samples = 0
        failures: list[RuleFailure] = []
        for group in self.groups:
            if group.is_due(now_ms):
                result = yield from group.run(store, now_ms)
                samples += result.samples
                failures += result.failures
        return RuleResult(samples, tuple(failures))

    def needed_metric_names(self) -> frozenset[str] | None:
        """Return the metric names that the rules read; None if a rule does not name them."""
        names: set[str] = set()
        for rule in self.rules():
            read = metric_names(rule.query)
            if read is None:
                return None
            names |= read
        return frozenset(names)

    def rules(self) -> tuple[AnyRule, ...]:
        return tuple(rule for group in self.groups for rule in group.rules)


def joined(parts: Iterable[RuleGroups]) -> RuleGroups:
    """Return several files' groups together."""
    return RuleGroups(tuple(group for part in parts for group in part.groups))


def _answer(samples: Samples, question: RuleQuestion) -> Value | GpuscaleError:
    try:
        return instant(samples, question.query, question.at_ms)
    except GpuscaleError as error:
        return error


def _fresh(rule: AnyRule) -> AnyRule:
    if isinstance(rule, AlertingRule):
        return replace(rule, status=RuleStatus(), written={}, group=None, active={})
    return replace(rule, status=RuleStatus(), written={}, group=None)


def _identity(rule: AnyRule) -> object:
    return type(rule), rule.name, tuple(sorted(rule.labels.items()))


def _write(rule: Rule, results: Results, store: SeriesStore, at_ms: int, now_ms: int) -> int:
    refs = {key: rule.written.get(key) or store.ref(labels) for key, (labels, _) in results.items()}
    before, rule.written = rule.written, refs
    if rule.group is None:
        rule.group = store.group_of(refs.values())
        kept = set(refs.values())
        for series in rule.group.members:
            if series not in kept:  # restored, but ended meanwhile
                store.mark_stale(series, at_ms)
    values = [number for _, number in results.values()]
    taken = store.append_many(list(refs.values()), values, at_ms, now_ms, rule.group)
    for key, series in before.items():
        if key not in refs:
            store.mark_stale(series, at_ms)
    return taken
